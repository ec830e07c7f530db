"""`commit.at: end`: one commit a run, all or nothing. Real processes of a tap, a real load, everything but Spark."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import TimedOut
from bridge.load.run.result import Result
from bridge.load.run.run import Run
from tests.support.tap_runs import PagedRuns, upto

WAYS = [(method, form) for form in ("parquet", "delta", "iceberg") for method in ("append-only", "overwrite", "upsert")]


@pytest.fixture
def lake(tmp_path: Path, without_spark: None) -> PagedRuns:
    """A pipeline whose tap sends a STATE after each two records, and which would commit at each of them."""
    lake = PagedRuns(tmp_path)
    lake.settings = {"commit": {"rows": 1, "bytes": "1MiB", "at": "end"}}
    return lake


def changes(lake: PagedRuns) -> list[str]:
    """The kinds of all records but fences, the latest first."""
    return [record.kind for record in lake.log.history(lake.log.latest(), fences=False)]


@pytest.mark.parametrize(("method", "form"), WAYS)
def test_a_run_that_fails_leaves_all_as_it_was(lake: PagedRuns, method: str, form: str) -> None:
    """Tables, STATE and log are as before, whatever STATEs came; the next run loads each row once, in one commit."""
    lake.settings["destination"] = {"bucket": lake.uri, "load_method": method, "format": form}
    lake.streams = {"a": {"last": 8}, "b": {"last": 8}}
    assert (lake.run(1).commits, changes(lake)) == (1, ["data"])
    before = lake.view
    lake.streams = {"a": {"last": 20}, "b": {"last": 20, "fails_at": 15}}
    failed = lake.run(1)
    assert (failed.status, failed.commits, failed.streams["a"].committed) == ("failed", 0, 0)
    assert (lake.view.tables, lake.view.state, changes(lake)) == (before.tables, before.state, ["data"])
    del lake.streams["b"]["fails_at"]
    assert (lake.run(1).commits, changes(lake)) == (1, ["data", "data"])
    assert (lake.log_ids("a"), lake.log_ids("b")) == (upto(20), upto(20))


def test_all_processes_of_a_tap_are_one_commit(lake: PagedRuns) -> None:
    """What one process has sent waits for the others; if one fails, none is committed."""
    lake.streams = {"a": {"last": 8}, "b": {"last": 8, "fails_at": 5}, "c": {"last": 30, "seconds": 0.02}}
    failed = lake.run(3)
    assert (failed.status, failed.commits, lake.view.state, changes(lake)) == ("failed", 0, None, [])
    del lake.streams["b"]["fails_at"]
    done = lake.run(3)
    assert (done.status, done.commits, changes(lake)) == ("success", 1, ["data"])
    assert [lake.log_ids(stream) for stream in "abc"] == [upto(8), upto(8), upto(30)]
    assert lake.groups == {"a": {"a": 8}, "b": {"b": 8}, "c": {"c": 30}}


@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_that_is_stopped_leaves_all_as_it_was(lake: PagedRuns, processes: int) -> None:
    """A signal commits nothing, however many STATEs have come."""
    lake.streams = {name: {"last": 4000, "seconds": 0.02} for name in "ab"}

    def stop(run: Run) -> None:
        until = time.monotonic() + 20
        while time.monotonic() < until and not any(each.records > 20 for each in run.result.streams.values()):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    lake.stop = stop
    result = lake.run(processes)
    assert (result.status, result.commits, lake.view.tables, lake.view.state) == ("interrupted", 0, {}, None)


def test_a_run_that_takes_too_long_leaves_all_as_it_was(lake: PagedRuns) -> None:
    """The hint does not promise that the next run goes on from anywhere."""
    lake.streams = {"a": {"last": 4000, "seconds": 0.02}}
    result = lake.run(1, timeout=timedelta(seconds=3))
    assert (result.status, result.commits, lake.view.tables, lake.view.state) == ("failed", 0, {}, None)
    assert isinstance(result.error, TimedOut)
    assert "left all as it was" in result.error.hint
    lake.settings["commit"]["at"] = "state"
    for seconds in (3, 10, 30):  # on a busy machine the tap alone takes longer to start
        result = lake.run(1, timeout=timedelta(seconds=seconds))
        if result.commits:
            break
    assert result.error
    assert (result.commits > 0, "what was committed stays" in result.error.hint) == (True, True)


def test_max_records_stops_at_a_state_that_is_committed(lake: PagedRuns) -> None:
    """It is asked for on purpose: one commit, and the next run goes on behind it."""
    lake.streams = {"a": {"last": 20}}
    first = lake.run(1, max_records=5)
    assert (first.status, first.commits, lake.log_ids("a")) == ("success", 1, upto(6))
    assert (lake.run(1).commits, lake.log_ids("a")) == (1, upto(20))


def test_what_is_no_message_is_kept_with_the_commit(lake: PagedRuns) -> None:
    """Of several processes, too: its lines are rejects of the one commit."""
    lake.streams, lake.habits["noise"] = {"a": {"last": 3}, "b": {"last": 3}}, True
    result: Result = lake.run(2)
    kept: dict[str, Any] = lake.view.rejects
    assert (result.status, result.commits, sum(reject.lines for reject in kept.values())) == ("success", 1, 2)
