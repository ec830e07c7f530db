"""Keeps what Spark has stored and no commit has published, and makes the one check on which every commit depends.

The check: every segment of a batch is reported exactly once, and its lines are its rows plus its rejects. Any fault on
the way (a file read twice or not at all, a task that ran twice, a torn segment) breaks this sum. Rows of an upsert wait
in the spool, and become pending files when a barrier publishes them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from bridge.errors import DataError, EngineError, LakeError, SettingsError
from bridge.lake.commit.committer import Committer
from bridge.lake.file_records import FileAdd, RejectFile
from bridge.lake.log import add_of
from bridge.lake.records import CommitRecord, StagedTable, TableChange
from bridge.load.run.barriers import Barrier
from bridge.load.run.checks.changed_values import ChangedValues
from bridge.load.run.checks.held_back import NOTHING_HELD, HeldBack
from bridge.load.run.checks.table_guard import Guard, refused_before
from bridge.load.run.table_changes import BuiltChange, Pending, TableChangeBuilder
from bridge.load.run.tables.views import ViewTables
from bridge.load.spool.folder import SealedBatch
from bridge.load.write.context import MapOnExecutors, WriteContext
from bridge.load.write.rejects import too_many
from bridge.load.write.report import Rejected, WorkReport, raise_failure

_MANY_FOLDERS = 1000
"""With more partitions in one task's rows, there is a warning."""
_FILLED = "new and changed views are filled"
_NO_VIEW = "the settings have no such view any more: its table stays as it is, and is no view from now on"


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """A commit whose files are all written. With a `refusal`, tables and STATE stay as they are."""

    barrier: Barrier
    through: int
    """The last batch of the spool that it covers."""
    built: Sequence[BuiltChange]
    staged: dict[str, StagedTable]
    refusal: DataError | None = None
    views: Sequence[TableChange] = ()
    """The changes of views."""


