"""Arrow fields to JSON Schema: what `json_schema` reads as the same column again.

A decimal says `precision` and `scale`, or the bounds of an integer. JSON text may be anything, so it has all types.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from bridge.protocol.schema.json_schema import EXTRA, is_json
from bridge.protocol.schema.valid import MAX_DIGITS

_ANY = ["null", "boolean", "integer", "number", "string", "array", "object"]
_LARGEST = 10**MAX_DIGITS - 1


def object_schema(fields: Iterable[pa.Field]) -> dict[str, Any]:
    """The JSON Schema of records with these columns."""
    return {"type": "object", "properties": {field.name: _value_schema(field) for field in fields}}


def _value_schema(field: pa.Field) -> dict[str, Any]:
    """The JSON Schema of a column's values; null is one of them, unless the column is of the key."""
    if is_json(field):
        return {"type": _ANY}
    if field.name == EXTRA:
        return {"type": ["null", "object"]}
    name, more = _described(field.type)
    return {"type": ["null", name] if field.nullable else name, **more}


def _described(type_: pa.DataType) -> tuple[str, dict[str, Any]]:
    if pa.types.is_struct(type_):
        return "object", {"properties": object_schema(type_)["properties"]}
    if pa.types.is_list(type_):
        return "array", {"items": _value_schema(type_.value_field)}
    if pa.types.is_decimal(type_):
        if (type_.precision, type_.scale) == (MAX_DIGITS, 0):
            return "integer", {"minimum": -_LARGEST, "maximum": _LARGEST}
        return "number", {"precision": type_.precision, "scale": type_.scale}
    if pa.types.is_timestamp(type_):
        return "string", {"format": "date-time"}
    if type_ == pa.date32():
        return "string", {"format": "date"}
    names = {pa.int64(): "integer", pa.float64(): "number", pa.bool_(): "boolean", pa.string(): "string"}
    return names[type_], {}
