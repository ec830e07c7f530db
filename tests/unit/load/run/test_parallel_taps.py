"""Several processes of one tap in one run: real processes, a real load, everything but Spark.

What is in the lake is read by another engine.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from bridge.errors import CommitLost
from bridge.lake.commit.rollback import roll_back
from bridge.lake.log import Log
from bridge.lake.record_json import commit_bytes
from bridge.lake.records import TapGroup
from bridge.lake.runs import read_log
from bridge.lake.state.store import StateStore
from bridge.lake.storage import open_storage
from bridge.load.maintain.compact import CompactOptions, compact
from bridge.load.run.run import Run
from bridge.operate.verify.check import verify
from tests.support.tap_runs import PagedRuns, upto, values


@pytest.fixture
def lake(tmp_path: Path, without_spark: None) -> PagedRuns:
    return PagedRuns(tmp_path)


def test_all_streams_once(lake: PagedRuns) -> None:
    """Each process reads its own streams; the commit keeps what each said last, and one STATE is shown for all."""
    lake.streams = {name: {"last": 7} for name in "abcde"}
    result = lake.run(3)
    assert (result.status, result.warnings) == ("success", [])
    assert {name: lake.ids(name) for name in "abcde"} == dict.fromkeys("abcde", upto(7))
    assert values(result.state) == dict.fromkeys("abcde", 7)
    assert lake.groups == {"a+d": {"a": 7, "d": 7}, "b+e": {"b": 7, "e": 7}, "c": {"c": 7}}
    assert result.commits > 5


def test_each_gets_its_own_state_back(lake: PagedRuns) -> None:
    """A parent's bookmark never comes to the process of its child from the one that read the parent."""
    lake.streams = {"a": {"last": 9}, "c": {"last": 9, "parent": "a", "fails_at": 5}}
    result = lake.run()
    assert result.error
    assert "the source went away" in result.error.message
    assert (lake.ids("a"), lake.ids("c")) == (upto(9), upto(4))
    assert lake.groups == {"a": {"a": 9}, "c": {"a": 4, "c": 4}}
    assert values(lake.view.state) == {"a": 9, "c": 4}
    del lake.streams["c"]["fails_at"]
    result = lake.run()
    assert (result.status, result.warnings) == ("success", [])
    assert lake.was_given() == {"a": {"a": 9}, "c": {"a": 4, "c": 4}}
    assert (lake.ids("a"), lake.ids("c")) == (upto(9), upto(9))


