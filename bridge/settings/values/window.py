"""`Window`: a range of a stream's replication key, for `run --backfill`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from bridge.errors import SettingsError
from bridge.settings.values.units import parse_duration

Bound = Decimal | datetime
"""A number, or a time in UTC."""

_NUMBER = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,18})?")
_DAY = re.compile(r"\d{4}-\d\d-\d\d.*", re.ASCII)
_SUCH_AS = "write it as FROM..TO, such as 2024-01-01..2024-03-01 or 1..500000; TO itself is not part of it"
_MOST_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class Window:
    """From `low` on, up to but without `high`."""

    low: Bound
    high: Bound

    @classmethod
    def read(cls, text: str) -> Window:
        """The window `FROM..TO` of two dates, times or numbers; a time without a zone is in UTC. Raises
        `SettingsError`."""
        low, _, high = text.partition("..")
        bounds: Any = _bound(low.strip()), _bound(high.strip())
        if None in bounds or type(bounds[0]) is not type(bounds[1]):
            raise SettingsError(f"{text!r} is no window", hint=_SUCH_AS)
        if not bounds[0] < bounds[1]:
            raise SettingsError(f"nothing lies in the window {text}", hint=_SUCH_AS)
        return cls(*bounds)

    def steps(self, step: str) -> list[Window]:
        """The windows of this length, one after another, that make up this one. Raises `SettingsError`."""
        windows = []
        for window in self._cut(_length(step, self.low)):
            windows.append(window)
            if len(windows) > _MOST_STEPS:
                raise SettingsError(f"--step {step} cuts the window into too many", hint=f"at most {_MOST_STEPS:,}")
        return windows

    def _cut(self, length: Any) -> Iterator[Window]:
        low: Any = self.low
        high: Any = self.high
        while low < high:
            end = high if high - low <= length else low + length
            yield Window(low, end)
            low = end

    def __str__(self) -> str:
        return f"{bound_text(self.low)}..{bound_text(self.high)}"


def bound_text(bound: Bound) -> str:
    """A bound as people write it."""
    if isinstance(bound, Decimal):
        return f"{bound:f}"
    day, time = bound.date().isoformat(), bound.time()
    return f"{day}T{time.isoformat()}Z" if time != time.min else day


def _bound(text: str) -> Bound | None:
    if _NUMBER.fullmatch(text):
        return Decimal(text)
    with suppress(ValueError, OverflowError):
        at = datetime.fromisoformat(text.replace("Z", "+00:00")) if _DAY.fullmatch(text) else None
        return at and (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
    return None


def _length(step: str, low: Bound) -> timedelta | Decimal:
    if isinstance(low, Decimal):
        if _NUMBER.fullmatch(step) and Decimal(step) > 0:
            return Decimal(step)
        raise SettingsError(f"--step {step} does not fit a window of numbers", hint="write a number, such as 100000")
    try:
        length = parse_duration(step)
    except SettingsError as error:
        raise SettingsError(f"--step {step} does not fit a window of times", hint=error.hint) from error
    if not length:
        raise SettingsError("--step is no time at all", hint="write a whole number with s, m, h or d, such as 7d")
    return length
