"""`Window`: what people write, and how it is cut into steps."""

from __future__ import annotations

import pytest

from bridge.errors import SettingsError
from bridge.settings.values.request import Window


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("2024-01-01..2024-03-01", "2024-01-01..2024-03-01"),
        (" 2024-01-01 .. 2024-03-01T12:30 ", "2024-01-01..2024-03-01T12:30:00Z"),
        ("2024-01-01T00:00:00+02:00..2024-01-01T00:00:00Z", "2023-12-31T22:00:00Z..2024-01-01"),
        ("2024-01-01 00:00:00.5..2024-01-02", "2024-01-01T00:00:00.500000Z..2024-01-02"),
        ("1..500000", "1..500000"),
        ("-1.5..2.25", "-1.5..2.25"),
        ("9007199254740993..9007199254740994", "9007199254740993..9007199254740994"),
    ],
)
def test_windows(text: str, window: str) -> None:
    """Dates, times and numbers; a time without a zone is in UTC, and what is printed can be typed."""
    try:
        read = Window.read(text)
    except SettingsError:  # Python 3.10 reads fewer forms
        pytest.skip("this Python reads no such time") if ".5." in text else pytest.fail("it is a window")
    assert str(read) == window
    assert Window.read(str(read)) == read


@pytest.mark.parametrize(
    ("window", "step", "steps"),
    [
        ("1..10", "4", ["1..5", "5..9", "9..10"]),
        ("0..1", "0.5", ["0..0.5", "0.5..1"]),
        ("2024-02-27..2024-03-02", "2d", ["2024-02-27..2024-02-29", "2024-02-29..2024-03-02"]),
        ("2024-01-01..2024-01-02", "36500d", ["2024-01-01..2024-01-02"]),
        ("9999-12-30..9999-12-31", "7d", ["9999-12-30..9999-12-31"]),
    ],
)
def test_steps(window: str, step: str, steps: list[str]) -> None:
    """One after another, without a gap; the last one ends where the window does."""
    assert [str(one) for one in Window.read(window).steps(step)] == steps


@pytest.mark.parametrize(
    "text", ["", "..", "1", "1..", "..1", "a..b", "1..2..3", "nan..1", "1e3..1e4", "01/02/2024..x"]
)
def test_what_is_no_window(text: str) -> None:
    """It is refused, with two examples."""
    with pytest.raises(SettingsError, match="no window") as caught:
        Window.read(text)
    assert "2024-01-01..2024-03-01 or 1..500000" in caught.value.hint


@pytest.mark.parametrize(
    ("value", "is_after"),
    [(30, False), (29, True), (1.7e17, False), ("30", False), ("1e9", True), (True, True), ("2024-01-01", True)],
)
def test_a_window_that_ends_after_a_bookmark(value: object, is_after: bool) -> None:
    """What cannot be compared counts as before its end."""
    assert Window.read("10..30").ends_after(value) is is_after