class Accounting:
    """Pending files by stream. One thread at a time uses it; between `prepare` and `commit` nothing may be added."""

    def __init__(
        self,
        committer: Committer,
        context: WriteContext,
        *,
        shared: bool = False,
        continued: dict[str, int],
        max_rejects: int,
        each: MapOnExecutors | None = None,
        guard: Guard,
        held: HeldBack = NOTHING_HELD,
        views: ViewTables,
    ) -> None:
        """`each` runs pieces of work on executors; the default runs them in this process."""
        self._views, self._held, self._held_rejects = views, held, list[RejectFile]()
        in_process: MapOnExecutors = lambda work, all_, *, cost: [work(context, one) for one in all_]  # noqa: ARG005, E731
        self._tables = TableChangeBuilder(committer, context, shared=shared, each=each or in_process)
        self._committer, self._guard, self._max_rejects = committer, guard, max_rejects
        self.pending: defaultdict[str | None, Pending] = defaultdict(Pending)
        self.filtered: Counter[str] = Counter()
        """Rows of each stream that its SQL filtered out, up to the last commit."""
        self.rejected = 0
        self.extra: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.changed: defaultdict[str, ChangedValues] = defaultdict(ChangedValues)
        """By stream, the values that are not in the lake as the tap sent them."""
        self._warnings: list[str] = []
        self._scattered: set[str] = set()
        for stream, version in continued.items():
            stage = committer.snapshot.staged[stream]
            self.pending[stream] = Pending(list(stage.files), versions={version}, rejects=list(stage.rejects))
            self._tables.rewriting.adopt(stream, stage.schema)
            guard.adopt(stream, stage)

    def add(self, batch: SealedBatch, reports: list[WorkReport]) -> None:
        """Take in the reports of one batch. Raises `EngineError` unless they add up."""
        for report in reports:
            raise_failure(report.failed)
        segments = [segment for bundle in batch.bundles for segment in bundle]
        reported = [(c.file, c.start, c.rows + c.rejects) for report in reports for c in report.counts]
        expected = [(s.file, s.start, s.lines) for s in segments]
        rows = sum(report.rows + sum(report.filtered.values()) for report in reports)
        counted = sum(count.rows for report in reports for count in report.counts)
        doubled = any(lines < 0 for report in reports for lines in report.filtered.values())
        if sorted(reported) != sorted(expected) or rows != counted or doubled:
            hint = "nothing was committed; run again, and report it with the run's log if it comes back"
            raise EngineError("Spark's work does not add up", hint=hint, batch=batch.seq, lines=batch.lines)
        for report in reports:
            self._take(report)
            self._guard.add(report)
        made = {(stream, read): lake for report in reports for stream, read, lake in report.made}
        for segment in segments:
            name = made.get((segment.stream, segment.schema), segment.schema)
            self._tables.rewriting.note(segment.stream, name)
        self._drop_held()

    def _drop_held(self) -> None:
        """Forget what is pending of streams that are held back; the next commit keeps their rejects, for people."""
        for stream in self.pending.keys() & self._held.names:
            assert stream is not None
            stage = self._committer.snapshot.staged.get(stream)
            of_stage = {reject.file for reject in stage.rejects} if stage else set()
            rejects = (reject for reject in self.pending.pop(stream).rejects if reject.file not in of_stage)
            self._held_rejects += [structs.replace(reject, refused=True) for reject in rejects]

    @property
    def spilled(self) -> int:
        """Bytes in the spool of upsert rows that wait for a barrier."""
        # A copy, as another thread may be preparing a commit.
        return sum(spill.spilled for pending in list(self.pending.values()) for spill in pending.spills)

    def _take(self, report: WorkReport) -> None:
        for file in report.files:
            self.pending[file.stream].files.append(file)
        for spill in report.spills:
            self.pending[spill.stream].spills.append(spill)
        self._tables.extra |= {file.stream for file in report.files if file.extra}
        self._tables.extra |= {spill.stream for spill in report.spills if spill.extra}
        for stream, lines in report.filtered.items():
            self.pending[stream].filtered += lines
        for stream, versions in report.versions.items():
            self.pending[stream].versions.update(versions)
        for stream, folders in report.folders.items():
            if folders > _MANY_FOLDERS and stream not in self._scattered:
                self._scattered.add(stream)
                text = "partitions at once, with a small file in each: partition by less, or run `compact` now and then"
                self._warnings.append(f"{stream}: rows of {folders:,} {text}")
        for stream, fields in report.extra.items():
            self.extra[stream].update(fields)
        self._count_changed(report)
        for rejects in report.rejects:
            self.reject(rejects)

    def _count_changed(self, report: WorkReport) -> None:
        for stream, changed in report.changed.items():
            self.changed[stream].count(changed)
            self._held.check_null_keys(stream, self.changed[stream].null_keys)

    def reject(self, rejects: Rejected) -> None:
        """Count a reject file, which the commit of its stream's rows names. Raises `DataError` above the limit."""
        stream = rejects.file.stream
        if stream in self._held.names:
            return
        self.pending[stream].rejects.append(rejects.file)
        self.rejected += rejects.file.lines
        if self.rejected > self._max_rejects:
            error = too_many(rejects, self.rejected, self._max_rejects)
            if stream is None:
                raise error
            self._held.hold(stream, error)
            self.rejected -= sum(reject.lines for reject in self.pending[stream].rejects)

    def discard_staged(self, streams: Iterable[str]) -> None:
        """Forget all staged files of these streams, also an earlier run's: the tap started their tables again."""
        streams = list(streams)
        self._forget(streams)
        self._guard.restart(streams)

    def _forget(self, streams: Iterable[str | None]) -> None:
        for stream in streams:
            self.pending.pop(stream, None)

    def warnings(self) -> list[str]:
        """Warnings for the operator about what was stored."""
        text = "fields outside its SCHEMA are kept in the column _sdc_extra"
        extra = [f"{s}: {text}: {', '.join(sorted(fields)[:5])}" for s, fields in self.extra.items() if fields]
        return [*self._warnings, *extra]

    def has_news(self, barrier: Barrier) -> bool:
        """Whether the barrier publishes rows or rejects, or tables that are empty now."""
        pending = [self.pending[stream] for stream in barrier.publish]
        rejects = self._rejects((*barrier.publish, None))
        has_rows = any(one.files or one.spills for one in pending)
        return has_rows or bool(rejects) or any(map(barrier.replaces, barrier.publish))

    def prepare(self, barrier: Barrier, through: int) -> PreparedCommit:
        """Write all that a commit names; may wait for executors. `through` is the last batch before the barrier."""
        whole, barrier = barrier, self._without_held(barrier)
        built, staged = dict[str, BuiltChange](), dict[str, StagedTable]()
        for stream in {**barrier.publish, **barrier.activate}:
            with self._held.holding(stream):
                built[stream] = self._tables.build(stream, self.pending[stream], barrier, through)
        outcomes = [one.outcome for one in built.values() if one.outcome]
        for stream, refusal in self._guard.refusals(outcomes):
            if not self._held.hold_refused(stream, refusal, whole, self._committer.snapshot):
                return PreparedCommit(barrier, through, list(built.values()), {}, refusal)
        views = self._change_views(built, through)
        for one in built.values():
            self._tables.forget(one)
        for stream, version in barrier.staged.items():
            with self._held.holding(stream):
                staged[stream] = self._tables.stage(stream, version, self.pending[stream], barrier)
        barrier = self._without_held(whole)
        changed = {**barrier.publish, **barrier.activate}
        staged = {s: stage for s, stage in staged.items() if s in barrier.staged} | self._still_staged(barrier)
        changes = [change for stream, change in views if stream not in self._held.names]
        return PreparedCommit(barrier, through, [built[s] for s in changed], staged, views=changes)

    def fill_views(self, through: int, replaced: Collection[str]) -> list[TableChange]:
        """Fill new and changed views from the tables as they are; a view that cannot be filled holds its stream back.

        `replaced`: the names of views whose tables the run replaces. If one does not fit now, it may do so then.
        """
        changes = dict[str, TableChange]()
        for view in self._views.views:
            may_fit_later = suppress(DataError, SettingsError)
            filled = list[TableChange]()
            with may_fit_later if view.name in replaced else self._held.holding(self._views.stream(view)):
                filled = self._views.fill(view, changes, through)
            if not filled and view.stream in changes and (emptied := self._views.emptied(view.name)):
                filled = [emptied]
            changes |= {change.stream: change for change in filled}
        held = {view.name for view in self._views.views if self._views.stream(view) in self._held.names}
        return [change for name, change in changes.items() if name not in held and change.closes not in held]

    def commit_views(self, changes: Sequence[TableChange]) -> CommitRecord:
        """Commit filled views: the STATE and all other tables stay as they are."""
        snapshot = self._committer.snapshot
        return self._committer.commit(snapshot.pipeline_state, changes, staged=snapshot.staged, reason=_FILLED)

    def _change_views(self, built: Mapping[str, BuiltChange], through: int) -> list[tuple[str, TableChange]]:
        """The changes of views that follow from these of streams, each with the stream whose rows are in the view.

        A stream whose view cannot be changed is held back, if it may be.
        """
        held = self._held.names
        changes = {stream: one.change for stream, one in built.items() if one.change and stream not in held}
        streams = {stream: stream for stream in changes}
        views = [(change.stream, change) for change in self._views.former()]
        for view in self._views.views:
            source = self._views.feeds(view, changes)
            stream = streams[source.stream] if source else None
            with self._held.holding(stream or self._views.stream(view)):
                rows = built[source.stream].rows if source and source.stream in built else ()
                for change in self._views.build(view, source, through, rows=rows):
                    changes[change.stream], streams[change.stream] = change, stream or view.name
                    views.append((streams[change.stream], change))
        return views

    def _without_held(self, barrier: Barrier) -> Barrier:
        self._drop_held()
        return self._held.kept_out(barrier, self._committer.snapshot)

    def _still_staged(self, barrier: Barrier) -> dict[str, StagedTable]:
        """The half loaded tables of streams that are held back: their bookmarks stay inside of them."""
        held = (
            self._held.names - barrier.publish.keys() - barrier.staged.keys()
        )  # others may be held back from now on only
        return {stream: stage for stream, stage in self._committer.snapshot.staged.items() if stream in held}

    def commit(
        self, prepared: PreparedCommit, *, remaining: Sequence[RejectFile] = (), **fields: Any
    ) -> CommitRecord | None:
        """Publish what the barrier publishes and keep the rest pending. None if nothing is new.

        `remaining` are reject files that were counted before; `fields` are further fields of the record. A refused
        commit publishes only its rejects.
        """
        barrier, view = prepared.barrier, self._committer.snapshot
        for stream in barrier.publish:
            pending = self.pending[stream]
            self.filtered[stream] += pending.filtered
            pending.filtered = 0
        if prepared.refusal:
            return self._keep_refused(barrier, prepared.refusal)
        tables = [*(one.change for one in prepared.built if one.change), *prepared.views]
        held = self._held_rejects
        rejects = [*self._rejects((*barrier.publish, None)), *remaining, *held]
        state = barrier.stored or view.pipeline_state.said_by_one(barrier.state)
        if not tables and not rejects and (state, prepared.staged) == (view.pipeline_state, view.staged):
            return None
        fields |= {"uncovered": list(barrier.uncovered)} if barrier.uncovered else {}
        fields |= {"merged": barrier.merged, "through": prepared.through, "staged": prepared.staged, "rejects": rejects}
        again = [*barrier.publish, *(reject.stream for reject in held)]
        if "kind" not in fields and (outdated := refused_before(view, again)):
            fields["consumed"] = outdated
        record = self._committer.commit(state, tables, **fields)
        self._held_rejects = []
        self._forget((*barrier.publish, None))
        for one in prepared.built:
            if one.change:
                self._abort(one.change.folder, one.unneeded)
        self._tables.rewriting.committed()
        self._views.committed(tables)
        names = {view.name for view in self._views.views}
        former = (one.stream for one in prepared.views if not one.is_of_view and one.stream not in names)
        self._warnings += (f"{name}: {_NO_VIEW}" for name in former)
        self._warnings += _shrunk(prepared.built)
        return record

    def _rejects(self, streams: Iterable[str | None]) -> list[RejectFile]:
        return [reject for stream in streams if stream in self.pending for reject in self.pending[stream].rejects]

    def _keep_refused(self, barrier: Barrier, refusal: DataError) -> CommitRecord | None:
        """Commit the rejects of a refused commit; they replace those of the refused commit before."""
        snapshot, streams = self._committer.snapshot, (*barrier.publish, None)
        rejects = [structs.replace(reject, refused=True) for reject in self._rejects(streams)]
        if not rejects:
            return None
        fields: dict[str, Any] = {"rejects": rejects, "consumed": refused_before(snapshot, streams)}
        return self._committer.commit(
            snapshot.pipeline_state, [], staged=snapshot.staged, refused=refusal.message, **fields
        )

    def _abort(self, folder: str, files: Iterable[FileAdd]) -> None:
        """Delete pending files that no commit needs; what is left, the next run deletes."""
        with suppress(LakeError):
            for file in files:
                self._committer.storage.abort(add_of(folder, file))


def _shrunk(built: Iterable[BuiltChange]) -> Iterable[str]:
    """A warning for each table that lost more than half of its rows in an overwrite."""
    for one in built:
        if one.change and one.outcome and one.change.replaces and one.outcome.after * 2 < one.outcome.before:
            text = f"the table was overwritten with {one.outcome.after:,} rows, it had {one.outcome.before:,}"
            yield f"{one.change.stream}: {text}"
