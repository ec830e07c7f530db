"""Times that files of the bucket have, whoever wrote them there, on whatever clock."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

SKEW = timedelta(minutes=5)
"""What is further ahead of this machine's clock is from a clock that is wrong; less is how far good clocks differ."""


def read_time(text: str) -> datetime:
    """A time in ISO 8601, in UTC. Raises `ValueError` for what is none, has no zone, or is outside of the calendar."""
    time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    if time.tzinfo is None:
        raise ValueError("a time without a zone")
    try:
        return time.astimezone(timezone.utc)
    except OverflowError as error:
        raise ValueError("a time outside of the calendar") from error


def is_ahead(time: datetime, now: datetime) -> bool:
    """Whether a time that is past by its meaning is of a clock that was ahead."""
    return time > now + SKEW
