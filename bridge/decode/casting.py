"""Values of a column's older type as the wider one has them: nothing is lost, or it is an error.

Numbers as text are what JSON would write, instants are RFC 3339 in UTC, objects and arrays are JSON with the names that
the tap gave. Rows older than a field have null there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from simplejson import RawJSON

from bridge.decode.coerce import json_text
from bridge.errors import DataError
from bridge.schema.json_schema import TIMESTAMP, is_json, source

_EPOCH = datetime(1970, 1, 1)
_LARGE = 2**53
"""Below this every integer is a double of its own."""
_HINT = (
    "nothing of this commit was stored; set the stream's on_type_change to variant, which leaves older rows as they "
    "are, or load the stream with --full"
)


def refit(table: pa.Table, fields: Sequence[pa.Field]) -> pa.Table:
    """The rows with these columns, by their names. Raises DataError for a value that its new type cannot hold."""
    rows = table.num_rows
    columns = [
        fitted(table.column(field.name).combine_chunks(), table.schema.field(field.name), field)
        if field.name in table.column_names
        else pa.nulls(rows, field.type)
        for field in fields
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def fitted(array: pa.Array, old: pa.Field, new: pa.Field) -> pa.Array:
    """An array of field `old` as field `new` has it: struct fields by name, what is new null, what is gone left out."""
    have, want = array.type, new.type
    if have == want:
        return array
    if pa.types.is_struct(have) and pa.types.is_struct(want):
        return _struct(array, have, want)
    if pa.types.is_list(have) and pa.types.is_list(want):
        items = fitted(array.flatten(), have.value_field, want.value_field)
        return pa.ListArray.from_arrays(_offsets(array), items, type=want, mask=_nulls(array))
    if want == pa.string():
        return _texts(array, old, new)
    if (have, want) == (pa.int64(), pa.float64()):
        return _doubles(array, new)
    if have == pa.date32():
        return array.cast(pa.timestamp("us")).cast(want)
    try:
        return array.cast(want)
    except pa.ArrowInvalid as error:
        raise _misfit(new, str(error)) from error


def _struct(array: pa.StructArray, have: pa.StructType, want: pa.StructType) -> pa.Array:
    children = []
    for field in want:
        at = have.get_field_index(field.name)
        there = at >= 0
        children.append(fitted(array.field(at), have.field(at), field) if there else pa.nulls(len(array), field.type))
    return pa.StructArray.from_arrays(children, fields=list(want), mask=_nulls(array))


def _offsets(array: pa.ListArray) -> pa.Array:
    """The offsets into `array.flatten()`, which leaves out what null lists and the slice's surroundings hold."""
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _doubles(array: pa.Array, new: pa.Field) -> pa.Array:
    found = array.cast(pa.float64(), safe=False)
    large = pc.greater_equal(pc.abs(found), float(_LARGE))
    if pc.any(large).as_py():
        for value in array.filter(large).to_pylist():
            if int(float(value)) != value:
                raise _misfit(new, f"{value} is no double")
    return found


def _texts(array: pa.Array, old: pa.Field, new: pa.Field) -> pa.Array:
    """Plain text, or JSON text where the new field holds that."""
    if array.type in (pa.int64(), pa.bool_()):
        return array.cast(pa.string())
    json = is_json(new) or pa.types.is_nested(array.type)
    values = _values(array, old)
    return pa.array([None if value is None else _text(value, json=json) for value in values], pa.string())


def _text(value: Any, *, json: bool) -> str:
    return value if isinstance(value, str) and not json else json_text(value, ())


def _values(array: pa.Array, field: pa.Field) -> list[Any]:
    """What JSON would have for each value, as `simplejson` takes it."""
    type_ = array.type
    if pa.types.is_struct(type_):
        names = [source(child) for child in type_]
        columns = [_values(array.field(index), child) for index, child in enumerate(type_)]
        rows = [_object(names, row) for row in zip(*columns, strict=True)]
        return [row if there else None for row, there in zip(rows, array.is_valid().to_pylist(), strict=True)]
    if pa.types.is_list(type_):
        items, ends = _values(array.flatten(), type_.value_field), _offsets(array).to_pylist()
        lists = [items[start:end] for start, end in pairwise(ends)]
        return [found if there else None for found, there in zip(lists, array.is_valid().to_pylist(), strict=True)]
    if type_ == TIMESTAMP:
        return [None if ticks is None else _instant(ticks) for ticks in array.cast(pa.int64()).to_pylist()]
    return [None if value is None else _scalar(value, field) for value in array.to_pylist()]


def _object(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """An object of these fields: of one and its variant, which have one name, the one that has a value."""
    found: dict[str, Any] = {}
    for name, value in zip(names, values, strict=True):
        if found.get(name) is None:
            found[name] = value
    return found


def _instant(ticks: int) -> str:
    return f"{(_EPOCH + timedelta(microseconds=ticks)).isoformat()}Z"


def _scalar(value: Any, field: pa.Field) -> Any:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        text = format(value, "f")
        return RawJSON(text.rstrip("0").rstrip(".") if "." in text else text)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return RawJSON(value) if is_json(field) else value


def _misfit(field: pa.Field, what: str) -> DataError:
    return DataError(
        "a value of the table does not fit the column's new type",
        hint=_HINT,
        column=field.name,
        to=field.type,
        value=what,
    )
