"""Rewrites one live file: winners take the place of their rows, deleted rows are left out, all else stays.

Memory holds two row groups of the file and the winners of one range of keys. In plain Parquet the new file has the old
one's name, so a reader who lists the folder sees each key once, before and after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from bridge.lake.file_records import PendingFile
from bridge.load.write.context import WriteContext
from bridge.load.write.file import File
from bridge.load.write.keys import lookup
from bridge.load.write.merge.extra import merge_extra
from bridge.load.write.merge.footers import can_hold, group_range, open_parquet
from bridge.load.write.merge.match import TARGET_FILE, MergeSpec, sweep_rows
from bridge.load.write.merge.winners import PARTIAL, Keyed, is_deleted, lacks
from bridge.load.write.partition import partitioned
from bridge.load.write.report import RowChanges
from bridge.load.write.shared_spool import create_file, new_file, open_file
from bridge.load.write.spill import CHANGE
from bridge.protocol.decode.casting import refit
from bridge.protocol.schema.json_schema import DELETED_AT, EXTRA, VERSION_COLUMN


@dataclass(frozen=True, slots=True)
class Touched:
    """A live file to rewrite."""

    spec: MergeSpec
    number: int
    """The file's number in the merge."""
    name: str
    winners: Sequence[str]
    """The spool's files of winners whose keys it has."""
    version: int | None = None
    """The version of all its rows, where no column says it row by row."""


@dataclass(slots=True)
class _Winners:
    """The winners of one range of keys; the arrays say something of each."""

    rows: pa.Table
    keys: pa.Table
    deletes: Any
    here: Any
    """Booleans: the winner's row is in this file."""
    partial: Any
    placed: Any
    """Booleans: the winner has replaced its row already."""


@dataclass(slots=True)
class _Counts:
    replaced: int = 0
    dropped: int = 0
    swept: int = 0


class NewFile(Struct, frozen=True):
    """A live file's successor, which may have no rows, and how many rows were replaced, dropped and swept."""

    file: PendingFile
    replaced: int
    dropped: int
    swept: int
    changes: RowChanges | None = None
    """None: they were not noted."""


class OlderRows(Struct, frozen=True):
    """How many rows a live file has, and how many of them a sweep removes or marks."""

    rows: int
    older: int


def rewrite(context: WriteContext, touched: Touched) -> NewFile:
    """Rewrite one live file."""
    spec, layout, counts = touched.spec, context.layouts[touched.spec.stream], _Counts()
    folder, over = touched.name.rpartition("/")[0], touched.name if layout.format == "parquet" else None
    storage = context.storage()
    new = File(storage, context, spec.seq, spec.stream, _columns(context, touched), folder, over=over)
    changes = _Changes(context) if layout.readable and spec.sweep is None else None
    try:
        _fill(context, touched, new, counts, changes)
        new.finish()
        changed = changes.finish(touched.name, new.name) if changes else None
        return NewFile(new.close(), counts.replaced, counts.dropped, counts.swept, changed)
    except BaseException:
        new.give_up(storage)
        raise


def _columns(context: WriteContext, touched: Touched) -> pa.Schema:
    """The columns of the new file: the table's. A file older than a column of the key still lacks it: see `match`."""
    columns, layout = touched.spec.columns, context.layouts[touched.spec.stream]
    if not layout.keys:
        return columns
    with open_parquet(context, f"{layout.folder}/{touched.name}") as live:
        lacking = set(touched.spec.key(context).names) - set(live.schema_arrow.names)
    return pa.schema([field for field in columns if field.name not in lacking])


class _Changes:
    """Writes the rows that a file loses and gets to the spool: a view need not read the others."""

    def __init__(self, context: WriteContext) -> None:
        self._context, self._name = context, ""
        self._file: Any = None
        self._writer: pq.ParquetWriter | None = None
        self._rows = 0

    def add(self, rows: pa.Table, sign: int) -> None:
        """Write rows, if there are any."""
        if not len(rows):
            return
        rows = rows.append_column(CHANGE, pa.repeat(pa.scalar(sign, pa.int64()), len(rows)))
        if self._writer is None:
            self._name = new_file(self._context)
            self._file = create_file(self._context, self._name)
            self._writer = pq.ParquetWriter(self._file, rows.schema, compression="lz4")
        self._writer.write_table(rows)
        self._rows += len(rows)

    def finish(self, old: str, new: str) -> RowChanges:
        """Close the new file, if any, and return the changes."""
        if self._writer is None:
            return RowChanges(old, new)
        self._writer.close()
        size = self._file.tell()
        self._file.close()
        return RowChanges(old, new, self._name, size, self._rows)


def _fill(context: WriteContext, touched: Touched, new: File, counts: _Counts, changes: _Changes | None) -> None:
    spec, layout = touched.spec, context.layouts[touched.spec.stream]

    def write(rows: pa.Table) -> None:
        result = pa.Table.from_arrays(rows.columns, schema=new.schema)
        new.write(partitioned(result, (), layout.sort_by)[0][1])  # a winner may belong elsewhere in the order

    with open_parquet(context, f"{layout.folder}/{touched.name}") as live, ThreadPoolExecutor(1) as behind:
        parts, written = _WinnerRanges(context, touched), Future[None]()
        fields = [field for field in spec.fields if field.name in new.schema.names]
        written.set_result(None)
        for group in range(live.num_row_groups):
            rows = _with_version(refit(live.read_row_group(group), fields), touched)
            for winners in parts.of(live, group):
                rows = _replace(rows, winners, parts.key, counts, changes)
            rows, older = _sweep(rows, touched)
            counts.swept += older
            written.result()  # one is written while the next one is read, never two
            if len(rows):
                written = behind.submit(write, rows)
        written.result()


