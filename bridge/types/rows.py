"""Arrow rows as JSON lines, without loss: the way of a BATCH's Parquet files to the same types as RECORDs."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import simplejson

__all__ = ["json_rows"]


def json_rows(batch: pa.RecordBatch) -> bytes:
    """A line a row. A decimal keeps its digits, bytes are base64, NaN is bare; a time is ISO text.

    Nanoseconds are cut off, as in text. Raises ValueError for columns of durations and the like.
    """
    table = pa.Table.from_batches([batch])
    readable = pa.schema([_readable(field) for field in table.schema])
    rows = table.cast(readable, safe=False).to_pylist(maps_as_pydicts="strict")
    try:
        if all(_finite(column) for column in table.columns):
            return b"".join(orjson.dumps(row, _written, orjson.OPT_APPEND_NEWLINE) for row in rows)
        return b"".join(_with_nan(row) for row in rows)
    except TypeError as error:
        raise ValueError(f"a column has no form in JSON: {error}") from error


def _readable(field: pa.Field) -> pa.Field:
    """The field with microseconds where it has nanoseconds, which Python's own types do not."""
    return field.with_type(_microseconds(field.type))


def _microseconds(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type_) and type_.unit == "ns":
        return pa.timestamp("us", type_.tz)
    if pa.types.is_time64(type_) and type_.unit == "ns":
        return pa.time64("us")
    if pa.types.is_struct(type_):
        return pa.struct([_readable(field) for field in type_])
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(_readable(type_.value_field))
    return type_


def _finite(column: pa.ChunkedArray) -> bool:
    """False where a number may be NaN or infinite."""
    return all(_all_finite(chunk) for chunk in column.chunks)


def _all_finite(array: pa.Array) -> bool:
    if pa.types.is_floating(array.type):
        return bool(pc.all(pc.is_finite(array)).as_py() is not False)
    if pa.types.is_struct(array.type):
        return all(_all_finite(child) for child in array.flatten())
    if pa.types.is_map(array.type):
        return _all_finite(array.items)
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        return _all_finite(array.flatten())
    return True


def _written(value: Any) -> Any:
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(type(value).__name__)


def _with_nan(row: dict[str, Any]) -> bytes:
    """The same with numbers that JSON does not have."""
    text: str = simplejson.dumps(row, use_decimal=True, allow_nan=True, default=_named, separators=(",", ":"))
    return text.encode() + b"\n"


def _named(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Iterable) or not hasattr(value, "isoformat"):
        raise TypeError(type(value).__name__)
    return value.isoformat()
