"""Changes that commits made to a table, in parts for tasks: planned from the log alone, read and compared on executors.

New files are read as they are. Which rows an upsert changed is found by one task for each commit, which reads the files
that it wrote and those that it replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from bridge.errors import CommitExpired, DataError, LakeError, SettingsError
from bridge.lake.times import read_time
from bridge.protocol.decode.casting import refit
from bridge.protocol.schema.json_schema import TIMESTAMP
from bridge.read.query.changes.change import INSERT, CommitChange, Position
from bridge.read.query.changes.feed import ChangeFeed, WholeTable
from bridge.read.query.changes.parts import in_order
from bridge.read.spark_source.columns import record_batches
from bridge.read.spark_source.place import PipelinePlace, explained
from bridge.read.spark_source.table import FileSlices, bundles, packed

COMMIT, CHANGE, TIME = "_commit", "_change", "_commit_at"
FACTS = (COMMIT, CHANGE, TIME)
TRUNCATE = "truncate"
"""The change that removes all rows before it; those that the table has after the commit follow."""
_FACTS = [pa.field(COMMIT, pa.int64()), pa.field(CHANGE, pa.string()), pa.field(TIME, TIMESTAMP)]


@dataclass(frozen=True, slots=True)
class ChangesOf:
    """Which table's changes are read, and how its rows look."""

    place: PipelinePlace
    stream: str
    fields: tuple[pa.Field, ...]
    keys: tuple[str, ...]
    names: tuple[str, ...]
    """The columns in Spark's order, with those that say what became of a row."""
    partition_bytes: int

    def batches(self, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
        """Read some pieces. Raises `LakeError` if one has values that the columns' types cannot hold."""
        with explained(self.place.environment):
            for piece in pieces:
                try:
                    yield from self._batches(piece)
                except DataError as error:
                    hint = (
                        "a later commit replaced the table, with other types: start again behind it, with a new query "
                        "and a new checkpoint, or with `from` or `startingCommit` at that commit"
                    )
                    raise LakeError(error.message, hint=hint, commit=piece.commit) from error

    def _batches(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        fields = {field.name: field for field in (*self.fields, *_FACTS)}
        for change, rows in piece.rows(self):
            facts = (piece.commit, change, read_time(piece.time))
            values = [pa.repeat(pa.scalar(one, two.type), len(rows)) for one, two in zip(facts, _FACTS, strict=True)]
            whole = refit(rows, self.fields)
            for field, value in zip(_FACTS, values, strict=True):
                whole = whole.append_column(field, value)
            table = whole.select(self.names).cast(pa.schema([fields[name] for name in self.names]))
            yield from record_batches(table)


@dataclass(frozen=True, slots=True)
class AddedRows:
    """Rows of files, each of them new."""

    commit: int
    time: str
    slices: FileSlices

    @property
    def size(self) -> int:
        return sum(one.size for one in self.slices.slices)

    def rows(self, of: ChangesOf) -> Iterator[tuple[str, pa.Table]]:
        """Yield them, and what became of them."""
        return ((INSERT, table) for table in self.slices.tables(of.place, of.fields))


@dataclass(frozen=True, slots=True)
class MergedRows:
    """Rows of a commit that changed rows by their key."""

    change: CommitChange

    @property
    def commit(self) -> int:
        return self.change.at.commit

    @property
    def time(self) -> str:
        return self.change.time

    @property
    def size(self) -> int:
        return sum(file.size for file in (*self.change.old.files.values(), *self.change.table.files.values()))

    def rows(self, of: ChangesOf) -> Iterator[tuple[str, pa.Table]]:
        """Yield them, and what became of them."""
        return self.change.rows(of.place.log(), of.fields, of.keys).labelled()


@dataclass(frozen=True, slots=True)
class Emptied:
    """All rows went: one row that says so, whose columns are null."""

    commit: int
    time: str
    size: int = 0

    def rows(self, of: ChangesOf) -> Iterator[tuple[str, pa.Table]]:
        """Yield it, and what became of it."""
        yield TRUNCATE, refit(pa.table({"": pa.nulls(1)}), of.fields)


Piece = AddedRows | MergedRows | Emptied


class ChangePart(InputPartition):  # type: ignore[misc]
    """A task's share of the changes: pieces in the order of their commits."""

    value: tuple[Piece, ...] | None


def changes_since(of: ChangesOf, feed: ChangeFeed, start: Position) -> list[ChangePart]:
    """The changes that commits after `start` made, up to the feed's.

    Raises `LakeError` if what a reader has up to `start` never was, `CommitExpired` if it is not kept any more.
    """
    pieces = list[Piece]()
    try:
        for change in feed.changes(of.stream, start):
            pieces += _pieces(of, feed, change)
    except WholeTable as error:
        hint = "start again: a new query with a new checkpoint, or the table as a whole"
        raise LakeError(str(error), hint=hint, commit=start.commit) from error
    except CommitExpired as error:
        error.hint = "`retention.commits` says for how long; read the table as a whole, and its changes from there"
        raise
    return _parts(pieces, of.partition_bytes)


def whole_table(of: ChangesOf, feed: ChangeFeed) -> list[ChangePart]:
    """All rows at the feed's commit, as rows that are new."""
    return _parts(_whole(of, feed, feed.head.commit), of.partition_bytes)


def _pieces(of: ChangesOf, feed: ChangeFeed, change: CommitChange) -> list[Piece]:
    n = change.at.commit
    if change.is_rolled_back:
        hint = f"start again: a new query with a new checkpoint; the changes behind it begin at commit {n + 1}"
        raise LakeError("rows that were read are in the table no more: it was rolled back", hint=hint, commit=n)
    if change.old.schema is not None and change.replaces(of.keys):
        return [Emptied(n, change.time), *_whole(of, feed, n)]
    if change.merges(of.keys):
        return [MergedRows(change)]
    return [AddedRows(n, change.time, one) for one in bundles(n, change.table, change.new_files, of.partition_bytes)]


def _whole(of: ChangesOf, feed: ChangeFeed, n: int) -> list[Piece]:
    table, time = feed.table(of.stream, n), feed.time(n)
    return [AddedRows(n, time, one) for one in bundles(n, table, in_order(table.files), of.partition_bytes)]


def _parts(pieces: Sequence[Piece], size: int) -> list[ChangePart]:
    """The pieces, several small ones in a part."""
    return [ChangePart(tuple(part)) for part in packed(pieces, size)]


def check_keys(keys: Sequence[str], fields: Sequence[pa.Field], table: str) -> None:
    """Raise `SettingsError` if the key that tells rows apart is not among the columns."""
    names = {field.name for field in fields}
    if missing := [key for key in keys if key not in names]:
        hint = "add it to the option columns, or correct the option keys"
        raise SettingsError("a key column is not read", hint=hint, table=table, columns=missing)


def with_facts(fields: Sequence[pa.Field], table: str) -> list[pa.Field]:
    """The columns of a change feed. Raises `SettingsError` if the table has one of that name already."""
    for field in fields:
        if field.name in FACTS:
            hint = "name the others in the option columns"
            raise SettingsError("the table has a column of this name itself", hint=hint, table=table, column=field.name)
    return [*fields, *_FACTS]


class ChangesReader(DataSourceReader):  # type: ignore[misc]
    """Reads what the commits after `start`, up to `end`, changed."""

    def __init__(self, of: ChangesOf, start: int, end: int) -> None:
        self._of, self._start, self._end = of, start, end

    def partitions(self) -> list[ChangePart]:
        with explained(self._of.place.environment):
            feed = ChangeFeed(self._of.place.log(), self._end)
            return changes_since(self._of, feed, feed.position(self._start))

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return self._of.batches(partition.value or ())
