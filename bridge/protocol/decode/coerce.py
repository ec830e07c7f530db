"""One record at a time: a value to its column's type where nothing is lost, else the reason.

Numbers arrive as int or Decimal, digit by digit as the tap wrote them. A number in text is a number, 1.0 is an integer,
0 and 1 are booleans, anything in a string column is kept as its JSON text. 1.5 is not an integer, true is not a number.
Texts of PostgreSQL's log, `{1,2}` for an array and `infinity` for an instant, become the values of its tables.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from math import isinf
from typing import Any

import orjson
import pyarrow as pa
import simplejson

from bridge.protocol.decode.instants import date_of, timestamp_of
from bridge.protocol.decode.postgres_text import INFINITE, array_items
from bridge.protocol.schema.json_schema import INT64, TIMESTAMP, is_json, nulls_bad_times, path_of, source
from bridge.protocol.schema.valid import json_pointer

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE = {"NaN", "Infinity", "-Infinity"}
_DIGITS_OF_A_DOUBLE = 17
EXACT = Context(prec=76, traps=[Inexact, InvalidOperation])
"""Raises where a number would be rounded."""
_BOOLEANS = {"true": True, "false": False}
_POSTGRES_BOOLEANS = {"t": True, "f": False}
_LONGEST = 4000
"""Digits of a number; Python itself refuses to convert more than 4,300."""


Path = tuple[str | int, ...]
"""Names and positions from the record down to a value."""


@dataclass(slots=True)
class Notes:
    """Notes on the values of one record, to be counted."""

    extra: set[Path] = field(default_factory=set)
    """Paths outside the schema."""
    bad_times: list[str] = field(default_factory=list)
    """The column of each text that is no time and became null; inside of another column, a dotted name."""


Coercer = Callable[[Any, Path, Notes], Any]
"""Takes a value, its path, and the record's notes, to which it adds."""


class RecordRejected(Exception):
    """A record cannot be stored without loss."""

    def __init__(self, reason: str, path: Path = ()) -> None:
        self.reason = reason
        self.path = path
        super().__init__(reason)

    @property
    def pointer(self) -> str:
        """JSON pointer inside the record; empty for the line as a whole."""
        return json_pointer(self.path)


def lines_of(data: bytes) -> list[bytes]:
    """Lines without their line feeds; the last one may lack it."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def parsed(line: bytes) -> Any:
    """The message with every digit; bare NaN is read. Raises `RecordRejected` if the line is not JSON."""
    try:
        return simplejson.loads(line.decode(), use_decimal=True, allow_nan=True)
    except UnicodeDecodeError:
        raise RecordRejected("not UTF-8") from None
    except RecursionError:
        raise RecordRejected("nested too deep") from None
    except simplejson.JSONDecodeError:
        raise RecordRejected("not a JSON line") from None
    except (ValueError, DecimalException):  # valid JSON, which Python does not convert
        raise RecordRejected("number of more than 4,300 digits, or of a larger exponent than any type has") from None


def json_text(value: Any, at: Path) -> str:
    """Compact JSON of a parsed value, its keys in their order, its numbers digit by digit."""
    try:
        text = simplejson.dumps(value, use_decimal=True, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        if not _storable(text):
            text = simplejson.dumps(value, use_decimal=True, allow_nan=False, separators=(",", ":"))
    except RecursionError:
        raise RecordRejected("nested too deep", at) from None
    except ValueError:
        raise RecordRejected("NaN and Infinity are not JSON", at) from None
    return str(text)


def column_text(value: Any, at: Path) -> str:
    """The text of a parsed value in a JSON column: what `columns.texts` writes, or every digit if a number needs that.

    So the text follows from the value alone, whichever path read its line.
    """
    try:
        return orjson.dumps(_as_doubles(value)).decode()
    except (TypeError, RecursionError):  # also a lone surrogate, and what is nested deeper than orjson writes
        return json_text(value, at)


def _as_doubles(value: Any) -> Any:
    """The value with its fractions as doubles. Raises `TypeError` for one that no double holds, and for NaN."""
    if isinstance(value, dict):
        return {name: _as_doubles(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_as_doubles(entry) for entry in value]
    if isinstance(value, Decimal) and Decimal(repr(double := float(value))) == value:
        return double
    if isinstance(value, Decimal | float):
        raise TypeError("no double")
    return value


def coercer(field: pa.Field) -> Coercer:
    """The function that turns values of a field into what `pa.array` takes for its type, or raises `RecordRejected`.

    Made once a table: to ask Arrow about the type of each value took most of the time.
    """
    return _coercer(field, field.name, nulls_bad_times(field))


def _coercer(field: pa.Field, place: str, null_times: bool) -> Coercer:
    """`place`: the column's name, dotted where it is inside of another one."""
    type_ = field.type
    if is_json(field):
        return lambda value, at, _: None if value is None else column_text(value, at)
    if pa.types.is_struct(type_):
        return _struct(field, place, null_times)
    if pa.types.is_list(type_):
        return _list(field, place, null_times)
    if null_times and type_ in (TIMESTAMP, pa.date32()):
        return _time_or_null(_BY_TYPE[type_], place)
    if pa.types.is_decimal(type_):
        return lambda value, at, _: None if value is None else _decimal(value, type_, at)
    convert = _BY_TYPE[type_]
    return lambda value, at, _: None if value is None else convert(value, at)


def _time_or_null(convert_time: Callable[[Any, Path], Any], place: str) -> Coercer:
    def convert(value: Any, at: Path, notes: Notes) -> Any:
        if value is None:
            return None
        try:
            return convert_time(value, at)
        except RecordRejected:
            if not isinstance(value, str):
                raise
        notes.bad_times.append(place)
        return None

    return convert