def _sweep(rows: pa.Table, touched: Touched) -> tuple[pa.Table, int]:
    """Remove or mark the rows that the merge sweeps; also return how many."""
    sweep = touched.spec.sweep
    if sweep is None:
        return rows, 0
    return sweep_rows(rows, sweep, _versions(rows, touched))


def _versions(rows: pa.Table, touched: Touched) -> pa.ChunkedArray:
    version = pa.scalar(touched.version, pa.int64())
    if VERSION_COLUMN not in rows.column_names:
        return pa.chunked_array([pa.repeat(version, len(rows))])
    return pc.coalesce(rows.column(VERSION_COLUMN), version)


def _with_version(rows: pa.Table, touched: Touched) -> pa.Table:
    """Fill the table's version column, if it has one, with the version that the log has of the whole file."""
    place = rows.schema.get_field_index(VERSION_COLUMN)
    if place < 0 or touched.version is None:
        return rows
    return rows.set_column(place, rows.schema.field(place), _versions(rows, touched))


class _WinnerRanges:
    """The winners of a file's keys, one range in memory at a time: a sorted file needs each range once."""

    def __init__(self, context: WriteContext, touched: Touched) -> None:
        self._context, self._touched = context, touched
        self.key = touched.spec.key(context) if touched.winners else Keyed(())
        self._placed: dict[str, Any] = {}
        self._name = ""
        self._loaded: _Winners | None = None

    def of(self, live: pq.ParquetFile, group: int) -> Iterator[_Winners]:
        """Yield the winners that may have a row in this row group."""
        if not self._touched.winners:
            return
        ranges = group_range(live, group, self.key.names)
        for name in self._touched.winners:
            winners = self._load(name)
            if can_hold(winners.keys, ranges):
                yield winners

    def _load(self, name: str) -> _Winners:
        if self._loaded is None or self._name != name:
            with open_file(self._context, name) as file:
                rows = pq.read_table(file)
            self._name = name
            self._loaded = _Winners(
                rows,
                self.key.of(rows),
                deletes=is_deleted(rows).to_numpy(zero_copy_only=False) & self._touched.spec.hard,
                here=rows.column(TARGET_FILE).to_numpy() == self._touched.number,
                partial=rows.column(PARTIAL).to_numpy(),
                placed=self._placed.setdefault(name, np.zeros(len(rows), bool)),
            )
        return self._loaded


def _replace(rows: pa.Table, winners: _Winners, key: Keyed, counts: _Counts, changes: _Changes | None) -> pa.Table:
    """Put each winner in the place of the first row with its key, and leave out all others with that key."""
    matches, count = lookup(key.of(rows), winners.keys), len(rows)
    if matches.null_count == count:
        return rows
    at = np.flatnonzero(matches.is_valid().to_numpy(zero_copy_only=False))
    by = matches.drop_null().to_numpy().astype(np.int64)
    takes = _take_place(winners, by)
    counts.replaced += int(takes.sum())
    counts.dropped += int((~takes).sum())
    stays, is_new = np.ones(count, bool), np.zeros(count, bool)
    stays[at[~takes]] = False
    is_new[at[takes]] = True
    result = _with_winners(rows, winners, key, at[takes], by[takes], stays)
    if changes:
        changes.add(rows.take(pa.array(at)), -1)
        changes.add(result.filter(pa.array(is_new[stays])), 1)
    return result


def _take_place(winners: _Winners, by: Any) -> Any:
    """For rows that have the keys of the winners `by`, whether the winner takes the row's place; else the row goes."""
    first = np.zeros(len(by), bool)
    first[np.unique(by, return_index=True)[1]] = True
    takes = first & winners.here[by] & ~winners.deletes[by] & ~winners.placed[by]
    winners.placed[by[takes]] = True
    return takes


def _with_winners(rows: pa.Table, winners: _Winners, key: Keyed, at: Any, by: Any, stays: Any) -> pa.Table:
    """The rows that stay, with the winners `by` in the places `at`."""
    indices, partial = np.arange(len(rows)), winners.partial[by]
    indices[at] = len(rows) + by
    columns = []
    for name in rows.column_names:
        old, new = rows.column(name), winners.rows.column(name)
        own = indices
        if partial.any() and name == EXTRA:
            new = merge_extra(rows, winners.rows, is_deleted(winners.rows), at[partial], by[partial])
        elif partial.any() and name not in key.names:  # what a partial row lacks keeps its value
            lacking = at[partial & lacks(winners.rows, name).to_numpy(zero_copy_only=False)[by]]
            own = indices.copy()
            own[lacking] = lacking
        columns.append(pa.chunked_array([*old.chunks, *new.chunks], old.type).take(pa.array(own[stays])))
    return pa.table(columns, schema=rows.schema)


def count_older(context: WriteContext, touched: Touched) -> OlderRows:
    """Count the rows of a live file that the merge sweeps."""
    spec, older = touched.spec, 0
    assert spec.sweep
    with open_parquet(context, f"{context.layouts[spec.stream].folder}/{touched.name}") as live:
        fields = [field for field in spec.fields if field.name in spec.sweep.columns(spec.fields)]
        columns = [field.name for field in fields if field.name in live.schema_arrow.names]
        has_any = set(columns) - {DELETED_AT} or touched.version is not None
        for group in range(live.num_row_groups if has_any else 0):
            rows = refit(live.read_row_group(group, columns=columns), fields)
            older += _sweep(rows, touched)[1]
        return OlderRows(live.metadata.num_rows, older)
