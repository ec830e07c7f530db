"""`bridge.Project`: runs from Python do what the command line does, and leave the caller's process alone."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from datetime import timedelta
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import bridge
from bridge.errors import Interrupted, PipelineHeld, SettingsError, TapError, TimedOut
from bridge.lake.lease import take
from bridge.lake.log import Log
from bridge.lake.runs import RunRecord, read_runs
from bridge.lake.storage.local.storage import LocalStorage
from bridge.settings.values.request import FLAGS, Request
from tests.support.pipe import wire

SCHEMA = {"type": "SCHEMA", "stream": "s", "schema": {"properties": {"id": {"type": "integer"}}}, "key_properties": []}
SETTINGS = """
environments: {prod: {defaults: {destination: {bucket: prod}}}}
defaults: {source: {discover: never}, destination: {bucket: lake}}
pipelines:
  rows: {source: {tap: [sh, -c, cat said]}}
  broken: {source: {tap: [sh, -c, "echo boom ${SECRET_TOKEN:-nothing} >&2; exit 1"]}, retry: {attempts: 2, backoff: 1s}}
  slow: {source: {tap: [sh, -c, "cat said; echo $$ > tap.pid; exec sleep 600"]}}
  alone: {source: {tap: [sh, -c, "mkdir busy && sleep 0.3 && rmdir busy"]}}
  also: {source: {tap: [sh, -c, "mkdir busy && sleep 0.3 && rmdir busy"]}}
  wrong: {source: {tap: [sh, -c, exit 0]}, commit: {every: never}}
  dotenv: {source: {tap: [sh, -c, cat said], config: {password: "${PASSWORD}"}}}
"""


@pytest.fixture
def project(folder: Path, without_spark: None) -> bridge.Project:
    """Pipelines whose rows are stored without a JVM."""
    (folder / "bridge.yaml").write_text(SETTINGS)
    say(folder, 3)
    return bridge.Project(folder / "bridge.yaml")


def say(folder: Path, count: int) -> None:
    """Have the taps send so many records, each with a STATE after it."""
    messages: list[dict[str, Any]] = [SCHEMA]
    for number in range(1, count + 1):
        messages.append({"type": "RECORD", "stream": "s", "record": {"id": number}})
        messages.append({"type": "STATE", "value": {"bookmarks": {"s": {"id": number}}}})
    (folder / "said").write_bytes(wire(*messages))


def recorded(folder: Path, pipeline: str, bucket: str = "lake") -> list[RunRecord]:
    return list(read_runs(LocalStorage(folder / bucket), pipeline))


def test_a_run_returns_its_result(project: bridge.Project, folder: Path) -> None:
    """Rows are in the lake, and the result says how many; the same as the run's record."""
    result = project.run("rows")
    assert (result.status, result.records, result.commits, result.error) == ("success", 3, 1, None)
    assert result.streams["s"].committed == 3
    assert result.state == {"bookmarks": {"s": {"id": 3}}}
    assert bridge.Lake(folder / "lake").table("rows", "s").count_rows() == 3
    (record,) = recorded(folder, "rows")
    assert (record.run_id, record.status, record.records) == (result.run_id, "success", 3)


def test_the_pipelines_of_the_file(project: bridge.Project, folder: Path) -> None:
    """In its order; the file is read anew each time, and a missing one is an error."""
    assert project.pipelines == ["rows", "broken", "slow", "alone", "also", "wrong", "dotenv"]
    (folder / "bridge.yaml").write_text(
        "pipelines: {one: {source: {tap: [sh, -c, cat said]}, destination: {bucket: b}}}"
    )
    assert project.pipelines == ["one"]
    assert project.run(full=False).pipeline == "one"  # the only one needs no name
    with pytest.raises(SettingsError):
        _ = bridge.Project(folder / "nowhere.yaml").pipelines


def test_a_failed_run_raises_its_error(project: bridge.Project, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is typed, has the last attempt's result at hand, and shows no secret; each attempt has its record."""
    monkeypatch.setenv("SECRET_TOKEN", "hunter2hunter2")
    with pytest.raises(TapError, match="the tap failed") as raised:
        project.run("broken")
    result = raised.value.result
    assert isinstance(result, bridge.Result)
    assert (result.status, result.attempt, result.error) == ("failed", 2, raised.value)
    assert "boom" in raised.value.hint
    assert "hunter2" not in raised.value.hint
    assert [record.attempt for record in recorded(folder, "broken")] == [2, 1]
    again = pickle.loads(pickle.dumps(raised.value))  # as a pool of processes does
    assert (type(again), again.hint, again.result.run_id) == (TapError, raised.value.hint, result.run_id)


def test_wrong_settings_raise_and_are_recorded(project: bridge.Project, folder: Path) -> None:
    """Nothing starts; the bucket has the run that was refused, as after `singer-bridge run`."""
    with pytest.raises(SettingsError, match=r"bridge.yaml:\d+"):
        project.run("wrong")
    (record,) = recorded(folder, "wrong")
    assert (record.status, record.opened) == ("failed", False)
    with pytest.raises(SettingsError) as raised:
        project.run("row")
    assert 'did you mean "rows"' in raised.value.hint


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"append": True}, "--append goes with --full"),
        ({"full": True, "resume": True}, "--resume and --full contradict each other"),
        ({"max_records": 0}, "--max-records is at least 1"),
        ({"timeout": 30}, "timeout is not a duration"),
        ({"state": {"bookmarks": {"s": object()}}}, "JSON cannot hold this STATE"),
        ({"full": True, "max_records": 5}, "--max-records would replace tables"),
    ],
)
def test_arguments_that_contradict_each_other(project: bridge.Project, arguments: dict[str, Any], text: str) -> None:
    """They are refused as the flags of the same name."""
    with pytest.raises(SettingsError, match=text):
        project.run("rows", **arguments)


