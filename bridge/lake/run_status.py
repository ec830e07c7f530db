"""How runs stand whose record has no end: under way, or died. What they loaded, the commit log knows.

A record is brought up to date after a commit, not with it, and not after each of many quick ones. What is missing is
read from the log: the commits after the last one that the record takes into account.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from msgspec import structs, to_builtins

from bridge.lake.lease import fate, holder, holds
from bridge.lake.log import Log
from bridge.lake.records import CommitRecord
from bridge.lake.runs import (
    RunRecord,
    Since,
    StreamResult,
    any_run,
    counted_ids,
    is_run_id,
    read_attempts,
    read_opened,
    run_ids,
)
from bridge.lake.storage import Storage
from bridge.lake.times import is_ahead, read_time

_SETTING_OUT = timedelta(minutes=30)
"""A run on another machine that has not opened the pipeline for this long counts as dead."""
_RUNS_BACK = 100
"""How many runs back failures are counted."""
_OPENED_BACK = 30
"""How many runs back a success is looked for, where no record carries it."""
_WAITED_BACK = 5
"""So many runs may have begun to load while another one, with an earlier id, waited for its turn."""


def current(storage: Storage, record: RunRecord) -> RunRecord:
    """A run's record with its true status; of one without an end, with what it has loaded up to now."""
    if record.status != "running":
        return record
    alive = _is_alive(storage, record)
    if not alive:
        record = any_run(storage, record.pipeline, record.run_id) or record  # it may have ended just now
    return record if record.status != "running" else _with_commits(storage, record, "running" if alive else "died")


def last_run(storage: Storage, pipeline: str) -> RunRecord | None:
    """The run that holds the pipeline, else the latest: never an attempt that another run kept out.

    It may be `unreadable`, see `any_run`.
    """
    held = str((holder(storage, pipeline) or {}).get("run"))
    record = any_run(storage, pipeline, held) if is_run_id(held) else None
    every = (any_run(storage, pipeline, run) for run in ([] if record else counted_ids(storage, pipeline)))
    record = record or next((each for each in every if each and each.status != "held"), None)
    return current(storage, record) if record else None


def last_success(storage: Storage, pipeline: str, last: RunRecord | None = None) -> RunRecord | None:
    """The latest run that succeeded, however many have failed since; None if none did, or its record is unreadable.

    `last`: the last run, where it is read already; if it succeeded, no other is read.
    """
    if last and last.status == "success":
        return last
    since = fresh_since(storage, pipeline)
    record = any_run(storage, pipeline, since.run_id) if since and since.is_success else None
    return record if record and record.is_readable else None


def fresh_since(storage: Storage, pipeline: str) -> Since | None:
    """From when the age of what the pipeline has loaded counts; None if it never ran. It reads a few records.

    A run notes it as it begins to load, when no other one can be under way. So the latest of these runs knows it. What
    a clock that was ahead says counts no later than now, nor than the run that carried it on began.
    """
    carried = list[Since]()
    latest = datetime.now(timezone.utc)
    for place, run in enumerate(read_opened(storage, pipeline, _OPENED_BACK)):
        began = min(latest, read_time(run.started))
        if run.status == "success":
            carried.append(_no_later(Since(run.run_id, run.ended or run.started, is_success=True), latest))
            break
        if run.since:
            carried.append(_no_later(run.since, began))
        if carried and place >= _WAITED_BACK:
            break
    if carried:
        return max(carried, key=lambda since: (since.is_success, read_time(since.at)))
    for run_id in reversed(run_ids(storage, pipeline)):
        if (first := any_run(storage, pipeline, run_id)) and first.is_readable:
            return _no_later(Since(first.run_id, first.started, is_success=False), latest)
    return None


def _no_later(since: Since, latest: datetime) -> Since:
    ahead = is_ahead(read_time(since.at), latest)
    return structs.replace(since, at=latest.isoformat(timespec="seconds")) if ahead else since


def is_stale(since: Since, stale_after: timedelta, now: datetime) -> bool:
    """Whether no run has succeeded for longer than `stale_after`."""
    return now - read_time(since.at) > stale_after


@dataclass(frozen=True, slots=True)
class Failures:
    """The failures of a pipeline since its last success; attempts of a retry are one. `count` stops at a hundred."""

    count: int
    since: str
    """When the first of them began."""
    last: RunRecord
    success: RunRecord | None
    """The run before them that succeeded."""

    def facts(self) -> dict[str, Any]:
        """As `status --json` has them."""
        return {
            "count": self.count,
            "since": self.since,
            "run_id": self.last.run_id,
            "error": self.last.error.message if self.last.error else "it died",
            "last_success": self.success.run_id if self.success else None,
            "last_success_ended": self.success.ended if self.success else None,
        }


