"""`retry`: what may be gone by itself is tried again, in time and never too often."""

from __future__ import annotations

import json
import os
import signal
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from bridge.errors import (
    BridgeError,
    CommitLost,
    CommitUnknown,
    CorruptLake,
    DataError,
    EngineError,
    Interrupted,
    LakeError,
    PipelineHeld,
    SettingsError,
    TapError,
    TapNotFound,
    TimedOut,
)
from bridge.lake.runs import read_runs
from bridge.lake.storage import open_storage
from bridge.load.run.result import Result
from bridge.load.run.stop import Stop
from bridge.serve.launch.launch import attempts, launch, may_pass
from bridge.settings.load import load
from bridge.settings.options import Pipeline
from bridge.settings.values.request import Request

MOMENT = timedelta(milliseconds=20)
FAILS_ONCE = "test -e failed || { touch failed; exit 1; }"
FAILS_TWICE = "test -e twice || { test -e once && touch twice; touch once; exit 1; }"


@pytest.mark.parametrize("kind", [TapError, EngineError, LakeError, CommitUnknown])
def test_what_may_pass(kind: type[BridgeError]) -> None:
    """The tap's failure, Spark's, the bucket's, and a commit of which nobody knows: the next run finds out."""
    assert may_pass(kind("it failed"))


@pytest.mark.parametrize(
    "error",
    [
        *(kind("it failed") for kind in (SettingsError, DataError, PipelineHeld, TapNotFound, TimedOut)),
        *(kind("it failed") for kind in (CorruptLake, CommitLost)),
        Interrupted(signal.SIGTERM),
        None,
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_will_not_pass(error: BridgeError | None) -> None:
    """Wrong settings, data that does not fit, another run's pipeline, somebody's will; and a success."""
    assert not may_pass(error)


def pipeline(folder: Path, script: str, attempts: int = 3, backoff: timedelta = MOMENT) -> Pipeline:
    """A pipeline whose tap is a line of shell."""
    tap = f"source: {{tap: [sh, -c, '{script}'], discover: never}}"
    (folder / "bridge.yaml").write_text(f"pipelines: {{flaky: {{{tap}, destination: {{bucket: lake}}}}}}")
    chosen = load(folder / "bridge.yaml", os.environ).pipeline("flaky")
    retry = chosen.retry.model_copy(update={"attempts": attempts, "backoff": backoff})
    return chosen.model_copy(update={"retry": retry})


def attempt(folder: Path, chosen: Pipeline) -> tuple[Result, list[timedelta]]:
    """Run it; return the last result and how long it waited before each attempt but the first."""
    waits: list[timedelta] = []
    with Stop() as stop:
        for each in attempts(chosen, Request(), folder / ".singer-bridge", stop):
            with each.turn() as run:
                run.execute()
            if each.pause is not None:
                waits.append(each.pause)
        return each.result, waits


def test_a_run_that_fails_once_is_run_again(folder: Path) -> None:
    """The second attempt is a success; each has a record of its own, and says which one it was."""
    chosen = pipeline(folder, FAILS_ONCE)
    result, waits = attempt(folder, chosen)
    assert (result.status, result.attempt, waits) == ("success", 2, [MOMENT])
    records = read_runs(open_storage(chosen.destination.bucket), "flaky", 10)
    assert sorted((record.attempt, record.status) for record in records) == [(1, "failed"), (2, "success")]


def test_the_wait_doubles_and_the_last_failure_stands(folder: Path) -> None:
    """After the last attempt the failure is the result, and nobody waits any more."""
    result, waits = attempt(folder, pipeline(folder, "exit 1", attempts=2))
    assert (result.status, result.attempt, waits) == ("failed", 2, [MOMENT])
    assert isinstance(result.error, TapError)
    result, waits = attempt(folder, pipeline(folder, FAILS_TWICE))
    assert (result.status, result.attempt) == ("success", 3)
    assert waits == [MOMENT, 2 * MOMENT]


def test_a_tap_that_is_not_there_is_not_waited_for(folder: Path) -> None:
    """What an operator has to put right is said at once."""
    chosen = pipeline(folder, "exit 0")
    chosen = chosen.model_copy(update={"source": chosen.source.model_copy(update={"tap": "tap-nowhere"})})
    result, waits = attempt(folder, chosen)
    assert (type(result.error), waits) == (TapNotFound, [])


def test_a_signal_ends_the_wait(folder: Path) -> None:
    """Ctrl-C between two attempts: no further one, and the exit code of Ctrl-C."""
    chosen = pipeline(folder, "exit 1", backoff=timedelta(hours=1))
    with Stop() as stop:
        for each in attempts(chosen, Request(), folder / ".singer-bridge", stop):
            with each.turn() as run:
                run.execute()
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        result = each.result
    assert result.status == "interrupted"
    assert result.error
    assert result.error.exit_code == 130


def test_a_given_state_is_taken_once(folder: Path) -> None:
    """A second attempt goes on at the last commit: `--state` once more would load again what was committed since."""
    chosen = pipeline(folder, FAILS_ONCE)
    with Stop() as stop:
        request = Request(state={"bookmarks": {"a": {"id": 1}}})
        result = launch(chosen, request, folder / ".singer-bridge", stop=stop)
    assert (result.status, result.attempt) == ("success", 2)
    assert result.state_before == {"bookmarks": {"a": {"id": 1}}}
    commits = (folder / "lake/.bridge/flaky/commits").glob("*.json")
    assert [json.loads(path.read_bytes())["kind"] for path in commits].count("state") == 1
