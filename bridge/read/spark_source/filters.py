"""Spark's filters on a file: which of its row groups can have a row that passes, by the bounds in its footer.

Spark applies each filter again, so a filter that is not understood here only leaves out nothing. Floats are not
understood: their NaN is in no bounds, and is greater than all numbers to Spark and to nothing else.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bridge.load.write.merge.footers import ColumnRange, group_range

_NAMES = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "In": "in",
    "IsNull": "null",
    "IsNotNull": "not null",
    "StringStartsWith": "prefix",
}
_COMPARED = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a row's column."""

    column: str
    sign: str
    values: tuple[Any, ...] = ()

    def allows(self, bounds: ColumnRange) -> bool:
        """Whether a column with these bounds can have a value that passes."""
        least, greatest, nulls = bounds
        if self.sign == "null":
            return nulls
        if self.sign == "not null":
            return least is not None
        return any(self._inside(value, least, greatest, nulls) for value in self.values)

    def _inside(self, value: Any, least: Any, greatest: Any, nulls: bool) -> bool:
        if value is None:  # equal to null by `<=>` alone
            return nulls and self.sign == "<=>"
        if least is None:
            return False
        if self.sign == "prefix":
            return bool(least[: len(value)] <= value <= greatest[: len(value)])
        if self.sign in _COMPARED:
            return bool(_COMPARED[self.sign](greatest if ">" in self.sign else least, value))
        return bool(least <= value <= greatest)


def conditions(filters: Sequence[Any], fields: Sequence[pa.Field]) -> list[Condition]:
    """The conditions of those of Spark's filters that are understood."""
    types = {field.name: field.type for field in fields}
    made = (_condition(one, types) for one in filters)
    return [one for one in made if one is not None]


def _condition(one: Any, types: Mapping[str, pa.DataType]) -> Condition | None:
    sign = _NAMES.get(type(one).__name__, "")
    path: tuple[str, ...] = getattr(one, "attribute", ())
    if not sign or len(path) != 1 or path[0] not in types or pa.types.is_nested(types[path[0]]):
        return None
    column = path[0]
    value: Any = getattr(one, "value", None)
    values = tuple(value) if sign == "in" else () if sign.endswith("null") else (value,)
    if not all(each is None or _is_of(each, types[column]) for each in values):
        return None
    return Condition(column, sign, values)


def _is_of(value: Any, type_: pa.DataType) -> bool:
    """Whether the value is what bounds of a column of this type hold."""
    if pa.types.is_timestamp(type_):
        return isinstance(value, datetime) and value.tzinfo is not None
    if pa.types.is_floating(type_):
        return False
    try:
        return pa.scalar(value, type_).as_py() == value and type(pa.scalar(value, type_).as_py()) is type(value)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False


def row_groups(file: pq.ParquetFile, asked: Sequence[Condition], fields: Sequence[pa.Field]) -> list[int]:
    """The row groups that can have a row for which all conditions hold."""
    types = {field.name: field.type for field in fields}
    schema = file.schema_arrow
    usable = [one for one in asked if _is_bounded(one.column, types[one.column], schema)]
    names = [one.column for one in usable]
    return [
        group
        for group in range(file.num_row_groups)
        if all(
            bounds is None or one.allows(bounds)
            for one, bounds in zip(usable, group_range(file, group, names), strict=True)
        )
    ]


def _is_bounded(name: str, type_: pa.DataType, file: pa.Schema) -> bool:
    """Whether the footer's bounds are of the table's type; a column that the file lacks is null in each row."""
    return name not in file.names or file.field(name).type == type_
