"""How a run stands that has no end: what its record does not say, the commit log does."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from bridge.lake.file_records import RejectFile
from bridge.lake.lease import take
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.run_status import current, failures, fresh_since, is_stale, last_run, last_success
from bridge.lake.runs import RunFile, RunRecord, any_run, read_run
from bridge.lake.times import SKEW, read_time
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
    file = RunFile(lake.storage, "p", run, commit=committer.snapshot.n, state_before=None)
    for n in range(1, commits + 1):
        lake.load(committer, {"n": n})
        if n == counted:
            streams = {"s": {"records": n, "files": n, "load_method": "append-only", "complete": True, "new": 7}}
            file.update(commit=committer.snapshot.n, commits=n, streams=streams, state={"n": n})
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
    assert last.snapshot.state == {"n": 2}
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


def at(minutes: float) -> str:
    """The time in so many minutes."""
    return (datetime.now(timezone.utc) + timedelta(minutes=minutes)).isoformat(timespec="seconds")


def ran(lake: Lake, minutes: float, status: str, **facts: Any) -> str:
    """Leave the record of a run that began in so many minutes, by the clock of its machine."""
    run = f"{read_time(at(minutes)):%Y%m%dT%H%M%SZ}-aaaa"
    RunFile(lake.storage, "p", run, started=at(minutes)).update(**({"status": status, "ended": at(minutes)} | facts))
    return run


def torn(lake: Lake, minutes: float) -> str:
    """Leave the record of such a run that nobody can read."""
    run = f"{read_time(at(minutes)):%Y%m%dT%H%M%SZ}-torn"
    lake.storage.write(f".bridge/p/runs/{run}.json", b"{")
    return run


def test_nothing_is_decided_by_an_unreadable_record(lake: Lake) -> None:
    """It is the last run, and says so. What counts failures or the age of the data goes by the others."""
    success = ran(lake, -60, "success")
    failed = ran(lake, -50, "failed")
    unreadable = torn(lake, -40)
    last = last_run(lake.storage, "p")
    assert last
    assert (last.run_id, last.status) == (unreadable, "unreadable")
    counted = failures(lake.storage, "p")
    assert counted and counted.success
    assert (counted.count, counted.last.run_id, counted.success.run_id) == (1, failed, success)
    since = fresh_since(lake.storage, "p")
    assert since and since.run_id == success


def test_the_first_of_all_and_the_success_are_unreadable(lake: Lake) -> None:
    """The age counts from the first that can be read; a success that nobody can read is none to look at."""
    assert fresh_since(lake.storage, "p") is None
    success = torn(lake, -60)
    assert fresh_since(lake.storage, "p") is None
    failed = ran(lake, -50, "failed", since={"run_id": success, "at": at(-55), "is_success": True})
    since = fresh_since(lake.storage, "p")
    assert since
    assert (since.run_id, since.is_success, last_success(lake.storage, "p")) == (success, True, None)
    last = last_run(lake.storage, "p")
    assert last and last.run_id == failed


@pytest.mark.parametrize("days", [1, 1000])
def test_a_success_from_the_future_hides_no_failure(lake: Lake, days: int) -> None:
    """Runs with the right time come after it; a pipeline that fails is failing, and gets old from then on."""
    ran(lake, -90, "success")
    ahead = ran(lake, days * 1440, "success")
    since = {"run_id": ahead, "at": at(days * 1440), "is_success": True}
    first = ran(lake, -80, "failed", since=since)
    second = ran(lake, -70, "failed", since=since)
    last, counted, fresh = last_run(lake.storage, "p"), failures(lake.storage, "p"), fresh_since(lake.storage, "p")
    assert last and counted and fresh
    assert (last.run_id, counted.count, counted.last.run_id) == (second, 2, second)
    assert read_time(fresh.at) <= read_time(at(-69)), first
    assert is_stale(fresh, timedelta(minutes=60), datetime.now(timezone.utc))
    assert not is_stale(fresh, timedelta(minutes=100), datetime.now(timezone.utc))


def test_the_only_success_is_from_the_future(lake: Lake) -> None:
    """It counts no later than now: `stale_after` is measured, and metrics have no time that is still to come."""
    ran(lake, 60 * 24 * 900, "success")
    since = fresh_since(lake.storage, "p")
    assert since
    assert read_time(since.at) <= datetime.now(timezone.utc)
    last = last_run(lake.storage, "p")
    assert last and last.status == "success"


def test_a_run_that_sets_out_in_the_future(lake: Lake) -> None:
    """On another machine, whose clock is ahead by days: it is not under way until then."""
    for ahead, status in ((2 * SKEW, "running"), (timedelta(days=2), "died")):
        run = ran(lake, ahead.total_seconds() / 60, "running", ended=None, opened=False, process={"host": "else"})
        record = any_run(lake.storage, "p", run)
        assert record and current(lake.storage, record).status == status