def test_a_state_put_together_loses_the_child(lake: PagedRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    """Why each process has a STATE of its own: given the one that is shown, the child's rows are never read."""
    lake.streams = {"a": {"last": 9}, "c": {"last": 9, "parent": "a", "fails_at": 5}}
    lake.run()
    del lake.streams["c"]["fails_at"]
    shown = lake.view.state
    broken = [TapGroup(("a",), shown), TapGroup(("c",), shown)]
    monkeypatch.setattr("bridge.load.run.planning.division.starting_groups", lambda streams, view: (broken, [], []))
    assert lake.run().status == "success"
    assert lake.ids("c") == upto(4)


def test_the_failure_of_one(lake: PagedRuns) -> None:
    """The others go on to their ends and are committed; its own rows too, up to its last STATE; a warning names it."""
    lake.streams = {"a": {"last": 30, "seconds": 0.02}, "b": {"last": 9, "fails_at": 6, "page": 2}}
    lake.settings = {"commit": {"every": "1h"}}
    result = lake.run()
    assert result.status == "failed"
    assert result.error
    assert result.error.message == "the tap failed: b: the source went away exit_code=1"
    assert result.warnings == [f"b: their process of the tap failed, others went on: {result.error.message}"]
    assert (lake.ids("a"), lake.ids("b")) == (upto(30), upto(4))
    assert {s: counts.to_json()["complete"] for s, counts in result.streams.items()} == {"a": True, "b": False}
    del lake.streams["b"]["fails_at"]
    result = lake.run(resume=True)
    assert (result.status, result.skipped) == ("success", ["a"])
    assert result.warnings == ["skipped, the last run completed them: a"]
    assert (lake.ids("a"), lake.ids("b")) == (upto(30), upto(9))
    assert lake.groups == {"b": {"b": 9}, "a": {"a": 30}}, "the one that was left out keeps its STATE"
    assert lake.run().warnings == []


def test_a_dry_run_shows_the_processes(lake: PagedRuns) -> None:
    """Which streams go together, and what the run would warn of."""
    lake.streams = {name: {"last": 2} for name in "abc"}
    lake.run(3)
    source = {"tap": [sys.executable, str(lake.tap)], "config": lake.config, "select": ["*"], "parallelism": 2}
    settings = {"pipelines": {"p": {"source": source, "destination": {"bucket": lake.uri}}}}
    (lake.root / "bridge.yaml").write_text(json.dumps(settings))
    argv = [sys.executable, "-m", "bridge", "run", "p", "--dry-run"]
    said = subprocess.run([*argv, "--json"], cwd=lake.root, capture_output=True, text=True, check=True)
    facts = json.loads(said.stdout)
    processes = [", ".join(streams) for streams in facts["processes"]]
    (together,) = [streams for streams in processes if "," in streams]
    assert f"{together}: their process of the tap goes on from a STATE put together" in facts["warnings"][-1]
    said = subprocess.run(argv, cwd=lake.root, capture_output=True, text=True, check=True)
    assert f"process 1 of the tap: {processes[0]}\nprocess 2 of the tap: {processes[1]}\n" in said.stdout


def test_the_log_says_who(lake: PagedRuns) -> None:
    """Lines of the processes' stderr are in one log, each with its streams."""
    lake.streams = {name: {"last": 1} for name in "abcdefghij"}
    result = lake.run()
    log = read_log(open_storage(lake.uri), "p", result.run_id)
    assert log
    lines = log.decode().splitlines()
    assert sorted(lines) == sorted(
        [f"[a, c, e and 2 more] reading {s}" for s in "acegi"] + [f"[b, d, f and 2 more] reading {s}" for s in "bdfhj"]
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_all(lake: PagedRuns, number: int) -> None:
    """What each one's last STATE covers is committed, and no process is left."""
    lake.streams = {name: {"last": 4000, "seconds": 0.02} for name in "abc"}

    def stop(run: Run) -> None:
        until = time.monotonic() + 20
        while time.monotonic() < until and not (len(run.result.streams) == 3 and run.result.streams["c"].committed):
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    lake.stop = stop
    result = lake.run(3)
    assert (result.status, lake.alive) == ("interrupted", [])
    assert all(lake.ids(s) == upto(values(state)[s]) for s, state in own_states(lake).items())
    last = max(len(lake.ids(s)) for s in "abc") + 20  # on a busy machine one is far ahead of the others
    for stream in lake.streams.values():
        stream |= {"last": last, "seconds": 0}
    lake.stop = None
    result = lake.run(3)
    assert (result.status, result.warnings) == ("success", [])
    assert all(lake.ids(s) == upto(last) for s in "abc")


def own_states(lake: PagedRuns) -> dict[str, Any]:
    return {group.streams[0]: group.state for group in lake.view.pipeline_state.per_process or ()}


def test_a_silent_one_is_stopped_alone(lake: PagedRuns) -> None:
    """`idle_timeout` is of each process, whatever the others say meanwhile."""
    lake.streams = {"a": {"last": 40, "seconds": 0.1}, "b": {"last": 9, "silent_at": 5}}
    lake.settings = {"source": {"idle_timeout": "1s"}}
    result = lake.run()
    assert result.error
    assert "silent for too long" in result.error.message
    assert (lake.ids("a"), lake.ids("b"), lake.alive) == (upto(40), upto(4), [])


def test_streams_of_another_process_are_refused(lake: PagedRuns) -> None:
    """A tap that reads what it was not asked for would load each row once per process."""
    lake.streams = {"a": {"last": 3}, "b": {"last": 3}}
    lake.habits["unasked"] = True
    result = lake.run()
    assert result.error
    assert "a process of the tap sent a stream that is not its own" in result.error.message
    assert "source.parallelism to 1" in result.error.hint
    assert lake.run(1).status == "success"
    assert (lake.ids("a"), lake.ids("b")) == (upto(3), upto(3))


def test_a_flat_state_is_refused(lake: PagedRuns) -> None:
    """Nobody can say whose a word of it is. With one process it is as good as any, and then cannot be divided."""
    lake.streams, lake.habits["flat"] = {"a": {"last": 3}, "b": {"last": 3}}, True
    for status in ("failed", "success", "failed"):
        result = lake.run(1 if status == "success" else 2)
        assert (result.status, lake.alive) == (status, [])
        if result.error:
            assert result.error.exit_code == 2
            assert "cannot be kept per stream" in result.error.message
    assert (lake.ids("a"), lake.ids("b")) == (upto(3), upto(3))


def test_another_number_of_processes(lake: PagedRuns) -> None:
    """Where streams come together that several read, the STATE that is shown is given, and the run says so."""
    lake.streams = {name: {"last": 4} for name in "abcd"}
    assert lake.run(4).warnings == []
    for stream in lake.streams.values():
        stream["last"] = 8
    fewer = lake.run(2)
    together = [streams for streams in lake.groups if "+" in streams]  # which, their seconds decide
    assert [warning.split(":")[0] for warning in fewer.warnings] == [s.replace("+", ", ") for s in together]
    assert [lake.was_given()[streams[0]] for streams in together] == [dict.fromkeys("abcd", 4)] * len(together)
    assert together
    assert lake.run(2).warnings == []
    assert lake.run(4).warnings == [], "each goes on from the STATE of the process that it was with"
    one = lake.run(1)
    assert "one process of the tap goes on from a STATE put together" in one.warnings[0]
    assert {s: lake.ids(s) for s in "abcd"} == dict.fromkeys("abcd", upto(8))


def test_one_process_again_has_a_state_of_its_own(lake: PagedRuns) -> None:
    """Once it has said one, the commit has no groups any more, and nothing is warned of."""
    lake.streams = {name: {"last": 4} for name in "ab"}
    lake.run()
    lake.streams["a"]["last"] = 6
    lake.run(1)
    assert lake.view.pipeline_state.per_process is None
    result = lake.run(2)
    assert (result.warnings, lake.was_given()) == ([], {key: {"a": 6, "b": 4} for key in "ab"})


def test_one_stream_alone(lake: PagedRuns) -> None:
    """`--stream` leaves the STATEs of the others as they are, and runs from the one that had the stream."""
    lake.streams = {"a": {"last": 4}, "c": {"last": 4, "parent": "a", "fails_at": 3}, "d": {"last": 4}}
    lake.run(3)
    assert lake.groups == {"a": {"a": 4}, "c": {"a": 2, "c": 2}, "d": {"d": 4}}
    lake.streams["d"]["last"] = 6
    result = lake.run(3, streams=("d",))
    assert (result.status, result.warnings, lake.was_given()) == ("success", [], {"d": {"d": 4}})
    assert lake.groups == {"d": {"d": 6}, "a": {"a": 4}, "c": {"a": 2, "c": 2}}
    assert values(lake.view.state) == {"a": 4, "c": 2, "d": 6}
    del lake.streams["c"]["fails_at"]
    assert lake.run(3).warnings == []
    assert {s: lake.ids(s) for s in "acd"} == {"a": upto(4), "c": upto(4), "d": upto(6)}


def test_an_edit_is_for_all(lake: PagedRuns) -> None:
    """A bookmark that somebody set back reaches the process of its stream; `--state` likewise; both are warned of."""
    lake.streams = {name: {"last": 4} for name in "ab"}
    lake.settings = {"destination": {"bucket": lake.uri, "load_method": "upsert"}}
    lake.run()
    StateStore(lake.uri, "p").set("a", {"replication_key": "id", "replication_key_value": 1})
    assert lake.view.pipeline_state.per_process == []
    result = lake.run()
    assert len(result.warnings) == 2
    assert lake.was_given() == {key: {"a": 1, "b": 4} for key in "ab"}
    again = lake.run(state=lake.view.state)
    assert len(again.warnings) == 2
    assert lake.was_given() == {key: {"a": 4, "b": 4} for key in "ab"}
    assert (lake.ids("a"), lake.ids("b")) == (upto(4), upto(4))


def test_a_full_run(lake: PagedRuns) -> None:
    """Each process's tables are exchanged at its own end; one that fails leaves tables and STATE as they were."""
    lake.streams = {name: {"last": 4} for name in "ab"}
    lake.run()
    lake.streams = {"a": {"last": 6}, "b": {"last": 6, "fails_at": 5}}
    assert lake.run(full=True).status == "failed"
    assert (lake.ids("a"), lake.ids("b")) == (upto(6), upto(4))
    assert lake.groups == {"a": {"a": 6}, "b": {"b": 4}}
    del lake.streams["b"]["fails_at"]
    assert lake.run().status == "success"
    assert (lake.ids("a"), lake.ids("b")) == (upto(6), upto(6))


def test_a_rollback_brings_the_states_back(lake: PagedRuns) -> None:
    """What each process had said at that commit is what it is given then."""
    lake.streams = {"a": {"last": 4}, "c": {"last": 4, "parent": "a", "fails_at": 3}}
    lake.run()
    to, then = lake.view.n, lake.view.pipeline_state.per_process
    del lake.streams["c"]["fails_at"]
    lake.run()
    assert lake.groups["c"] == {"a": 4, "c": 4}
    roll_back(open_storage(lake.uri), "p", to)
    assert lake.view.pipeline_state.per_process == then
    assert (lake.ids("a"), lake.ids("c")) == (upto(4), upto(2))
    assert lake.run().warnings == []
    assert (lake.ids("a"), lake.ids("c")) == (upto(4), upto(4))


def test_commits_that_change_no_state_keep_them(lake: PagedRuns) -> None:
    """Small files are joined, the lake is whole, a snapshot is made: each process still has its own STATE."""
    for last in (80, 160, 240):  # of more STATEs in one chunk, some might be passed over
        lake.streams = {"a": {"last": last}, "c": {"last": 4, "parent": "a", "fails_at": 3}}
        lake.run()
    log, groups = Log(open_storage(lake.uri), "p"), lake.view.pipeline_state.per_process
    assert log.snapshot(100).pipeline_state.per_process == next(log.history(100)).groups
    assert compact(log.storage, lake.pipeline(), CompactOptions()).written
    assert (lake.view.pipeline_state.per_process, verify(log.storage, "p").findings) == (groups, [])
    assert (lake.ids("a"), lake.ids("c")) == (upto(240), upto(2))


def test_a_full_spool(lake: PagedRuns) -> None:
    """Whoever sends more than fits has to wait, and none for ever: the limit is of all of them."""
    lake.streams = {name: {"last": 40_000, "page": 10_000} for name in "abcd"}
    lake.settings = {"commit": {"bytes": "1MiB"}, "spool": {"max_bytes": "3MiB"}}
    result = lake.run(4)
    assert (result.status, result.warnings) == ("success", [])
    assert {name: lake.ids(name) for name in "abcd"} == dict.fromkeys("abcd", upto(40_000))


@pytest.mark.parametrize(
    ("asked", "message"), [({"max_records": 3}, "--max-records"), ({"parallelism": 0}, "from 1 on")]
)
def test_what_does_not_fit(lake: PagedRuns, asked: dict[str, Any], message: str) -> None:
    """Refused before anything is started, with what to do instead."""
    lake.streams = {"a": {"last": 3}}
    if "parallelism" in asked:
        with pytest.raises(ValueError, match=message):
            lake.run(**asked)
        return
    result = lake.run(**asked)
    assert result.error
    assert (message in result.error.message, result.error.exit_code) == (True, 2)
    assert result.error.hint


def test_processes_wait_at_the_same_time(lake: PagedRuns) -> None:
    """A tap that waits for its source is as many times as fast: eight of them are there at once."""
    most = 0

    def watch(run: Run) -> None:
        nonlocal most
        until = time.monotonic() + 60
        while most < 8 and time.monotonic() < until:
            most = max(most, len(lake.alive))
            time.sleep(0.02)

    lake.stop = watch
    lake.streams = {f"s{number:02}": {"last": 10, "page": 1, "seconds": 0.2} for number in range(16)}
    lake.settings = {"commit": {"every": "1h"}}
    assert lake.run(8).status == "success"
    assert most == 8
    assert {name: lake.ids(name) for name in lake.streams} == dict.fromkeys(lake.streams, upto(10))


def test_another_run_that_takes_over(lake: PagedRuns) -> None:
    """A process that lost the pipeline commits nothing more for any of its taps, and leaves none."""
    lake.streams = {name: {"last": 200, "seconds": 0.02} for name in "ab"}

    def stop(run: Run) -> None:
        until = time.monotonic() + 20
        log = Log(open_storage(lake.uri), "p")
        while time.monotonic() < until:
            time.sleep(0.02)
            record = log.record(head) if (head := log.head()) else None
            if record:
                theirs = structs.replace(record, n=head + 1, nonce="another's", tables=[])
                if log.storage.put_if_absent(log.key(head + 1), commit_bytes(theirs)):
                    return

    lake.stop = stop
    result = lake.run()
    assert isinstance(result.error, CommitLost), result.error
    assert lake.alive == []
