"""Plain Arrow columns as columns of a table: a refusal rather than a guess, as `columns` does it for Python values.

What passes is what the exact path makes of the rows' JSON (`rows.json_rows`), value for value; all else raises
`NeedsExactPath`, and is read that way.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from bridge.protocol.decode.arrow.plain import kind_of
from bridge.protocol.decode.arrow.rows import json_texts, texts
from bridge.protocol.decode.as_written import column_of
from bridge.protocol.decode.casting import list_items, list_offsets, null_mask
from bridge.protocol.decode.changed import CHANGED_VALUES, Changed
from bridge.protocol.decode.columns import NeedsExactPath, narrow, wide
from bridge.protocol.decode.instants import check_range, dates, timestamps
from bridge.protocol.schema.json_schema import TIMESTAMP, is_json, path_of, source

_EXACT = 2**53
"""Up to this a double holds every integer."""
_DIGITS = 15
"""So many digits survive a double."""
_DECIMAL_TEXT = r"^-?[0-9]+(\.[0-9]+)?$"
_LONGEST_DECIMAL = 38
_FINE = r":[0-9]{2}[.,][0-9]{6}[0-9]*[1-9]"
_MICROS_A_DAY = 86_400_000_000


def mapped(given: pa.Field, array: pa.Array, field: pa.Field, changed: Changed, place: str = "") -> pa.Array:
    """A plain column as a table's. Raises `NeedsExactPath` if one of its values may not be stored as it is.

    `changed`: counts the values that the column cannot give back; `place`: the column's dotted name.
    """
    place = place or field.name
    if not field.nullable and array.null_count:
        raise NeedsExactPath
    try:
        if array.null_count == len(array):
            return pa.nulls(len(array), field.type)
        if is_json(field):
            return _json(given, array, field)
        if kind_of(given):
            raise NeedsExactPath
        if pa.types.is_struct(field.type):
            return _struct(array, field, changed, place)
        if pa.types.is_list(field.type):
            return _list(array, field, changed, place)
        if pa.types.is_decimal(field.type):
            return _decimal(array, field.type)
        result = _BY_TYPE[field.type](array)
    except pa.ArrowException as error:
        raise NeedsExactPath from error
    if field.type == TIMESTAMP and pa.types.is_timestamp(array.type) and array.type.unit == "ns":
        changed[CHANGED_VALUES, place] += _cut(array, result)
    return result


def _cut(array: pa.Array, result: pa.Array) -> int:
    """How many instants have lost nanoseconds."""
    lost = pc.not_equal(result.cast(pa.timestamp("ns", "UTC")).cast(pa.int64()), array.cast(pa.int64()))
    count: int = pc.sum(lost).as_py() or 0
    return count


def _json(given: pa.Field, array: pa.Array, field: pa.Field) -> pa.Array:
    """JSON text."""
    written = json_texts(given, array)
    if _is_canonical(given):
        return pc.if_else(array.is_valid(), written, None)
    return column_of(written.cast(pa.binary()).to_pylist(), field)


def _is_canonical(given: pa.Field) -> bool:
    """Whether the JSON text of these values is what we write: not where there are fractions, or JSON already."""
    type_ = given.type
    if pa.types.is_struct(type_):
        return all(map(_is_canonical, type_))
    if pa.types.is_list(type_):
        return kind_of(given) is None and _is_canonical(type_.value_field)
    return kind_of(given) is None and not (pa.types.is_floating(type_) or pa.types.is_decimal(type_))


def _struct(array: pa.Array, field: pa.Field, changed: Changed, place: str) -> pa.Array:
    if not pa.types.is_struct(array.type):
        raise NeedsExactPath
    members = {each.name: (each, child) for each, child in zip(array.type, array.flatten(), strict=True)}
    if not {source(child) for child in field.type}.issuperset(members):
        raise NeedsExactPath  # fields outside the SCHEMA
    children = [
        mapped(*members[source(child)], child, changed, path_of(place, field, child))
        if source(child) in members
        else pa.nulls(len(array), child.type)
        for child in field.type
    ]
    return pa.StructArray.from_arrays(children, fields=list(field.type), mask=null_mask(array))


def _list(array: pa.Array, field: pa.Field, changed: Changed, place: str) -> pa.Array:
    if not pa.types.is_list(array.type):
        raise NeedsExactPath
    item = field.type.value_field
    items = mapped(array.type.value_field, list_items(array), item, changed, path_of(place, field, item))
    return pa.ListArray.from_arrays(list_offsets(array), items, type=field.type, mask=null_mask(array))


def _string(array: pa.Array) -> pa.Array:
    if pa.types.is_string(array.type):
        return array
    if pa.types.is_nested(array.type):
        raise NeedsExactPath
    result = texts(array)
    if pa.types.is_floating(array.type) and _any(pc.match_substring_regex(result, "[eNI]")):
        raise NeedsExactPath  # the exact path has its own way to write exponents
    return result


def _integer(array: pa.Array) -> pa.Array:
    type_ = array.type
    if pa.types.is_floating(type_):
        _require(pc.less(pc.abs(array), float(_EXACT)))
    elif not (pa.types.is_integer(type_) or pa.types.is_decimal(type_)):
        raise NeedsExactPath
    return array.cast(pa.int64())


def _double(array: pa.Array) -> pa.Array:
    type_ = array.type
    if pa.types.is_floating(type_):
        return array
    if pa.types.is_integer(type_):
        whole = array.cast(pa.int64())
        _require(pc.and_(pc.less_equal(whole, _EXACT), pc.greater_equal(whole, -_EXACT)))
        return whole.cast(pa.float64())
    if not pa.types.is_decimal(type_):
        raise NeedsExactPath
    result = texts(array).cast(pa.float64())
    if type_.precision > _DIGITS:  # then the double must say the same number
        scale = max(type_.scale, 0)
        again = texts(result).cast(pa.decimal256(76, scale))
        _require(pc.equal(again, array.cast(pa.decimal256(76, scale))))
    return result


def _boolean(array: pa.Array) -> pa.Array:
    if not pa.types.is_boolean(array.type):
        raise NeedsExactPath
    return array


def _timestamp(array: pa.Array) -> pa.Array:
    type_ = array.type
    if pa.types.is_string(type_):
        if _any(pc.match_substring_regex(array, _FINE)):
            raise NeedsExactPath
        return timestamps(array)
    if pa.types.is_timestamp(type_):
        if type_.unit == "ns":
            array = pc.floor_temporal(array.cast(pa.timestamp("ns", "UTC")), unit="microsecond")
        array = array.cast(TIMESTAMP)
    elif pa.types.is_date(type_):
        array = array.cast(pa.timestamp("us")).cast(TIMESTAMP)
    else:
        raise NeedsExactPath
    check_range(array)
    return array


def _date(array: pa.Array) -> pa.Array:
    type_ = array.type
    if pa.types.is_string(type_):
        return dates(array)
    if pa.types.is_timestamp(type_):
        instants = _timestamp(array).cast(pa.int64())
        _require(pc.equal(pc.multiply(pc.divide(instants, _MICROS_A_DAY), _MICROS_A_DAY), instants))
        return pc.divide(instants, _MICROS_A_DAY).cast(pa.int32()).cast(pa.date32())
    if not pa.types.is_date(type_):
        raise NeedsExactPath
    _timestamp(array)
    return array


def _decimal(array: pa.Array, type_: pa.Decimal128Type) -> pa.Array:
    given = array.type
    if pa.types.is_floating(given):
        array = texts(array)
        given = array.type
    if pa.types.is_string(given):
        is_short = pc.less_equal(pc.binary_length(array), _LONGEST_DECIMAL)
        _require(pc.and_(is_short, pc.match_substring_regex(array, _DECIMAL_TEXT)))
    elif not (pa.types.is_integer(given) or pa.types.is_decimal(given)):
        raise NeedsExactPath
    return narrow(array.cast(wide(type_)), type_)


def _require(holds: pa.Array) -> None:
    """Raise `NeedsExactPath` unless it holds for every value."""
    if pc.all(holds).as_py() is False:
        raise NeedsExactPath


def _any(holds: pa.Array) -> bool:
    return pc.any(holds).as_py() is True


_BY_TYPE: dict[pa.DataType, Callable[[pa.Array], pa.Array]] = {
    pa.string(): _string,
    pa.int64(): _integer,
    pa.float64(): _double,
    pa.bool_(): _boolean,
    TIMESTAMP: _timestamp,
    pa.date32(): _date,
}
