"""JSON that comes out as it went in: integers of any size, every digit of a fraction, lone surrogates, NaN.

For STATE and whatever holds one: a bookmark that lost its last digits would resume in the wrong place.
"""

from __future__ import annotations

from decimal import DecimalException
from typing import Any

import simplejson

NotJson = simplejson.JSONDecodeError
LARGEST = 2**53
"""Nothing is counted beyond it: above, floats have no whole numbers, and sums would not fit into 64 bits."""


def loads(text: bytes | str) -> Any:
    """Parse JSON; fractions become `Decimal`. Raises `NotJson`."""
    try:
        return simplejson.loads(text, use_decimal=True, allow_nan=True)
    except UnicodeDecodeError as error:
        raise NotJson("not UTF-8", "", 0) from error
    except RecursionError as error:
        raise NotJson("nested too deep", "", 0) from error
    except NotJson:
        raise
    except (ValueError, DecimalException) as error:  # of more digits than Python converts, or beyond a Decimal
        raise NotJson("a number too long", "", 0) from error


def as_number(value: Any) -> int:
    """A number that counts something. Raises `TypeError` for anything else: `1e999999999` would be a gigabyte."""
    if type(value) is int and -LARGEST <= value <= LARGEST:
        return value
    raise TypeError("not a number that counts something")


def dumps(value: Any, *, indent: int | None = None, ascii_only: bool = True) -> bytes:
    """JSON, in ASCII or with its characters as they are; a line end after an indented document."""
    text = simplejson.dumps(value, use_decimal=True, allow_nan=True, indent=indent, ensure_ascii=ascii_only)
    return (text + "\n" if indent else text).encode()
