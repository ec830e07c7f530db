"""A key of a view: values for its columns, as Python has them or as text, checked against the columns' types."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from bridge.errors import SettingsError
from bridge.lake.table_columns import words

Key = tuple[Any, ...]
"""A value for each key column: what Arrow's value of the column would be in Python; None is NULL."""

_INTEGER = re.compile(r"[+-]?[0-9]+")


class _Misfit(Exception):
    """A value is not of its column's type."""


def typed_key(view: str, fields: Sequence[pa.Field], given: Mapping[str, Any]) -> Key:
    """The key that these values are. Raises `SettingsError` for a wrong name, and for a value of another type.

    A number that the column's type cannot hold is no error: no row has it.
    """
    _expect_names(view, fields, given)
    return tuple(_checked(view, fields, field, given[field.name], _of_python) for field in fields)


def key_from_text(view: str, fields: Sequence[pa.Field], given: Mapping[str, str | None]) -> dict[str, Any]:
    """The values that these texts mean by their columns' types. Raises `SettingsError` as `typed_key` does."""
    _expect_names(view, fields, given)
    return {field.name: _checked(view, fields, field, given[field.name], _of_text) for field in fields}


def key_by_column(
    view: str, columns: Sequence[pa.Field], keys: Sequence[str], nulls: Sequence[str]
) -> dict[str, str | None]:
    """The values by column, as `--key` and `--null` have them.

    One without a column's name belongs to the first column that has none yet.
    """
    names = [column.name for column in columns]
    given: dict[str, str | None] = dict.fromkeys(nulls)
    unnamed = []
    for text in keys:
        name, equals, value = text.partition("=")
        if equals and name in names:
            given[name] = value
        else:
            unnamed.append(text)
    free = [name for name in names if name not in given]
    if len(unnamed) > len(free) or len(given) < len(keys) - len(unnamed) + len(set(nulls)):
        hint = f"the key of {view} is: {described(columns)}; give each one value, by --key or --null"
        raise SettingsError("more values than the key has columns", hint=hint, view=view)
    return given | dict(zip(free, unnamed, strict=False))


def described(fields: Sequence[pa.Field]) -> str:
    """The key columns and their types, for people."""
    return ", ".join(f"{field.name} ({_word(field.type)})" for field in fields)


def _expect_names(view: str, fields: Sequence[pa.Field], given: Mapping[str, Any]) -> None:
    names = [field.name for field in fields]
    missing, unknown = [name for name in names if name not in given], [name for name in given if name not in names]
    if unknown or missing:
        hint = f"the key of {view} is: {described(fields)}; give each a value, None for NULL"
        if unknown:
            raise SettingsError("not a key column of the view", hint=hint, view=view, column=", ".join(unknown))
        raise SettingsError("a key column has no value", hint=hint, view=view, column=", ".join(missing))


def _checked(
    view: str, fields: Sequence[pa.Field], field: pa.Field, value: Any, convert: Callable[[pa.DataType, Any], Any]
) -> Any:
    if value is None:
        return None
    try:
        return convert(field.type, value)
    except _Misfit as error:
        hint = f"{error}; the key of {view} is: {described(fields)}"
        raise SettingsError(
            "a value does not fit its key column", hint=hint, column=field.name, value=repr(value)
        ) from None


def _of_python(type_: pa.DataType, value: Any) -> Any:
    for fits, convert in _PYTHON:
        if fits(type_):
            return convert(value)
    raise _Misfit("keys of this type are not looked up: ask in SQL")


def _of_text(type_: pa.DataType, text: str) -> Any:
    for fits, convert in _TEXT:
        if fits(type_):
            return convert(text)
    raise _Misfit("keys of this type are not looked up: ask in SQL")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise _Misfit("it takes a str")


def _integer(value: Any) -> int:
    if not isinstance(value, bool):
        try:
            return operator.index(value)  # NumPy's integers have it, too
        except TypeError:
            pass
    raise _Misfit("it takes an int")


def _decimal(value: Any) -> Decimal:
    if isinstance(value, Decimal) and value.is_finite():
        return value
    try:
        return Decimal(_integer(value))
    except _Misfit:
        raise _Misfit('it takes a decimal.Decimal, such as Decimal("1.25"), or an int') from None


def _float(value: Any) -> float:
    if isinstance(value, float):
        return float(value)
    try:
        return float(_integer(value))
    except OverflowError:
        return math.copysign(math.inf, value)
    except _Misfit:
        raise _Misfit("it takes a float or an int") from None


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise _Misfit("it takes True or False")


def _date(value: Any) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    raise _Misfit("it takes a datetime.date")


def _instant(value: Any) -> datetime:
    if isinstance(value, datetime) and value.utcoffset() is not None:
        return _in_utc(value)
    raise _Misfit("it takes a datetime.datetime with its time zone, such as tzinfo=timezone.utc")


def _integer_text(text: str) -> int:
    if _INTEGER.fullmatch(text) and len(text) <= 1000:
        return int(text)
    raise _Misfit("it takes an integer")


def _decimal_text(text: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise _Misfit("it takes a number, such as 1.25") from None
    return _decimal(value) if value.is_finite() else _decimal(None)


def _float_text(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _Misfit("it takes a number, such as 1.5, 1e9 or nan") from None


def _bool_text(text: str) -> bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    raise _Misfit("it takes true or false")


def _date_text(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise _Misfit("it takes a date, such as 2026-01-31") from None


def _instant_text(text: str) -> datetime:
    """A time; in UTC, as all that are shown, unless it says another zone."""
    try:
        time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise _Misfit("it takes a time, such as 2026-01-31T23:59:59Z") from None
    return time.replace(tzinfo=timezone.utc) if time.tzinfo is None else _in_utc(time)


def _in_utc(time: datetime) -> datetime:
    try:
        return time.astimezone(timezone.utc)
    except OverflowError:
        raise _Misfit("it takes a time of the years 1 to 9999 in UTC") from None


_Fits = Callable[[pa.DataType], bool]
_TYPES: tuple[_Fits, ...] = (
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_decimal,
    pa.types.is_timestamp,
    pa.types.is_date,
    pa.types.is_boolean,
    pa.types.is_floating,
)
_PYTHON = tuple(zip(_TYPES, (_integer, _text, _decimal, _instant, _date, _bool, _float), strict=True))
_TEXT = tuple(
    zip(_TYPES, (_integer_text, _text, _decimal_text, _instant_text, _date_text, _bool_text, _float_text), strict=True)
)


def _word(type_: pa.DataType) -> str:
    """A type as `tables show` has it."""
    return (
        "timestamp" if pa.types.is_timestamp(type_) else words("float64") if pa.types.is_float64(type_) else str(type_)
    )
