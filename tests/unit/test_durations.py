"""How long something is, for people: one form in verbs, errors, and on the page."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from bridge.durations import duration
from bridge.errors import TapError
from bridge.serve.service.web import render


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (-3, "0 s"),
        (0.0004, "0 s"),
        (0.05, "50 ms"),
        (0.0996, "0.1 s"),
        (4.24, "4.2 s"),
        (5, "5 s"),
        (9.96, "10 s"),
        (42.4, "42 s"),
        (59.7, "1 min"),
        (61, "1 min 1 s"),
        (3599.6, "1 h"),
        (7800, "2 h 10 min"),
        (7801, "2 h 10 min"),
        (86400 * 3 + 59, "3 d"),
        (86400 * 14 + 7200, "14 d 2 h"),
    ],
)
def test_a_duration_has_at_most_two_units(seconds: float, text: str) -> None:
    """Of a number of seconds and of a timedelta; what is rounded up gets the larger unit."""
    assert duration(seconds) == duration(timedelta(seconds=seconds)) == text


def test_one_unit_is_rounded_down() -> None:
    """As an age: what is two hours and 59 minutes ago is two hours ago."""
    assert [duration(seconds, 1) for seconds in (7, 119, 10799, 86400)] == ["7 s", "1 min", "2 h", "1 d"]


def test_errors_and_the_page_have_the_same_form() -> None:
    """A duration among the facts of an error, how long a run took, and how long ago that was."""
    assert TapError("silent", idle_timeout=timedelta(minutes=130)).message == "silent idle_timeout=2 h 10 min"
    assert (render.took(None), render.took(7800)) == ("", "2 h 10 min")
    now = datetime(2026, 1, 2, tzinfo=timezone.utc)
    assert [render.ago(now - timedelta(hours=hours), now) for hours in (3, -3)] == ["3 h ago", "in 3 h"]
