"""`runs`: what is listed, what is left out, what is said of one run, and what of a run that does not exist."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from bridge.lake.lease import take
from bridge.lake.runs import RunFile, log_key
from bridge.lake.storage.local.storage import LocalStorage
from tests.support.shell import Typed, Words

FILE = """
pipelines:
  flights: {source: {tap: "true"}, destination: {bucket: lake}}
  orders: {source: {tap: "true"}, destination: {bucket: lake}}
  never: {source: {tap: "true"}, destination: {bucket: lake}}
"""


def run_id(day: int, hour: int = 0) -> str:
    return f"202601{day:02}T{hour:02}0000Z-aaaa"


def ran(storage: LocalStorage, pipeline: str, day: int, status: str, **facts: Any) -> str:
    """A run that began on a day of January 2026, and how it ended; `running`: it did not."""
    run = run_id(day)
    record = RunFile(storage, pipeline, run, tap="tap-x", tap_version="1.2.3")
    if status != "running":
        record.finish(status=status, **facts)
    if not storage.size(f".bridge/{pipeline}/lease.json"):
        take(storage, pipeline, run).close(head=0, clean=True)
    return run


@pytest.fixture
def lake(tmp_path: Path) -> LocalStorage:
    """Two pipelines that ran on some days of January."""
    (tmp_path / "bridge.yaml").write_text(FILE)
    storage = LocalStorage(tmp_path / "lake")
    orders = {"records": 1200, "rejected": 1, "files": 2, "bytes": 2048, "seconds": 3.25, "load_method": "append-only"}
    streams = {"orders": orders | {"reason": "as set"}}
    state = {"bookmarks": {"orders": {"id": 7}}}
    error = {"type": "TapError", "message": "the tap failed exit_code=1", "hint": "look at it"}
    ran(storage, "flights", 1, "success", streams=streams, commits=3, seconds={"load": 9.9, "total": 12.3})
    ran(storage, "orders", 2, "failed", error=error)
    ran(storage, "flights", 3, "interrupted")
    ran(storage, "orders", 4, "success", streams=streams, state=state, state_before=None, warnings=["a [b] c"])
    ran(storage, "flights", 5, "running")
    return storage


def listed(out: str) -> list[tuple[str, str, str]]:
    """Pipeline, day and status of each run of `--json`."""
    return [(run["pipeline"], run["run_id"][6:8], run["status"]) for run in json.loads(out)]


@pytest.mark.usefixtures("lake")
def test_all_runs_newest_first(bridge: Words) -> None:
    """Without a name the runs of all pipelines of the file are listed by their start, with whose they are."""
    code, out, _ = bridge("runs", "list", "--json")
    everything = [
        ("flights", "05", "died"),
        ("orders", "04", "success"),
        ("flights", "03", "interrupted"),
        ("orders", "02", "failed"),
        ("flights", "01", "success"),
    ]
    assert (code, listed(out)) == (0, everything)
    assert listed(bridge("runs", "list", "--to", "lake", "--json")[1]) == everything
    _, out, _ = bridge("runs", "list", "-n", "2")
    head, *rows = [line.split() for line in out.splitlines()]
    assert head == ["pipeline", "run", "status", "records", "commits", "time", "error"]
    assert [row[:4] for row in rows] == [
        ["flights", run_id(5), "died", "-"],
        ["orders", run_id(4), "success,", "1"],
    ]
    assert "success, 1 warning " in out


@pytest.mark.parametrize(
    ("words", "days"),
    [
        (["flights"], "531"),
        (["--pipeline", "flights"], "531"),
        (["flights", "--pipeline", "flights"], "531"),
        (["--name", "orders", "--to", "lake"], "42"),
        (["never"], ""),
        (["--status", "success"], "41"),
        (["--status", "died"], "5"),
        (["--status", "running"], ""),
        (["--status", "failed"], "2"),
        (["--status", "interrupted"], "3"),
        (["--since", "2026-01-03"], "543"),
        (["--since", "2026-01-03T00:00:01"], "54"),
        (["--since", "2026-01-03T01:00+01:00"], "543"),
        (["--since", "2026-01-03T00:00Z"], "543"),
        (["--since", "36500d"], "54321"),
        (["--since", "2d"], ""),
        (["--since", "2026-01-02", "--status", "success", "orders", "-n", "5"], "4"),
        (["--status", "success", "-n", "1"], "4"),
    ],
)
@pytest.mark.usefixtures("lake")
def test_filters(bridge: Words, words: list[str], days: str) -> None:
    """Filters leave out what does not match, before the limit counts."""
    code, out, _ = bridge("runs", "list", "--json", *words)
    assert (code, [day[1] for _, day, _ in listed(out)]) == (0, list(days))


@pytest.mark.usefixtures("lake")
def test_since_so_long_ago(bridge: Words, lake: LocalStorage) -> None:
    """A duration counts back from now."""
    yesterday = datetime.now(timezone.utc) - timedelta(hours=25)
    RunFile(lake, "orders", f"{yesterday:%Y%m%dT%H%M%SZ}-aaaa").finish(status="success")
    assert len(listed(bridge("runs", "list", "--json", "--since", "2d")[1])) == 1
    assert listed(bridge("runs", "list", "--json", "--since", "1d")[1]) == []


@pytest.mark.usefixtures("lake")
def test_nothing_to_list_is_said(bridge: Words) -> None:
    """An empty answer is told apart: nothing ran yet, or nothing matches; stdout stays empty."""
    assert bridge("runs", "list", "never") == (0, "", "no runs yet\n")
    assert bridge("runs", "list", "--since", "2d") == (0, "", "no such runs\n")


def test_a_run_is_running_while_it_holds_the_lease(bridge: Words, lake: LocalStorage) -> None:
    """`running` is said of the one run that holds its pipeline; any other that says so has died."""
    lease = take(lake, "flights", run_id(5))
    assert listed(bridge("runs", "list", "--json", "--status", "running")[1]) == [("flights", "05", "running")]
    lease.close(head=0, clean=True)
    lease = take(lake, "flights", "another")
    assert listed(bridge("runs", "list", "--json", "-n", "1")[1]) == [("flights", "05", "died")]
    lease.close(head=0, clean=True)


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["list", "--to", "nowhere"], "no pipeline in this bucket", "check --to"),
        (["list", "--to", "nowhere", "--name", "flights"], "no pipeline in this bucket", "check --to"),
        (["list", "--to", "lake", "--name", "fligths"], "no such pipeline in this bucket", 'did you mean "flights"?'),
        (["list", "--to", "lake", "xyz"], "no such pipeline in this bucket", "it has: flights, orders"),
        (["list", "order"], "unknown pipeline", 'did you mean "orders"?'),
        (["list", "flights", "--pipeline", "orders"], "two names for one pipeline", "--pipeline"),
        (["show", "never"], "no runs yet", "singer-bridge run"),
        (["show", "--run", "r9"], "no such run run=r9 pipeline=flights, orders, never", "runs list"),
        (["show", run_id(9)], f"no such run run={run_id(9)}", "retention.runs"),
        (["show", "flights", run_id(2)], f"no such run run={run_id(2)} pipeline=flights", "runs list"),
        (["show", "flights", "r9"], "no such run run=r9 pipeline=flights", "runs list"),
        (["show", "flights", run_id(2), "--run", run_id(1)], "two IDs for one run", "--run"),
        (["show", "flights", "--run", run_id(2)], f"no such run run={run_id(2)} pipeline=flights", "runs list"),
    ],
)
@pytest.mark.usefixtures("lake")
def test_what_does_not_exist_is_named(bridge: Words, words: list[str], message: str, hint: str) -> None:
    """A bucket, a pipeline or a run that is not there is exit code 2, with what there is instead."""
    code, out, err = bridge("runs", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert hint in err


@pytest.mark.parametrize("time", ["yesterday", "2026-13-01", "2 d", ""])
@pytest.mark.usefixtures("lake")
def test_a_time_that_is_none(bridge: Words, time: str) -> None:
    """What is no time is refused with how one is written."""
    code, out, err = bridge("runs", "list", "--since", time)
    assert (code, out) == (2, "")
    assert "write 2d, 2026-11-20 or 2026-11-20T13:30" in " ".join(err.split())


@pytest.mark.usefixtures("lake")
def test_show(bridge: Words) -> None:
    """One run is shown with its tap's version, and each stream's figures, time, and bookmark before and after."""
    code, out, _ = bridge("runs", "show")
    assert (code, "died" in out, run_id(5) in out) == (0, True, True)
    for words in (
        ["orders"],
        [run_id(4)],
        ["--run", run_id(4)],
        ["orders", "--run", run_id(4)],
        ["orders", run_id(4)],
        [run_id(4), "orders"],
        ["orders", run_id(4), "--run", run_id(4)],
    ):
        _, out, _ = bridge("runs", "show", *words)
        lines = [line.split() for line in out.splitlines()]
        assert ["tap", "tap-x", "1.2.3"] in lines
        assert ["orders", "append-only", "1,200", "1", "2", "2.0", "KiB", "3.2", "s"] in lines
        assert ["orders", '{"id":', "7}"] in lines
        assert "warning: a [b] c" in out
    _, out, _ = bridge("runs", "show", run_id(2))
    assert "error: the tap failed exit_code=1" in out
    stream = json.loads(bridge("runs", "show", "orders", "--json")[1])["streams"]["orders"]
    assert (stream["seconds"], stream["bookmark_before"], stream["bookmark"]) == (3.25, None, {"id": 7})


def test_logs(bridge: Words, lake: LocalStorage, tmp_path: Path) -> None:
    """The whole log is printed as it is: from the bucket, or from this machine while it is not there yet."""
    lake.write(log_key("orders", run_id(4)), b"INFO \xc3\xa9\n")
    lake.write(log_key("orders", run_id(4) + ".spark"), b"WARN jvm\n")
    assert bridge("runs", "show", "orders", "--logs") == (0, "INFO é\nWARN jvm\n", "")
    assert bridge("runs", "show", "flights", "--logs") == (0, "", "")
    (folder,) = {path.parent for path in _scratch(tmp_path, run_id(5))}
    folder.mkdir(parents=True)
    (folder / "tap.log").write_bytes(b"INFO still here\n")
    assert bridge("runs", "show", "flights", "--logs")[1] == "INFO still here\n"


def _scratch(folder: Path, run: str) -> set[Path]:
    from bridge.load.run.scratch import Scratch
    from bridge.settings.load import load

    pipeline = load(folder / "bridge.yaml", {}).pipeline("flights")
    return {Scratch(folder / ".singer-bridge", pipeline, run).tap_log}


def test_a_damaged_record_is_named(bridge: Words, lake: LocalStorage) -> None:
    """The list shows a run record that cannot be read, beside the others; `runs show` says that it may be deleted."""
    before = json.loads(bridge("runs", "list", "--json")[1])
    lake.write(f".bridge/orders/runs/{run_id(6)}.json", b"{")
    code, out, _ = bridge("runs", "list")
    assert (code, "unreadable" in out, run_id(6) in out) == (0, True, True)
    rows = json.loads(bridge("runs", "list", "--json")[1])
    (torn,) = [row for row in rows if row not in before]
    assert (torn["run_id"], torn["status"], [row for row in rows if row in before]) == (run_id(6), "unreadable", before)
    assert json.loads(bridge("runs", "list", "--status", "unreadable", "--json")[1]) == [torn]
    for words in ((), ("--json",), ("--logs",)):
        code, _, err = bridge("runs", "show", run_id(6), *words)
        assert (code, "hint: delete it" in err, f".bridge/orders/runs/{run_id(6)}.json" in err) == (3, True, True)
    code, out, _ = bridge("status", "orders")
    assert (code, f".bridge/orders/runs/{run_id(6)}.json. Delete it" in out) == (0, True)


def test_why_a_tap_failed_is_in_the_list(typed: Typed, folder: Path) -> None:
    """The error's message has the tap's reason, and its hint the way to the whole log, once there is a run."""
    text = "pipelines: {x: {source: {tap: tap-smoke, config: {sreams: []}}, destination: {bucket: lake}}}"
    (folder / "bridge.yaml").write_text(text)
    assert typed("run x").code == 1
    assert "the tap failed: tap-smoke: error: unknown setting sreams" in typed("runs list").out
    assert "all lines: singer-bridge runs show x --logs" in typed("runs show x").out
    assert "unknown setting sreams" in typed("runs show x --logs").out


def test_what_was_read_and_not_committed(bridge: Words, lake: LocalStorage) -> None:
    """A column of its own in the list and in one run, where some run has read more than commits took."""
    streams = {"orders": {"read": 5000, "records": 3000, "load_method": "append-only", "reason": "as set"}}
    ran(lake, "orders", 6, "failed", streams=streams, commits=1)
    head, first, *_ = [line.split() for line in bridge("runs", "list", "orders")[1].splitlines()]
    assert head[1:6] == ["status", "read", "records", "commits", "time"]
    assert first[1:4] == ["failed", "5,000", "3,000"]
    (run, *_) = json.loads(bridge("runs", "list", "orders", "--json")[1])
    assert run["streams"]["orders"]["read"] == 5000
    out = bridge("runs", "show", "orders")[1]
    assert "records  5,000 read, 3,000 committed" in out
    assert "stream   load method    read   records" in out
    assert json.loads(bridge("status", "orders", "--json")[1])[0]["read"] == 5000
