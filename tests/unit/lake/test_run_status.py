"""How a run stands that has no end: what its record does not say, the commit log does."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.lake.lease import take
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.records import RejectFile
from bridge.lake.run_status import current, failures, last_run
from bridge.lake.runs import RunFile, RunRecord, read_run
from tests.support.lake import DEAD, FIRST, Lake

RUN = "20260101T000001Z-aaaa"


def stored(lake: Lake, run: str = RUN) -> RunRecord:
    record = read_run(lake.storage, "p", run)
    assert record
    return record


def committed(lake: Lake, commits: int, *, counted: int = 0, run: str = RUN) -> RunFile:
    """A run that committed so often, a row each, and whose record takes the first `counted` into account."""
    committer = lake.open(FIRST)
    committer.run = run
    file = RunFile(lake.storage, "p", run, commit=committer.view.n, state_before=None)
    for n in range(1, commits + 1):
        lake.load(committer, {"n": n})
        if n == counted:
            streams = {"s": {"records": n, "files": n, "load_method": "append-only", "complete": True, "new": 7}}
            file.update(commit=committer.view.n, commits=n, streams=streams, state={"n": n})
    return file


@pytest.mark.parametrize("counted", [0, 1, 3])
def test_a_run_that_died(lake: Lake, counted: int) -> None:
    """Records, commits and STATE are those of the log, however old its record is; its own facts stay."""
    committed(lake, 3, counted=counted)
    record = current(lake.storage, stored(lake))
    assert (record.status, record.records, record.commits, record.commit) == ("died", 3, 3, 3)
    assert (record.state, record.state_before, record.ended) == ({"n": 3}, None, None)
    assert record.streams["s"].complete is (counted == 3)
    shown = record.stored
    assert (shown["status"], shown["commits"], shown["state"]) == ("died", 3, {"n": 3})
    assert (shown["streams"]["s"]["records"], shown["streams"]["s"].get("new")) == (3, 7 if counted else None)


def test_what_a_dead_run_read(lake: Lake) -> None:
    """As much as its record says, and at least what was committed and rejected."""
    committed(lake, 2)
    assert current(lake.storage, stored(lake)).read == 2
    streams = {"s": {"read": 9, "records": 0, "files": 0}}
    RunFile(lake.storage, "p", RUN, commit=0, streams=streams)
    record = current(lake.storage, stored(lake))
    assert (record.status, record.read, record.records) == ("died", 9, 2)
    assert record.stored["streams"]["s"]["read"] == 9


def test_a_record_of_an_earlier_version(lake: Lake) -> None:
    """It does not say how much was read, so nobody claims to know."""
    RunFile(lake.storage, "p", RUN).finish(status="failed", commit=0, streams={"s": {"records": 7}})
    assert (stored(lake).records, stored(lake).read) == (7, None)


def test_a_run_under_way(lake: Lake) -> None:
    """While it holds the pipeline it is running, and its commits are seen at once."""
    lease = take(lake.storage, "p", RUN)
    committed(lake, 2, counted=1)
    record = current(lake.storage, stored(lake))
    assert (record.status, record.records, record.commits, record.state) == ("running", 2, 2, {"n": 2})
    lease.close(head=2, clean=False)
    assert current(lake.storage, stored(lake)).status == "died"


def test_rejects_count(lake: Lake) -> None:
    """Records that a commit keeps as rejects are the run's."""
    committer = lake.open(FIRST)
    committer.run = RUN
    RunFile(lake.storage, "p", RUN, commit=0)
    reject = RejectFile(stream="t", file=".bridge/p/rejects/t/x.jsonl", lines=4, reasons={})
    committer.commit(PipelineState({"n": 1}), [], rejects=[reject])
    assert current(lake.storage, stored(lake)).streams["t"].rejected == 4


@pytest.mark.parametrize("counted", [1, 2])
def test_a_commit_that_was_taken_back(lake: Lake, counted: int) -> None:
    """If the next run had to take the last commit back, its rows and STATE do not count, and no stream is complete."""
    committed(lake, 2, counted=counted)
    last = lake.open(DEAD)
    assert last.view.state == {"n": 2}
    void = last.create("void", PipelineState({"n": 1}), voids=2, tables=[])
    assert void.n == 4
    record = current(lake.storage, stored(lake))
    assert (record.records, record.commits, record.state) == (1, 1, {"n": 1})
    assert not record.streams["s"].complete


