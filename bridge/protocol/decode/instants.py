"""Dates and times as taps write them, one by one or a column at a time, with the same result.

A date-time without an offset is UTC, a bare date is its midnight. An offset may have seconds, as PostgreSQL and Python
write it for old times, and a blank before it; a fraction may follow a comma. Digits beyond microseconds are cut off,
towards the past. A date may be written as a date-time at midnight; it is the day as written, whatever the offset. Years
are 1 to 9999 in UTC, which every engine reads. A leap second and 24:00 are refused: no other instant equals them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bridge.protocol.schema.json_schema import TIMESTAMP

_OFFSET = r"(?: ?(?:[Zz]|UTC|[+-]\d\d(?:(?::\d\d){0,2}|(?:\d\d){0,2})))"
_INSTANT = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)"
    r"(?:[Tt ](?P<hour>\d\d)(?::(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d+))?)?)?"
    rf"(?P<offset>{_OFFSET})?)?",
    re.ASCII,
)
_HAS_OFFSET = r"[Tt ].*(?:[Zz]|[+-]\d\d(?::?\d\d)?)$"
_MIDNIGHT = rf"^(\d{{4}}-\d\d-\d\d)[Tt ]00(?::00(?::00(?:[.,]0+)?)?)?{_OFFSET}?$"
_DAY = r"\d{4}-\d\d-\d\d$"
_EPOCH = datetime(1970, 1, 1)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_FIRST, _LAST = (round((edge - _EPOCH) / timedelta(microseconds=1)) for edge in (datetime.min, datetime.max))
_FIRST_DAY, _LAST_DAY = (edge.toordinal() - _EPOCH_DAY for edge in (date.min, date.max))


def timestamp_of(text: str) -> int:
    """Microseconds since 1970 in UTC. Raises `ValueError` for a text that is no instant of the years 1 to 9999."""
    match = _INSTANT.fullmatch(text)
    if match is None:
        raise ValueError("not a date-time")
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    micros = int((match["fraction"] or "")[:6].ljust(6, "0"))
    day = date.fromisoformat(match["day"]).toordinal() - _EPOCH_DAY
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("not a time of day")
    seconds = day * 86_400 + hour * 3600 + minute * 60 + second - _offset_seconds(match["offset"])
    result = seconds * 1_000_000 + micros
    if not _FIRST <= result <= _LAST:
        raise ValueError("outside the years 1 to 9999")
    return result


def _offset_seconds(text: str | None) -> int:
    digits = (text or "").strip().replace(":", "")
    if digits in ("", "Z", "z", "UTC"):
        return 0
    hours, minutes, seconds = (int(digits[at : at + 2] or 0) for at in (1, 3, 5))
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError("not an offset from UTC")
    return (hours * 3600 + minutes * 60 + seconds) * (-1 if digits[0] == "-" else 1)


def date_of(text: str) -> int:
    """Days since 1970. Raises `ValueError` for a text that is neither a date nor a midnight."""
    if len(text) != 10:
        timestamp_of(text)
        if re.match(_MIDNIGHT, text, re.ASCII) is None:
            raise ValueError("a date with a time of day")
    elif re.match(_DAY, text, re.ASCII) is None:
        raise ValueError("not a date")  # Python 3.11 reads weeks, too
    return date.fromisoformat(text[:10]).toordinal() - _EPOCH_DAY


def timestamps(texts: pa.StringArray) -> pa.Array:
    """`timestamp_of` for a column. Raises `pa.ArrowInvalid` if a text is refused, or may be."""
    try:
        result = texts.cast(TIMESTAMP)
    except pa.ArrowInvalid:
        short = pc.replace_substring_regex(texts, r"(\.\d{6})\d+", r"\1")
        zoned = pc.match_substring_regex(short, _HAS_OFFSET)
        day_only = pc.equal(pc.binary_length(short), 10)
        full = pc.if_else(day_only, pc.binary_join_element_wise(short, "T00", ""), short)
        result = pc.if_else(zoned, full, pc.binary_join_element_wise(full, "Z", "")).cast(TIMESTAMP)
    check_range(result)
    return result


def moments(texts: Iterable[Any]) -> pa.Array:
    """A timestamp for each text, null where it is none: for what a message says about its record."""
    strings = [text if isinstance(text, str) else None for text in texts]
    try:
        return timestamps(pa.array(strings, pa.string()))
    except (pa.ArrowInvalid, UnicodeEncodeError):
        return pa.array([_moment(text) for text in strings], pa.int64()).cast(TIMESTAMP)


def _moment(text: str | None) -> int | None:
    try:
        return None if text is None else timestamp_of(text)
    except ValueError:
        return None


def dates(texts: pa.StringArray) -> pa.Array:
    """`date_of` for a column. Raises `pa.ArrowInvalid` if a text is refused, or may be."""
    try:
        result = texts.cast(pa.date32())
    except pa.ArrowInvalid:
        timestamps(texts)
        result = pc.replace_substring_regex(texts, _MIDNIGHT, r"\1").cast(pa.date32())
    _check_edges(result.cast(pa.int32()), _FIRST_DAY, _LAST_DAY)
    return result


def check_range(instants: pa.Array) -> None:
    """Raise `pa.ArrowInvalid` outside of the years 1 to 9999: Arrow parses the year 0, and makes the year 10000."""
    _check_edges(instants.cast(pa.int64()), _FIRST, _LAST)


def _check_edges(numbers: pa.Array, first: int, last: int) -> None:
    edges = pc.min_max(numbers).as_py()
    if edges["min"] is not None and not first <= edges["min"] <= edges["max"] <= last:
        raise pa.ArrowInvalid("outside the years 1 to 9999")