def failures(storage: Storage, pipeline: str) -> Failures | None:
    """How often a pipeline failed since its last success; None if it did not.

    A run that is under way, was interrupted, or kept out by another, is neither.
    """
    runs = list[tuple[RunRecord, RunRecord]]()  # the last and the first attempt of each
    success, earlier, left = None, 0, _RUNS_BACK
    for record in read_attempts(storage, pipeline, _RUNS_BACK):
        left -= 1
        if record.status == "success":
            success = record
            break
        if record.status in ("failed", "running") and record.attempt == earlier:  # running: that attempt died
            runs[-1] = runs[-1][0], record
        else:
            runs.append((record, record))
        earlier = record.attempt - 1
    failed = [(last, first) for last, first in runs if _has_failed(storage, last)]
    if not failed:
        return None
    (last, _), (_, first) = failed[0], failed[-1]
    if not success and not left:
        success = last_success(storage, pipeline)
        first = _first_failure(storage, pipeline, success.run_id if success else "") or first
    return Failures(len(failed), first.started, current(storage, last), success)


def _has_failed(storage: Storage, record: RunRecord) -> bool:
    return record.status == "failed" or (record.status == "running" and not _is_alive(storage, record))


def _first_failure(storage: Storage, pipeline: str, after: str) -> RunRecord | None:
    """The first run that failed of those with a later id than this one."""
    later = (run for run in reversed(run_ids(storage, pipeline)) if run > after)
    records = (any_run(storage, pipeline, run) for run in later)
    return next((record for record in records if record and _has_failed(storage, record)), None)


def _is_alive(storage: Storage, record: RunRecord) -> bool:
    """Whether a run without an end still works: it holds the pipeline, or has not come so far."""
    if holds(storage, record.pipeline, record.run_id):
        return True
    process = "gone" if record.opened else fate(record.process)
    if process == "unknown":
        return abs(datetime.now(timezone.utc) - read_time(record.started)) < _SETTING_OUT  # its clock may be ahead
    return process != "gone"


def _with_commits(storage: Storage, record: RunRecord, status: str) -> RunRecord:
    """The record with this status, and with the commits that it does not take into account yet."""
    if record.commit is None:
        return structs.replace(record, status=status, stored=record.stored | {"status": status})
    log = Log(storage, record.pipeline)
    commits = _commits_after(log, record)
    loads = [commit for commit in commits if commit.kind == "data"]
    last = commits[-1] if commits else log.record(record.commit)
    void = _void(log, last) if last and last.run == record.run_id and last.kind == "data" else None
    streams = record.streams
    for commit in loads:
        streams = _counted(streams, commit)
    if last and void:
        streams = _counted(streams, last, -1)
    facts = {
        "status": status,
        "commits": (record.commits or 0) + len(loads) - (1 if void else 0),
        "commit": last.n if last else record.commit,
        "state": void.state if void else last.state if last else record.state,
    }
    old: dict[str, Any] = record.stored.get("streams") or {}
    stored = {name: old.get(name, {}) | to_builtins(result) for name, result in streams.items()}
    return structs.replace(record, streams=streams, **facts, stored=record.stored | facts | {"streams": stored})


def _commits_after(log: Log, record: RunRecord) -> list[CommitRecord]:
    """The run's own commits that its record does not take into account."""
    commits = list[CommitRecord]()
    n = record.commit or 0
    while (commit := log.record(n + 1)) and commit.run == record.run_id:
        commits.append(commit)
        n += 1
    return commits


def _void(log: Log, commit: CommitRecord) -> CommitRecord | None:
    """The commit by which a later run took this one back, right after its fence; None if none did."""
    n = commit.n + 1
    while (following := log.record(n)) and following.kind == "fence":
        n += 1
    return following if following and following.voids == commit.n else None


def _counted(streams: dict[str, StreamResult], commit: CommitRecord, sign: int = 1) -> dict[str, StreamResult]:
    """The results with those of one more commit, or with `sign` -1 without them.

    A stream that has rows in it counts as incomplete: only the run itself knew that no more would come.
    """
    streams = dict(streams)
    for change in (change for change in commit.tables if not change.is_of_view):
        before = streams.get(change.stream, StreamResult())
        merged = {n: before.merged.get(n, 0) + sign * change.merged.get(n, 0) for n in before.merged | change.merged}
        streams[change.stream] = _read_at_least(
            before,
            records=before.records + sign * change.new_rows,
            files=before.files + sign * len(change.adds),
            bytes=before.bytes + sign * sum(add.size for add in change.adds),
            complete=False,
            merged=merged,
        )
    for reject in commit.rejects:
        if reject.stream is not None:
            before = streams.get(reject.stream, StreamResult())
            streams[reject.stream] = _read_at_least(before, rejected=before.rejected + sign * reject.lines)
    return streams


def _read_at_least(before: StreamResult, **facts: Any) -> StreamResult:
    """The result with these facts. What was committed or rejected was read, whatever the record says of that."""
    after = structs.replace(before, **facts)
    return structs.replace(after, read=max(before.read or 0, after.records + after.rejected + after.filtered))
