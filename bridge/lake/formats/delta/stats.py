"""Statistics of a Parquet file for Delta's log, as JSON text: made from the file's footer and our note in it.

Readers skip files by them, so a bound may be too wide, but never too narrow: texts are cut, times are milliseconds.

Guarantee: each column for which readers expect statistics has all of them, or the file has no bounds at all. Some
readers, such as delta-rs' pyarrow dataset, take one missing bound for null, compare with it, and then skip the file,
whatever it holds. Only a column without any value needs no bounds: its `nullCount` shows that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any, BinaryIO

from bridge.exact_json import dumps
from bridge.lake.formats.file_notes import MissingStats, Path, at_least, at_most

if TYPE_CHECKING:
    import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)


class _Digits(Decimal):
    """A decimal that is written without an exponent: delta-rs takes `1E-10` for null."""

    def __str__(self) -> str:
        return format(self, "f")


@dataclass(frozen=True, slots=True)
class _Bounds:
    """One column of a file: its nulls (None: not counted) and its bounds (None: unknown)."""

    nulls: int | None
    low: Any = None
    high: Any = None


def statistics(file: BinaryIO, table: pa.Schema | None = None, columns: int = 32, folders: Iterable[str] = ()) -> str:
    """A Parquet file's `numRecords`, and the `nullCount`, `minValues` and `maxValues` of its columns.

    `table` are the columns of the table, by default those of the file. The first `columns` of them have statistics, and
    those after which the file's Hive `folders` are named. A column that the file lacks is null in all its rows.
    """
    import pyarrow.parquet as pq  # here: commits of plain tables do without

    footer = pq.read_metadata(file)
    schema = footer.schema.to_arrow_schema()
    named = {folder.partition("=")[0] for folder in folders}
    indexed = [
        field
        for at, field in enumerate(schema if table is None else table)
        if at < columns or any(name.startswith(field.name) for name in named)
    ]
    places = {path: at for at, path in enumerate(_in_file(schema)) if path}
    missing = MissingStats.read(footer.metadata)
    every = {
        path: _bounds(footer, places[path], path, missing) if path in places else _Bounds(footer.num_rows)
        for path in _with_bounds(indexed)
    }
    return dumps({"numRecords": footer.num_rows} | _statistics(every, footer.num_rows), ascii_only=False).decode()


def _statistics(columns: dict[Path, _Bounds], rows: int) -> dict[str, Any]:
    """The statistics: nothing if one column lacks its null count, and no bounds at all if one lacks its bounds."""
    if any(column.nulls is None for column in columns.values()):
        return {}
    counts: dict[str, Any] = {}
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    for path, column in columns.items():
        _put(counts, path, column.nulls)
        if column.low is not None and column.high is not None:
            _put(lows, path, column.low)
            _put(highs, path, column.high)
    whole = all(column.nulls == rows or column.high is not None for column in columns.values())
    # An empty object would be read as bounds that are all null.
    return {"nullCount": counts} | ({"minValues": lows, "maxValues": highs} if whole and lows else {})


def _in_file(fields: Iterable[pa.Field], above: Path = ()) -> Iterator[Path]:
    """Yield the paths of a Parquet file's columns in their order; an empty path for a column inside a list."""
    import pyarrow as pa

    for field in fields:
        inner, path = field.type, (*above, field.name)
        if pa.types.is_struct(inner):
            yield from _in_file(inner, path)
        elif pa.types.is_list(inner):
            yield from (() for _ in _in_file([inner.value_field]))
        else:
            yield path


def _with_bounds(fields: Iterable[pa.Field], above: Path = ()) -> Iterator[Path]:
    """Yield the columns for which readers of Delta expect bounds: all but lists and bytes."""
    import pyarrow as pa

    for field in fields:
        inner, path = field.type, (*above, field.name)
        if pa.types.is_struct(inner):
            yield from _with_bounds(inner, path)
        elif not (pa.types.is_nested(inner) or pa.types.is_binary(inner) or pa.types.is_large_binary(inner)):
            yield path


