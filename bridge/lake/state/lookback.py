"""`lookback`: starts the tap some time before its bookmark, for late rows; the stored bookmark never goes back.

Only the STATE that the tap is started with is shifted. The STATE that it sends is stored unchanged, except for
bookmarks that have not passed the stored one again: these stay as stored. Their rows are committed already. Also, taps
repeat the STATE of the start for streams that they have not reached yet; if that were stored, each such run would start
another lookback earlier.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, ClassVar

from bridge.errors import SettingsError
from bridge.protocol.singer.state import bookmark, is_empty, is_flat, known_as

_VALUE = "replication_key_value"
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)(?:([T ]\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:?\d\d)?)?")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")  # with zeros before it, its order is that of texts
_FIRST = datetime(1, 1, 1)
_LEAST = _FIRST.replace(tzinfo=timezone.utc)
_OPAQUE = "its bookmark has no value of the window's kind; load it by `run --state`, with a STATE that you wrote"

Length = timedelta | int | float
Place = tuple[str, str]
"""A stream, and the text of a partition's context; empty for the stream's own bookmark."""


@dataclass(slots=True)
class Lookback:
    """The lookbacks of a pipeline. `of` returns how far a stream looks back; None: not at all."""

    FILE_TIME: ClassVar[str] = "modified_since"
    """Under which name taps of files keep the time of the last one; they read those that are newer. So do tap-s3-csv,
    of both makers, tap-sftp and tap-spreadsheets-anywhere."""
    of: Callable[[str], Length | None] = lambda _: None
    _given: dict[Place, tuple[dict[str, Any], Any]] = field(default_factory=dict)
    """The stored bookmark, and the value with which the tap was started instead."""
    unshifted: set[str] = field(default_factory=set)
    """Streams with a lookback whose bookmark has no value of a known name: they start at the bookmark."""
    quiet: set[str] = field(default_factory=set)
    """Streams that look back for a technical reason, not by the user's settings: there is no warning about them."""

    @property
    def streams(self) -> list[str]:
        """The streams that start earlier."""
        return sorted({stream for stream, _ in self._given} - self.quiet)

    def start(self, state: Any) -> Any:
        """The STATE for the tap. Raises `SettingsError` if it is flat, or a bookmark is no time and no number."""
        if is_empty(state):
            return state
        if is_flat(state):
            hint = "its STATE has no `bookmarks`, so nobody knows what to shift: remove lookback"
            raise SettingsError("this tap's STATE has no place for a lookback", hint=hint)
        bookmarks = {
            stream: self._shifted(stream, bookmark, "") if isinstance(bookmark, dict) else bookmark
            for stream, bookmark in state["bookmarks"].items()
        }
        return {**state, "bookmarks": bookmarks}

    @staticmethod
    def at(state: Any, stream: tuple[str, ...], key: str | None, bound: Decimal | datetime) -> Any:
        """The STATE with which a tap sends a stream's rows from `bound` on; `key`: its replication key, if it is known.

        For `run --backfill`. It is a little before `bound`: some taps send only what is greater. Raises `SettingsError`
        where no bookmark of the stream says how its tap writes one.
        """
        stored, name = bookmark(state, stream), known_as(state, stream)
        begun = None if is_flat(state) else _begun(stored, key, bound)
        if begun is None:
            hint = _OPAQUE if stored else "run it first, so that its bookmark says how the tap writes one"
            facts = {"stream": name} | ({"bookmark": str(stored)[:60]} if stored else {})
            raise SettingsError("nobody knows how to have the tap start at a value", hint=hint, **facts)
        return {**state, "bookmarks": {**state["bookmarks"], name: begun}}

    def _shifted(self, stream: str, bookmark: dict[str, Any], context: str) -> dict[str, Any]:
        length = self.of(stream)
        if length is None:
            return bookmark
        result = dict(bookmark)
        name = _value_name(bookmark)
        if bookmark.get(name) is not None:
            result[name] = _before(bookmark[name], length, stream)
            self._given[stream, context] = bookmark, result[name]
        elif bookmark and not bookmark.get("partitions") and name not in bookmark:
            self.unshifted.add(stream)
        if isinstance(parts := bookmark.get("partitions"), list):
            result["partitions"] = [
                self._shifted(stream, part, str(part.get("context"))) if isinstance(part, dict) else part
                for part in parts
            ]
        return result

    def stored(self, declared: Any) -> Any:
        """The STATE to store: the tap's, but with the stored bookmark until the tap has passed it again."""
        if not self._given or is_flat(declared):
            return declared
        bookmarks = {
            stream: self._restored(stream, bookmark, "") if isinstance(bookmark, dict) else bookmark
            for stream, bookmark in declared["bookmarks"].items()
        }
        return declared if bookmarks == declared["bookmarks"] else {**declared, "bookmarks": bookmarks}

    def _restored(self, stream: str, bookmark: dict[str, Any], context: str) -> dict[str, Any]:
        before, given = self._given.get((stream, context), ({}, None))
        name = _value_name(before)
        result = bookmark
        if given is not None and _lies_between(given, bookmark.get(name), before[name]):
            result = before
        if isinstance(parts := bookmark.get("partitions"), list):
            restored = [
                self._restored(stream, part, str(part.get("context"))) if isinstance(part, dict) else part
                for part in parts
            ]
            result = result if restored == parts and result is bookmark else {**result, "partitions": restored}
        return result


