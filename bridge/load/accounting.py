"""What Spark has written and no commit has named yet, and the one check that lets a commit happen.

Conservation: every segment of a manifest is reported exactly once, and its lines are its rows plus its rejects.
Whatever went wrong on the way (a file read twice or not at all, a task that ran twice, a torn segment) breaks it.
Rows of an upsert wait in the spool, and become pending files when the barrier that publishes them has them merged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
from msgspec import structs

from bridge.commit.committer import Committer
from bridge.errors import DataError, EngineError, LakeError
from bridge.lake.log import add_of
from bridge.lake.records import (
    CommitRecord,
    FileAdd,
    PendingFile,
    RejectFile,
    StagedTable,
    TableChange,
    TableState,
)
from bridge.lake.schemas import keep_schema
from bridge.load.barriers import Barrier, Publication
from bridge.load.checks.table_guard import Guard, Outcome, refused_before
from bridge.schema.json_schema import TIMESTAMP
from bridge.schema.table_schema import TableSchema, with_extra
from bridge.spool.spool import SealedBatch
from bridge.write.merge.fold import DELETED
from bridge.write.merge.match import VERSION_COLUMN, Batch, Sweep
from bridge.write.merge.plan import Each, Merged, Merger
from bridge.write.parquet import Job, write_empty
from bridge.write.rejects import too_many
from bridge.write.report import Rejected, SpillFile, WorkReport, raise_failure
from bridge.write.rewrite import Rewriting

_MANY_FOLDERS = 1000
"""Partitions that one task's rows may be of without a warning."""


