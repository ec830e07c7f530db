"""Since when a schedule has missed something: the run records say it, wherever the runs were."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from bridge.lake.lease.process import oneself
from bridge.lake.runs import RunFile
from bridge.lake.storage import lake_of
from bridge.serve.service.past_runs import served_until
from bridge.serve.service.timetable import Timetable
from bridge.settings.options import Pipeline
from tests.unit.settings.settings_files import Load, pipeline_text

NOW = datetime(2026, 6, 1, 12, 30, 0, tzinfo=timezone.utc)
DEAD = {"host": "elsewhere", "pid": 1, "start": "1"}


@pytest.fixture
def shop(settings: Load, tmp_path: Path) -> Pipeline:
    text = pipeline_text(more='schedule: {cron: "0 * * * *", timezone: UTC}').replace("./lake", str(tmp_path / "lake"))
    pipeline = settings(text).pipeline(None)
    lake_of(pipeline.destination).prepare()
    return pipeline


def ran(pipeline: Pipeline, minutes: float, status: str, **facts: Any) -> datetime:
    """Leave the record of a run that began so many minutes before now."""
    began = NOW - timedelta(minutes=minutes)
    run_id, started = f"{began:%Y%m%dT%H%M%SZ}-aaaa", began.isoformat(timespec="seconds")
    file = RunFile(lake_of(pipeline.destination), pipeline.name, run_id, **({"started": started} | facts))
    if status != "running":
        file.finish(status=status)
    return began


def is_due(pipeline: Pipeline) -> bool:
    """Whether a service that starts now runs the pipeline at once."""
    assert pipeline.schedule
    times = Timetable()
    times.begin(pipeline.name, pipeline.schedule, served_until(pipeline, NOW) or NOW)
    return bool(times.due(NOW))


def test_a_pipeline_that_never_ran_has_missed_nothing(shop: Pipeline) -> None:
    """A service that is started for the first time waits for the first time of the schedule."""
    assert served_until(shop, NOW) is None
    assert not is_due(shop)


@pytest.mark.parametrize(
    ("minutes", "status", "due"),
    [
        (29, "success", False),
        (30, "success", False),  # it began in the second in which it was due
        (31, "success", True),
        (31, "failed", True),
        (29, "failed", False),
        (29, "interrupted", True),
        (500, "interrupted", True),
    ],
)
def test_the_last_run_serves_its_time(minutes: float, status: str, due: bool, shop: Pipeline) -> None:
    """One that failed has had its turn, with its retries; one that was interrupted is done again."""
    ran(shop, minutes, status)
    assert is_due(shop) is due


@pytest.mark.parametrize("status", ["success", "failed", "running"])
def test_a_run_of_a_part_serves_nothing(status: str, shop: Pipeline) -> None:
    """`--stream`, `--resume`, `--max-records`: the schedule means all. A pipeline that ran so only never ran."""
    ran(shop, 29, status, requested={"streams": ["s"]}, process=DEAD)
    assert served_until(shop, NOW) is None
    before = ran(shop, 90, "success")
    for minutes in range(1, 25):
        ran(shop, minutes, status, requested={"streams": ["s"]}, process=DEAD)
    assert served_until(shop, NOW) == before
    assert is_due(shop)


def test_a_run_that_died_is_done_again(shop: Pipeline) -> None:
    """The run before it tells since when; one that another run kept out is no run."""
    before = ran(shop, 90, "success")
    ran(shop, 30, "running", process=DEAD)
    ran(shop, 20, "held", opened=False)
    assert served_until(shop, NOW) == before
    assert is_due(shop)


def test_a_run_under_way_serves_its_time(shop: Pipeline) -> None:
    """Also one that was started by hand, or by cron."""
    ran(shop, 90, "success")
    process = {key: value for key, value in oneself("x").items() if key not in ("format", "run", "since")}
    began = ran(shop, 29, "running", process=process, opened=False)
    assert served_until(shop, NOW) == began
    assert not is_due(shop)


@pytest.mark.parametrize("ahead", [10.0, 60.0 * 48, 60.0 * 24 * 3000])
@pytest.mark.parametrize("status", ["success", "failed", "running"])
def test_a_clock_that_was_ahead_stops_no_schedule(ahead: float, status: str, shop: Pipeline) -> None:
    """Nobody knows when such a run began: what the others missed is due, and each later time as well."""
    ran(shop, -ahead, status, process=DEAD)
    assert served_until(shop, NOW) is None
    assert not is_due(shop)
    before = ran(shop, 90, "success")
    assert served_until(shop, NOW) == before
    assert is_due(shop)
    now = ran(shop, 0, "success")
    for more in range(30):  # however many there are
        ran(shop, -ahead - more, "failed")
    assert served_until(shop, NOW) == now


def test_clocks_differ_a_little(shop: Pipeline) -> None:
    """A run that began in some minutes, by the clock of its machine, began just now."""
    ran(shop, -3, "success")
    assert served_until(shop, NOW) == NOW


def test_only_the_start_is_ahead(shop: Pipeline) -> None:
    """A record may say anything, whatever its id is."""
    ran(shop, 10, "success", started=(NOW + timedelta(days=2)).isoformat())
    assert served_until(shop, NOW) is None
    before = ran(shop, 90, "success")
    assert served_until(shop, NOW) == before


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"status": "success"}'])
def test_an_unreadable_record_serves_nothing(text: bytes, shop: Pipeline) -> None:
    """Nobody knows how it ended, or whether it was of some streams only; the run before it counts."""
    storage = lake_of(shop.destination)
    storage.write(f".bridge/{shop.name}/runs/{NOW:%Y%m%dT%H%M%SZ}-aaaa.json", text)
    assert served_until(shop, NOW) is None
    before = ran(shop, 90, "success")
    assert served_until(shop, NOW) == before
    assert is_due(shop)


@pytest.mark.parametrize("status", ["success", "failed", "interrupted", "running"])
@pytest.mark.parametrize("year", ["0001", "9999"])
def test_a_time_that_no_clock_says(shop: Pipeline, status: str, year: str) -> None:
    """A record of the year 1 is unreadable: it neither ends the service, in whichever zone, nor moves the schedule."""
    ran(shop, 95, "success")
    ran(shop, 5, status, started=f"{year}-01-01T00:00:00+00:00", process=DEAD)
    assert shop.schedule
    until = served_until(shop, NOW)
    assert until == NOW - timedelta(minutes=95)
    times = Timetable()
    times.begin(shop.name, shop.schedule.model_copy(update={"timezone": "America/New_York"}), until)
    assert times.due(NOW)


@pytest.mark.parametrize("status", ["interrupted", "running"])
def test_an_unfinished_run_at_a_time_that_no_clock_says(shop: Pipeline, status: str) -> None:
    """It is as if the pipeline never ran."""
    ran(shop, 5, status, started="0001-01-01T00:00:00+00:00", process=DEAD)
    assert served_until(shop, NOW) is None
