"""Cron expressions, checked as strictly as common crons do.

Five fields: minute, hour, day of the month, month, day of the week. Each is a list of `*`, numbers, names (`jan`,
`mon`) and ranges; `*` and ranges may have a step. What one cron reads and another refuses (`5/10`, `fri-mon`) is
refused here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from cronsim import CronSim

from bridge.errors import SettingsError, did_you_mean


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    """Inclusive, like `high`."""
    high: int
    names: tuple[str, ...] = ()
    """The first one is `low`."""

    def number(self, text: str) -> int | None:
        """The value of a number or a name; None if it has none in this field."""
        if text.lower() in self.names:
            return self.low + self.names.index(text.lower())
        return int(text) if text.isdecimal() and self.low <= int(text) <= self.high else None

    def error(self, text: str, hint: str = "") -> SettingsError:
        names = f", or {self.names[0]} to {self.names[-1]}" if self.names else ""
        return SettingsError(f"{self.name}: {text}", hint=hint or f"{self.low} to {self.high}{names}")


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")),
    _Field("day of the week", 0, 7, ("sun", "mon", "tue", "wed", "thu", "fri", "sat")),
)
_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@reboot": "",
}
_PART = re.compile(r"(?:\*|([A-Za-z]+|[0-9]{1,2})(?:-([A-Za-z]+|[0-9]{1,2}))?)(?:/([0-9]{1,4}))?")
_LONGEST_MONTH = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}


def check_cron(text: str) -> str:
    """The expression with single spaces, or the macro. Raises SettingsError naming the field."""
    fields = text.split() if isinstance(text, str) else []
    if len(fields) == 1 and fields[0].startswith("@"):
        if fields[0] not in _MACROS:
            raise SettingsError("not a cron expression", hint=f"there are {', '.join(_MACROS)}")
        return fields[0]
    if len(fields) != len(_FIELDS):
        hint = 'five fields: minute, hour, day, month, weekday; such as "0 */2 * * *" in quotes, or @daily'
        raise SettingsError("not a cron expression", hint=hint)
    read = [_numbers(field, written) for field, written in zip(_FIELDS, fields, strict=True)]
    _, _, days, months, _ = read
    if fields[4] == "*" and all(min(days) > _LONGEST_MONTH.get(month, 31) for month in months):
        raise SettingsError("no month has such a day", hint="the pipeline would never run", cron=" ".join(fields))
    return " ".join(fields)


def check_timezone(text: str | None) -> str | None:
    """The name of a time zone that this machine knows; None is the machine's own. Raises `SettingsError`."""
    if text is None:
        return None
    try:
        ZoneInfo(text if isinstance(text, str) else "")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        hint = did_you_mean(str(text), available_timezones()) or "a name such as Europe/Paris or UTC"
        raise SettingsError("unknown time zone", hint=hint) from None
    return text


def zone(name: str | None) -> tzinfo:
    """A checked time zone; without a name the machine's, with its changes of clocks."""
    if name:
        return ZoneInfo(name)
    from dateutil.tz import gettz  # type: ignore[import-untyped]

    machines: tzinfo | None = gettz()
    return machines or timezone.utc


def next_time(cron: str, after: datetime) -> datetime | None:
    """The first time later than `after` that a checked expression means, in the same time zone; None for `@reboot`.

    As Debian's cron does when clocks change: a fixed time that the day lacks comes as soon as the gap is over, and one
    that the day has twice comes once. Where minute or hour is `*` or `*/n`, the time on the clock alone decides.
    """
    fields = _MACROS.get(cron, cron)
    times = CronSim(fields, after) if fields else ()
    # By real time: of an hour that comes twice CronSim means the first one, even if that is over.
    return next((time for time in times if time.timestamp() > after.timestamp()), None)


def _numbers(field: _Field, written: str) -> set[int]:
    """All numbers that a field stands for."""
    result: set[int] = set()
    for part in written.split(","):
        result |= set(_range(field, part))
    return result


def _range(field: _Field, part: str) -> range:
    match = _PART.fullmatch(part)
    if not match:
        raise field.error("cannot be read", "write *, numbers, a-b, */n or a-b/n, and commas between them")
    first, last, step = match[1], match[2], int(match[3] or 1)
    if first and not last and match[3]:
        raise field.error("a step needs a range", f"write */{step} or {first}-{field.high}/{step}")
    low = field.number(first) if first else field.low
    high = field.number(last) if last else (low if first else field.high)
    if low is None or high is None:
        raise field.error("out of range")
    if low > high:
        raise field.error("the range runs backwards", "write two ranges with a comma between them")
    if not 1 <= step <= field.high:
        raise field.error("the step is out of range", f"1 to {field.high}")
    return range(low, high + 1, step)
