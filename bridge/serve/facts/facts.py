"""Facts that are new: a run beside the run before it, and a pipeline beside the clock.

The run records in the bucket say what was a fact already. So whoever makes the next run, on whatever machine, repeats
nothing. What only the clock tells has a marker beside the run record, which exactly one process can create.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from bridge.durations import duration
from bridge.lake.log import Log
from bridge.lake.paths import pipeline_key
from bridge.lake.reconciled import Proof
from bridge.lake.run_status import current, fresh_since, is_stale, last_run
from bridge.lake.runs import VOLUME, RunRecord, advice, any_run, read_attempts
from bridge.lake.schemas import read_schema
from bridge.lake.storage import Storage

_RUNS_BACK = 100


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that somebody wants to know of a pipeline. `kind` is a word of `notify.on`."""

    kind: str
    pipeline: str
    run: str
    text: str


def facts_of(storage: Storage, record: RunRecord) -> Iterator[Fact]:
    """Yield what is new in a run that ended, beside the runs before it."""
    if record.status not in ("success", "failed"):
        return
    earlier = _earlier(storage, record)
    previous = next(earlier, None)

    def fact(kind: str, text: str) -> Fact:
        return Fact(kind, record.pipeline, record.run_id, text)

    had_failed = previous is not None and previous.status in ("failed", "running")  # running: it died
    if record.status == "failed" and not had_failed:
        error = record.error
        yield fact("failed", f"{error.message}. {error.hint}".strip(" .") if error else "it did not say why")
    if record.status == "success":
        if had_failed:
            yield fact("recovered", f"it loads again: {record.records or 0:,} records")
        last = previous if previous and previous.status == "success" else _success_before(storage, record, earlier)
        for kind, text in _looks_wrong(record, last):
            yield fact(kind, text)
    for text in _drift(storage, record):
        yield fact("drift", text)


def facts_of_comparison(proofs: Mapping[str, Proof], former: Mapping[str, Proof]) -> Iterator[Fact]:
    """Yield the tables that are not as their source, and were so, or not compared, before."""
    for stream, proof in proofs.items():
        if proof.differs and not (stream in former and former[stream].differs):
            counts = ", ".join(
                f"{number:,} {kind}"
                for kind in ("missing", "extra", "stale", "rejected")
                if (number := getattr(proof, kind))
            )
            text = f"{stream} is not as its source, through commit {proof.commit}: {counts}"
            yield Fact("differs", proof.pipeline, proof.run_id, text)


def _earlier(storage: Storage, record: RunRecord) -> Iterator[RunRecord]:
    """Yield the runs before this one, newest first, without earlier attempts of `retry` at the same run.

    Of runs without an end only those count whose death was told.
    """
    attempts = record.attempt - 1
    for run in read_attempts(storage, record.pipeline, _RUNS_BACK):
        if run.run_id >= record.run_id or run.status == "interrupted":
            continue
        is_told = run.status != "running" or storage.size(_marker(run.pipeline, run.run_id, "failed")) is not None
        if attempts and run.attempt == attempts and (run.status == "failed" or not is_told):
            attempts -= 1
        elif is_told:
            yield run


def _success_before(storage: Storage, record: RunRecord, earlier: Iterator[RunRecord]) -> RunRecord | None:
    """The last success before a run: its record names it, unless an earlier version wrote it."""
    if since := record.since:
        last = any_run(storage, record.pipeline, since.run_id) if since.is_success else None
        return last if last and last.is_readable else None
    return next((run for run in earlier if run.status == "success"), None)


def _looks_wrong(record: RunRecord, last: RunRecord | None) -> Iterator[tuple[str, str]]:
    """Yield what looks wrong with a run that succeeded, and did not with the last one that did."""
    rejects = {name: stream.rejected for name, stream in record.streams.items() if stream.rejected}
    old = {name for name, stream in last.streams.items() if stream.rejected} if last else set[str]()
    if new := [f"{name} ({count:,})" for name, count in sorted(rejects.items()) if name not in old]:
        yield "rejects", f"records that do not fit their schema: {', '.join(new)}"
    if few := sorted(set(record.marks.get(VOLUME, ())) - set(last.marks.get(VOLUME, ()) if last else ())):
        what, fix = advice(VOLUME, few, record.pipeline)
        yield "volume", f"{what}. What to do: {fix}"
    if not record.records and last and last.records:
        yield "empty", "the run loaded no record"
    old_differences = {(one.stream, one.kind) for one in last.differences} if last else set[tuple[str, str]]()
    for one in record.differences:
        if (one.stream, one.kind) not in old_differences:
            yield "drift", f"{one.stream}: {one.text}"


def _drift(storage: Storage, record: RunRecord) -> Iterator[str]:
    """Yield, for each table that the run changed, the columns that are new or have another type."""
    log = Log(storage, record.pipeline)
    own = list[int]()
    for commit in islice(log.history(log.latest()), (record.commits or 0) + 100):
        if commit.run == record.run_id:
            own.append(commit.n)
        elif own or commit.run < record.run_id:
            break
    if not own or min(own) == 1:
        return
    before, after = log.snapshot(min(own) - 1), log.snapshot(max(own))
    for stream, table in after.stream_tables.items():
        old = before.tables.get(stream)
        if not old or not old.schema or not table.schema or old.schema == table.schema:
            continue
        types = {field.name: field.type for field in read_schema(storage, record.pipeline, old.schema).fields}
        columns = read_schema(storage, record.pipeline, table.schema).fields
        new = [f"{field.name} {field.type}" for field in columns if field.name not in types]
        wider = [
            f"{field.name} is {field.type}, was {types[field.name]}"
            for field in columns
            if field.name in types and types[field.name] != field.type
        ]
        if new or wider:
            yield f"columns of {stream}: {', '.join([*(f'new: {text}' for text in new), *wider])}"


def facts_by_clock(storage: Storage, pipeline: str, stale_after: timedelta | None, now: datetime) -> Iterator[Fact]:
    """Yield what no run tells: that the last run died, and that none has succeeded for too long. Each once.

    Whoever creates the marker in the bucket tells it; for all others, on any machine, it is old.
    """
    run = last_run(storage, pipeline)
    if run is None:
        return
    if run.status == "died" and storage.put_if_absent(_marker(pipeline, run.run_id, "failed"), b"{}"):
        yield Fact("failed", pipeline, run.run_id, "the run died without an end; the next run repairs what it left")
    since = fresh_since(storage, pipeline) if stale_after else None
    if not (stale_after and since and is_stale(since, stale_after, now)):
        return
    if storage.put_if_absent(_marker(pipeline, since.run_id, "stale"), b"{}"):
        last = f"the last success ended {since.at}" if since.is_success else "no run has succeeded"
        yield Fact("stale", pipeline, since.run_id, f"{last}; `stale_after` is {duration(stale_after)}")


def _marker(pipeline: str, run: str, kind: str) -> str:
    """The key of a marker. It lies beside the run records, and is deleted with them."""
    return pipeline_key(pipeline, "runs", f"{run}.{kind}")


def record_of(storage: Storage, pipeline: str, run: str) -> RunRecord | None:
    """The record of a run that has just ended."""
    record = any_run(storage, pipeline, run)
    return current(storage, record) if record else None
