"""The columns of the setting `types`: one for each shape of value that real taps send."""

from __future__ import annotations

import json
from typing import Any

_GEO = {"type": "object", "properties": {"lat": {"type": ["number", "null"]}, "lon": {"type": ["number", "null"]}}}
_ITEM = {"type": "object", "properties": {"sku": {"type": ["null", "string"]}, "qty": {"type": ["integer", "null"]}}}
_TIME = {"type": ["null", "string"], "format": "date-time"}

SCHEMAS: dict[str, dict[str, Any]] = {
    "day": {"type": ["null", "string"], "format": "date"},
    "nested": {"type": ["null", "object"], "properties": {"city": {"type": ["null", "string"]}, "geo": _GEO}},
    "ints": {"type": ["null", "array"], "items": {"type": ["null", "integer"]}},
    "items": {"type": ["array", "null"], "items": _ITEM},
    "anything": {"type": ["null", "object"]},
    "null_first": {"type": ["null", "integer"]},
    "null_last": {"type": ["integer", "null"]},
    "sometimes": {"type": ["string", "null"]},
    "at_z": _TIME,
    "at_offset": _TIME,
    "at_fraction": _TIME,
}


def values(number: int, mixed: int) -> dict[str, Any]:
    """The columns of record `number`; `mixed` is its pseudo-random integer. `sometimes` is missing in every third."""
    second, minute, hour = mixed % 60, mixed // 60 % 60, mixed // 3600 % 24
    clock = f"2024-{mixed % 12 + 1:02d}-{mixed % 28 + 1:02d}T{hour:02d}:{minute:02d}:{second:02d}"
    row: dict[str, Any] = {
        "day": clock[:10],
        "nested": {"city": "Zürich" if mixed & 2 else None, "geo": {"lat": mixed % 90 / 2, "lon": -(mixed % 180) / 4}},
        "ints": [mixed % 7 - 3 + step for step in range(mixed % 4)],
        "items": [{"sku": f"№{mixed % 100}", "qty": step} for step in range(mixed % 3)],
        "anything": {"key": mixed % 10, "deep": [{"a": None}, True, 1.5]} if mixed % 5 else {},
        "null_first": None if mixed & 4 else -mixed,
        "null_last": None if mixed & 8 else mixed * 2**31,
        "sometimes": "here",
        "at_z": clock + "Z",
        "at_offset": clock + ("+05:30" if mixed & 16 else "-08:00"),
        "at_fraction": f"{clock}.{mixed % 1_000_000:06d}+00:00",
    }
    if number % 3 == 0:
        del row["sometimes"]
    return row


def retyped(value: Any, to: str) -> Any:
    """A value as the changed schema wants it: a number gains a fraction, text is its JSON; null stays null."""
    if value is None:
        return None
    if to == "number":
        return value + 0.5
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
