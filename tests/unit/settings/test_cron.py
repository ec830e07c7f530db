"""Cron expressions: what every cron reads the same way is accepted, all else is told by its field."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from bridge.errors import SettingsError
from bridge.settings.values.cron import check_cron, next_time
from tests.unit.settings.settings_files import Load, pipeline_text, refused


@pytest.mark.parametrize(
    "text",
    [
        "* * * * *",
        "0 */2 * * *",
        "*/15 8-18 * * mon-fri",
        "0,30 0-23/4 1,15 jan-mar,DEC 0",
        "59 23 31 12 7",
        "0 0 29 2 *",
        "0 0 31 2 mon",
        "@daily",
        "@reboot",
    ],
)
def test_expressions_that_crons_read(text: str) -> None:
    """Numbers, names, ranges, lists, steps and macros are taken as they are."""
    assert check_cron(text) == text


def test_spaces_do_not_matter() -> None:
    """Fields may be set apart by any white space."""
    assert check_cron(" 0\t*/2  * * * ") == "0 */2 * * *"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "not a cron expression", "five fields"),
        ("* * * *", "not a cron expression", "five fields"),
        ("0 * * * * *", "not a cron expression", "five fields"),
        ("@dayly", "not a cron expression", "@daily"),
        ("60 * * * *", "minute: out of range", "0 to 59"),
        ("* 24 * * *", "hour: out of range", "0 to 23"),
        ("* * 0 * *", "day of the month: out of range", "1 to 31"),
        ("* * * 13 *", "month: out of range", "jan to dec"),
        ("* * * mon *", "month: out of range", "jan to dec"),
        ("* * * * 8", "day of the week: out of range", "sun to sat"),
        ("* * * * monday", "day of the week: out of range", "sun to sat"),
        ("5/10 * * * *", "minute: a step needs a range", "*/10 or 5-59/10"),
        ("*/0 * * * *", "minute: the step is out of range", "1 to 59"),
        ("*/60 * * * *", "minute: the step is out of range", "1 to 59"),
        ("30-10 * * * *", "minute: the range runs backwards", "comma"),
        ("* * * * fri-mon", "day of the week: the range runs backwards", "comma"),
        ("1,,2 * * * *", "minute: cannot be read", "a-b/n"),
        ("x! * * * *", "minute: cannot be read", "a-b/n"),
        ("*-5 * * * *", "minute: cannot be read", "a-b/n"),
        ("0 0 30 2 *", "no month has such a day", "never run"),
        ("0 0 31 4,6 *", "no month has such a day", "never run"),
    ],
)
def test_expressions_that_are_refused(text: str, message: str, hint: str) -> None:
    """The field that is wrong is named, with what it takes."""
    with pytest.raises(SettingsError, match=message) as caught:
        check_cron(text)
    assert hint in caught.value.hint


def test_a_schedule_is_checked_with_the_settings(settings: Load) -> None:
    """A cron expression that would never run is refused with file and line, before it is installed anywhere."""
    schedule = settings(pipeline_text(more='schedule: {cron: "0  0 * * 1"}')).pipeline(None).schedule
    assert schedule
    assert schedule.cron == "0 0 * * 1"
    for wrong, message in (
        ('{cron: "0 24 * * *"}', "hour: out of range key=pipelines.flights.schedule.cron"),
        ("{cron: 5}", "not a cron expression key=pipelines.flights.schedule.cron"),
        ("{}", "missing key key=pipelines.flights.schedule.cron"),
    ):
        text = pipeline_text(more=f"schedule: {wrong}")
        assert f"bridge.yaml:7: {message}" in refused(lambda text=text: settings(text)).message  # type: ignore[misc]


PARIS = ZoneInfo("Europe/Paris")
"""Its clocks went from 02:00 to 03:00 on 29 March 2026, and from 03:00 back to 02:00 on 25 October."""


def times_on(day: datetime, cron: str, hours: int = 48) -> list[str]:
    """Every run within some hours after midnight, by the clock, as one finds them that looks once a minute."""
    start, times = day.replace(tzinfo=PARIS).timestamp(), []
    following = next_time(cron, datetime.fromtimestamp(start - 1, PARIS))
    for minute in range(hours * 60):
        now = datetime.fromtimestamp(start + 60 * minute, PARIS)
        if following and following.timestamp() <= now.timestamp():
            times.append(f"{following:%d %H:%M%z}")
            following = next_time(cron, now)
    return times


@pytest.mark.parametrize(
    ("day", "cron", "expected"),
    [
        (datetime(2026, 3, 29), "30 2 * * *", ["29 03:00+0200", "30 02:30+0200"]),
        (datetime(2026, 10, 25), "30 2 * * *", ["25 02:30+0200", "26 02:30+0100"]),
        (datetime(2026, 10, 25), "0 1,3 * * *", ["25 01:00+0200", "25 03:00+0100", "26 01:00+0100", "26 03:00+0100"]),
        (datetime(2026, 10, 25), "0 2 * * mon", ["26 02:00+0100"]),
    ],
)
def test_a_missing_hour_and_a_double_hour(day: datetime, cron: str, expected: list[str]) -> None:
    """A fixed time that the day lacks comes when the gap is over; one that it has twice comes once."""
    assert times_on(day, cron) == expected


@pytest.mark.parametrize(("day", "runs"), [(datetime(2026, 3, 29), 23), (datetime(2026, 10, 25), 25)])
def test_each_hour_of_a_day_is_one_of_real_time(day: datetime, runs: int) -> None:
    """`0 * * * *` means each hour that passes: such a day has 23 or 25."""
    assert len(times_on(day, "0 * * * *", hours=runs)) == runs


@pytest.mark.parametrize("name", ["Europe/Paris", "UTC", "America/New_York"])
def test_time_zones(name: str, settings: Load) -> None:
    """A zone by its name; without one the machine's own, whatever the pipeline."""
    cron = 'schedule: {cron: "0 6 * * *"'
    pipeline = settings(pipeline_text(more=f"{cron}, timezone: {name}}}")).pipeline(None)
    assert pipeline.schedule
    assert pipeline.schedule.timezone == name
    assert settings(pipeline_text(more=f"{cron}}}")).pipeline(None).schedule.timezone is None  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["Europe/Pari", "../etc/passwd", "''", "3"])
def test_a_zone_that_there_is_not(name: str, settings: Load) -> None:
    """It is refused with its line, not when the first run is due."""
    text = pipeline_text(more=f'schedule: {{cron: "0 6 * * *", timezone: {name}}}')
    assert "unknown time zone" in refused(lambda: settings(text).pipeline(None)).message
