"""One range of keys: which new rows win, which live files have their keys, and the rows with new keys written."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from bridge.errors import DataError
from bridge.lake.file_records import PendingFile
from bridge.load.write.context import WriteContext
from bridge.load.write.file import File
from bridge.load.write.keys import at_least, key_columns, key_order, lookup, order_of
from bridge.load.write.layout import RowWindow
from bridge.load.write.merge.extra import mark_changes
from bridge.load.write.merge.footers import ColumnRange, Range, can_hold, group_range, open_parquet
from bridge.load.write.merge.winners import (
    PARTIAL,
    REMOVED,
    Keyed,
    compact_chunk,
    is_deleted,
    latest_per_key,
    mark_partial,
)
from bridge.load.write.partition import Partition, folders_of
from bridge.load.write.shared_spool import create_file, new_file, open_file
from bridge.load.write.spill import ABSENT, HIDDEN, VERSION
from bridge.load.write.writer import Writer
from bridge.protocol.decode.casting import refit
from bridge.protocol.schema.json_schema import DELETED_AT, EXTRA, VERSION_COLUMN
from bridge.protocol.schema.table_schema import TableSchema

TARGET_FILE = "\x1fhome"
"""A hidden column of winners whose key is in the table: the number of the live file with the row, or `MOVED`."""
NOWHERE, MOVED = -1, -2
"""`NOWHERE`: no live file has the key. `MOVED`: one has it, but the row now belongs in another folder."""

_SECONDS = 100_000_000_000
"""A version below this is in seconds, any other in milliseconds, both since 1970."""
_AT_ONCE = 128 << 20
"""Arrow bytes of rows that are compacted at once."""
_GROUPS = 16
"""Row groups in a file of winners. The more there are, the less is read of it for a row group of the table."""


@dataclass(frozen=True, slots=True)
class VersionSweep:
    """The fate of rows of versions before this one."""

    version: int
    at: int | None = None
    """None: they are removed. Else they get this time of deletion, in ms since 1970."""

    def columns(self, fields: Sequence[pa.Field]) -> list[str]:
        """The columns that tell which rows these are."""
        return [field.name for field in fields if field.name in (VERSION_COLUMN, DELETED_AT)]

    def mask(self, _rows: pa.Table, versions: pa.ChunkedArray) -> Any:
        """Which rows these are. A row without a version is not older."""
        in_ms_ = pc.if_else(pc.less(versions, _SECONDS), pc.multiply(versions, 1000), versions)
        return pc.fill_null(pc.less(in_ms_, in_ms(self.version)), False)


@dataclass(frozen=True, slots=True)
class WindowSweep:
    """Rows of a window are removed, as others come for them."""

    window: RowWindow
    at: None = None

    def columns(self, fields: Sequence[pa.Field]) -> list[str]:
        """The columns that tell which rows these are."""
        return self.window.columns(fields)

    def mask(self, rows: pa.Table, _versions: pa.ChunkedArray) -> Any:
        """Which rows these are. Raises `DataError`."""
        return self.window.mask(rows)


@dataclass(frozen=True, slots=True)
class MergeSpec:
    """The facts that all tasks of a merge share."""

    stream: str
    schema: bytes
    """The table's columns after the merge: a `TableSchema` as JSON."""
    seq: int
    hard: bool
    """Whether deletions remove their rows."""
    sweep: VersionSweep | WindowSweep | None = None
    of_versions: bool = False
    """Rows are versions, made by `history`: each is one by its key and its start."""

    @property
    def columns(self) -> pa.Schema:
        return TableSchema.from_json(self.schema).arrow

    @property
    def fields(self) -> list[pa.Field]:
        """The table's columns, nullable: a row may lack some."""
        return [field.with_nullable(True) for field in self.columns]

    def key(self, context: WriteContext) -> Keyed:
        columns = self.columns
        layout = context.layouts[self.stream]
        names = key_columns(columns, layout.row_key if self.of_versions else layout.keys)
        return Keyed([columns.field(name).with_nullable(True) for name in names])


@dataclass(frozen=True, slots=True)
class KeyRange:
    """One range of keys, the work of one task: from `low` on, up to but without `high`; None: no limit."""

    spec: MergeSpec
    spills: Sequence[str]
    low: tuple[Any, ...] | None
    high: tuple[Any, ...] | None
    files: Sequence[tuple[int, str, Range]] = field(default=())
    """Number, name and range of the live files that can hold such keys."""


class Matched(Struct):
    """The counts of one range of keys: `rows` = `inserted` + `updated` + `superseded` + `deleted`."""

    rows: int
    superseded: int
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    moved: int = 0
    """Winners in `files` whose old row is removed from the table, as they belong in another folder."""
    files: list[PendingFile] = []
    """New files."""
    dropped: int = 0
    """Rows of the table that go besides those that are updated or deleted: more than one had the key."""
    dropped_nulls: int = 0
    """Those of them whose key has a null."""
    touched: dict[str, int] = {}
    """By the number of a live file, how many of its rows have a winner's key."""
    winners: str = ""
    """The spool's file of the winners whose key the table has; empty: there are none."""


