"""How rows are laid out in files: the values of `partition_by`, `sort_by`, and compression levels."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from bridge.settings.values.checked import wrong

LEVELS = {"zstd": 22, "gzip": 9}
"""The highest level of each compression that has any; the lowest is 1."""

_GRANULARITIES = ["year", "month", "day", "hour"]
_HINT = "write a column's name, or {column: updated_at, granularity: day}"


def _partition_by(value: Any) -> Any:
    if not isinstance(value, list):
        raise wrong("not a list of columns", hint="write [country], or [{column: updated_at, granularity: day}]")
    names = [_name_of(one) for one in value]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise wrong("a column names folders once only", hint=f"write {twice} once")
    return value


def _name_of(one: Any) -> str:
    """The name of the folders for an entry."""
    if isinstance(one, str) and one:
        return one
    if not isinstance(one, dict) or not isinstance(one.get("column"), str) or not one["column"]:
        raise wrong("not a column to partition by", hint=_HINT)
    if one.keys() != {"column", "granularity"}:
        raise wrong("a partition has a column and a granularity", hint=_HINT)
    if one["granularity"] not in _GRANULARITIES:
        raise wrong("not a granularity", hint="write year, month, day or hour")
    return f"{one['column']}_{one['granularity']}"


def _sort_by(value: Any) -> Any:
    if not isinstance(value, list) or not all(isinstance(one, str) and one.removeprefix("-") for one in value):
        raise wrong("not a list of columns", hint="write [customer_id, -updated_at]; - sorts the other way round")
    columns = [one.removeprefix("-") for one in value]
    if twice := next((name for name in columns if columns.count(name) > 1), None):
        raise wrong("a column sorts once only", hint=f"write {twice} once")
    return value


_COLUMN = {"type": "string", "minLength": 1}
_BY_TIME = {
    "type": "object",
    "properties": {"column": _COLUMN, "granularity": {"enum": _GRANULARITIES}},
    "required": ["column", "granularity"],
    "additionalProperties": False,
}
PartitionBy = Annotated[
    list[Any],
    BeforeValidator(_partition_by),
    WithJsonSchema({"type": "array", "items": {"anyOf": [_COLUMN, _BY_TIME]}}),
]
SortBy = Annotated[list[str], BeforeValidator(_sort_by), WithJsonSchema({"type": "array", "items": _COLUMN})]
