"""PostgreSQL's replication slot belongs to the commit, not to the tap: LOG_BASED replication that loses no row.

Enters: the tap's settings (which slot, which database), the lake's commits. Leaves: a copy of the slot for each process
of the tap, named in the settings that it is given; the original, advanced behind the commits; a note in the bucket,
`.bridge/<pipeline>/slot.json`, of how far each stream is safe.

After a crash: the original stands where the last commit that was noted covers every stream, so the next run gets all
later changes again. Copies that a dead run left are dropped by the next run of the pipeline. The note is written before
the original moves: a slot that is ahead of its note was moved by somebody else, and the run is refused.

Read `source.py` first (which slot a tap reads), then `database.py` (SQL, nothing else), then `guard.py` (one run).
"""

from bridge.slots.database import Database, SlotFacts, connect
from bridge.tap.slot_source import SlotSource, slot_source

__all__ = ["Database", "SlotFacts", "SlotSource", "connect", "slot_source"]
