"""A slow and obvious decoder, written from docs/types.md: what one record becomes, or that it is a reject.

It shares no code with the bridge. Numbers are read digit by digit; a column's value is made by one function that reads
like its row in the docs. JSON text is compared as the value that it holds.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

_UTC = timezone.utc
_OFFSET = r" ?(?:Z|UTC|[+-]\d\d:\d\d(?::\d\d)?|[+-]\d{4})"


class Reject(Exception):
    """The record cannot be stored."""


class Json(str):
    """Text that holds JSON."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and parsed(self) == parsed(other)

    __hash__ = str.__hash__


def parsed(text: str) -> Any:
    """JSON with its numbers as int and Decimal."""
    return json.loads(text, parse_float=Decimal)


def stored(schema: dict[str, Any], record: dict[str, Any], keys: tuple[str, ...] = ()) -> dict[str, Any]:
    """The row of a parsed record; `_sdc_extra` is in it if the record has fields that the schema does not name."""
    row: dict[str, Any] = {}
    extra = {name: value for name, value in record.items() if name not in schema["properties"]}
    for name, node in schema["properties"].items():
        value = record.get(name)
        if value is None and name in keys:
            raise Reject(name)
        row[name] = _value(node, value)
        if _has_more(node, value):
            extra[name] = value
    in_order = {name: extra[name] for name in record if name in extra}
    return row | ({"_sdc_extra": Json(_text(in_order))} if extra else {})


def _has_more(node: dict[str, Any], value: Any) -> bool:
    """Whether an object somewhere in the value has a field that its schema does not name."""
    if isinstance(value, dict) and node.get("properties"):
        members = node["properties"]
        return any(name not in members or _has_more(members[name], entry) for name, entry in value.items())
    return isinstance(value, list) and "items" in node and any(_has_more(node["items"], entry) for entry in value)


def _value(node: dict[str, Any], value: Any) -> Any:
    return None if value is None else _COLUMNS[_kind(node)](node, value)


def _kind(node: dict[str, Any]) -> str:
    named = node.get("type", [])
    types = [name for name in ([named] if isinstance(named, str) else named) if name != "null"]
    if len(types) != 1:
        return "json"
    kind = str(types[0])
    if kind == "string":
        return str(node.get("format", "string"))
    if kind == "number":
        return "decimal" if "multipleOf" in node else "number"
    if kind == "object":
        return "object" if node.get("properties") else "json"
    if kind == "array":
        return "array" if node.get("items") else "json"
    return kind


def _integer(_: dict[str, Any], value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"-?(0|[1-9]\d*)", value, re.ASCII):
        value = int(value)
    if isinstance(value, Decimal) and abs(value) < 10**20 and value == int(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise Reject(value)
    return value


def _number(_: dict[str, Any], value: Any) -> float:
    found = float(_digits(value))
    if math.isinf(found):
        raise Reject(value)
    return found


def _decimal(node: dict[str, Any], value: Any) -> Decimal:
    found = _digits(value)
    scale = -int(Decimal(str(node["multipleOf"])).adjusted())
    cents = int(found.scaleb(scale)) if abs(found) < Decimal(10) ** 38 else 10**38
    if Decimal(cents) != found.scaleb(scale) or abs(cents) >= 10**38:
        raise Reject(value)
    return found


def _digits(value: Any) -> Decimal:
    if isinstance(value, str) and re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", value, re.ASCII):
        return Decimal(value)
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        raise Reject(value)
    return Decimal(value)


def _boolean(_: dict[str, Any], value: Any) -> bool:
    for meaning, forms in ((True, ("true", 1)), (False, ("false", 0))):
        if value is meaning or (not isinstance(value, (bool, Decimal)) and value in forms):
            return meaning
    raise Reject(value)


def _string(_: dict[str, Any], value: Any) -> str:
    return value if isinstance(value, str) else Json(_text(value))


def _timestamp(_: dict[str, Any], value: Any) -> datetime:
    form = rf"(\d{{4}})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d+))?)?({_OFFSET})?)?"
    match = re.fullmatch(form, value, re.ASCII) if isinstance(value, str) else None
    if not match:
        raise Reject(value)
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    offset = (match[8] or "Z").strip().replace(":", "")
    try:
        found = datetime(year, month, day, hour, minute, second, int((match[7] or "0")[:6].ljust(6, "0")))
        if offset not in ("Z", "UTC"):
            hours, minutes, seconds = int(offset[1:3]), int(offset[3:5]), int(offset[5:] or 0)
            if hours > 23 or minutes > 59 or seconds > 59:
                raise Reject(value)
            east = timedelta(hours=hours, minutes=minutes, seconds=seconds)
            found -= east * (-1 if offset[0] == "-" else 1)
    except (ValueError, OverflowError):
        raise Reject(value) from None
    return found.replace(tzinfo=_UTC)


def _date(node: dict[str, Any], value: Any) -> date:
    _timestamp(node, value)
    if len(value) > 10 and not re.fullmatch(rf"[T ]00:00(:00([.,]0+)?)?({_OFFSET})?", value[10:]):
        raise Reject(value)
    return date.fromisoformat(value[:10])


def _object(node: dict[str, Any], value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Reject(value)
    return {name: _value(member, value.get(name)) for name, member in node["properties"].items()}


def _array(node: dict[str, Any], value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Reject(value)
    return [_value(node["items"], entry) for entry in value]


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_text(entry)}" for name, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value)


_COLUMNS: dict[str, Callable[[dict[str, Any], Any], Any]] = {
    "integer": _integer,
    "number": _number,
    "decimal": _decimal,
    "boolean": _boolean,
    "string": _string,
    "date-time": _timestamp,
    "date": _date,
    "object": _object,
    "array": _array,
    "json": lambda _, value: Json(_text(value)),
}
