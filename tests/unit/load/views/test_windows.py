"""The moments up to which windows are closed, or dropped."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from bridge.lake.records import Watermark
from bridge.load.views.algebra import TypedView
from bridge.load.views.windows import Windows
from bridge.settings.sql.view import read_view

HOUR = 3600 * 10**6
TEXT = "SELECT window(at, '1 hour').start AS h, count(*) AS n FROM s GROUP BY h\n-- singer-bridge:"


def view(terms: str) -> TypedView:
    return TypedView(read_view("v", TEXT + terms), pa.schema([("h", pa.timestamp("us", "UTC")), ("n", pa.int64())]))


@pytest.mark.parametrize(
    ("before", "latest", "after"),
    [
        (None, None, None),
        (None, 9 * HOUR, Watermark(9 * HOUR, 7 * HOUR)),
        (Watermark(9 * HOUR, 7 * HOUR), 5 * HOUR, Watermark(9 * HOUR, 7 * HOUR)),
        (Watermark(9 * HOUR, 8 * HOUR), 10 * HOUR - 1, Watermark(10 * HOUR - 1, 8 * HOUR)),
        (Watermark(9 * HOUR), None, Watermark(9 * HOUR, 7 * HOUR)),
        (None, -9 * HOUR, Watermark(-9 * HOUR, -11 * HOUR)),
    ],
)
def test_the_greatest_time_never_falls(before: Watermark | None, latest: int | None, after: Watermark | None) -> None:
    """Nor the moment up to which windows are closed, also where `lateness` was shorter before."""
    windows = Windows.of(view(" keep: 4h, lateness: 2h"), before, latest)
    assert windows.watermark == after
    assert windows.expired == (after and after.latest - 4 * HOUR)
    assert windows.expired_before == (before and before.latest - 4 * HOUR)


def test_a_time_far_ahead_of_the_clock() -> None:
    """It counts as a day ahead: one wrong row does not close all windows that are to come."""
    least = int((time.time() + 86400) * 10**6)
    windows = Windows.of(view(" lateness: 2h"), None, 253402300799 * 10**6)
    assert windows.watermark and least <= windows.watermark.latest < least + HOUR
    assert windows.closed == windows.watermark.latest - 2 * HOUR


def test_a_view_that_closes_nothing_now() -> None:
    """What is closed is remembered, for the day that `lateness` comes back."""
    before = Watermark(9 * HOUR, 7 * HOUR)
    for terms in (" keep: 1h", ""):
        typed = view(terms) if terms else TypedView(read_view("v", TEXT.split("\n")[0]), view(" keep: 1h").schema)
        windows = Windows.of(typed, before, None)
        assert (windows.watermark, windows.closed) == (before, None)