def test_an_argument_for_each_flag() -> None:
    """`Project.run` takes what `singer-bridge run` takes, and a `Request` has it all."""
    flags = {"streams", *FLAGS}
    assert set(signature(bridge.Project.run).parameters) - {"self", "pipeline"} == flags
    assert flags <= {field.name for field in fields(Request)}


def test_a_backfill_has_to_name_its_streams(project: bridge.Project) -> None:
    with pytest.raises(SettingsError, match="--backfill is of some streams"):
        project.run("rows", backfill="1..5")
    with pytest.raises(SettingsError, match="no window"):
        project.run("rows", streams="s", backfill="soon")


def test_a_given_state(project: bridge.Project, folder: Path) -> None:
    """The run starts from it, as with `--state`: it is a commit of its own."""
    project.run("rows", state={"bookmarks": {"s": {"id": 1}}}, refresh_catalog=True, guard=False)
    log = Log(LocalStorage(folder / "lake"), "rows")
    kinds = [(record.kind, record.state) for record in log.history(log.head(), fences=False)]
    assert kinds[-1] == ("state", {"bookmarks": {"s": {"id": 1}}})


def test_the_callers_process_is_left_alone(
    project: bridge.Project, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing is printed, no handler of a signal or of a log changes, no thread and no tap stays."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def process() -> Any:
        root = logging.getLogger()
        return [signal.getsignal(n) for n in numbers], list(root.handlers), root.level

    before, threads = process(), set(threading.enumerate())
    project.run("rows")
    with pytest.raises(TapError):
        project.run("broken")
    assert process() == before
    assert set(threading.enumerate()) <= threads  # one of an earlier test may have ended meanwhile
    assert capfd.readouterr() == ("", "")


def test_in_any_thread_and_in_turns(project: bridge.Project) -> None:
    """A process has one Spark: runs that several threads start do not overlap, and none fails for it."""
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(project.run, ["alone", "also", "alone", "also"]))
    assert [result.status for result in results] == ["success"] * 4


def test_a_run_that_takes_too_long(project: bridge.Project, folder: Path) -> None:
    """`timeout` works in a thread: the tap is ended, what it said is committed."""
    with ThreadPoolExecutor(1) as pool, pytest.raises(TimedOut) as raised:
        pool.submit(project.run, "slow", timeout=timedelta(seconds=2)).result()
    assert raised.value.result.records == 3
    assert not is_alive(folder)


def is_alive(folder: Path) -> bool:
    """Whether the slow tap is."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            os.kill(int((folder / "tap.pid").read_text()), 0)
        except ProcessLookupError:
            return False
        time.sleep(0.05)
    return True


def test_ctrl_c_goes_on_to_the_caller(project: bridge.Project, folder: Path) -> None:
    """In a notebook: the tap ends, the record says `interrupted`, and the next run goes on at once."""

    def press() -> None:
        while not (folder / "tap.pid").exists():
            time.sleep(0.05)
        time.sleep(0.5)
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=press).start()
        with pytest.raises(KeyboardInterrupt):
            project.run("slow")
    finally:
        signal.signal(signal.SIGINT, before)
    assert not is_alive(folder)
    (record,) = recorded(folder, "slow")
    assert (record.status, record.error and record.error.type) == ("interrupted", Interrupted.__name__)
    assert project.run("slow", timeout=timedelta(seconds=2), max_records=1).status == "success"


def test_another_run_has_the_pipeline(project: bridge.Project, folder: Path) -> None:
    """It is refused at once, or waits for as long as the caller says."""
    lease = take(LocalStorage(folder / "lake"), "rows", "another")
    try:
        with pytest.raises(PipelineHeld) as raised:
            project.run("rows")
        assert raised.value.result.status == "held"
    finally:
        lease.close(head=0, clean=True)


def test_variables_and_environments(project: bridge.Project, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`.env` beside the file fills in `${...}`; its AWS variables are set for boto3; an environment is chosen."""
    monkeypatch.setenv("AWS_PROBE", "")  # so that it is as it was after the test
    monkeypatch.delenv("AWS_PROBE")
    with pytest.raises(SettingsError, match="PASSWORD"):
        project.run("dotenv")
    (folder / ".env").write_text("PASSWORD=from-dotenv\nAWS_PROBE=yes\n")
    assert project.run("dotenv").status == "success"
    assert os.environ["AWS_PROBE"] == "yes"
    assert "PASSWORD" not in os.environ
    result = bridge.Project(folder / "bridge.yaml", environment="prod").run("rows")
    assert result.pipeline == "prod.rows"
    assert [record.run_id for record in recorded(folder, "prod.rows", "prod")] == [result.run_id]
    monkeypatch.setenv("SINGER_BRIDGE_ENV", "prod")
    assert project.run("rows").pipeline == "prod.rows"


def test_a_session_of_the_program(project: bridge.Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyspark has one session a process: one that is not ours is neither used nor ended, the run is refused."""
    context = SimpleNamespace(_active_spark_context=object())
    monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(SparkContext=context))
    with pytest.raises(SettingsError, match="a Spark session of its own") as raised:
        project.run("rows")
    assert "spark.stop()" in raised.value.hint
