"""What is no longer needed goes: old commit records, run records, logs, rejects, and what tables gave up.

After a clean run, while the lease is held, best effort, and little at a time: a run deletes about as much as it made,
and somewhat more. What counts is the age that a record or a run's id says, never a file's own time.

What the log's present needs is never touched. The log is cut only below a snapshot, so every commit from there on can
still be read; below it stays whatever a void of the last change, or the trash, would look up. `begins.json` says where
the log begins before the first record goes, so that a death in between leaves no gap that means something.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone

from bridge.commit.cleanup import tidy
from bridge.errors import BridgeError
from bridge.lake.log import SNAPSHOT_EVERY, Beginning, Log, Snapshot, changes_of, left_behind, meta
from bridge.lake.records import CommitRecord
from bridge.settings.options import Pipeline, Retention
from bridge.storage import Storage

_AT_LEAST = 40
"""So many things of each kind a run may always delete."""

_OF_A_RUN = re.compile(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z-[a-z0-9]{4}\b.*", re.ASCII)
_COMMIT = re.compile(r"[0-9]{20}")


class Sweep:
    """One look at what is too old. `made` is how many commits the run made that ends now.

    `deleted` counts by kind what went; `warnings` say in sentences what could not.
    """

    def __init__(
        self,
        storage: Storage,
        pipeline: str,
        keep: Retention,
        *,
        run: str = "",
        made: int = 0,
        now: datetime | None = None,
        view: Snapshot | None = None,
    ) -> None:
        """`view` is the lake's present, where it is known: to read it anew costs a hundred small reads."""
        self.storage, self.pipeline, self.keep, self.run = storage, pipeline, keep, run
        self._view = view
        self.now = now or datetime.now(timezone.utc)
        self.log = Log(storage, pipeline)
        self.deleted = dict.fromkeys(("trash", "rejects", "logs", "runs", "commits"), 0)
        self.warnings: list[str] = []
        self._limit = _AT_LEAST + 2 * made
        self._needed = self._head = 0
        self._live: set[str] | None = None

    def all(self, head: int) -> None:
        """Delete what is too old in the pipeline's part of the bucket, of each kind as much as one run may."""
        self._head = head
        with self._best_effort("trash"):
            last = self._last_change(head)
            self._needed = min(last - 1, self._trash(last))
        with self._best_effort("rejects"):
            for folder in sorted(self.storage.list(meta(self.pipeline, "rejects"))):
                self._of_runs("rejects", self.keep.rejects, f"rejects/{folder}")
        with self._best_effort("logs"):
            self._of_runs("logs", self.keep.logs, "logs")
        with self._best_effort("runs"):
            self._of_runs("runs", self.keep.runs, "runs")
        with self._best_effort("commits"):
            self._commits()
        with self._best_effort("leftovers"):
            tidy(self.log, self._view or self.log.view(head))

    @contextmanager
    def _best_effort(self, kind: str) -> Iterator[None]:
        try:
            yield
        except BridgeError as error:
            self._warn(kind, error.message)

    def _warn(self, kind: str, why: str) -> None:
        self.warnings.append(f"what is too old of the {kind} could not be deleted: {why}")

    def _full(self, kind: str) -> bool:
        return self.deleted[kind] >= self._limit

    def _delete(self, kind: str, key: str) -> None:
        self.storage.delete(key)
        self.deleted[kind] += 1

    def _old(self, at: str, kept: timedelta) -> bool:
        """Return whether an ISO time is further back than `kept`; what is no time is not."""
        try:
            return datetime.fromisoformat(at) < self.now - kept
        except (TypeError, ValueError):
            return False

    def _last_change(self, head: int) -> int:
        """Return the oldest commit that recovery may have to take back once more: the last that is no fence."""
        record = next(self.log.history(head, fences=False), None)
        return min(record.n, record.n if record.voids is None else record.voids) if record else head

    def _trash(self, last: int) -> int:
        """Delete the files that commits before `last` removed and return the first whose record the rest needs."""
        for name in sorted(filter(_COMMIT.fullmatch, self.storage.list(meta(self.pipeline, "trash")))):
            record = self.log.record(int(name))
            if record is None:
                continue
            if int(name) >= last or self._full("trash") or not self._old(record.at, self.keep.trash):
                return int(name)
            for change in changes_of(self.pipeline, record):
                for trash in [*(one.trash for one in change.removes), *(one.trash for one in change.rewrites)]:
                    self._delete("trash", trash)
            self._left_behind(record, last)
        return last

    def _left_behind(self, record: CommitRecord, last: int) -> None:
        """Delete the files that a commit removed where they are: of tables whose own log names those that count."""
        for change in record.tables:
            if change.has_own_log and change.removes:
                keys = (f"{change.folder}/{name}" for name in change.removes)
                for key in [key for key in keys if key not in self._in_use(last)]:
                    self._delete("trash", key)
                self.storage.delete(left_behind(self.pipeline, record.n, change.folder))

    def _in_use(self, last: int) -> set[str]:
        """Return the files that count, or will if the last change is taken back: a rollback may have them again."""
        if self._live is None:
            views = [self.log.view(n) for n in (last - 1, self._head)]
            tables = [table for view in views for table in view.tables.values()]
            self._live = {f"{table.folder}/{name}" for table in tables for name in table.files}
        return self._live

    def _of_runs(self, kind: str, kept: timedelta, folder: str) -> None:
        """Delete what is named for runs that began too long ago; never what is this run's."""
        for name in sorted(self.storage.list(meta(self.pipeline, *folder.split("/")))):
            began = _began(name)
            if began and not (self.run and name.startswith(self.run)):
                if self._full(kind) or not self._old(began, kept):
                    return
                self._delete(kind, meta(self.pipeline, folder, name))

    def _commits(self) -> None:
        """Have the log begin at a later snapshot, if one is old enough, and delete from the oldest record on."""
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
        """Return the snapshot after `first`, if the log may begin there."""
        n = first - first % SNAPSHOT_EVERY + SNAPSHOT_EVERY
        if n > self._needed:
            return None
        record = self.log.record(n)
        return n if record and record.snapshot is not None and self._old(record.at, self.keep.commits) else None


def _began(name: str) -> str | None:
    """Return when the run began that a file is named for, in ISO 8601; None for a file that is none of ours."""
    found = _OF_A_RUN.fullmatch(name)
    if not found:
        return None
    began = "{}-{}-{}T{}:{}:{}+00:00".format(*found.groups())
    try:
        datetime.fromisoformat(began)
    except ValueError:
        return None
    return began


def sweep(storage: Storage, pipeline: Pipeline, *, run: str, made: int, view: Snapshot) -> list[str]:
    """Delete what the pipeline's settings keep no longer; return what the operator should know. Never raises."""
    work = Sweep(storage, pipeline.name, pipeline.retention, run=run, made=made, view=view)
    work.all(view.n)
    return work.warnings