def match(context: WriteContext, task: KeyRange) -> Matched:
    """Match the rows of one range of keys with the table."""
    spec, key = task.spec, task.spec.key(context)
    rows, winners = _winners(context, task, key)
    report = Matched(rows, rows - len(winners))
    if not len(winners):
        return report
    if spec.sweep:
        winners, older = sweep_rows(winners, spec.sweep, winners.column(VERSION))
        report.deleted = 0 if spec.sweep.at is not None else older
    target, rows_of_key, touched = _find_targets(context, task, key, winners)
    winners, target = _mark_moved(context, task, winners, target)
    deleted = is_deleted(winners).to_numpy(zero_copy_only=False) & spec.hard
    exists = target != NOWHERE
    report.deleted += int(deleted.sum())
    report.updated, report.inserted = int((exists & ~deleted).sum()), int((~exists & ~deleted).sum())
    more = np.maximum(rows_of_key - 1, 0)
    report.dropped, report.dropped_nulls = int(more.sum()), int(more[_has_null(key.of(winners))].sum())
    report.moved = int(((target == MOVED) & ~deleted).sum())
    report.touched = {str(number): count for number, count in touched.items()}
    new = (target < 0) & ~deleted
    report.files = _write_new(context, spec, winners.filter(pa.array(new)))
    if exists.any():
        winners = winners.append_column(TARGET_FILE, pa.array(target)).filter(pa.array(exists))
        report.winners = _keep(context, winners, key)
    return report


def _winners(context: WriteContext, task: KeyRange, key: Keyed) -> tuple[int, pa.Table]:
    """How many rows the range has, and the last one of each key."""
    spec = task.spec
    fields = [*spec.fields, *(pa.field(name, pa.int64()) for name in HIDDEN), ABSENT]
    if spec.of_versions:
        fields.append(REMOVED)
    merges_extra = context.layouts[spec.stream].merges_changes and EXTRA in spec.columns.names and not spec.of_versions
    count, waiting, size = 0, [mark_partial(pa.schema(fields).empty_table(), hard=spec.hard)], 0
    for table in spilled(context, task, key):
        rows = with_version(refit(table, fields))
        rows = mark_partial(mark_changes(rows) if merges_extra else rows, hard=spec.hard)
        count += len(rows)
        size += rows.nbytes
        waiting.append(rows)
        if size > _AT_ONCE:
            waiting = [compact_chunk(pa.concat_tables(waiting), key)]
            size = waiting[0].nbytes // 2  # if most keys are new, compacting again soon gains nothing
    return count, latest_per_key(pa.concat_tables(waiting), key)


def with_version(rows: pa.Table) -> pa.Table:
    """Fill the table's version column, if it has one, from the messages."""
    place = rows.schema.get_field_index(VERSION_COLUMN)
    return rows if place < 0 else rows.set_column(place, rows.schema.field(place), rows.column(VERSION))


def spilled(context: WriteContext, task: KeyRange, key: Keyed) -> Iterator[pa.Table]:
    """Yield the rows of the range, a row group at a time."""
    for name in task.spills:
        with open_file(context, name) as source, pq.ParquetFile(source) as file:
            for group in range(file.num_row_groups):
                if outside(group_range(file, group, key.names[:1])[0], key.fields[0].type, task.low, task.high):
                    continue
                table = file.read_row_group(group)
                yield within(table, task, key)


def within(rows: pa.Table, task: KeyRange, key: Keyed) -> pa.Table:
    """The rows whose keys are in the range."""
    keys, mask = key.of(rows), None
    if task.low is not None:
        mask = at_least(keys, task.low)
    if task.high is not None:
        below = pc.invert(at_least(keys, task.high))
        mask = below if mask is None else pc.and_(mask, below)
    return rows if mask is None else rows.filter(mask)


