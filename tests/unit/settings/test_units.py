"""Sizes and durations."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bridge.errors import SettingsError
from bridge.settings.values.units import duration_text, parse_duration, parse_size, size_text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("256MiB", 256 * 1024**2),
        ("1KiB", 1024),
        ("4 GiB", 4 * 1024**3),
        ("1TiB", 1024**4),
        ("12", 12),
        (12, 12),
        ("5B", 5),
    ],
)
def test_sizes(text: str | int, size: int) -> None:
    """Sizes are IEC; a plain number is bytes."""
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "unit"), [("5MB", "MiB"), ("5gb", "GiB"), ("1.5k", "KiB"), ("5mib", "MiB"), ("x", "MiB"), ("-1", "MiB")]
)
def test_other_sizes_are_refused_with_what_to_write(text: str, unit: str) -> None:
    """`MB` means two things, so it is refused with the IEC unit to write."""
    with pytest.raises(SettingsError, match="not a size") as caught:
        parse_size(text)
    assert f"write {unit}" in caught.value.hint


@pytest.mark.parametrize("number", [True, -1])
def test_only_counts_are_sizes(number: int) -> None:
    """A truth value or a negative number is no size."""
    with pytest.raises(SettingsError, match="not a size"):
        parse_size(number)


@pytest.mark.parametrize(("text", "seconds"), [("60s", 60), ("5m", 300), ("2h", 7200), ("90d", 90 * 86400), ("0s", 0)])
def test_durations(text: str, seconds: int) -> None:
    """A duration is a whole number and one of s, m, h, d."""
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["5", "5 m", "1.5h", "-5m", "5M", "", "99999d"])
def test_other_durations_are_refused(text: str) -> None:
    """Anything else is refused with examples, a duration beyond a hundred years too."""
    with pytest.raises(SettingsError) as caught:
        parse_duration(text)
    assert caught.value.hint.startswith("write")


@pytest.mark.parametrize("text", ["0d", "59s", "1m", "90m", "2h", "1d", "36500d"])
def test_durations_are_written_as_they_are_read(text: str) -> None:
    """A duration is shown in the largest unit that leaves no fraction."""
    assert duration_text(parse_duration(text)) == text


@pytest.mark.parametrize("text", ["1B", "1023B", "1KiB", "1025MiB", "4GiB", "3TiB"])
def test_sizes_are_written_as_they_are_read(text: str) -> None:
    """A size is shown in the largest unit that leaves no fraction."""
    assert size_text(parse_size(text)) == text
