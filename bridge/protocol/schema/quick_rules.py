"""jsonschema-rs, set up to say of a record what jsonschema says, in a tenth of the time; and the formats of both.

Patterns, and formats that need no package, are Python's in both. Nine more formats are Rust's in both: jsonschema
would need seven packages for them. A SCHEMA in which the two might differ is left to jsonschema.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cache, partial
from typing import Any
from urllib.parse import unquote

from msgspec import Struct, json

Accepts = Callable[[bytes], bool]
"""True for a line that is a RECORD and surely keeps its SCHEMA. False decides nothing."""

_DRAFTS = ("Draft3", "Draft4", "Draft6", "Draft7", "Draft201909", "Draft202012")
_SINCE = {
    "date-time": "Draft3",
    "uri": "Draft3",
    "hostname": "Draft4",
    "json-pointer": "Draft6",
    "uri-reference": "Draft6",
    "uri-template": "Draft6",
    "idn-hostname": "Draft7",
    "relative-json-pointer": "Draft7",
    "time": "Draft7",
}
"""The formats that Rust checks, each with the draft that brought it."""
_IN_PYTHON = {"date", "email", "idn-email", "ipv4", "ipv6", "ip-address", "regex", "uuid"}
"""The formats for which jsonschema needs no package."""
_OTHERS = {"duration", "iri", "iri-reference"}
"""More formats that Rust would check. IRIs never are."""
_AMOUNT = r"(?:[0-9]+(?:[.,][0-9]+)?{})?"
_DURATION = re.compile(
    "[-+]?P(?=[0-9T])"
    + "".join(map(_AMOUNT.format, "YMWD"))
    + "(?:T(?=[0-9])"
    + "".join(map(_AMOUNT.format, "HMS"))
    + ")?"
)
"""ISO 8601's, with fractions. Rust's has none, as RFC 3339 says."""
_DIFFER = {"patternProperties", "$dynamicRef", "$recursiveRef", "$vocabulary"}
_NAMES = {"$id", "id", "$anchor", "$dynamicAnchor"}
"""Keywords that give a part of a SCHEMA a name, by which a `$ref` may mean it."""


class _Message(Struct):
    record: dict[str, Any]


def _double(text: str) -> float:
    """A fraction of at most 15 digits: doubles are ordered as those are. Rust compares others as doubles, too."""
    if len(text) > 16 or "e" in text or "E" in text:
        raise ValueError
    return float(text)


_MESSAGE = json.Decoder(_Message, float_hook=_double)


@cache
def formats_of(kind: Any) -> Any:
    """The formats that a draft of jsonschema's knows, whatever packages are installed."""
    from jsonschema import FormatChecker

    name, builtin = _draft(kind), kind.FORMAT_CHECKER.checkers
    of_python = _IN_PYTHON | {"time"} if name == "Draft3" else _IN_PYTHON
    checker = FormatChecker(())
    checker.checkers = {each: builtin[each] for each in of_python & builtin.keys()}
    for each, since in _SINCE.items():
        if _DRAFTS.index(since) <= _DRAFTS.index(name):
            checker.checkers[each] = (partial(_in_rust, each), ())
    if name == "Draft3":
        checker.checkers["host-name"] = (partial(_in_rust, "hostname"), ())
    if name in _DRAFTS[-2:]:
        checker.checkers["duration"] = (_is_duration, ())
    return checker


def quick_check(schema: Any, kind: Any) -> Accepts | None:
    """jsonschema-rs for a SCHEMA of this draft of jsonschema's; None where it might not say the same."""
    import jsonschema_rs

    make = getattr(jsonschema_rs, f"{_draft(kind)}Validator", None)
    if make is None or _may_differ(schema):
        return None
    checked = formats_of(kind).checkers
    formats: dict[str, Callable[[str], bool]] = {}
    for name in _IN_PYTHON | _SINCE.keys() | _OTHERS:
        if name not in checked:
            formats[name] = _anything
        elif name not in _SINCE or name == "hostname":
            formats[name] = partial(_conforms, *checked[name])
    keywords = {"multipleOf": _Multiple, "pattern": _Pattern, "contentEncoding": _Note, "contentMediaType": _Note}
    try:
        validator = make(schema, formats=formats, validate_formats=True, keywords=keywords, offline=True)
    except Exception:  # noqa: BLE001 - of many kinds; jsonschema says what is wrong, if it thinks so too
        return None

    def accepts(line: bytes) -> bool:
        try:
            return bool(validator.is_valid(_MESSAGE.decode(line).record))
        except Exception:  # noqa: BLE001 - no RECORD, NaN, a lone surrogate, a deep nesting: jsonschema decides
            return False

    return accepts


class _Note:
    """A keyword that says nothing about what is allowed."""

    def __init__(self, _parent: Any, _value: Any, _path: Any) -> None:
        pass

    def validate(self, _: Any) -> None:
        pass


