"""Which files and row groups can hold a key, by the bounds in the files' footers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from bridge.load.write.context import WriteContext
from bridge.load.write.spill import pack_table, unpack_table

ColumnRange = tuple[Any, Any, bool]
"""The least and the greatest value of a column, None if it has no values; and whether it has nulls."""
Range = tuple["ColumnRange | None", ...]
"""For each column of the key; None: unknown."""


@contextmanager
def open_parquet(context: WriteContext, key: str) -> Iterator[pq.ParquetFile]:
    """Open a file of the bucket; only the parts asked for are read."""
    with context.storage().open(key) as source, pq.ParquetFile(source) as file:
        yield file


def group_range(file: pq.ParquetFile, group: int, columns: Sequence[str]) -> Range:
    """The range of a row group's keys."""
    footer, leaves = file.metadata.row_group(group), _leaves(file.schema_arrow)
    return tuple(_of(footer.column(leaves[name])) if name in leaves else (None, None, True) for name in columns)


def _of(chunk: Any) -> ColumnRange | None:
    bounds = chunk.statistics
    if bounds is None or not bounds.has_null_count:
        return None
    if bounds.has_min_max:
        # pyarrow before 18 has "" for a bound that was too long to be written.
        return None if bounds.max < bounds.min else (bounds.min, bounds.max, bounds.null_count > 0)
    return (None, None, True) if bounds.null_count == chunk.num_values else None


def _leaves(schema: pa.Schema) -> dict[str, int]:
    """The columns that are not nested, and which of Parquet's columns they are."""
    places, at = {}, 0
    for field in schema:
        if not pa.types.is_nested(field.type):
            places[field.name] = at
        at += _width(field.type)
    return places


def _width(type_: pa.DataType) -> int:
    if pa.types.is_struct(type_):
        return sum(_width(child.type) for child in type_)
    return _width(type_.value_type) if pa.types.is_list(type_) else 1


class Ranges(Struct, frozen=True):
    """By file, the range of each column of the key, as `_to_json` writes it."""

    ranges: dict[str, list[Any]]


def find_ranges(context: WriteContext, asked: tuple[str, Sequence[str], Sequence[str]]) -> Ranges:
    """Read the ranges of some files: `asked` are the stream, the files' names, and the columns of its key."""
    stream, names, columns = asked
    ranges = {}
    for name in names:
        with open_parquet(context, f"{context.layouts[stream].folder}/{name}") as file:
            groups = [group_range(file, group, columns) for group in range(file.num_row_groups)]
        ranges[name] = [_to_json(_joined([group[at] for group in groups])) for at in range(len(columns))]
    return Ranges(ranges)


def _joined(parts: Sequence[ColumnRange | None]) -> ColumnRange | None:
    """The range of a column over all row groups of a file."""
    present = [part for part in parts if part is not None]
    if len(present) < len(parts):
        return None
    least = [part[0] for part in present if part[0] is not None]
    greatest = [part[1] for part in present if part[1] is not None]
    return min(least, default=None), max(greatest, default=None), any(part[2] for part in present)


def _to_json(column: ColumnRange | None) -> Any:
    """JSON cannot carry a range as it is: its values may be times or decimals."""
    return column and [pack_table(pa.table({"edge": list(column[:2])})), column[2]]


def read_ranges(report: Ranges) -> dict[str, Range]:
    """The ranges that `find_ranges` reported, by file."""
    return {name: tuple(_from_json(column) for column in columns) for name, columns in report.ranges.items()}


def _from_json(column: Any) -> ColumnRange | None:
    return column and (*unpack_table(column[0]).column("edge").to_pylist(), column[1])


def can_hold(keys: pa.Table, ranges: Range) -> bool:
    """Whether one of these keys may be in a file or row group with these ranges."""
    possible: Any = pa.repeat(True, len(keys))
    for column, range_ in zip(keys.columns, ranges, strict=True):
        if range_ is not None:
            possible = pc.and_(possible, _inside(column.combine_chunks(), *range_))
    return bool(pc.any(possible).as_py())


def _inside(column: pa.Array, least: Any, greatest: Any, nulls: bool) -> Any:
    outside = pc.and_(pc.is_null(column), nulls)
    if least is None:
        return outside
    try:
        low, high = pa.scalar(least, column.type), pa.scalar(greatest, column.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # the column had another type: only its values can tell
        return pa.repeat(True, len(column))
    within = pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))
    return pc.or_(pc.fill_null(within, False), outside)