def outside(
    first: ColumnRange | None, type_: pa.DataType, low: tuple[Any, ...] | None, high: tuple[Any, ...] | None
) -> bool:
    """Whether no row is in the range of keys, if the first column of the key has values in `first`.

    `type_` is that column's type in the table. Bounds of another type may have another order: then False.
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


def _has_null(keys: pa.Table) -> Any:
    return np.logical_or.reduce([pc.is_null(column).to_numpy() for column in keys.columns])


def _find_targets(
    context: WriteContext, task: KeyRange, key: Keyed, winners: pa.Table
) -> tuple[Any, Any, Counter[int]]:
    """For each winner the number of the first live file with its key, and how many rows have it; and by number the rows
    with such keys. Rows of a file that lacks a column of the key are older than the key: they have none.
    """
    target, touched = np.full(len(winners), NOWHERE, np.int64), Counter[int]()
    count = np.zeros(len(winners), np.int64)
    keys = key.of(winners)
    folder = context.layouts[task.spec.stream].folder
    for number, name, ranges in task.files:
        if not can_hold(keys, ranges):
            continue
        with open_parquet(context, f"{folder}/{name}") as file:
            if not set(key.names) <= set(file.schema_arrow.names):
                continue
            for group in range(file.num_row_groups):
                if not can_hold(keys, group_range(file, group, key.names)):
                    continue
                matches = lookup(key.of(file.read_row_group(group, columns=key.names)), keys).drop_null()
                if len(matches):
                    touched[number] += len(matches)
                    places, rows = np.unique(matches.to_numpy(), return_counts=True)
                    count[places] += rows
                    target[places] = np.where(target[places] == NOWHERE, number, target[places])
    return target, count, touched


def _mark_moved(context: WriteContext, task: KeyRange, winners: pa.Table, target: Any) -> tuple[pa.Table, Any]:
    """Mark winners as `MOVED` whose file is in another folder than they belong in.

    A deletion that marks its row has no other columns to move, so the row stays, with its partition's values.
    """
    partition_by = context.layouts[task.spec.stream].partition_by
    if not partition_by or not len(winners):
        return winners, target
    belongs = np.array(folders_of(winners, partition_by).to_pylist(), object)
    folders = {number: name.rpartition("/")[0] for number, name, _ in task.files}
    current = np.array([folders.get(number) for number in target.tolist()], object)
    whole = ~winners.column(PARTIAL).to_numpy()
    leaves = (target >= 0) & (current != belongs)
    if (partial := leaves & ~whole).any():
        _check_partial(task.spec.stream, winners.filter(pa.array(partial)), partition_by)
        marks = pc.and_(is_deleted(winners), pa.array(partial))
        for name in {partition.column for partition in partition_by}:
            place = winners.schema.get_field_index(name)
            field = winners.schema.field(place).with_nullable(True)
            winners = winners.set_column(place, field, pc.if_else(marks, None, winners.column(place)))
    return winners, np.where(leaves & whole, MOVED, target)


def _check_partial(stream: str, leaving: pa.Table, partition_by: Sequence[Partition]) -> None:
    """Raise `DataError` if a change that lacks columns says that its row belongs in another folder."""
    columns = {partition.column for partition in partition_by}
    for row in leaving.filter(pc.invert(is_deleted(leaving))).select([ABSENT.name]).to_pylist():
        if not columns & set(row[ABSENT.name]):
            hint = f"run --full -s {shlex.quote(stream)}; and partition by a column that no UPDATE changes"
            text = "an UPDATE moves a row to another partition, and lacks columns of it that did not change"
            raise DataError(text, hint=hint, stream=stream)


def sweep_rows(rows: pa.Table, sweep: VersionSweep | WindowSweep, versions: pa.ChunkedArray) -> tuple[pa.Table, int]:
    """Remove or mark the rows of a sweep; also return how many."""
    older = sweep.mask(rows, versions)
    if sweep.at is None:
        others = rows.filter(pc.invert(older))
        return others, len(rows) - len(others)
    place = rows.schema.get_field_index(DELETED_AT)
    field = rows.schema.field(place)
    at = pa.scalar(sweep.at * 1000, pa.int64()).cast(pa.timestamp("us", "UTC")).cast(field.type)
    marks = pc.and_(older, pc.invert(is_deleted(rows)))
    marked = rows.set_column(place, field, pc.if_else(marks, at, rows.column(place)))
    return marked, int(pc.sum(marks).as_py() or 0)


def in_ms(version: int) -> int:
    """A version in milliseconds: taps write seconds or milliseconds, and may change from one to the other."""
    return version * 1000 if version < _SECONDS else version


def _write_new(context: WriteContext, spec: MergeSpec, rows: pa.Table) -> list[PendingFile]:
    """Write rows that the table does not have to new files, in the order of their keys."""
    if not len(rows):
        return []
    files: list[PendingFile] = []

    def on_written(file: File) -> None:
        file.finish()
        files.append(file.close())

    columns = spec.columns
    writer = Writer(context.storage(), context, spec.seq, spec.stream, columns, on_written)
    ordered = rows.take(key_order(spec.key(context).of(rows))).select(columns.names)
    writer.add(pa.Table.from_arrays(ordered.columns, schema=columns))
    writer.finish()
    return files


def _keep(context: WriteContext, winners: pa.Table, key: Keyed) -> str:
    """Write the winners whose key the table has into the spool, and return the file's name."""
    name = new_file(context)
    size = max(-(-len(winners) // _GROUPS), 1)
    rows = winners.take(key_order(key.of(winners)))
    file = create_file(context, name)
    pq.write_table(rows, file, row_group_size=size, compression="lz4")
    file.close()
    return name
