"""Values of a column's older type in the wider one: nothing is lost, or it is an error.

As text, numbers are as JSON writes them, instants RFC 3339 in UTC, objects and arrays JSON with the tap's names. Rows
older than a field have null there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal, Inexact, InvalidOperation
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from simplejson import RawJSON

from bridge.errors import DataError
from bridge.protocol.decode.coerce import EXACT, json_text
from bridge.protocol.decode.columns import narrow, wide
from bridge.protocol.schema.json_schema import TIMESTAMP, is_json, source

_EPOCH = datetime(1970, 1, 1)
_LARGE = 2**53
"""Below this every integer has a double of its own."""
_HINT = (
    "nothing of this commit was stored; load the table anew with `run --full -s` and the stream's name, if it is "
    "append-only after load_method: auto; or set the stream's on_type_change to variant, which leaves older rows as "
    "they are"
)


def refit(table: pa.Table, fields: Sequence[pa.Field]) -> pa.Table:
    """The rows with these columns, by name. Raises `DataError` for a value that its new type cannot hold."""
    return pa.Table.from_arrays([_refitted(table, field) for field in fields], schema=pa.schema(fields))


def _refitted(table: pa.Table, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    if not table.schema.get_all_field_indices(field.name):
        return pa.nulls(table.num_rows, field.type)
    column, old = table.column(field.name), table.schema.field(field.name)
    # to combine chunks is to copy them, which takes as long as to read them
    return column if old.type == field.type else fitted(column.combine_chunks(), old, field)


def fitted(array: pa.Array, old: pa.Field, new: pa.Field) -> pa.Array:
    """An array of field `old` as one of `new`: struct fields by name, new ones null, those that left dropped."""
    before, after = array.type, new.type
    if before == after:
        return array
    if pa.types.is_struct(before) and pa.types.is_struct(after):
        return _struct(array, before, after)
    if pa.types.is_list(before) and pa.types.is_list(after):
        items = fitted(array.flatten(), before.value_field, after.value_field)
        return pa.ListArray.from_arrays(list_offsets(array), items, type=after, mask=null_mask(array))
    if after == pa.string():
        return _texts(array, old, new)
    if (before, after) == (pa.int64(), pa.float64()):
        return _doubles(array, new)
    if before == pa.float64() and pa.types.is_decimal(after):
        return _decimals(array, new)
    if before == pa.date32():
        return array.cast(pa.timestamp("us")).cast(after)
    try:
        return narrow(array.cast(wide(after)), after) if pa.types.is_decimal(after) else array.cast(after)
    except pa.ArrowInvalid as error:
        raise _misfit(new, str(error)) from error


def _struct(array: pa.StructArray, before: pa.StructType, after: pa.StructType) -> pa.Array:
    places = [(before.get_field_index(field.name), field) for field in after]
    children = [
        fitted(array.field(at), before.field(at), field) if at >= 0 else pa.nulls(len(array), field.type)
        for at, field in places
    ]
    return pa.StructArray.from_arrays(children, fields=list(after), mask=null_mask(array))


def list_items(array: pa.ListArray) -> pa.Array:
    """The items of all lists: `array.flatten()`, by which Arrow ends the process for some empty arrays."""
    return array.flatten() if len(array) else array.values.slice(0, 0)


def list_offsets(array: pa.ListArray) -> pa.Array:
    """Offsets into `list_items(array)`, which leaves out what is in null lists and outside of the slice."""
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])


def null_mask(array: pa.Array) -> pa.Array | None:
    """The mask that `from_arrays` takes for the nulls of a struct or list; None without nulls."""
    return array.is_null() if array.null_count else None


def _doubles(array: pa.Array, new: pa.Field) -> pa.Array:
    doubles = array.cast(pa.float64(), safe=False)
    for value in array.filter(pc.greater_equal(pc.abs(doubles), float(_LARGE))).to_pylist():
        if value is not None and int(float(value)) != value:
            raise _misfit(new, f"{value} is no double")
    return doubles


def _decimals(array: pa.Array, new: pa.Field) -> pa.Array:
    """Each double as JSON writes it, which is how it came."""
    scale, whole = Decimal(1).scaleb(-new.type.scale), new.type.precision - new.type.scale
    result: list[Decimal | None] = []
    for value in array.to_pylist():
        exact = None if value is None else Decimal(repr(value))
        if exact is not None and not (exact.is_finite() and exact.adjusted() < whole):
            raise _misfit(new, f"{value} has other digits")
        try:
            result.append(exact if exact is None else exact.quantize(scale, context=EXACT))
        except (Inexact, InvalidOperation):
            raise _misfit(new, f"{value} has other digits") from None
    return pa.array(result, new.type)


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
    """Each value as `simplejson` takes it."""
    type_ = array.type
    if pa.types.is_struct(type_):
        names = [source(child) for child in type_]
        columns = [_values(array.field(index), child) for index, child in enumerate(type_)]
        rows = [_object(names, row) for row in zip(*columns, strict=True)]
        return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
    if pa.types.is_list(type_):
        items, ends = _values(array.flatten(), type_.value_field), list_offsets(array).to_pylist()
        lists = [items[start:end] for start, end in pairwise(ends)]
        return [items if valid else None for items, valid in zip(lists, array.is_valid().to_pylist(), strict=True)]
    if type_ == TIMESTAMP:
        return [None if ticks is None else _instant(ticks) for ticks in array.cast(pa.int64()).to_pylist()]
    return [None if value is None else _scalar(value, field) for value in array.to_pylist()]


def _object(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """An object of these fields. A field and its variant have one name: the one with a value counts."""
    result: dict[str, Any] = {}
    for name, value in zip(names, values, strict=True):
        if result.get(name) is None:
            result[name] = value
    return result


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
