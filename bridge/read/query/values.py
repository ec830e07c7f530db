"""Arrow's values as Python has them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from bridge.exact_json import dumps

if TYPE_CHECKING:
    import pyarrow as pa


def values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Python's values, as pyarrow's `to_pylist`, but without pandas: loading it for timestamps takes half a second.

    A time outside the years 1 to 9999, for which Python has no value, is text.
    """
    import pyarrow as pa

    if column.type not in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        return list(column.to_pylist())
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc if column.type.tz else None)

    def time_at(place: int, tick: int) -> Any:
        try:
            return epoch + timedelta(microseconds=tick)
        except OverflowError:
            return column[place].cast(pa.string()).as_py()

    ticks = column.cast(pa.int64()).to_pylist()
    return [None if tick is None else time_at(place, tick) for place, tick in enumerate(ticks)]


def json_value(value: Any) -> Any:
    """A value as JSON has it: times in ISO 8601, bytes in hex."""
    if isinstance(value, dict):
        return {str(key): json_value(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(inner) for inner in value]
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return value if isinstance(value, (str, int, float, bool, Decimal, type(None))) else str(value)


def cell(value: Any) -> str:
    """A value for people and CSV; nested ones as JSON, null as nothing."""
    simple = json_value(value)
    if isinstance(simple, (dict, list)):
        return dumps(simple, ascii_only=False).decode()
    if isinstance(simple, bool):
        return "true" if simple else "false"
    return "" if simple is None else str(simple)