def test_a_run_that_committed_nothing(lake: Lake) -> None:
    """The commits before it and after it are those of others."""
    committed(lake, 2, run="20260101T000000Z-aaaa")
    RunFile(lake.storage, "p", RUN, commit=2)
    committer = lake.open(DEAD)
    lake.load(committer, {"n": 9})
    record = current(lake.storage, stored(lake))
    assert (record.status, record.records, record.commits, record.state) == ("died", 0, 0, {"n": 2})


@pytest.mark.parametrize(("facts", "status"), [({"opened": False}, "died"), ({}, "died")])
def test_a_record_of_which_nothing_is_known(lake: Lake, facts: dict[str, Any], status: str) -> None:
    """A run that did not come so far, or an older version's that died, shows no figures."""
    RunFile(lake.storage, "p", RUN, started="2026-01-01T00:00:00+00:00", **facts)
    record = current(lake.storage, stored(lake))
    assert (record.status, record.records, record.commits) == (status, None, None)


def test_failures_since_the_last_success(lake: Lake) -> None:
    """Failures and deaths count; what was interrupted, or kept out, does not, and does not end the row."""
    outcomes = ["failed", "success", "failed", "held", "running", "interrupted", "failed", "held"]
    for second, status in enumerate(outcomes):
        file = RunFile(lake.storage, "p", f"20260101T00000{second}Z-aaaa", started=f"2026-01-01T00:00:0{second}+00:00")
        if status != "running":
            previous = f"20260101T00000{second - 1}Z-aaaa"
            file.finish(status=status, previous=previous, error={"message": f"no {second}"})
    failed = failures(lake.storage, "p")
    assert failed
    assert failed.success
    assert failed.last.error
    assert (failed.count, failed.since[-7], failed.last.error.message) == (3, "2", "no 6")
    assert failed.success.run_id == "20260101T000001Z-aaaa"
    last = last_run(lake.storage, "p")
    assert last
    assert (last.status, last.run_id[14]) == ("failed", "6")


def test_no_failures(lake: Lake) -> None:
    """Neither without runs nor after a success."""
    assert failures(lake.storage, "p") is None
    assert last_run(lake.storage, "p") is None
    RunFile(lake.storage, "p", RUN).finish(status="success")
    assert failures(lake.storage, "p") is None


def test_failures_far_back(lake: Lake) -> None:
    """Past a hundred of them the first one and the success before them are known, and few records are read."""
    RunFile(lake.storage, "p", first := "20260101T000000Z-aaaa").finish(status="success")
    for minute in range(1, 151):
        file = RunFile(
            lake.storage,
            "p",
            f"20260101T{minute // 60:02}{minute % 60:02}00Z-aaaa",
            started=f"2026-01-01T{minute // 60:02}:{minute % 60:02}:00+00:00",
            opened=False,
            previous=first,
        )
        file.finish(status="held" if minute == 1 else "failed", error={"message": f"no {minute}"})
    failed = failures(lake.storage, "p")
    assert failed
    assert failed.success
    assert (failed.count, failed.since, failed.success.run_id) == (100, "2026-01-01T00:02:00+00:00", first)


def test_the_attempts_of_a_retry_are_one_run(lake: Lake) -> None:
    """What is counted was asked for; the first attempt of the first run says since when."""
    attempts = [("success", 1), ("failed", 1), ("failed", 2), ("failed", 1), ("held", 1), ("failed", 2), ("failed", 3)]
    for second, (status, attempt) in enumerate([*attempts, ("failed", 1), ("interrupted", 2)]):
        started = f"2026-01-01T00:00:0{second}+00:00"
        file = RunFile(lake.storage, "p", f"20260101T00000{second}Z-aaaa", started=started, attempt=attempt)
        file.finish(status=status)
    failed = failures(lake.storage, "p")
    assert failed
    assert (failed.count, failed.since[-7], failed.last.run_id[14]) == (2, "1", "6")
