"""One range of keys: the winners among the rows that came, where the table has their keys, and the new ones written."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from bridge.decode.casting import refit
from bridge.errors import DataError
from bridge.lake.records import PendingFile
from bridge.schema.table_schema import TableSchema
from bridge.write.context import WriteContext
from bridge.write.file import File
from bridge.write.keys import at_least, key_columns, lookup, order_of
from bridge.write.merge.footers import Range, can_hold, group_range, opened
from bridge.write.merge.winners import DELETED, PARTIAL, Keyed, compact_chunk, is_deleted, latest_per_key, marked
from bridge.write.partition import Partition, folders_of
from bridge.write.spill import ABSENT, HIDDEN, VERSION, spills
from bridge.write.writer import Writer

TARGET_FILE = "\x1fhome"
"""Hidden, of the winners that the table has: the number of the live file that keeps the row, or `MOVED`."""
NOWHERE, MOVED = -1, -2
"""No live file has the key; or one does, and the row now belongs into another folder."""

VERSION_COLUMN = "_sdc_table_version"
"""The Singer SDK's column that says of which version a row is."""

_SECONDS = 100_000_000_000
"""A version below is in seconds, one from here on in milliseconds, both since 1970."""
_AT_ONCE = 128 << 20
"""Arrow bytes of rows that are folded at once."""
_GROUPS = 16
"""Row groups of a file of winners: what is read of it for a row group of the table is little more than it needs."""


@dataclass(frozen=True, slots=True)
class VersionSweep:
    """Rows of versions before this one go: they are deleted, or get the time `at`, in ms since 1970, if that is set."""

    version: int
    at: int | None = None


@dataclass(frozen=True, slots=True)
class MergeSpec:
    """What all tasks of a merge share."""

    stream: str
    schema: bytes
    """Of the table once it is merged: a `TableSchema` as JSON."""
    seq: int
    hard: bool
    sweep: VersionSweep | None = None

    @property
    def columns(self) -> pa.Schema:
        """Return the table's columns."""
        return TableSchema.from_json(self.schema).arrow

    @property
    def fields(self) -> list[pa.Field]:
        """Return the table's columns as those of rows that may lack some."""
        return [field.with_nullable(True) for field in self.columns]

    def key(self, context: WriteContext) -> Keyed:
        """Return the table's key."""
        columns = self.columns
        names = key_columns(columns, context.layouts[self.stream].keys)
        return Keyed([columns.field(name).with_nullable(True) for name in names])


@dataclass(frozen=True, slots=True)
class KeyRange:
    """One range of keys: from `low` on, up to but without `high`; None: without an end.

    `files` are the live files that can hold such keys, with their number, name and range.
    """

    batch: MergeSpec
    spills: Sequence[str]
    low: tuple[Any, ...] | None
    high: tuple[Any, ...] | None
    files: Sequence[tuple[int, str, Range]] = field(default=())


class Matched(Struct):
    """What became of the rows of one range of keys: `rows` = `inserted` + `updated` + `superseded` + `deleted`."""

    rows: int
    superseded: int
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    moved: int = 0
    """Winners that have a row in the table and are in `files` as well."""
    files: list[PendingFile] = []
    """New files."""
    touched: dict[str, int] = {}
    """By the number of a live file, how many of its rows have a winner's key."""
    winners: str = ""
    """The spool's file of the winners that have a row in the table; empty: there are none."""


def match(context: WriteContext, part: KeyRange) -> Matched:
    """Find what became of the rows of one range of keys."""
    batch, key = part.batch, part.batch.key(context)
    rows, winners = _winners(context, part, key)
    report = Matched(rows, rows - len(winners))
    if not len(winners):
        return report
    if batch.sweep:
        kept, gone = swept(winners, batch.sweep, winners.column(VERSION))
        report.deleted, winners = 0 if batch.sweep.at is not None else gone, kept
    home, touched = _homes(context, part, key, winners)
    home = _moved(context, part, winners, home)
    deleted = is_deleted(winners).to_numpy(zero_copy_only=False) & batch.hard
    known = home != NOWHERE
    report.deleted += int(deleted.sum())
    report.updated, report.inserted = int((known & ~deleted).sum()), int((~known & ~deleted).sum())
    report.moved = int(((home == MOVED) & ~deleted).sum())
    report.touched = {str(number): count for number, count in touched.items()}
    new = (home < 0) & ~deleted
    report.files = _write(context, batch, winners.filter(pa.array(new)))
    if known.any():
        winners = winners.append_column(TARGET_FILE, pa.array(home)).filter(pa.array(known))
        report.winners = _keep(context, winners, key)
    return report


