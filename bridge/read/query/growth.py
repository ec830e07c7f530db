"""How large tables were after each of the latest commits, by the commit log alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bridge.lake.log import SNAPSHOT_EVERY, Log, Snapshot
from bridge.lake.records import CommitRecord, TableState
from bridge.lake.storage.parallel import parallel_map


@dataclass(frozen=True, slots=True)
class Size:
    """Rows and bytes after a commit: of one table, or of all tables of a pipeline that are no views."""

    commit: int
    at: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class LatestCommits:
    """The newest records of a log, oldest first. The first has a snapshot, or is the first of all."""

    records: tuple[CommitRecord, ...]
    start: Snapshot
    """The lake after the first record if that has a snapshot, else before it."""
    is_whole: bool
    """Whether no record of the log is older."""

    @classmethod
    def of(cls, log: Log, head: int, back: int) -> LatestCommits:
        """The last `back` records up to `head`, as far as the log has them, and up to 100 more."""
        first = log.beginning().first
        start = max(first, head - back - (head - back) % SNAPSHOT_EVERY)
        records = tuple(filter(None, parallel_map(log.storage, log.record, range(start, head + 1))))
        return cls(records, log.snapshot(start) if start % SNAPSHOT_EVERY == 0 else Snapshot(), start == first)

    def sizes(self, stream: str | None = None) -> Iterator[Size]:
        """Yield the size after each commit that is no fence; of one table, after each that changed it.

        The first of all is that after the record with which they begin, if that has a snapshot of the table.
        """
        snapshot, measured = self.start, dict[str, tuple[TableState, int, int]]()
        for place, record in enumerate(self.records):
            snapshot = snapshot.after(record) if record.n > snapshot.n else snapshot
            tables = (
                snapshot.stream_tables if stream is None else {s: t for s, t in snapshot.tables.items() if s == stream}
            )
            is_changed = place == 0 or stream is None or stream in [change.stream for change in record.tables]
            if record.kind != "fence" and is_changed and (tables or stream is None):
                yield Size(record.n, record.at, *_total(tables.items(), measured))


def _total(
    tables: Iterable[tuple[str, TableState]], measured: dict[str, tuple[TableState, int, int]]
) -> tuple[int, int]:
    """Rows and bytes of all tables; one that is the same object as before is not measured again."""
    rows = size = 0
    for name, table in tables:
        if name not in measured or measured[name][0] is not table:
            measured[name] = table, table.rows, sum(file.size for file in table.files.values())
        rows, size = rows + measured[name][1], size + measured[name][2]
    return rows, size
