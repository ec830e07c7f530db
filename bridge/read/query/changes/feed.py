"""The changes of a pipeline's tables since a commit, commit by commit, up to the last one that a reader may see.

A commit that adds files adds their rows. Of the files that an upsert wrote again, `diff.py` finds the rows that differ.
A commit that only moves rows between files changes nothing. Commits that a later one took back are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bridge.errors import CommitExpired
from bridge.lake.log import Log, Snapshot
from bridge.lake.records import CommitRecord, TableState
from bridge.lake.storage.parallel import parallel_map
from bridge.protocol.schema.json_schema import VERSION_COLUMN
from bridge.read.query.changes.change import CommitChange, Position
from bridge.read.query.changes.json_text import not_finite
from bridge.read.query.changes.parts import FilePart, Part, in_order
from bridge.read.query.files import CommitFiles
from bridge.read.query.snapshot import TablesAt
from bridge.settings.sql.view import read_view

_ANEW = "the lake was made anew, or restored from a backup"


class WholeTable(Exception):
    """Only the whole table is right; the text says why."""


@dataclass(frozen=True, slots=True)
class FeedStep:
    """The change that a commit made to a table. The parts are read once, in their order."""

    at: Position
    parts: Iterator[Part]
    merges: bool = False
    """Whether its rows are those that differ: which they are depends on the columns."""


class _RememberedLog(Log):
    """A log that reads each record once: records never change."""

    def __init__(self, log: Log) -> None:
        super().__init__(log.storage, log.pipeline)
        self._records: dict[int, CommitRecord] = {}

    def record(self, n: int) -> CommitRecord | None:
        if n not in self._records and (record := super().record(n)) is not None:
            self._records[n] = record
        return self._records.get(n)


class ChangeFeed:
    """The tables of one pipeline at its last visible commit, or at an older one, and the way there from any earlier."""

    def __init__(self, log: Log, at: int | None = None) -> None:
        """Raises `LakeError` if the bucket cannot be read, and what `TablesAt.of` raises of the commit `at`."""
        self._log = _RememberedLog(log)
        self._now = TablesAt.of(self._log, at)
        self._views = {self._now.snapshot.n: self._now.snapshot}
        self._columns: dict[str, pa.Schema] = {}

    @property
    def streams(self) -> list[str]:
        """The tables and views, sorted; not those that a rollback took back."""
        return sorted(name for name, table in self._now.snapshot.tables.items() if table.schema is not None)

    @property
    def emptied(self) -> list[str]:
        """The tables and views that a rollback took back, sorted: they have no row any more."""
        return sorted(self._now.snapshot.tables.keys() - set(self.streams))

    @property
    def head(self) -> Position:
        """The commit up to which changes are told: the last visible one, unless told otherwise."""
        return self.position(self._now.snapshot.n)

    def position(self, n: int) -> Position:
        """Commit `n`; 0 is before the first. Raises `CommitExpired` if the log does not have it."""
        return Position(n, self._existing(n).nonce if n else "")

    def table(self, stream: str, n: int) -> TableState:
        """A table after commit `n`."""
        return self._view(n).tables[stream]

    def time(self, n: int) -> str:
        """When commit `n` was made: ISO 8601 in UTC."""
        return self._existing(n).at

    def columns(self, stream: str) -> pa.Schema:
        """The table's present columns, without the row's version, which is that of its message.

        After a rollback that removed the table: the columns it last had; none if no record names them any more.
        """
        if stream not in self._columns:
            table = self._now.snapshot.tables[stream]
            fields = self._now.columns(table if table.schema else self._last(stream))
            self._columns[stream] = pa.schema([field for field in fields if field.name != VERSION_COLUMN])
        return self._columns[stream]

    def _last(self, stream: str) -> TableState:
        """A table that a rollback took back, with its last columns."""
        none = TableState("", None)
        records = self._log.history(self._now.snapshot.n, fences=False)
        changes = (change for record in records for change in record.tables if change.stream == stream)
        return next((none.after(change) for change in changes if change.schema), none)

    def keys(self, stream: str) -> list[str] | None:
        """The columns by which each row of the table is there once; none if there are none, or it is not certain.

        None: an older version loaded the table, and did not note it.
        """
        table = self._now.snapshot.tables[stream]
        if table.view:
            keys = list(read_view(stream, table.view).keys)
            return [] if self._has_null(table, keys) else keys
        return None if table.upserts is None else list(table.key)

    def _has_null(self, table: TableState, keys: Sequence[str]) -> bool:
        """Whether a view has a group whose key is null, or becomes null in JSON."""
        fields = [field for field in self._now.columns(table) if field.name in keys]
        files = CommitFiles(self._log, self._now.snapshot.n, table)
        parts = (FilePart(files, name, fields) for name in table.files)
        tables = (rows for part in parts for rows in part.tables())
        return any(not_finite(rows) or any(column.null_count for column in rows.columns) for rows in tables)

    def whole(self, stream: str, at: Position, fields: Sequence[pa.Field]) -> FeedStep:
        """All rows of a table after a commit, with these columns.

        Raises `WholeTable` or `CommitExpired` if that cannot be had any more.
        """
        if self.position(at.commit) != at:
            raise WholeTable(_ANEW)
        table = self._view(at.commit).tables.get(stream, TableState("", None))
        files = CommitFiles(self._log, at.commit, table)
        return FeedStep(at, iter([FilePart(files, name, fields) for name in in_order(table.files)]))

    def since(self, stream: str, at: Position, keys: Sequence[str], fields: Sequence[pa.Field]) -> Iterator[FeedStep]:
        """Yield what each commit after `at` changed in these columns; `keys` are those that tell the rows apart.

        Raises `WholeTable` before the first, or `CommitExpired`, maybe in the middle, if only the whole table is right.
        """
        for change in self.unreplaced_changes(stream, at, keys):
            yield FeedStep(change.at, change.rows(self._log, fields, keys).parts(), change.merges(keys))

    def unreplaced_changes(self, stream: str, at: Position, keys: Sequence[str]) -> list[CommitChange]:
        """The changes since a commit, none of which replaced the table. Raises as `since`.

        No file is read: those before a replacement may have values that the present types cannot hold.
        """
        changes = list(self.changes(stream, at))
        for change in changes:
            if why := change.replaces(keys):
                raise WholeTable(f"{why} by commit {change.at.commit}")
        return changes

    def changes(self, stream: str, at: Position) -> Iterator[CommitChange]:
        """Yield the changes of a table since a commit that still count, those that replace all of it, too.

        Raises `WholeTable` if that commit is of another log, `CommitExpired` if a record is not kept any more.
        """
        if at.commit > self._now.snapshot.n or self.position(at.commit) != at:
            raise WholeTable(_ANEW)
        records = parallel_map(self._log.storage, self._existing, range(at.commit + 1, self._now.snapshot.n + 1))
        counting, table = _counting(records, at.commit), self._view(at.commit).tables.get(stream)
        for record in records:
            for change in (change for change in record.tables if change.stream == stream):
                before = table or TableState(change.folder, None)
                table = before.after(change)
                if record.n in counting and record.kind != "compact":
                    yield CommitChange.of(record, change, before)

    def _view(self, n: int) -> Snapshot:
        """The lake after commit `n`, which most streams have in common."""
        if n not in self._views:
            self._views[n] = self._log.snapshot(n)
        return self._views[n]

    def _existing(self, n: int) -> CommitRecord:
        record = self._log.record(n)
        if record is None:
            raise CommitExpired("this commit is not in the log any more", commit=n)
        return record


def _counting(records: Sequence[CommitRecord], start: int) -> set[int]:
    """The commits after `start` of which the last one's tables are made: a rollback goes back to those of another."""
    chains: dict[int, tuple[Any, int] | None] = {start: None}
    for record in records:
        back = record.to if record.voids is None else record.voids - 1
        is_inside = back is not None and back >= start
        chains[record.n] = chains[back] if is_inside and back is not None else (chains[record.n - 1], record.n)
    numbers, chain = set[int](), chains[records[-1].n] if records else None
    while chain:
        chain, n = chain
        numbers.add(n)
    return numbers
