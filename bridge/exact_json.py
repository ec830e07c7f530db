"""JSON that comes out as it went in: numbers of any size as they are written, lone surrogates, NaN.

For STATE and whatever holds one: a bookmark that lost its last digits would resume in the wrong place. Of a name that
an object has twice, the last value counts, as for every tap's reader.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

import simplejson

NotJson = simplejson.JSONDecodeError
LARGEST = 2**53
"""Nothing is counted beyond it: above, floats have no whole numbers, and sums would not fit into 64 bits."""
_LONGEST = 4300
"""Digits of the longest integer that Python converts."""


class WrittenNumber(Decimal):
    """A number that Python would write in another way: `1e400`, `-0`, 5,000 digits. Its text is as it was read.

    If its exponent is beyond every Decimal, it counts as infinity.
    """

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> WrittenNumber:
        try:
            number = super().__new__(cls, text)
        except InvalidOperation:
            number = super().__new__(cls, "-Infinity" if text.startswith("-") else "Infinity")
        number.text = text
        return number

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[type[WrittenNumber], tuple[str]]:
        return WrittenNumber, (self.text,)


def _whole(text: str) -> int | WrittenNumber:
    return WrittenNumber(text) if len(text) > _LONGEST or text == "-0" else int(text)


def _fraction(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return WrittenNumber(text)
    return number if str(number) == text else WrittenNumber(text)


def loads(text: bytes | str) -> Any:
    """Parse JSON; fractions, and integers of more than 4,300 digits, become `Decimal`. Raises `NotJson`."""
    try:
        return simplejson.loads(text, parse_int=_whole, parse_float=_fraction, allow_nan=True)
    except UnicodeDecodeError as error:
        raise NotJson("not UTF-8", "", 0) from error
    except RecursionError as error:
        raise NotJson("nested too deep", "", 0) from error


def as_number(value: Any) -> int:
    """A number that counts something. Raises `TypeError` for anything else: `1e999999999` would be a gigabyte."""
    if type(value) is int and -LARGEST <= value <= LARGEST:
        return value
    raise TypeError("not a number that counts something")


def dumps(value: Any, *, indent: int | None = None, ascii_only: bool = True) -> bytes:
    """JSON, in ASCII or with its characters as they are; a line end after an indented document."""
    text = simplejson.dumps(value, use_decimal=True, allow_nan=True, indent=indent, ensure_ascii=ascii_only)
    return (text + "\n" if indent else text).encode(errors="backslashreplace")  # a lone surrogate, as JSON escapes it