def _winners(context: WriteContext, part: KeyRange, key: Keyed) -> tuple[int, pa.Table]:
    """Return how many rows the range has, and the last one of each key."""
    fields = [*part.batch.fields, *(pa.field(name, pa.int64()) for name in HIDDEN), ABSENT]
    counted, waiting, size = 0, [marked(pa.schema(fields).empty_table(), hard=part.batch.hard)], 0
    for table in _spilled(context, part, key):
        rows = marked(_with_version(refit(table, fields)), hard=part.batch.hard)
        counted += len(rows)
        size += rows.nbytes
        waiting.append(rows)
        if size > _AT_ONCE:
            waiting = [compact_chunk(pa.concat_tables(waiting), key)]
            size = waiting[0].nbytes // 2  # where most keys are new, to fold again soon would be in vain
    return counted, latest_per_key(pa.concat_tables(waiting), key)


def _with_version(rows: pa.Table) -> pa.Table:
    """Have the table's column of the version, if it has one, say what the message said."""
    place = rows.schema.get_field_index(VERSION_COLUMN)
    return rows if place < 0 else rows.set_column(place, rows.schema.field(place), rows.column(VERSION))


def _spilled(context: WriteContext, part: KeyRange, key: Keyed) -> Iterator[pa.Table]:
    """Yield the rows of the range, a row group at a time."""
    for name in part.spills:
        with pq.ParquetFile(spills(context) / name) as file:
            for group in range(file.num_row_groups):
                if outside(group_range(file, group, key.names[:1])[0], key.fields[0].type, part.low, part.high):
                    continue
                table = file.read_row_group(group)
                mask: Any = None
                keys = key.of(table)
                if part.low is not None:
                    mask = at_least(keys, part.low)
                if part.high is not None:
                    below = pc.invert(at_least(keys, part.high))
                    mask = below if mask is None else pc.and_(mask, below)
                yield table if mask is None else table.filter(mask)


def outside(
    first: tuple[Any, Any, bool] | None, type_: pa.DataType, low: tuple[Any, ...] | None, high: tuple[Any, ...] | None
) -> bool:
    """Return whether a row group whose first column of the key is in `first` lies before or after the range.

    `type_` is the column's in the table. Where the row group has another, and the order of that may be another, no.
    """
    if first is None or first[0] is None:
        return False
    try:
        least, greatest = (pa.scalar(edge, type_).as_py() for edge in first[:2])
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return False
    nulls = first[2]
    if low is not None and low[0] is not None and order_of((greatest,)) < order_of(low[:1]):
        return True
    return high is not None and not nulls and order_of((least,)) > order_of(high[:1])


def _homes(context: WriteContext, part: KeyRange, key: Keyed, winners: pa.Table) -> tuple[Any, Counter[int]]:
    """Return for each winner the live file that has its key, the first if several do, and the matches by file."""
    home, touched = np.full(len(winners), NOWHERE, np.int64), Counter[int]()
    wanted = key.of(winners)
    folder = context.layouts[part.batch.stream].folder
    for number, name, ranges in part.files:
        if not can_hold(wanted, ranges):
            continue
        with opened(context, f"{folder}/{name}") as file:
            for group in range(file.num_row_groups):
                if not can_hold(wanted, group_range(file, group, key.names)):
                    continue
                # a file from before all of the key's columns: only its number of rows counts
                columns = [name for name in key.names if name in file.schema_arrow.names] or None
                found = lookup(key.of(file.read_row_group(group, columns=columns)), wanted).drop_null()
                if len(found):
                    touched[number] += len(found)
                    places = np.unique(found.to_numpy())
                    home[places] = np.where(home[places] == NOWHERE, number, home[places])
    return home, touched


