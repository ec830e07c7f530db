"""Python values, as `orjson` reads them, to one Arrow column: a refusal rather than a guess.

Only values that already have their column's type pass, which `set(map(type, values))` tells at the speed of C. All else
raises `NeedsExactPath`, and those records go value by value through `coerce`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from itertools import accumulate, chain
from typing import Any

import orjson
import pyarrow as pa

from bridge.protocol.decode.instants import dates, timestamps
from bridge.protocol.schema.json_schema import TIMESTAMP, is_json, source

_NULL = type(None)
_AS_ZERO = bytes.maketrans(b"0123456789.E", b"00000000000e")
_SUSPECTS = (b"0" * 17, b"0" * 16 + b"e", b"e000", b"e+000", b"e-000")
_SUSPECT = re.compile(
    rb"(?<=[:,\[\s])-?"
    rb"(?:[0-9][0-9.]{16,}(?:[eE][-+]?[0-9]+)?|[0-9][0-9.]{15}[eE][-+]?[0-9]+|[0-9.]+[eE][-+]?[0-9]{3,})"
)
_LONGEST_DECIMAL, _WIDEST_DECIMAL = 38, 76
"""The digits of our decimals, which are at most as many after the point; those of 256 bits hold both."""
_FLOAT = re.compile(r"(?:^|[:,\[])-?[0-9]+[.e]")
_PLAIN = {
    pa.string(): frozenset({str, _NULL}),
    pa.int64(): frozenset({int, _NULL}),
    pa.float64(): frozenset({int, float, _NULL}),
    pa.bool_(): frozenset({bool, _NULL}),
    TIMESTAMP: frozenset({str, _NULL}),
    pa.date32(): frozenset({str, _NULL}),
}
_DECIMAL = frozenset({int, float, str, _NULL})


class NeedsExactPath(Exception):
    """A value does not have its column's type, or only `coerce` reads it."""


class InexactError(NeedsExactPath):
    """A number passed through a double; only its line tells whether digits were lost."""


def may_be_lossy(lines: bytes) -> bool:
    """False if no number in these lines can lose a digit as a double: 15 digits and two of exponent never do."""
    zeros = lines.translate(_AS_ZERO)
    return any(suspect in zeros for suspect in _SUSPECTS)


def lossy(line: bytes) -> bool:
    """True if a number in the line changes when it passes through a double."""
    return any(_changes(token.decode()) for token in _SUSPECT.findall(line))


def _changes(token: str) -> bool:
    if token.lstrip("-").isdigit():
        return len(token) > 18 and not -(2**63) <= int(token) < 2**64
    try:
        return Decimal(token) != Decimal(repr(float(token)))
    except (ValueError, InvalidOperation):
        return True  # digits inside a text: a false alarm only costs time


def wide(type_: pa.Decimal128Type) -> pa.Decimal256Type:
    """The type by which Arrow is to read a decimal: 128 bits overflow in silence, into other digits."""
    return pa.decimal256(_WIDEST_DECIMAL, type_.scale)


def narrow(decimals: pa.Array, type_: pa.Decimal128Type) -> pa.Array:
    """The decimals in their column's type. Raises `pa.ArrowInvalid` for one with a digit too many."""
    result = decimals.cast(type_)
    result.validate(full=True)
    return result


def texts(values: Iterable[Any], *, trusted: bool) -> list[str | None]:
    """JSON text of each value. Raises `InexactError` for one with a double, unless these are `trusted` to be exact."""
    try:
        result = [None if value is None else orjson.dumps(value).decode() for value in values]
    except TypeError as error:
        raise NeedsExactPath from error  # nested deeper than orjson writes
    if not trusted and has_double(result):
        raise InexactError
    return result


def has_double(written: Iterable[str | None]) -> bool:
    """Whether one of these JSON texts has a number that is a double."""
    return any(text is not None and _FLOAT.search(text) for text in written)


def column(values: list[Any], field: pa.Field, *, trusted: bool) -> pa.Array:
    """The values as an array of the field's type. Raises `NeedsExactPath` if a value has another type."""
    type_ = field.type
    if is_json(field):
        return pa.array(texts(values, trusted=trusted), pa.string())
    kinds = set(map(type, values))
    if pa.types.is_struct(type_):
        return _struct(values, kinds, type_, trusted)
    if pa.types.is_list(type_):
        return _list(values, kinds, type_, trusted)
    if not kinds <= _PLAIN.get(type_, _DECIMAL):
        raise NeedsExactPath
    try:
        return _scalars(values, kinds, type_, trusted)
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError) as error:
        raise NeedsExactPath from error


def _scalars(values: list[Any], kinds: set[type], type_: pa.DataType, trusted: bool) -> pa.Array:
    if type_ == TIMESTAMP:
        return timestamps(pa.array(values, pa.string()))
    if type_ == pa.date32():
        return dates(pa.array(values, pa.string()))
    if type_ == pa.float64() and int in kinds:
        values = [None if value is None else float(value) for value in values]
    if pa.types.is_decimal(type_):
        if float in kinds and not trusted:
            raise InexactError
        written = [None if value is None else str(value) for value in values]
        if any(text and ("e" in text or "E" in text or len(text) > _LONGEST_DECIMAL) for text in written):
            raise NeedsExactPath  # where one digit too many is told from a number that is too large
        return narrow(pa.array(written, pa.string()).cast(wide(type_)), type_)
    return pa.array(values, type_)


def _struct(values: list[Any], kinds: set[type], type_: pa.StructType, trusted: bool) -> pa.Array:
    if not kinds <= {dict, _NULL}:
        raise NeedsExactPath
    names = [source(field) for field in type_]
    declared = set(names)
    if not all(value is None or declared.issuperset(value) for value in values):
        raise NeedsExactPath
    filled = [{} if value is None else value for value in values]
    children = [
        column([value.get(name) for value in filled], field, trusted=trusted)
        for name, field in zip(names, type_, strict=True)
    ]
    mask = pa.array([value is None for value in values]) if _NULL in kinds else None
    return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask)


def _list(values: list[Any], kinds: set[type], type_: pa.ListType, trusted: bool) -> pa.Array:
    if not kinds <= {list, _NULL}:
        raise NeedsExactPath
    items = column(list(chain.from_iterable(value or () for value in values)), type_.value_field, trusted=trusted)
    offsets = pa.array(accumulate((len(value or ()) for value in values), initial=0), pa.int32())
    mask = pa.array([value is None for value in values]) if _NULL in kinds else None
    return pa.ListArray.from_arrays(offsets, items, type=type_, mask=mask)
