"""How many rows each commit added and removed, from the commit log alone: no data file is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from bridge.lake.log import Log, Snapshot
from bridge.lake.records import CommitRecord, TableChange
from bridge.protocol.singer.state_edits import StateDifference, differences


@dataclass(frozen=True, slots=True)
class TableStep:
    """The effect of one commit on one table. `removed` is None if the log does not reach back far enough."""

    stream: str
    folder: str
    mode: str
    """`append` or `replace`."""
    added: int
    """New rows; for an upsert, inserted and updated ones."""
    removed: int | None
    """Rows that were deleted, or that an update replaced."""
    rows: int
    """Rows of the table after this commit."""
    files_added: int
    files_removed: int


@dataclass(frozen=True, slots=True)
class CommitStep:
    """One commit: what it is, who made it, what it changed."""

    commit: int
    kind: str
    at: str
    run: str
    reason: str
    tables: tuple[TableStep, ...]
    changes: tuple[StateDifference, ...]
    """How bookmarks changed; empty if the log no longer has the commit before."""
    taken_back_by: int | None = None
    """The commit that took this one back, as its files were lost before they were visible."""

    @property
    def added(self) -> int:
        return sum(table.added for table in self.tables)

    @property
    def removed(self) -> int | None:
        counts = [table.removed for table in self.tables]
        return None if None in counts else sum(count or 0 for count in counts)


def commit_steps(log: Log, head: int) -> Iterator[CommitStep]:
    """Yield the commits up to `head`, newest first, as far back as the log goes. Fences change nothing: left out.

    Reads the log a page at a time, so the newest few of a long history cost a few reads.
    """
    records, voids = log.history(head, fences=False), dict[int, int]()
    while page := list(islice(records, 20)):
        voids |= {record.voids: record.n for record in page if record.voids is not None}
        steps = list(_page(log, page[::-1], voids))
        yield from reversed(steps)


def commit_step(log: Log, head: int, n: int) -> CommitStep | None:
    """Commit `n`, None if there is none or it is a fence. Raises `LakeError` if the log no longer has it."""
    record = log.record(n) if 0 < n <= head else None
    if record is None or record.kind == "fence":
        if 0 < n < log.beginning().first:
            log.snapshot(n)  # raises: it says where the log begins
        return None
    following = (log.record(number) for number in range(n + 1, head + 1))
    # Only the last commit is ever taken back, so the first one after it that is no fence says it.
    after = next((one for one in following if one is None or one.kind != "fence"), None)
    return next(_page(log, [record], {n: after.n} if after and after.voids == n else {}))


def _page(log: Log, records: list[CommitRecord], voids: dict[int, int]) -> Iterator[CommitStep]:
    """Yield what records, oldest first, did; the view before the first of them is read once."""
    first = records[0].n
    before = None if 1 < first <= log.beginning().first else log.snapshot(first - 1)
    for record in records:
        after = before.after(record) if before else log.snapshot(record.n)
        yield _step(record, before, after, voids.get(record.n))
        before = after


def _step(record: CommitRecord, before: Snapshot | None, after: Snapshot, taken_back_by: int | None) -> CommitStep:
    tables = tuple(_table(change, before, after) for change in record.tables)
    changes = tuple(differences(before.state, record.state)) if before else ()
    facts = (record.kind, record.at, record.run, record.reason or "")
    return CommitStep(record.n, *facts, tables, changes, taken_back_by)


def _table(change: TableChange, before: Snapshot | None, after: Snapshot) -> TableStep:
    stream, added = change.stream, change.new_rows
    rows = after.tables[stream].rows
    old = before.tables.get(stream) if before else None
    removed = (old.rows if old else 0) + added - rows if before else None
    files = len(change.adds), len(change.removes)
    return TableStep(stream, change.folder, change.mode, added, removed, rows, *files)
