"""One masked value. Null stays null, and an array is masked item by item.

Of a number the text counts, without zeros that say nothing: 42, 42.0 and "42" have one hash.
"""

from __future__ import annotations

import hmac
import re
from collections import Counter
from decimal import Decimal
from typing import Any

from bridge.exact_json import dumps
from bridge.protocol.mask.rules import HASH, YEAR

STARS = "***"
_LONG = 8
"""A text of so many characters keeps its last four."""
_DATE = re.compile(r"\s*([0-9]{4})-[0-9]{2}")
_YEAR = re.compile(r"(?<![0-9])[12][0-9]{3}(?![0-9])")
_LARGEST_EXPONENT = 400


class ValueMasks:
    """Masks values with one key. `yearless` counts values that had no year, by `place`."""

    def __init__(self, key: str) -> None:
        self._hmac = hmac.new(key.encode("utf-8", "surrogatepass"), digestmod="sha256")
        self.yearless: Counter[str] = Counter()

    def masked(self, value: Any, action: str, place: str) -> Any:
        """The value that is stored instead, of parsed JSON; `action` is any but `keep` and `drop`."""
        if value is None:
            return None
        if isinstance(value, list):
            return [self.masked(one, action, place) for one in value]
        if action == YEAR:
            return self._year(value, place)
        if action == HASH:
            return self._hash(dumps(_sorted(value)).decode() if isinstance(value, dict) else text_of(value))
        if action == "last4" and not isinstance(value, dict):
            text = text_of(value)
            return STARS + text[-4:] if len(text) >= _LONG else STARS
        return STARS

    def _hash(self, text: str) -> str:
        code = self._hmac.copy()
        code.update(text.encode("utf-8", "surrogatepass"))
        return code.hexdigest()

    def _year(self, value: Any, place: str) -> int | None:
        text = "" if isinstance(value, (dict, bool)) else text_of(value)
        if date := _DATE.match(text):
            return int(date[1])
        years = set(_YEAR.findall(text))
        if len(years) == 1:
            return int(years.pop())
        self.yearless[place] += 1
        return None


def text_of(value: Any) -> str:
    """The text of a value that is neither an object nor an array."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    number = value if isinstance(value, Decimal) else Decimal(value)
    if not number.is_finite() or abs(number.adjusted()) > _LARGEST_EXPONENT:
        return str(value)
    text = format(Decimal(str(number)) if isinstance(value, Decimal) else number, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def _sorted(value: Any) -> Any:
    """An object with its names in order."""
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(one) for one in value] if isinstance(value, list) else value
