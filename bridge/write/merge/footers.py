"""Which files, and which row groups of a file, can hold a key: by the least and the greatest key in their footers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from bridge.write.context import WriteContext
from bridge.write.spill import packed, unpacked

Range = tuple["tuple[Any, Any, bool] | None", ...]
"""For each column of the key its least and greatest value, None without any, and if it has nulls; None: unknown."""


@contextmanager
def opened(context: WriteContext, key: str) -> Iterator[pq.ParquetFile]:
    """Open a file of the bucket; only the parts of it that are asked for are read."""
    with context.storage().open(key) as source, pq.ParquetFile(source) as file:
        yield file


def group_range(file: pq.ParquetFile, group: int, columns: Sequence[str]) -> Range:
    """Return the range of a row group's keys."""
    facts, leaves = file.metadata.row_group(group), _leaves(file.schema_arrow)
    return tuple(_of(facts.column(leaves[name])) if name in leaves else (None, None, True) for name in columns)


def _of(chunk: Any) -> tuple[Any, Any, bool] | None:
    said = chunk.statistics
    if said is None or not said.has_null_count:
        return None
    if said.has_min_max:
        # pyarrow before 18 has "" for a bound that was too long to be written.
        return None if said.max < said.min else (said.min, said.max, said.null_count > 0)
    return (None, None, True) if said.null_count == chunk.num_values else None


def _leaves(schema: pa.Schema) -> dict[str, int]:
    """Return the columns that are not nested, and which of Parquet's columns they are."""
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
    """By file, the range of each column of the key, as `_said` writes it."""

    ranges: dict[str, list[Any]]


def find_ranges(context: WriteContext, asked: tuple[str, Sequence[str], Sequence[str]]) -> Ranges:
    """Report the ranges of some files: `asked` are the stream, the files' names, and the columns of its key."""
    stream, names, columns = asked
    ranges = {}
    for name in names:
        with opened(context, f"{context.layouts[stream].folder}/{name}") as file:
            groups = [group_range(file, group, columns) for group in range(file.num_row_groups)]
        ranges[name] = [_said(_joined([group[at] for group in groups])) for at in range(len(columns))]
    return Ranges(ranges)


def _joined(parts: Sequence[tuple[Any, Any, bool] | None]) -> tuple[Any, Any, bool] | None:
    """Return the range of a column over all row groups of a file."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    least = [part[0] for part in known if part[0] is not None]
    greatest = [part[1] for part in known if part[1] is not None]
    return min(least, default=None), max(greatest, default=None), any(part[2] for part in known)


def _said(column: tuple[Any, Any, bool] | None) -> Any:
    """Write a range as JSON can carry it; its values may be times or decimals."""
    return column and [packed(pa.table({"edge": list(column[:2])})), column[2]]


def read_ranges(report: Ranges) -> dict[str, Range]:
    """Return what `find_ranges` found."""
    return {name: tuple(_heard(column) for column in said) for name, said in report.ranges.items()}


def _heard(said: Any) -> tuple[Any, Any, bool] | None:
    return said and (*unpacked(said[0]).column("edge").to_pylist(), said[1])


def can_hold(keys: pa.Table, ranges: Range) -> bool:
    """Return whether one of these keys may be in what has these ranges."""
    found: Any = pc.is_in(pa.nulls(len(keys)), pa.nulls(1))  # all true
    for column, range_ in zip(keys.columns, ranges, strict=True):
        if range_ is not None:
            found = pc.and_(found, _inside(column.combine_chunks(), *range_))
    return bool(pc.any(found).as_py())


def _inside(column: pa.Array, least: Any, greatest: Any, nulls: bool) -> Any:
    outside = pc.and_(pc.is_null(column), nulls)
    if least is None:
        return outside
    try:
        low, high = pa.scalar(least, column.type), pa.scalar(greatest, column.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # the column had another type: only its values can tell
        return pc.is_in(pa.nulls(len(column)), pa.nulls(1))
    within = pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))
    return pc.or_(pc.fill_null(within, False), outside)
