"""The groups of a view in its files: sorted by its keys, each file a range of them that no other file has a part of.

A change of few groups rewrites only the files whose ranges have them. Memory holds a row group, and these groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from bridge.lake.file_records import PendingFile
from bridge.load.write.context import WriteContext
from bridge.load.write.file import File
from bridge.load.write.keys import lookup
from bridge.load.write.signed_file import SignedFile, open_file

GROUP_ROWS = 64 << 10
"""Rows of a row group, so that a look-up of few keys reads little."""
_LARGE = 1.5
"""A file that has grown to so many times its size is divided in two."""


@dataclass(frozen=True, slots=True)
class Patch:
    """The changes in one file of a view."""

    view: str
    seq: int
    file: SignedFile
    keys: pa.Table
    """The keys of all groups that change, in the file's range."""
    groups: pa.Table
    """The groups as they are then: rows with the columns of the view's table."""


class Patched(Struct, frozen=True):
    """The files that take the place of one file."""

    files: list[PendingFile]


def shares(
    context: WriteContext, files: Sequence[SignedFile], rows: pa.Table, names: Sequence[str]
) -> Iterator[tuple[SignedFile, pa.Table]]:
    """Divide rows with these keys among the view's files; yield the files that get some, with them."""
    keys = rows.select(names)
    parts = _divided(rows, keys, _firsts(context, files, keys.schema)) if len(files) > 1 else iter([rows])
    for file, share in zip(files, parts, strict=False):
        if len(share):
            yield file, share


def groups_of(context: WriteContext, file: SignedFile, keys: pa.Table, schema: pa.Schema) -> pa.Table:
    """The groups with these keys that a file has."""
    parts = [schema.empty_table()]
    with open_file(context, file) as live:
        for group in range(live.num_row_groups):
            same = among(live.read_row_group(group, columns=keys.column_names), keys)
            if pc.any(same).as_py():
                rows = live.read_row_group(group, columns=schema.names)
                parts.append(rows.filter(same).select(schema.names).cast(schema))
    return pa.concat_tables(parts)


def groups_between(
    context: WriteContext, files: Sequence[SignedFile], schema: pa.Schema, key: str, after: int | None, until: int
) -> Iterator[pa.Table]:
    """Yield the groups whose key, a time, is after a moment, and not later than another; None: after any.

    Moments are microseconds since 1970. Row groups that can have none are not read.
    """
    for one in files:
        with open_file(context, one) as live:
            leaves = [live.schema.column(place).path for place in range(len(live.schema))]  # of a struct its fields
            column = leaves.index(key)
            for group in range(live.num_row_groups):
                limits = live.metadata.row_group(group).column(column).statistics
                if limits and limits.has_min_max and limits.min_raw > until:
                    continue
                if limits and limits.has_min_max and after is not None and limits.max_raw <= after:
                    continue
                rows = live.read_row_group(group).select(schema.names).cast(schema)
                times = rows.column(key).cast(pa.int64())
                inside = pc.less_equal(times, until)
                yield rows.filter(inside if after is None else pc.and_(inside, pc.greater(times, after)))


def patch(context: WriteContext, change: Patch) -> Patched:
    """Write a file of a view again, with some of its groups changed."""
    file, size = change.file, context.layouts[change.view].file_size
    limit = file.size / 2 if file.size > _LARGE * size else math.inf
    tables = _merged(context, change)
    return Patched(list(write_sorted(context, change.view, change.groups.schema, change.seq, tables, limit)))


def _merged(context: WriteContext, change: Patch) -> Iterator[pa.Table]:
    """The rows after the change, in the order of the file's row groups."""
    schema, names = change.groups.schema, change.keys.column_names
    with open_file(context, change.file) as live:
        firsts = pa.concat_tables(_first(live, group, change.keys.schema) for group in range(live.num_row_groups))
        parts = _divided(change.groups, change.groups.select(names), firsts)
        for group, part in enumerate(parts):
            rows = live.read_row_group(group).select(schema.names).cast(schema)
            stay = rows.filter(pc.invert(among(rows.select(names), change.keys)))
            yield in_order(pa.concat_tables([stay, part]), names)


def write_sorted(
    context: WriteContext,
    name: str,
    schema: pa.Schema,
    seq: int,
    tables: Iterator[pa.Table],
    limit: float | None = None,
) -> Iterator[PendingFile]:
    """Write a view's groups, which come in the order of its keys, to pending files.

    A file of `limit` bytes is full; None: of as many as the layout says.
    """
    file: File | None = None
    storage, limit = context.storage(), limit or context.layouts[name].file_size
    for rows in _row_groups(tables):
        file = file or File(storage, context, seq, name, schema)
        try:
            file.write(rows)
        except BaseException:
            file.give_up(storage)
            raise
        if file.size >= limit:
            yield _closed(file)
            file = None
    if file:
        yield _closed(file)


def _closed(file: File) -> PendingFile:
    file.finish()
    return file.close()


def _row_groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    gathered, rows = list[pa.Table](), 0
    for table in tables:
        start = 0
        while start < table.num_rows:
            part = table.slice(start, GROUP_ROWS - rows)
            start += part.num_rows
            gathered.append(part)
            rows += part.num_rows
            if rows == GROUP_ROWS:
                yield pa.concat_tables(gathered).combine_chunks()
                gathered, rows = [], 0
    if gathered:
        yield pa.concat_tables(gathered).combine_chunks()


def among(rows: pa.Table, keys: pa.Table) -> pa.ChunkedArray:
    """Which rows have one of these keys, as a column of booleans."""
    numbers = [str(number) for number in range(keys.num_columns)]
    columns = rows.select(keys.column_names).cast(keys.schema)
    return pc.is_valid(lookup(columns.rename_columns(numbers), keys.rename_columns(numbers)))


def _firsts(context: WriteContext, files: Sequence[SignedFile], schema: pa.Schema) -> pa.Table:
    """The first key of each file."""
    parts = []
    for one in files:
        with open_file(context, one) as file:
            parts.append(_first(file, 0, schema))
    return pa.concat_tables(parts)


def _first(file: pq.ParquetFile, group: int, schema: pa.Schema) -> pa.Table:
    batch = next(file.iter_batches(1, row_groups=[group], columns=schema.names))
    return pa.Table.from_batches([batch]).select(schema.names).cast(schema)


def _divided(rows: pa.Table, keys: pa.Table, firsts: pa.Table) -> Iterator[pa.Table]:
    """Divide rows with these keys among ranges, by the first key of each range; yield the rows of each."""
    places = _places(keys, firsts)
    for number in range(len(firsts)):
        yield rows.filter(pa.array(places == number))


def _places(keys: pa.Table, firsts: pa.Table) -> Any:
    """For each key the number of its range. Keys before all ranges are in the first one."""
    import numpy as np  # not for workers, all of which import this module

    number = np.concatenate([np.arange(len(firsts)), np.full(len(keys), -1)])
    both = pa.concat_tables([firsts, keys]).append_column("\x1fkey", pa.array(number < 0))
    order = _order(both, both.column_names).to_numpy()
    starts = np.flatnonzero(number[order] >= 0)
    at = np.searchsorted(starts, np.arange(len(order)), side="right") - 1
    result = np.empty(len(order), np.int64)
    result[order] = number[order][starts[np.maximum(at, 0)]]
    return result[len(firsts) :]


def in_order(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Rows in the order of these keys, as in all files of views."""
    return rows.take(_order(rows, names))


def _order(rows: pa.Table, names: Sequence[str]) -> pa.Array:
    return pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in names])  # NULL comes last
