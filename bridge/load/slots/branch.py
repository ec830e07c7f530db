"""Which server wrote a position of PostgreSQL's log, and whether the server of now still has that part of the log.

A restore or an asynchronous failover takes a server back: positions beyond that point are given out again, for other
changes. A promoted standby begins a new timeline, so its history says up to where the two logs are one. A restore of
files alone begins none; then the end of the log tells while it is short, and afterwards the slot, which stands before
where the server had saved it.
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.errors import SlotError
from bridge.load.slots.database import Database, SlotFacts, lsn, parameters_of, text
from bridge.load.tap.slot_source import SlotSource


@dataclass(frozen=True, slots=True)
class Branch:
    """A server's log. `timelines`: each with the position at which it begins, the oldest first, up to that of now."""

    system: str
    """The cluster's identifier, the same on its standbys and in its backups."""
    timelines: tuple[tuple[int, int], ...]

    def common_end(self, other: Branch) -> int | None:
        """Up to where two logs are one; None: all of the shorter one is in the longer one."""
        if self.system != other.system:
            return 0
        pairs = list(zip(self.timelines, other.timelines, strict=False))
        same = next((n for n, (mine, its) in enumerate(pairs) if mine != its), len(pairs))
        return min((line[same][1] for line in (self.timelines, other.timelines) if len(line) > same), default=None)


@dataclass(frozen=True, slots=True)
class Server:
    """A run's note on the server. `branch`: None if the role may not ask for it."""

    branch: Branch | None
    confirmed: int
    """The position of the slot."""
    tip: int
    """The end of the server's log."""
    durable: int = 0
    """The slot was here when the server last saved it: no crash takes it back beyond this."""

    @classmethod
    def of(cls, branch: Branch | None, database: Database, slot: SlotFacts, before: Server | None) -> Server:
        """The server of now. A checkpoint saves all slots, so one that began later has saved what was noted before."""
        durable, confirmed = before.durable if before else 0, slot.confirmed_lsn or 0
        if before and database.checkpoint() > before.tip:
            durable = max(durable, before.confirmed)
        return cls(branch, confirmed, database.tip(), min(durable, confirmed))


def branch_of(source: SlotSource) -> Branch | None:
    """The log of the server that a tap's slot is on, asked as the tap asks; None if the server does not tell."""
    import psycopg

    try:
        with psycopg.connect(autocommit=True, **parameters_of(source), replication="database") as connection:
            row = connection.execute("IDENTIFY_SYSTEM").fetchone()
            if row is None:
                return None
            system, timeline = str(row[0]), int(row[1])
            history = connection.execute(f"TIMELINE_HISTORY {timeline}").fetchone() if timeline > 1 else None
    except psycopg.Error:
        return None
    lines = history[1] if history else ""
    return Branch(system, timelines(timeline, lines.decode() if isinstance(lines, bytes) else str(lines)))


def timelines(current: int, history: str) -> tuple[tuple[int, int], ...]:
    """The timelines of a history file, which has for each of the older ones where it was left."""
    left = [line.split() for line in history.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    begins = [0, *(lsn(place) or 0 for _, place, *_ in left)]
    return tuple(zip([*(int(number) for number, *_ in left), current], begins, strict=True))


def set_back(stream: str, position: int, noted: Server | None, now: Server) -> SlotError | None:
    """Why a position of a stream is beyond what the server of now shares with the noted one; None if it is not."""
    why, limit = "", now.tip
    end = noted.branch.common_end(now.branch) if noted and noted.branch and now.branch else None
    if end == 0:
        why, limit = "it is another server than the one that the bookmark is from", 0
    elif position > now.tip:
        why = "its log ends before the bookmark"
    elif end is not None and position > end:
        why, limit = "its timeline left that of the bookmark before the bookmark", end
    elif noted and now.confirmed < noted.durable:
        why, limit = "the replication slot is an older one, or was made again before the bookmark", now.confirmed
    if not why:
        return None
    message = f"the database was set back by a restore or a failover: {why}"
    return SlotError(message, stream=stream, position=text(position), server=text(limit))