def _value_name(bookmark: dict[str, Any]) -> str:
    """Under which name a bookmark has its value."""
    return Lookback.FILE_TIME if Lookback.FILE_TIME in bookmark else _VALUE


def _before(value: Any, length: Length, stream: str) -> Any:
    """A bookmark's value, earlier by `length`, in the same format."""
    if _is_number(value) and not isinstance(length, timedelta):
        return value - length
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None or not isinstance(length, timedelta):
        raise _unfit(value, length, stream)
    day, time, fraction, zone = match.groups()
    try:
        at = datetime.fromisoformat(f"{day}{time or ''}")
    except ValueError:
        raise _unfit(value, length, stream) from None
    text = (max(at, _FIRST + length) - length).isoformat(time[0] if time else "T", "seconds")
    return (text if time else text[:10]) + (fraction or "") + (zone or "")


def _begun(stored: Any, key: str | None, bound: Decimal | datetime) -> Any:
    """A bookmark of this value, in the form of a stored one; None if that has no value."""
    if not isinstance(stored, dict):
        return _written(bound, stored)
    if isinstance(parts := stored.get("partitions"), list) and parts:
        begun = [_begun(part, key, bound) if isinstance(part, dict) else None for part in parts]
        return {**stored, "partitions": begun} if None not in begun else None
    name = _VALUE if stored.get(_VALUE) is not None else key
    value = _written(bound, stored.get(name)) if name else None
    return None if value is None else {**stored, name: value}


def _written(bound: Decimal | datetime, like: Any) -> Any:
    """The bound in the form of a bookmark's value; None if it does not fit."""
    if isinstance(bound, Decimal):
        bound = Decimal(math.floor(bound) - 1)  # exact, however many digits it has
        if isinstance(like, str):
            return f"{bound:f}" if _NUMBER.fullmatch(like) else None
        if not _is_number(like) and not isinstance(like, Decimal):
            return None
        return int(bound) if isinstance(like, int) else bound
    match = _TIME.fullmatch(like) if isinstance(like, str) else None
    if not match:
        return None
    _, time, fraction, zone = match.groups()
    earlier = timedelta(seconds=1) if time else timedelta(days=1)
    bound = max(bound, _LEAST + earlier) - earlier
    if not time:
        return bound.date().isoformat()
    digits = "seconds" if not fraction else "milliseconds" if len(fraction) == 4 else "microseconds"
    text = bound.replace(tzinfo=None).isoformat(time[0], digits)
    return text + ("" if not zone else "Z" if zone == "Z" else "+00:00" if ":" in zone else "+0000")


def _unfit(value: Any, length: Length, stream: str) -> SettingsError:
    rule = (
        "a duration such as 3d shifts dates and times" if isinstance(length, timedelta) else "a number shifts numbers"
    )
    hint = f"{rule}, and nothing else can be shifted; correct or remove streams.<stream>.lookback"
    return SettingsError("the lookback does not fit the bookmark", hint=hint, stream=stream, bookmark=str(value)[:60])


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _lies_between(low: Any, value: Any, high: Any) -> bool:
    """Whether low <= value <= high; False for values that cannot be compared."""
    if _is_number(value) and _is_number(high):
        return bool(low <= value <= high)
    moments = [_moment(one) for one in (low, value, high)]
    return None not in moments and moments == sorted(moment for moment in moments if moment)


def _moment(text: Any) -> tuple[timedelta, str] | None:
    """A time as (time since year 1 in UTC, fraction of a second), to compare it; None for other text."""
    match = _TIME.fullmatch(text) if isinstance(text, str) else None
    if not match:
        return None
    day, time, fraction, zone = match.groups()
    try:
        since = datetime.fromisoformat(f"{day}{time or ''}") - _FIRST
    except ValueError:
        return None
    if zone and zone != "Z":
        offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
        since += -offset if zone[0] == "+" else offset
    return since, (fraction or "").rstrip("0")
