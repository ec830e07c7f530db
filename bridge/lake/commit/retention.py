"""Deletes what is too old: commit records, run records, logs, rejects, and the files that tables gave up.

It runs after a clean run that committed or is the first of its hour, while the lease is held, best effort; after a run
that failed, for run records and logs only.
Of each kind a run deletes at most `_AT_LEAST`, plus two for each commit it made; of removed files those of so many
commits, as one commit may remove many. Age is the time in a record or in a run's id, never a file's own time.

What the present lake needs is never deleted. The log is cut only below a snapshot, so every commit from there on can
still be read. Older records stay as long as voiding the last change, or emptying the trash, would read them.
`begins.json` is written before the first record is deleted, so a death in between leaves no gap that looks like damage.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone

from bridge.errors import BridgeError
from bridge.lake.commit.cleanup import tidy
from bridge.lake.log import SNAPSHOT_EVERY, Beginning, Log, Snapshot, storage_changes
from bridge.lake.ownership import require_own
from bridge.lake.paths import left_behind, pipeline_key
from bridge.lake.records import CommitRecord
from bridge.lake.storage import Storage
from bridge.lake.storage.parallel import parallel_map
from bridge.settings.options import Pipeline, Retention

_AT_LEAST = 40
"""A run may delete this many of each kind, or what so many commits removed, even if it committed nothing."""

_OF_A_RUN = re.compile(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z-[a-z0-9]{4,5}\b.*", re.ASCII)
_COMMIT = re.compile(r"[0-9]{20}")


class Sweep:
    """Deletes what is too old, once. `made` is how many commits the run that ends now has made.

    `deleted` counts the deletions by kind; `warnings` say in sentences what could not be deleted.
    """

    def __init__(
        self,
        storage: Storage,
        pipeline: str,
        keep: Retention,
        *,
        run: str = "",
        spared: tuple[str, ...] = (),
        made: int = 0,
        now: datetime | None = None,
        snapshot: Snapshot | None = None,
    ) -> None:
        """`spared`: ids of runs whose records stay, beside that of `run`.

        `snapshot` is the present lake, if the caller has it: reading it costs up to a hundred small reads.
        """
        self.storage, self.pipeline, self.keep = storage, pipeline, keep
        self._spared = tuple(filter(None, (run, *spared)))
        self._view = snapshot
        self.now = now or datetime.now(timezone.utc)
        self.log = Log(storage, pipeline)
        self.deleted = dict.fromkeys(("trash", "rejects", "logs", "runs", "commits"), 0)
        self.warnings: list[str] = []
        self._limit = _AT_LEAST + 2 * made
        self._needed = self._head = 0
        self._live: set[str] | None = None
        self._removed: dict[str, int] | None = None

    def all(self, head: int) -> None:
        """Delete what is too old in the pipeline's part of the bucket, up to the limit of one run for each kind."""
        self._head = head
        with self._best_effort("trash"):
            last = self._last_change(head)
            self._needed = min(last - 1, self._trash(last))
        with self._best_effort("rejects"):
            for folder in sorted(self.storage.list(pipeline_key(self.pipeline, "rejects"))):
                self._of_runs("rejects", self.keep.rejects, f"rejects/{folder}")
        self.records()
        with self._best_effort("commits"):
            self._commits()
        with self._best_effort("leftovers"):
            tidy(self.log, self._view or self.log.snapshot(head))

    def records(self) -> None:
        """Delete what is too old of run records and logs. It needs no lease: they belong to runs that ended."""
        with self._best_effort("logs"):
            self._of_runs("logs", self.keep.logs, "logs")
        with self._best_effort("runs"):
            self._of_runs("runs", self.keep.runs, "runs")

    @contextmanager
    def _best_effort(self, kind: str) -> Iterator[None]:
        try:
            yield
        except BridgeError as error:
            self._warn(kind, error.message)

    def _warn(self, kind: str, why: str) -> None:
        self.warnings.append(f"old files of the {kind} could not be deleted: {why}")

    def _full(self, kind: str) -> bool:
        return self.deleted[kind] >= self._limit

    def _delete(self, kind: str, key: str) -> None:
        self.storage.delete(key)
        self.deleted[kind] += 1

    def _old(self, at: str, keep_for: timedelta) -> bool:
        """Whether an ISO time is longer ago than `keep_for`; False for text that is no time."""
        try:
            return datetime.fromisoformat(at) < self.now - keep_for
        except (TypeError, ValueError):
            return False

    def _last_change(self, head: int) -> int:
        """The oldest commit that recovery may take back: the last that is no fence, or the one it voids."""
        record = next(self.log.history(head, fences=False), None)
        return min(record.n, record.n if record.voids is None else record.voids) if record else head

    def _trash(self, last: int) -> int:
        """Delete the files that commits before `last` removed; return the first commit whose record is still needed."""
        emptied = 0
        for name in sorted(filter(_COMMIT.fullmatch, self.storage.list(pipeline_key(self.pipeline, "trash")))):
            record = self.log.record(int(name))
            if record is None:
                continue
            if int(name) >= last or emptied >= self._limit or not self._old(record.at, self.keep.trash):
                return int(name)
            emptied += 1
            for change in storage_changes(self.pipeline, record):
                for trash in [*(one.trash for one in change.removes), *(one.trash for one in change.rewrites)]:
                    self._delete("trash", trash)
            self._left_behind(record, last)
        return last

    def _left_behind(self, record: CommitRecord, last: int) -> None:
        """Delete the files that a commit removed but left in place, as Delta's and Iceberg's tables do."""
        for change in record.tables:
            if change.has_own_log and change.removes:
                require_own(self.storage, self.pipeline, [change.folder])
                keys = [f"{change.folder}/{name}" for name in change.removes]
                keys = [key for key in keys if key not in self._in_use(last)]
                for key in [key for key in keys if not self._later_removed(key, record.n)]:
                    self._delete("trash", key)
                self.storage.delete(left_behind(self.pipeline, record.n, change.folder))

    def _in_use(self, last: int) -> set[str]:
        """The files of the present tables, and of the tables before the last change, should it be taken back."""
        if self._live is None:
            views = [self.log.snapshot(n) for n in (last - 1, self._head)]
            tables = [table for view in views for table in view.tables.values()]
            self._live = {f"{table.folder}/{name}" for table in tables for name in table.files}
        return self._live

    def _later_removed(self, key: str, n: int) -> bool:
        """Whether a commit after `n` removed a file again, which a rollback had brought back: its time counts."""
        if self._removed is None:
            names = filter(_COMMIT.fullmatch, self.storage.list(pipeline_key(self.pipeline, "trash")))
            self._removed = {}
            for record in filter(None, parallel_map(self.storage, self.log.record, sorted(map(int, names)))):
                for change in (change for change in record.tables if change.has_own_log):
                    self._removed |= {f"{change.folder}/{name}": record.n for name in change.removes}
        return self._removed.get(key, 0) > n

    def _of_runs(self, kind: str, keep_for: timedelta, folder: str) -> None:
        """Delete the files named after runs that began too long ago, never those of this run or of a spared one."""
        for name in sorted(self.storage.list(pipeline_key(self.pipeline, *folder.split("/")))):
            began = _began(name)
            if began and not name.startswith(self._spared):
                if self._full(kind) or not self._old(began, keep_for):
                    return
                self._delete(kind, pipeline_key(self.pipeline, folder, name))

    def _commits(self) -> None:
        """Let the log begin at a later snapshot, if one is old enough, and delete records, the oldest first."""
        log, was = self.log, self.log.beginning()
        first = was.first
        while first - was.swept < self._limit and (later := self._later(first)):
            first = later
        if first != was.first:
            log.begin_at(Beginning(first, was.swept))
        end = min(first, was.swept + self._limit)
        for n in range(was.swept, end):
            self._delete("commits", log.key(n))
        if end != was.swept:
            log.begin_at(Beginning(first, end))

    def _later(self, first: int) -> int | None:
        """The number of the next snapshot after `first`, if the log may begin there."""
        n = first - first % SNAPSHOT_EVERY + SNAPSHOT_EVERY
        if n > self._needed:
            return None
        record = self.log.record(n)
        return n if record and record.snapshot is not None and self._old(record.at, self.keep.commits) else None


def _began(name: str) -> str | None:
    """When the run began that a file is named after, in ISO 8601; None for a file of somebody else."""
    match = _OF_A_RUN.fullmatch(name)
    if not match:
        return None
    began = "{}-{}-{}T{}:{}:{}+00:00".format(*match.groups())
    try:
        datetime.fromisoformat(began)
    except ValueError:
        return None
    return began


def sweep(storage: Storage, pipeline: Pipeline, *, run: str, made: int, snapshot: Snapshot) -> list[str]:
    """Delete what the pipeline's `retention` no longer keeps; return warnings. Never raises."""
    work = Sweep(storage, pipeline.name, pipeline.retention, run=run, made=made, snapshot=snapshot)
    work.all(snapshot.n)
    return work.warnings


def sweep_records(storage: Storage, pipeline: Pipeline, *, run: str, spared: tuple[str, ...]) -> None:
    """Delete run records and logs that the pipeline's `retention` no longer keeps. Never raises.

    `spared`: the last run that loaded anything, and the last that succeeded, stay, however many have failed since.
    """
    Sweep(storage, pipeline.name, pipeline.retention, run=run, spared=spared).records()
