"""When each pipeline is due. It knows no clock: the time is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Literal

from bridge.settings.values.cron import next_time, zone
from bridge.settings.values.schedules import Schedule

LATE = timedelta(minutes=1)
"""Whoever notices a due run later than this was down, or the machine slept. A clock that goes back by more was set."""


@dataclass(frozen=True, slots=True)
class Due:
    """A run that is to start. `at`: when it should have been."""

    pipeline: str
    at: datetime
    reason: Literal["schedule", "missed"]


@dataclass(slots=True)
class _TimetableEntry:
    schedule: Schedule
    following: datetime | None
    """None: never again."""


class Timetable:
    """The next run of each pipeline that has a schedule.

    A pipeline that is new here has to be told by `begin` since when its runs count as missed. A changed schedule holds
    from the moment of the change: it has missed nothing.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _TimetableEntry] = {}
        self._seen: datetime | None = None

    def update(self, schedules: Mapping[str, Schedule | None], now: datetime) -> list[str]:
        """Take new schedules over; return the pipelines that `begin` is needed for."""
        for name in [name for name in self._entries if not schedules.get(name)]:
            del self._entries[name]
        for name, entry in self._entries.items():
            schedule = schedules[name]
            assert schedule
            if (schedule.cron, schedule.timezone) != (entry.schedule.cron, entry.schedule.timezone):
                entry.following = _next(schedule, now)
            entry.schedule = schedule
        return [name for name, schedule in schedules.items() if schedule and name not in self._entries]

    def begin(self, name: str, schedule: Schedule, since: datetime) -> None:
        """Count a pipeline's runs from those after `since`."""
        self._entries[name] = _TimetableEntry(schedule, _next(schedule, since))

    def due(self, now: datetime) -> list[Due]:
        """The runs to start now, each pipeline once, however many it has missed. They are not due again.

        If the clock has been set back since it was last asked, what comes next is worked out anew.
        """
        if self._seen and now.timestamp() < (self._seen - LATE).timestamp():
            for entry in self._entries.values():
                times = filter(None, (entry.following, _next(entry.schedule, now)))
                entry.following = min(times, key=datetime.timestamp, default=None)
        self._seen = now
        result = []
        for name, entry in self._entries.items():
            at = entry.following
            if at is None or at.timestamp() > now.timestamp():
                continue
            entry.following = _next(entry.schedule, now)
            latest = self._latest(entry.schedule, at, now)
            if latest.timestamp() >= (now - LATE).timestamp():
                result.append(Due(name, latest, "schedule"))
            elif entry.schedule.catch_up == "once":
                result.append(Due(name, latest, "missed"))
        return result

    def _latest(self, schedule: Schedule, at: datetime, now: datetime) -> datetime:
        """The last due time up to `now`, if it is so recent that it is not missed; else `at`."""
        recent = _next(schedule, now - LATE)
        return recent if recent and at.timestamp() < recent.timestamp() <= now.timestamp() else at

    def next_run(self, name: str) -> datetime | None:
        """When a pipeline is due next; None if never, or if it has no schedule."""
        entry = self._entries.get(name)
        return entry.following if entry else None


def _next(schedule: Schedule, after: datetime) -> datetime | None:
    return next_time(schedule.cron, after.astimezone(zone(schedule.timezone)))


def utc_now() -> datetime:
    """The time."""
    return datetime.now(timezone.utc)
