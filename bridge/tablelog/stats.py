"""What a Parquet file holds at least and at most, as its footer says it and Delta's log wants it: JSON text.

Readers leave out files by it, so a bound may be too wide, and never too narrow: texts are cut, times are milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, BinaryIO

from bridge.verbatim import dumps

__all__ = ["statistics"]

_COLUMNS = 32
"""So many columns from the left have bounds, as in Delta's own writers; those that folders are named after as well."""
_LONGEST = 64
"""Characters of a text."""
_AFTER_ALL = "\U0010ffff"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)

_Path = tuple[str, ...]


def statistics(file: BinaryIO, folders: Iterable[str] = ()) -> str:
    """Return `numRecords`, `minValues`, `maxValues` and `nullCount` of a Parquet file.

    `folders` are the Hive folders on its way; their columns are never left out.
    """
    import pyarrow.parquet as pq  # here: commits of plain tables do without

    footer = pq.read_metadata(file)
    wanted = {folder.partition("=")[0] for folder in folders}
    said: dict[str, Any] = {"numRecords": footer.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for at, path in enumerate(_leaves(footer.schema.to_arrow_schema())):
        if path and (at < _COLUMNS or any(name.startswith(path[0]) for name in wanted)):
            low, high, nulls = _bounds(footer, at)
            for name, value in (("minValues", low), ("maxValues", high), ("nullCount", nulls)):
                if value is not None:
                    _put(said[name], path, value)
    return dumps(said).decode()


def _leaves(fields: Iterable[Any], above: _Path = ()) -> Iterator[_Path]:
    """Yield the columns of a Parquet file in its order; an empty path for what is inside a list."""
    import pyarrow as pa

    for field in fields:
        inner, path = field.type, (*above, field.name)
        if pa.types.is_struct(inner):
            yield from _leaves(inner, path)
        elif pa.types.is_list(inner):
            yield from (() for _ in _leaves([inner.value_field]))
        else:
            yield path


def _bounds(footer: Any, at: int) -> tuple[Any, Any, int | None]:
    """Return the least and the greatest value of a column, None where that is not known, and its nulls."""
    lows, highs, nulls, known = [], [], 0, True
    for group in range(footer.num_row_groups):
        column = footer.row_group(group).column(at)
        found = column.statistics
        if found is None or not found.has_null_count:
            return None, None, None
        nulls += found.null_count
        if found.has_min_max:
            lows.append(found.min)
            highs.append(found.max)
        elif found.null_count < column.num_values:
            known = False
    if not known or not lows:
        return None, None, nulls
    return _least(min(lows)), _greatest(max(highs)), nulls


def _least(value: Any) -> Any:
    if isinstance(value, datetime):
        return _time((value.astimezone(timezone.utc) - _EPOCH) // _MILLISECOND)
    return value[:_LONGEST] if isinstance(value, str) else _plain(value)


def _greatest(value: Any) -> Any:
    if isinstance(value, datetime):
        return _time(-((_EPOCH - value.astimezone(timezone.utc)) // _MILLISECOND))
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else value[:_LONGEST] + _AFTER_ALL
    return _plain(value)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it, None for one whose bounds would mean nothing."""
    if isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, date):
        return value.isoformat()
    return value if isinstance(value, (int, float, Decimal)) else None


def _time(milliseconds: int) -> str | None:
    try:
        text = (_EPOCH + milliseconds * _MILLISECOND).isoformat(timespec="milliseconds")
    except OverflowError:  # rounded up out of the year 9999
        return None
    return text.replace("+00:00", "Z")


def _put(into: dict[str, Any], path: _Path, value: Any) -> None:
    for name in path[:-1]:
        into = into.setdefault(name, {})
    into[path[-1]] = value
