"""Times that files of the bucket have, whoever wrote them there, on whatever clock."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

SKEW = timedelta(minutes=5)
"""The most by which good clocks differ: a time further ahead of this machine's clock is from a clock that is wrong."""
EARLIEST = datetime(1970, 1, 1, tzinfo=timezone.utc)
"""Where clocks begin: one that was never set says this."""
_LATEST = 9000
"""From this year on, a time is none."""


def read_time(text: str) -> datetime:
    """A time in ISO 8601, in UTC. Raises `ValueError` for what is none, has no zone, or what no clock says.

    What comes out can be counted on from: by zones, days and years, without leaving the calendar.
    """
    time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    if time.tzinfo is None:
        raise ValueError("a time without a zone")
    if not EARLIEST.year <= time.year < _LATEST:
        raise ValueError("a time that no clock says")
    return time.astimezone(timezone.utc)


def is_ahead(time: datetime, now: datetime) -> bool:
    """Whether a time that is past by its meaning is of a clock that was ahead."""
    return time > now + SKEW