def _moved(context: WriteContext, part: KeyRange, winners: pa.Table, home: Any) -> Any:
    """Return the homes without those whose folder is not the row's any more. A partial row says too little to move."""
    partition_by = context.layouts[part.batch.stream].partition_by
    if not partition_by or not len(winners):
        return home
    folders = np.array(folders_of(winners, partition_by).to_pylist(), object)
    lives = {number: name.rpartition("/")[0] for number, name, _ in part.files}
    there = np.array([lives.get(number) for number in home.tolist()], object)
    whole = ~winners.column(PARTIAL).to_numpy()
    leaves = (home >= 0) & (there != folders)
    _check_changes(part.batch.stream, winners.filter(pa.array(leaves & ~whole)), partition_by)
    return np.where(leaves & whole, MOVED, home)


def _check_changes(stream: str, leaving: pa.Table, partition_by: Sequence[Partition]) -> None:
    """Raise `DataError` if a change that lacks columns says that its row belongs in another folder."""
    columns = {partition.column for partition in partition_by}
    for row in leaving.filter(pc.invert(is_deleted(leaving))).select([ABSENT.name]).to_pylist():
        if not columns & set(row[ABSENT.name]):
            hint = f"run --full -s {stream}; and partition by a column that no UPDATE changes"
            text = "an UPDATE moves a row to another partition, and lacks columns of it that did not change"
            raise DataError(text, hint=hint, stream=stream)


def swept(rows: pa.Table, sweep: VersionSweep, versions: pa.ChunkedArray) -> tuple[pa.Table, int]:
    """Return the rows after those of older versions went or were marked, and how many. No version is no older one."""
    in_any = pc.if_else(pc.less(versions, _SECONDS), pc.multiply(versions, 1000), versions)
    older = pc.fill_null(pc.less(in_any, in_ms(sweep.version)), False)
    if sweep.at is None:
        kept = rows.filter(pc.invert(older))
        return kept, len(rows) - len(kept)
    place = rows.schema.get_field_index(DELETED)
    type_ = rows.schema.field(place).type
    at = pa.scalar(sweep.at * 1000, pa.int64()).cast(pa.timestamp("us", "UTC")).cast(type_)
    gone = pc.and_(older, pc.invert(is_deleted(rows)))
    marked = rows.set_column(place, rows.schema.field(place), pc.if_else(gone, at, rows.column(place)))
    return marked, int(pc.sum(gone).as_py() or 0)


def in_ms(version: int) -> int:
    """Return a version in milliseconds, where it may be in seconds: taps write both, and may change to the other."""
    return version * 1000 if version < _SECONDS else version


def _write(context: WriteContext, batch: MergeSpec, rows: pa.Table) -> list[PendingFile]:
    """Write rows that the table does not have to new files, in the order of their keys."""
    if not len(rows):
        return []
    files: list[PendingFile] = []

    def done(file: File) -> None:
        file.finish()
        files.append(file.close())

    columns = batch.columns
    writer = Writer(context.storage(), context, batch.seq, batch.stream, columns, done)
    ordered = _in_order(rows, batch.key(context)).select(columns.names)
    writer.add(pa.Table.from_arrays(ordered.columns, schema=columns))
    writer.finish()
    return files


def _in_order(rows: pa.Table, key: Keyed) -> pa.Table:
    keys = key.of(rows)
    return rows.take(pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names]))


def _keep(context: WriteContext, winners: pa.Table, key: Keyed) -> str:
    """Write the winners that the table has into the spool, and return the file's name."""
    name = f"{uuid.uuid4().hex}.parquet"
    size = max(-(-len(winners) // _GROUPS), 1)
    pq.write_table(_in_order(winners, key), spills(context) / name, row_group_size=size, compression="lz4")
    return name