def _struct(of: pa.Field, place: str, null_times: bool) -> Coercer:
    members = {source(each): (each.name, _coercer(each, path_of(place, of, each), null_times)) for each in of.type}

    def convert(value: Any, at: Path, notes: Notes) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise RecordRejected("not an object", at)
        result = {}
        for name, entry in value.items():
            path = (*at, name)
            if name in members:
                column, inner = members[name]
                result[column] = inner(entry, path, notes)
            else:
                notes.extra.add(path)
        return result

    return convert


def _list(of: pa.Field, place: str, null_times: bool) -> Coercer:
    item = of.type.value_field
    inner = _coercer(item, path_of(place, of, item), null_times)

    def convert(value: Any, at: Path, notes: Notes) -> Any:
        if value is None:
            return None
        if isinstance(value, str):
            value = _array(value, item, at)
        if not isinstance(value, list):
            raise RecordRejected("not an array", at)
        return [inner(entry, (*at, index), notes) for index, entry in enumerate(value)]

    return convert


def _array(text: str, item: pa.Field, at: Path) -> list[Any]:
    """The items of PostgreSQL's text of an array, as JSON would have them."""
    try:
        items = array_items(text)
    except ValueError:
        raise RecordRejected("not an array", at) from None
    if pa.types.is_boolean(item.type):
        return [_POSTGRES_BOOLEANS.get(each, each) if isinstance(each, str) else each for each in items]
    if is_json(item):
        return [parsed(each.encode()) if isinstance(each, str) else each for each in items]
    return items


def _string(value: Any, at: Path) -> str:
    text = value if isinstance(value, str) else json_text(value, at)
    if not _storable(text):
        raise RecordRejected("lone surrogate, which no UTF-8 text can hold", at)
    return text


def _integer(value: Any, at: Path) -> int:
    if isinstance(value, str) and _INTEGER.fullmatch(value) and len(value) < _LONGEST:
        value = int(value)
    if isinstance(value, Decimal) and (not value or abs(value.adjusted()) <= 20) and value == value.to_integral_value():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise RecordRejected("not an integer", at)
    if value not in INT64:
        raise RecordRejected("integer beyond 64 bits", at)
    return value


def _float(value: Any, at: Path) -> float:
    if isinstance(value, str) and not (_NUMBER.fullmatch(value) or value in _NOT_FINITE):
        raise RecordRejected("not a number", at)
    if isinstance(value, float):
        return value
    if not isinstance(value, int | Decimal | str) or isinstance(value, bool):
        raise RecordRejected("not a number", at)
    try:
        result = float(value)
    except OverflowError:
        result = float("inf")
    if isinf(result) and value not in _NOT_FINITE:
        raise RecordRejected("number beyond a double", at)
    return result


def _decimal(value: Any, type_: pa.Decimal128Type, at: Path) -> Decimal:
    is_text = isinstance(value, str) and _NUMBER.fullmatch(value) and len(value) < _LONGEST
    if isinstance(value, bool) or not (is_text or isinstance(value, int | Decimal)):
        raise RecordRejected("not a number", at)
    try:
        exact = Decimal(value).quantize(Decimal(1).scaleb(-type_.scale), context=EXACT)
    except DecimalException:
        if (printed := _as_printed(value)) is not None:
            return _decimal(printed, type_, at)
        raise RecordRejected(f"number has more digits than decimal({type_.precision},{type_.scale})", at) from None
    if exact.adjusted() >= type_.precision - type_.scale and exact != 0:
        raise RecordRejected(f"number has more digits than decimal({type_.precision},{type_.scale})", at)
    return exact


def _as_printed(value: Any) -> Decimal | None:
    """The number that a double is printed as, if this is a double with all of its digits: 12.339999999999999857891...

    pipelinewise-tap-postgres writes those of PostgreSQL's log so, where the database has 12.34.
    """
    try:
        number = Decimal(value)
        if len(number.as_tuple().digits) > _DIGITS_OF_A_DOUBLE and Decimal(double := float(number)) == number:
            return Decimal(repr(double))
    except (DecimalException, OverflowError):  # beyond a Decimal
        pass
    return None


def _boolean(value: Any, at: Path) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in _BOOLEANS:
        return _BOOLEANS[value]
    if isinstance(value, int) and value in (0, 1):
        return value == 1
    raise RecordRejected("not a boolean", at)


def _timestamp(value: Any, at: Path) -> int:
    if not isinstance(value, str):
        raise RecordRejected("not a date-time", at)
    try:
        return timestamp_of(INFINITE.get(value, value))
    except ValueError:
        raise RecordRejected("not a date-time", at) from None


def received_at(mark: Any) -> int | None:
    """The time of a deletion whose mark is no time, in microseconds: now. None where the mark says that there is none.

    Key and intent are readable, so the row goes; as a reject it would stay for ever, since the bookmark moves on.
    """
    if mark is False or (isinstance(mark, str) and not mark.strip()):
        return None
    return time.time_ns() // 1000


def _date(value: Any, at: Path) -> int:
    if not isinstance(value, str):
        raise RecordRejected("not a date", at)
    try:
        return date_of(INFINITE[value][:10] if value in INFINITE else value)
    except ValueError:
        raise RecordRejected("not a date", at) from None


def _storable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_BY_TYPE = {
    pa.string(): _string,
    pa.int64(): _integer,
    pa.float64(): _float,
    pa.bool_(): _boolean,
    TIMESTAMP: _timestamp,
    pa.date32(): _date,
}
