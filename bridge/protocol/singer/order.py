"""Compares positions of two STATEs, as far as they say which one is later: numbers and times, not opaque texts."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

from bridge.protocol.singer.state import is_flat, resume_point, resume_points
from bridge.protocol.singer.state_edits import contexts_of, partition_of, same

_NOTES = frozenset({"version", "replication_key", "last_replication_method", "context"})


def streams_ahead(behind: Any, ahead: Any) -> list[str] | None:
    """The streams in which a tap started from `ahead` leaves out what one started from `behind` sends.

    Empty: it leaves out nothing. None: some bookmark cannot be compared, and none of the others is ahead.
    """
    if not isinstance(ahead, dict) or same(resume_points(behind), resume_points(ahead)):
        return []
    names = [key for key in (ahead if is_flat(ahead) else ahead["bookmarks"]) if key != "currently_syncing"]
    orders = {name: is_before(resume_point(behind, name), resume_point(ahead, name)) for name in names}
    later = [name for name, order in orders.items() if order]
    return later if later or None not in orders.values() else None


def is_before(one: Any, other: Any) -> bool | None:
    """Whether one position is before another, None if that cannot be known. No position is before any."""
    if other is None or same(one, other):
        return False
    if one is None:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        if contexts := contexts_of(other):
            orders = [is_before(partition_of(one, context), partition_of(other, context)) for context in contexts]
        else:
            keys = (one.keys() | other.keys()) - _NOTES
            orders = [is_before(one.get(key), other.get(key)) if key in one else None for key in keys]
            return None if None in orders else True in orders  # a place in a log has parts: file, then byte
        return True if True in orders else None if None in orders else False
    return _is_less(one, other)


def _is_less(one: Any, other: Any) -> bool | None:
    if isinstance(one, bool) or isinstance(other, bool):
        return None
    if isinstance(one, (int, float, Decimal)) and isinstance(other, (int, float, Decimal)):
        return bool(one < other) if one == one and other == other else None  # noqa: PLR0124 - NaN is before nothing
    first, second = moment(one), moment(other)
    return None if first is None or second is None else first < second


def moment(value: Any) -> datetime | None:
    """The time that a text in ISO 8601 says, in UTC where it names no zone."""
    with suppress(ValueError, TypeError):
        at = datetime.fromisoformat(value)
        return at if at.tzinfo else at.replace(tzinfo=timezone.utc)
    return None