class _Multiple:
    """`multipleOf` digit by digit: Rust takes the remainder of doubles."""

    def __init__(self, _parent: Any, value: int | float | Decimal, _path: Any) -> None:
        self._divisor = _exact(value)

    def validate(self, value: Any) -> None:
        is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
        if is_number and not is_multiple(_exact(value), self._divisor):
            raise ValueError


def _exact(number: int | float | Decimal) -> int | Decimal:
    """Rust hands out a float where it has all the digits."""
    return Decimal(repr(number)) if isinstance(number, float) else number


class _Pattern:
    """`pattern` by Python's `re`: in that of JavaScript `\\d` and `\\w` are ASCII."""

    def __init__(self, _parent: Any, value: str, _path: Any) -> None:
        self._search = re.compile(value).search

    def validate(self, value: Any) -> None:
        if isinstance(value, str) and not self._search(value):
            raise ValueError


def _draft(kind: Any) -> str:
    """The draft's name; `kind` may extend jsonschema's class for it."""
    match = re.search(r"draft[-/](\d+)-?(\d*)", str(kind.META_SCHEMA.get("$schema")))
    assert match
    return f"Draft{int(match[1])}{match[2]}"


def _anything(_: str) -> bool:
    return True


def _conforms(check: Callable[[str], Any], raises: Any, value: str) -> bool:
    try:
        return bool(check(value))
    except raises:
        return False


@cache
def _rust_format(name: str) -> Any:
    from jsonschema_rs import Draft4Validator, Draft201909Validator

    make = Draft4Validator if name == "hostname" else Draft201909Validator  # later drafts look into `xn--` too
    return make({"format": name}, validate_formats=True)


def _in_rust(name: str, value: Any) -> bool:
    if not isinstance(value, str):
        return True
    try:
        return bool(_rust_format(name).is_valid(value))
    except UnicodeEncodeError:  # a lone surrogate
        return False


def _is_duration(value: Any) -> bool:
    return not isinstance(value, str) or bool(_DURATION.fullmatch(value))


def _may_differ(schema: Any) -> bool:
    """Whether a SCHEMA has what the two read in different ways; a `$ref` that leads back to itself is one."""
    if not all(_is_short(number) for number in _fractions(schema)):
        return True
    leads: dict[str, set[str]] = {}
    for part in _parts(schema):
        named = part is not schema and any(isinstance(part.get(name), str) for name in (*_NAMES, "$schema"))
        if named or part.keys() & _DIFFER:
            return True
        if isinstance(part.get("$ref"), str):
            leads[part["$ref"]] = set()
    for ref in leads:
        target = _target(schema, ref)
        if target is None:
            return True
        leads[ref] = {part["$ref"] for part in _parts(target) if isinstance(part.get("$ref"), str)}
    return any(_returns(ref, leads) for ref in leads)


def _returns(start: str, leads: dict[str, set[str]]) -> bool:
    seen: set[str] = set()
    ahead = set(leads[start])
    while ahead:
        ref = ahead.pop()
        if ref == start:
            return True
        if ref not in seen:
            seen.add(ref)
            ahead |= leads[ref]
    return False


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object in a SCHEMA, itself first."""
    if isinstance(schema, dict):
        yield schema
    for each in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _parts(each)


def _fractions(schema: Any) -> Iterator[Decimal]:
    if isinstance(schema, Decimal):
        yield schema
    for each in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _fractions(each)


def _is_short(number: Decimal) -> bool:
    return not number or (len(number.as_tuple().digits) <= 15 and -300 < number.adjusted() < 15)


def _target(schema: Any, ref: str) -> Any:
    """The part that a JSON pointer behind `#` means; None for any other `$ref`, and where nothing is."""
    if not ref.startswith("#/"):
        return None
    part = schema
    for step in unquote(ref[2:]).split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(part, list) and name.isdecimal() and int(name) < len(part):
            part = part[int(name)]
        elif isinstance(part, dict) and name in part:
            part = part[name]
        else:
            return None
    return part


def is_multiple(value: int | float | Decimal, divisor: int | Decimal) -> bool:
    """Whether value / divisor is a whole number, of however many digits."""
    if isinstance(value, float):
        return False  # NaN or Infinity
    (top, up), (bottom, down) = _scaled(value), _scaled(divisor)
    if up >= down:
        return bool(top * pow(10, up - down, bottom) % bottom == 0)
    if not top or down - up > math.log10(abs(top)) + 1:
        return not top
    return bool(top % (bottom * 10 ** (down - up)) == 0)


def _scaled(number: int | Decimal) -> tuple[int, int]:
    """Digits and exponent: number = digits * 10 ** exponent."""
    if isinstance(number, int):
        return number, 0
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    return int(Decimal((sign, digits, 0))), exponent
