"""How each pipeline stands, read from its bucket; not read again while a glance at the bucket shows the same.

A glance is one listing of the run records, the newest of them, who holds the pipeline, and whether there is a further
commit. A run that is under way is looked at each time.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from bridge.errors import BridgeError, LakeError
from bridge.lake.lease import holder
from bridge.lake.log import Log
from bridge.lake.paths import pipeline_key
from bridge.lake.reconciled import Proof
from bridge.lake.run_status import current
from bridge.lake.runs import RunRecord, any_run, counted_ids
from bridge.read.query.status import pipeline_status
from bridge.serve.service.web.pipelines import ListedPipeline

_LOG = logging.getLogger(__name__)
_SEE_LOG = "the log of the service has the details; `singer-bridge doctor` looks into the bucket"
LATEST = 24
"""Runs of a pipeline that the overview knows."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A run in a list."""

    key: str
    run_id: str
    status: str
    started: str
    ended: str | None
    seconds: float | None
    read: int | None
    records: int | None
    commits: int | None
    rejected: int
    warnings: int
    attempt: int
    held_times: int
    error: str

    @classmethod
    def of(cls, key: str, record: RunRecord) -> RunFacts:
        """The facts of a record, as it stands now."""
        seconds = record.seconds.get("total", record.seconds.get("load"))
        return cls(
            key=key,
            run_id=record.run_id,
            status=record.status,
            started=record.started,
            ended=record.ended,
            seconds=_between(record.started, record.ended) if seconds is None else seconds,
            read=record.read,
            records=record.records,
            commits=record.commits,
            rejected=sum(stream.rejected for stream in record.streams.values()),
            warnings=len(record.warnings),
            attempt=record.attempt,
            held_times=record.held_times,
            error=record.error.message if record.error else "",
        )


def _between(started: str, ended: str | None) -> float | None:
    if not ended:
        return None
    return max(0.0, (datetime.fromisoformat(ended) - datetime.fromisoformat(started)).total_seconds())


@dataclass(frozen=True, slots=True)
class PipelineFingerprint:
    """Compared between two looks. If equal, nothing changed in the bucket."""

    ids: tuple[str, ...]
    newest: bytes | None
    holder: str
    head: int
    compared: dict[str, Proof]
    """The last comparison of each table with its source."""

    @classmethod
    def at(cls, log: Log, before: PipelineFingerprint | None) -> PipelineFingerprint:
        """Look. Raises `LakeError` if the bucket does not answer."""
        storage, name = log.storage, log.pipeline
        ids = tuple(counted_ids(storage, name))
        newest = storage.read(pipeline_key(name, "runs", f"{ids[0]}.json")) if ids else None
        held = holder(storage, name) or {}
        head = log.head(before.head) if before and before.head else log.latest()
        compared = Proof.last(storage, name)
        return cls(ids, newest, str(held.get("run") or ""), head, compared)


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """How a pipeline stands. `status` is what `status --json` says; None: it could not be read, `error` says why."""

    shown: ListedPipeline
    status: dict[str, Any] | None = None
    runs: tuple[RunFacts, ...] = ()
    """The latest, newest first; those from a clock that was ahead come last."""
    tables: dict[str, int] = field(default_factory=dict)
    """The rows of each table and view, by name."""
    error: BridgeError | None = None
    is_silent: bool = False
    """Its bucket takes longer to answer than anybody waits."""
    glance: PipelineFingerprint | None = field(default=None, repr=False)
    changed: int = 0
    """The last commit that is no fence, as far as it came between two looks; of the first look, the last commit."""

    @property
    def key(self) -> str:
        return self.shown.key

    @property
    def word(self) -> str:
        """Its status in a word: that of the last run, or `never ran`, `unreadable`."""
        return str(self.status["status"]) if self.status else "unreadable"

    @property
    def is_under_way(self) -> bool:
        return any(run.status == "running" for run in self.runs[:3])

    @property
    def is_out_of_date(self) -> bool:
        """Whether it may look different now, though its bucket looks the same."""
        is_stale = self.is_stale(datetime.now(timezone.utc))
        return self.is_under_way or self.status is None or is_stale != bool(self.status["stale"])

    def moved(self) -> list[str]:
        """When the bookmarks changed, the earliest first; of streams that have one."""
        marks = self.status["bookmarks"].values() if self.status else ()
        return sorted(mark["moved"] for mark in marks if mark["bookmark"] and mark["moved"])

    def is_stale(self, now: datetime) -> bool:
        """Whether no run has succeeded for `stale_after`."""
        at = self.status and self.status["stale_from"]
        return bool(at and now > datetime.fromisoformat(at))


def look(shown: ListedPipeline, before: PipelineStatus | None) -> PipelineStatus:
    """See how a pipeline stands; the same object if nothing changed. What cannot be read is in the result."""
    if shown.log is None:
        return before if before and before.shown is shown else PipelineStatus(shown, error=shown.error)
    try:
        glance = PipelineFingerprint.at(shown.log, before.glance if before else None)
        if before and before.shown is shown and before.glance == glance and not before.is_out_of_date:
            return before
        return _seen(shown, shown.log, before, glance)
    except BridgeError as error:
        return PipelineStatus(shown, runs=before.runs if before else (), error=error)
    except Exception as error:  # noqa: BLE001 - whatever one bucket holds must not hide the others
        trouble = BridgeError(f"what its bucket holds cannot be shown: {type(error).__name__}", hint=_SEE_LOG)
        if before is None or before.error is None or before.error.message != trouble.message:
            _LOG.exception("%s: %s", shown.key, trouble.message)
        return PipelineStatus(shown, error=trouble)


def silent(shown: ListedPipeline, before: PipelineStatus | None) -> PipelineStatus:
    """The sight of a pipeline whose bucket does not answer in time."""
    return PipelineStatus(shown, runs=before.runs if before else (), error=silence(shown), is_silent=True)


def silence(shown: ListedPipeline) -> LakeError:
    """The error of a bucket that does not answer in time."""
    hint = "the page looks again and again"
    return LakeError("the bucket does not answer", hint=hint, bucket=shown.lake.storage.uri)


def _seen(
    shown: ListedPipeline, log: Log, before: PipelineStatus | None, glance: PipelineFingerprint
) -> PipelineStatus:
    ended = {run.run_id: run for run in (before.runs if before else ())[1:] if run.ended}
    runs = []
    for run in glance.ids[:LATEST]:
        facts = ended.get(run)
        if facts is None and (record := any_run(log.storage, log.pipeline, run)) is not None:
            facts = RunFacts.of(shown.key, current(log.storage, record))
        if facts:
            runs.append(facts)
    stale_after = shown.pipeline.stale_after if shown.pipeline else None
    snapshot = log.snapshot(log.latest())
    status = pipeline_status(log, datetime.now(timezone.utc), stale_after, snapshot)
    tables = {name: table.rows for name, table in snapshot.tables.items()}
    return PipelineStatus(shown, status, tuple(runs), tables, glance=glance, changed=_changed(log, before, snapshot.n))


def _changed(log: Log, before: PipelineStatus | None, head: int) -> int:
    if before is None or before.status is None:
        return head
    for n in range(head, before.status["commit"], -1):
        if (record := log.record(n)) and record.kind != "fence":
            return n
    return before.changed
