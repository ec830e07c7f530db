"""When a run is due, and what becomes of those that were missed."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from random import Random

import pytest

from bridge.serve.service.timetable import Due, Timetable
from bridge.settings.options import Schedule

NOON = datetime(2026, 6, 1, 12, 0, 0, tzinfo=timezone.utc)
HOURLY = Schedule(cron="0 * * * *", timezone="UTC")


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def table(schedule: Schedule, since: datetime) -> Timetable:
    result = Timetable()
    assert result.update({"shop": schedule}, since) == ["shop"]
    result.begin("shop", schedule, since)
    return result


def test_each_time_is_due_once() -> None:
    """However often one looks: from its second on, and never before."""
    times = table(HOURLY, at(-30))
    looks = [at(minutes) for minutes in (-29, -0.01, 0, 0.01, 0.5, 59.99, 60.5, 61)]
    assert [(due.at, due.reason) for look in looks for due in times.due(look)] == [
        (at(0), "schedule"),
        (at(60), "schedule"),
    ]
    assert times.next_run("shop") == at(120)


@pytest.mark.parametrize("missed", [1, 2, 50])
def test_what_was_missed_is_run_once(missed: int) -> None:
    """`once`: one run for all of them, at the first look; the next one is as scheduled."""
    times = table(HOURLY, at(-60 * missed))
    assert times.due(at(30)) == [Due("shop", at(60 * (1 - missed)), "missed")]
    assert times.due(at(31)) == []
    assert times.due(at(60)) == [Due("shop", at(60), "schedule")]


def test_what_was_missed_is_skipped() -> None:
    """`skip`: nothing runs before the next time; one that is due this minute is not missed."""
    skip = HOURLY.model_copy(update={"catch_up": "skip"})
    times = table(skip, at(-300))
    assert times.due(at(30)) == []
    assert times.due(at(60)) == [Due("shop", at(60), "schedule")]
    assert table(skip, at(-300)).due(at(0.5)) == [Due("shop", at(0), "schedule")]


def test_a_changed_schedule_holds_from_now_on() -> None:
    """It has missed nothing; a schedule that is removed is due no more, and one with another `catch_up` goes on."""
    times = table(HOURLY, at(-30))
    assert times.update({"shop": Schedule(cron="*/5 * * * *", timezone="UTC")}, at(58)) == []
    assert times.due(at(59)) == []
    assert times.due(at(60)) == [Due("shop", at(60), "schedule")]
    times.update({"shop": Schedule(cron="*/5 * * * *", timezone="UTC", catch_up="skip")}, at(62))
    assert times.next_run("shop") == at(65)
    times.update({"shop": None}, at(63))
    assert times.due(at(90)) == []
    assert times.next_run("shop") is None
    assert times.update({"shop": HOURLY}, at(91)) == ["shop"]


def test_the_time_zone_counts() -> None:
    """Six in the morning in Paris is four by UTC in summer."""
    times = table(Schedule(cron="0 6 * * *", timezone="Europe/Paris"), NOON)
    following = times.next_run("shop")
    assert following == datetime(2026, 6, 2, 4, 0, tzinfo=timezone.utc)
    assert following
    assert f"{following:%H:%M %z}" == "06:00 +0200"


def test_at_boot_is_never_due() -> None:
    """Only cron knows when a machine starts."""
    times = table(Schedule(cron="@reboot"), NOON)
    assert times.next_run("shop") is None
    assert times.due(at(10_000)) == []


@pytest.mark.parametrize("days", [0.1, 2, 400])
def test_a_clock_that_was_ahead_is_set_right(days: float) -> None:
    """What is missed by the wrong clock runs once; by the right one the next time is the next one again."""
    times, wrong = table(HOURLY, at(-30)), at(days * 24 * 60 + 30)
    assert [due.reason for due in times.due(wrong)] == ["missed"]
    assert times.due(at(1)) == []
    assert times.next_run("shop") == at(60)
    assert times.due(at(60)) == [Due("shop", at(60), "schedule")]


def test_a_clock_that_goes_back() -> None:
    """By an hour or a year: the next time is worked out anew. By some seconds: nothing is due twice."""
    times = table(HOURLY, at(-30))
    assert [due.at for due in times.due(at(0))] == [at(0)]
    assert times.due(at(-0.2)) == []
    assert times.due(at(0.5)) == []
    assert times.due(at(-300.5)) == []
    assert times.due(at(-300)) == [Due("shop", at(-300), "schedule")]
    assert times.due(at(-600_030)) == []
    assert times.next_run("shop") == at(-600_000)
    assert times.due(at(-600_000)) == [Due("shop", at(-600_000), "schedule")]


def test_what_was_missed_is_not_lost_with_a_clock_that_goes_back() -> None:
    """A pipeline that is begun in the moment in which the clock is set back has missed what it has missed."""
    times = table(HOURLY, at(-30))
    times.due(at(900))
    times.begin("shop", HOURLY, at(-150))
    assert times.due(at(30)) == [Due("shop", at(-120), "missed")]


def test_a_clock_that_jumps_about() -> None:
    """Whatever the clock did: from then on, each hour in which it is right has its run within a minute."""
    random = Random(7)
    for _ in range(200):
        times = table(HOURLY, at(-30))
        for _ in range(random.randint(1, 5)):
            times.due(at(random.choice([-1, 1]) * random.random() * 10 ** random.randint(0, 6)))
        hours = [due.at for minute in range(10_000, 10_000 + 180) for due in times.due(at(minute))]
        assert set(hours[-3:]) >= {at(60 * hour) for hour in (168, 169)}, hours
