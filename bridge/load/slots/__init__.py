"""PostgreSQL's replication slot belongs to the commit, not to the tap: LOG_BASED replication that loses no row.

Enters: the tap's settings (which slot, which database), the lake's commits. Leaves: a copy of the slot for each process
of the tap, named in the settings that it gets; the original, advanced behind the commits; a note in the bucket,
`.bridge/<pipeline>/slot.json`, of how far each stream is safe.

`binlog.py` notes which server the bookmarks in the binary log of MySQL and MariaDB are from,
`.bridge/<pipeline>/binlog.json`; `row_counts.py` asks how many rows tables have: both through `tap/database/`.

After a crash: the original stands where the last noted commit covers every stream, so the next run gets all later
changes again. The next run also drops the copies that a dead run left. The note is written before the original moves,
so if a slot is ahead of its note, somebody else moved it, and the run is refused.

Read `tap/slot_source.py` first (which slot a tap reads), then `database.py` (only SQL), then `guard.py` (a run)
and `branch.py` (a server that was set back).
"""

from bridge.load.slots.database import Database, SlotFacts, connect
from bridge.load.tap.slot_source import SlotSource, slot_source

__all__ = ["Database", "SlotFacts", "SlotSource", "connect", "slot_source"]