class Accounting:
    """Pending files by stream. All of it is used from one thread at a time, the one that handles Spark's batches."""

    def __init__(
        self,
        committer: Committer,
        job: Job,
        *,
        shared: Collection[str] = (),
        adopted: dict[str, int],
        max_rejects: int,
        seen: Callable[[CommitRecord], None],
        each: Each | None = None,
        guard: Guard | None = None,
    ) -> None:
        """`each` does pieces of work on executors; by itself in this process. Without a `guard` nothing is refused."""
        self._each: Each = each or (lambda work, payloads: [work(job, payload) for payload in payloads])
        self._merger = Merger(job, self._each)
        self._rewriting = Rewriting(committer.storage, job, self._each)
        self._committer = committer
        self._job = job
        self._shared = shared
        self._guard = guard
        self._max_rejects = max_rejects
        self._seen = seen
        self._files: dict[str, list[PendingFile]] = {}
        self._spills: dict[str, list[SpillFile]] = {}
        self._versions: dict[str, set[int | None]] = {}
        self._rejects: dict[str | None, list[RejectFile]] = {}
        self._outcomes: dict[str, Outcome] = {}
        self._unneeded: dict[str, list[FileAdd]] = {}
        self._extra: set[str] = set()
        self._scattered: set[str] = set()
        self._filtered: dict[str, int] = {}
        self.filtered: dict[str, int] = {}
        self.rejected = 0
        self.warnings: list[str] = []
        self.extra: dict[str, dict[str, int]] = {}
        for stream, version in adopted.items():
            stage = committer.view.staged[stream]
            self._files[stream], self._rejects[stream] = list(stage.files), list(stage.rejects)
            self._versions[stream] = {version}
            self._rewriting.adopt(stream, stage.schema)
            if guard:
                guard.adopt(stream, stage)

    def add(self, manifest: SealedBatch, reports: list[WorkReport]) -> None:
        """Take in the reports of one manifest. Raises `EngineError` unless they add up."""
        for report in reports:
            raise_failure(report.failed)
        reported = [(c.file, c.start, c.rows + c.rejects) for report in reports for c in report.counts]
        wanted = [(s.file, s.start, s.lines) for bundle in manifest.bundles for s in bundle]
        rows = sum(report.rows + sum(report.filtered.values()) for report in reports)
        counted = sum(count.rows for report in reports for count in report.counts)
        if sorted(reported) != sorted(wanted) or rows != counted:
            hint = "nothing was committed; run again, and report it with the run's log if it comes back"
            raise EngineError("Spark's work does not add up", hint=hint, manifest=manifest.seq, lines=manifest.lines)
        for report in reports:
            self._take(report)
            if self._guard:
                self._guard.add(report)
        made = {(stream, read): lake for report in reports for stream, read, lake in report.made}
        for segment in (segment for bundle in manifest.bundles for segment in bundle):
            name = made.get((segment.stream, segment.schema), segment.schema)
            self._rewriting.note(segment.stream, name)

    @property
    def spilled(self) -> int:
        """Bytes in the spool of rows that wait for a barrier, to be merged by key."""
        return sum(spill.spilled for spills in list(self._spills.values()) for spill in list(spills))

    def _take(self, report: WorkReport) -> None:
        for file in report.files:
            self._files.setdefault(file.stream, []).append(file)
        for spill in report.spills:
            self._spills.setdefault(spill.stream, []).append(spill)
        self._extra |= {file.stream for file in report.files if file.extra}
        self._extra |= {spill.stream for spill in report.spills if spill.extra}
        for stream, lines in report.filtered.items():
            self._filtered[stream] = self._filtered.get(stream, 0) + lines
        for stream, versions in report.versions.items():
            self._versions.setdefault(stream, set()).update(versions)
        for stream, folders in report.folders.items():
            if folders > _MANY_FOLDERS and stream not in self._scattered:
                self._scattered.add(stream)
                text = "partitions at once, with a small file in each: partition by less, or run `compact` now and then"
                self.warnings.append(f"{stream}: rows of {folders:,} {text}")
        for stream, fields in report.extra.items():
            known = self.extra.setdefault(stream, {})
            for name, count in fields.items():
                known[name] = known.get(name, 0) + count
        for rejects in report.rejects:
            self.reject(rejects)

    def reject(self, rejects: Rejected) -> None:
        """Count a reject file, which the commit of its stream's rows names. Raises `DataError` above the limit."""
        self._rejects.setdefault(rejects.file.stream, []).append(rejects.file)
        self.rejected += rejects.file.lines
        if self.rejected > self._max_rejects:
            raise too_many(rejects, self.rejected, self._max_rejects)

    def discard_staged(self, streams: Iterable[str]) -> None:
        """Forget the staged files of these, an earlier run's and this one's: the tap started the tables again."""
        streams = list(streams)
        self._forget(streams)
        if self._guard:
            self._guard.restart(streams)

    def _forget(self, streams: Iterable[str]) -> None:
        for stream in streams:
            self._files.pop(stream, None)
            self._spills.pop(stream, None)
            self._versions.pop(stream, None)
            self._rejects.pop(stream, None)
            self._filtered.pop(stream, None)

    def told(self) -> list[str]:
        """Return what the operator should know of what was stored."""
        told, kept = list(self.warnings), "fields outside its SCHEMA are kept in the column _sdc_extra"
        return told + [f"{s}: {kept}: {', '.join(sorted(fields)[:5])}" for s, fields in self.extra.items() if fields]

    def has_news(self, barrier: Barrier) -> bool:
        """Return whether the barrier publishes rows or rejects, or tables that are empty now."""
        rows = any(self._files.get(stream) or self._spills.get(stream) for stream in barrier.publish)
        rejects = any(self._rejects.get(stream) for stream in (*barrier.publish, None))
        return rows or rejects or "replace" in barrier.publish.values()

    def commit(self, barrier: Barrier, through: int, *, kept: Sequence[RejectFile] = (), **fields: Any) -> None:
        """Publish what the barrier publishes and keep the rest pending; no commit where nothing is new.

        `kept` are reject files that were counted before; `fields` are further ones of the record. Raises
        `DataError` where the guard refuses it: then tables and STATE stay, and the rejects are committed by themselves.
        """
        for stream in barrier.publish:
            self.filtered[stream] = self.filtered.get(stream, 0) + self._filtered.pop(stream, 0)
        tables = []
        self._outcomes = {stream: Outcome(stream, self._table(stream).rows) for stream in barrier.publish}
        for stream in {**barrier.publish, **barrier.activate}:
            change = self._change(stream, barrier.publish.get(stream, "append"), barrier, through)
            if change:
                tables.append(change)
        if self._guard and (refusal := self._guard.refusal(self._outcomes.values())):
            self._keep_refused(barrier, refusal)
            raise refusal
        staged = {stream: self._stage(stream, version, barrier) for stream, version in barrier.staged.items()}
        view = self._committer.view
        new = [reject for stream in (*barrier.publish, None) for reject in self._rejects.get(stream, ())]
        rejects = [*new, *kept]
        groups = view.groups if barrier.groups is None else barrier.groups
        if not tables and not rejects and (barrier.state, staged, groups) == (view.state, view.staged, view.groups):
            return  # nothing new
        fields |= {"groups": barrier.groups} if barrier.groups is not None else {}
        fields |= {"uncovered": list(barrier.uncovered)} if barrier.uncovered else {}
        fields |= {"merged": barrier.merged, "through": through, "staged": staged, "rejects": rejects}
        if "kind" not in fields and (outdated := refused_before(view, barrier.publish)):
            fields["consumed"] = outdated
        record = self._committer.commit(barrier.state, tables, **fields)
        self._forget(barrier.publish)
        self._rejects.pop(None, None)
        for change in tables:
            self._abort(change.folder, self._unneeded.pop(change.stream, ()))
        self._rewriting.committed()
        self.warnings += self._shrunk(tables)
        self._seen(record)

    def _shrunk(self, tables: Sequence[TableChange]) -> list[str]:
        """Return a warning for each table that lost more than half of its rows in an overwrite."""
        replaced = [self._outcomes[change.stream] for change in tables if change.mode == "replace"]
        text = "the table was overwritten with"
        return [f"{o.stream}: {text} {o.after:,} rows, it had {o.before:,}" for o in replaced if o.after * 2 < o.before]

    def _keep_refused(self, barrier: Barrier, refusal: DataError) -> None:
        """Commit the rejects of a commit that is refused, instead of those of the last one that was."""
        view, streams = self._committer.view, (*barrier.publish, None)
        rejects = [
            structs.replace(reject, refused=True) for stream in streams for reject in self._rejects.get(stream, ())
        ]
        if rejects:
            consumed = refused_before(view, streams)
            fields: dict[str, Any] = {"rejects": rejects, "consumed": consumed, "refused": refusal.message}
            self._seen(self._committer.commit(view.state, [], staged=view.staged, **fields))

    def _change(self, stream: str, mode: Publication, barrier: Barrier, through: int) -> TableChange | None:
        files = self._files.get(stream, [])
        came, table = bool(files or self._spills.get(stream)), self._table(stream)
        active = barrier.activate.get(stream)
        if not came and active is None and (not barrier.end or (mode != "replace" and table.files)):
            return None
        version = table.version if active is None else active
        if mode in ("replace", "extend"):
            versions = self._versions.get(stream, set())
            version = self._one_version(stream, versions | {version} if mode == "extend" else versions - {None})
        schema = self._kept_schema(stream, barrier.schemas[stream], active)
        if files:
            self._files[stream] = self._rewriting.pending(stream, files, schema)
        merged = self._merged(stream, mode, schema, active, through)
        if not came and mode != "replace" and version == table.version and not merged.removes and table.files:
            return None
        self._unneeded[stream] = merged.empty
        if not merged.adds and not table.files.keys() - set(merged.removes):
            merged.adds = [write_empty(self._job, through, stream, schema).add()]
        rows = sum(add.rows for add in merged.adds)
        if mode == "replace":
            self._outcomes[stream] = Outcome(stream, table.rows, rows, replaces=True)
        elif merged.swept:
            after = table.rows - merged.swept + merged.counts["inserted"]
            self._outcomes[stream] = Outcome(stream, table.rows, after, replaces=True)
        rewritten, replaced = self._rewriting.live(stream, table, schema, merged.removes)
        return structs.replace(table, schema=schema.hash, version=version).change(
            stream,
            [*merged.adds, *rewritten],
            [*merged.removes, *replaced],
            mode="replace" if mode == "replace" else "append",
            shared=stream in self._shared,
            merged=merged.facts(),
            partition_by=self._layout(stream),
        )

    def _merged(self, stream: str, mode: Publication, schema: TableSchema, active: int | None, seq: int) -> Merged:
        """Return what the stream's rows make of its table's files: added, or merged into them by key.

        With a version that is `active` now, rows of older ones go, or are marked.
        """
        files, table, target = self._files.get(stream, []), self._table(stream), self._job.targets[stream]
        soft = not target.hard_delete
        sweep = None if active is None else Sweep(active, int(time.time() * 1000) if soft else None)
        batch = Batch(stream, schema.to_json(), seq, not soft, sweep)
        if target.keys:
            if active == table.version:
                batch = replace(batch, sweep=None)  # that was done when it became the active one
            return self._merger.merge(batch, table, self._spills.get(stream, []), anew=mode == "replace")
        if mode == "replace":
            return Merged([file.add() for file in files], list(table.files))
        if active is None and table.version is not None and any(file.stale for file in table.files.values()):
            batch = replace(batch, sweep=Sweep(table.version, int(time.time() * 1000) if soft else None))
        if batch.sweep:
            return self._merger.extend(batch, table, files, activated=active is not None)
        return Merged([file.add() for file in files])

    def _abort(self, folder: str, files: Iterable[FileAdd]) -> None:
        """Let go of pending files that no commit needs; the next run would, too."""
        with suppress(LakeError):
            for file in files:
                self._committer.storage.abort(add_of(folder, file))

    def _layout(self, stream: str) -> tuple[Any, ...] | None:
        """Return what commits say of the folders in a table; None where it has and had none."""
        layout = tuple(partition.said for partition in self._job.targets[stream].partition_by)
        return layout if layout or self._table(stream).partition_by else None

    def _kept_schema(self, stream: str, schema: TableSchema, active: int | None = None) -> TableSchema:
        """Return the columns that the stream's files have, after keeping them in the bucket under their hash."""
        schema = schema.stored
        if stream in self._extra:
            schema = with_extra(schema)
        if marks := [field for field in self._marks(stream, active) if field.name not in schema.arrow.names]:
            schema = TableSchema(pa.schema([*schema.arrow, *marks]))
        keep_schema(self._committer.storage, self._job.pipeline, schema)
        return schema

    def _marks(self, stream: str, active: int | None) -> list[pa.Field]:
        """Return the columns that say of which version rows are and when they were deleted, where rows need them."""
        versions = *self._versions.get(stream, ()), self._table(stream).version, active
        versioned = any(version is not None for version in versions)
        target = self._job.targets[stream]
        if not versioned or (target.hard_delete is None and not target.keys):
            return []
        deleted = [] if target.hard_delete else [pa.field(DELETED, TIMESTAMP)]
        return [*deleted, pa.field(VERSION_COLUMN, pa.int64())] if target.keys else deleted

    def _table(self, stream: str) -> TableState:
        return self._committer.view.tables.get(stream) or self._new_table(stream)

    def _new_table(self, stream: str) -> TableState:
        target = self._job.targets[stream]
        return TableState(target.folder, None, format=target.format)

    def _stage(self, stream: str, version: int, barrier: Barrier) -> StagedTable:
        if stream not in barrier.schemas:  # the tap has not come to it in this run
            return self._committer.view.staged[stream]
        self._one_version(stream, self._versions.get(stream, set()) | {version})
        schema = self._kept_schema(stream, barrier.schemas[stream])
        self._files[stream] = self._rewriting.pending(stream, self._files.get(stream, []), schema)
        return StagedTable(
            version=version,
            schema=schema.hash,
            folder=self._table(stream).folder,
            files=self._files[stream],
            rejects=self._rejects.get(stream) or (),
            partition_by=self._layout(stream),
        )

    @staticmethod
    def _one_version(stream: str, versions: Collection[int | None]) -> int | None:
        if len(versions) > 1:
            hint = "the tap began the table anew within one run; run again, or with --full to start over"
            raise DataError("a full table's rows are of several versions", hint=hint, stream=stream, versions=versions)
        return next(iter(versions), None)