def _bounds(footer: Any, at: int, path: Path, missing: MissingStats) -> _Bounds:
    """The bounds of a column over all row groups of the file."""
    ends, nulls, bounded = list(missing.texts.get(path, ())), 0, path not in missing.nans
    for group in range(footer.num_row_groups):
        column = footer.row_group(group).column(at)
        statistics = column.statistics
        if statistics is None or not statistics.has_null_count:
            return _Bounds(None)
        nulls += statistics.null_count
        if statistics.has_min_max:
            try:
                low, high = statistics.min, statistics.max
            except (ValueError, OverflowError):  # such as a date that Python cannot hold
                bounded = False
                continue
            bounded &= not high < low  # pyarrow before 18 has "" for a bound that was too long to be written
            ends += [low, high]
        elif statistics.null_count < column.num_values:
            bounded &= path in missing.texts
    return _Bounds(nulls, _least(min(ends)), _greatest(max(ends))) if ends and bounded else _Bounds(nulls)


def _least(value: Any) -> Any:
    if isinstance(value, datetime):
        return _time(value, (value.astimezone(timezone.utc) - _EPOCH) // _MILLISECOND)
    if value == 0.0 and isinstance(value, float):
        return -0.0  # some readers take it for less than 0.0, and Python's min for the same
    return at_least(value) if isinstance(value, str) else _plain(value)


def _greatest(value: Any) -> Any:
    if isinstance(value, datetime):
        return _time(value, -((_EPOCH - value.astimezone(timezone.utc)) // _MILLISECOND))
    if value == 0.0 and isinstance(value, float):
        return 0.0
    return at_most(value) if isinstance(value, str) else _plain(value)


def _plain(value: Any) -> Any:
    """A value as Delta's own writers put it in JSON; None if its type has no bounds."""
    if isinstance(value, float) and not math.isfinite(value):
        return "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return _Digits(value)
    return value if isinstance(value, (bool, int, float)) else None


def _time(exactly: datetime, milliseconds: int) -> str:
    try:
        text = (_EPOCH + milliseconds * _MILLISECOND).isoformat(timespec="milliseconds")
    except OverflowError:  # rounded up out of the year 9999
        text = exactly.astimezone(timezone.utc).isoformat(timespec="microseconds")
    return text.replace("+00:00", "Z")


def _put(into: dict[str, Any], path: Path, value: Any) -> None:
    for name in path[:-1]:
        into = into.setdefault(name, {})
    into[path[-1]] = value


def misleading(table: Any) -> list[str]:
    """The paths of this `DeltaTable`'s files with statistics by which filters skip a file and its rows.

    Earlier versions of ours wrote such entries: bounds for some columns, but none for booleans, texts beyond 4 KiB and
    infinite numbers; no null count for a column that is newer than the file; and -0.0 as the maximum of zeros.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    adds = pa.table(table.get_add_actions(flatten=False))
    if not {"null_count", "min", "max"} <= set(adds.schema.names) or not adds.num_rows:
        return []
    counted, wrong = dict(_leaves((), adds["null_count"])), []
    for side in ("min", "max"):
        bounded = pc.is_valid(adds[side])
        for path, values in _leaves((), adds[side]):
            nulls = counted[path]
            empty = pc.fill_null(pc.equal(nulls, adds["num_records"]), False)
            wrong.append(pc.and_(bounded, pc.and_not(pc.is_null(values), empty)))
            wrong.append(pc.and_(pc.is_valid(adds["null_count"]), pc.is_null(nulls)))
            if side == "max" and pa.types.is_floating(values.type):
                negative = pc.less(pc.divide(1.0, values), 0.0)
                wrong.append(pc.fill_null(pc.and_(pc.equal(values, 0.0), negative), False))
    names: list[str] = adds["path"].filter(reduce(pc.or_, wrong)).to_pylist() if wrong else []
    return names


def _leaves(path: tuple[str, ...], values: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the columns inside of structs, as the table has them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_struct(values.type):
        yield path, values
        return
    for at, field in enumerate(values.type):
        yield from _leaves((*path, field.name), pc.struct_field(values, [at]))
