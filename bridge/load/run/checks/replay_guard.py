"""Removes the rows that a piped tap will send again, so that a target, too, loads each row exactly once.

Nobody tells a target whether the STATE that it printed was stored. If it is killed between its commit and that moment,
the tap starts again from an earlier STATE, and sends rows that the lake has already. So if a run knows the STATE from
which its tap was started, it looks for the commit `m` with that STATE, and rolls back what came after it, **at its own
first commit**:

- *All of it*, if every commit after `m` is of one run, the last one that committed, and no run on record started from a
  later commit: then nobody ever resumed from those commits. Each run that knows its start notes it in a fence with
  `start`. A start without any STATE is believed only if the run before was killed; otherwise it is a full refresh, or
  another tap.
- *Of commit `m` itself the rows that its STATE does not cover* (`uncovered`): the rows after the tap's last STATE. Only
  of streams that resume: a full table is always sent again, and append-only adds it again.
  If no STATE came at all, the tap may have died in the middle of one, so its rows are uncovered, too. They go at the
  first STATE of the next attempt. A tap that never sends a STATE did not die: each of its runs adds its tables.

What people did in between is passed over: a compaction, a purge, a repair, a rollback to `m`, a STATE that they set. A
replay of rejects is undone with the rows: they are rejects again, and a note says so.

A STATE that a rollback or a person has taken back since is refused (`setback.py`): what follows it would leave a gap.

In any other case rows are appended, with a warning. Such a run notes the STATE that it was `given`, so that its own
rows can be rolled back later.

It is a rollback, so files go to the trash. If rows were only added, it happens right before the run's first commit. If
tables were replaced or merged, or are half loaded, it happens at once: the run must start from the table its tap knows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from msgspec import UNSET, structs

from bridge.errors import LakeError, SettingsError
from bridge.lake.commit.committer import Committer
from bridge.lake.commit.rollback import RollbackPlan, TableRollback, commit_plan, plan
from bridge.lake.log import Snapshot
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.records import CommitRecord
from bridge.lake.runs import Difference
from bridge.load.run.checks.setback import find_setback
from bridge.load.run.result import Result
from bridge.load.tap.stdin import Piped, Start
from bridge.protocol.singer.state import is_empty
from bridge.protocol.singer.state_edits import same
from bridge.settings.sql.view import root_stream


def same_state(one: Any, other: Any) -> bool:
    """Whether two STATEs are the same JSON, or both start every stream from the beginning."""
    return same(one, other) or (is_empty(one) and is_empty(other))


class ReplayGuard:
    """The rollback that one run makes, prepared when it opens.

    `state` is the STATE that its tap starts from, as far as it is known.

    `pending`: a rollback is due right before the first commit. `notes` and `differences` are for the operator.
    """

    def __init__(self, committer: Committer, start: Start | None, *, accepts_missing: bool = False) -> None:
        """Raise `SettingsError` for a STATE that somebody took back, unless the run `accepts_missing` rows."""
        self._committer = committer
        self._plan: RollbackPlan | None = None
        self._m = 0
        self._facts: dict[str, Any] = {}
        self.notes: list[str] = []
        self.differences: list[Difference] = []
        self.state = committer.snapshot.state if start is None else start.state
        if start is None:
            self._warn("the tap's first STATE is not known, see the setting start_state")
            return
        if setback := find_setback(committer, start.state):
            if not accepts_missing:
                raise setback.error(committer.log.pipeline, committer.storage.uri)
            self.differences += setback.differences()
            committer.note_start(given=start.state)
            return
        records, m = self._back(start.state)
        latest = records[0] if records else None
        if m is None:
            self._warn("the tap was started from a STATE that is not this pipeline's last")
            if not (latest and latest.given is not UNSET and same_state(latest.given, start.state)):
                committer.note_start(given=start.state)
            return
        self._m = m
        after = any(_adds(record) for record in records if record.n > m)
        origin = self._origin(records[-1]) if m and not after else None
        self._plan = self._planned(origin.n if origin else m, after, set(origin.uncovered) if origin else set())
        self._note_replays(origin.n if origin else m)
        if committer.snapshot.n and (latest is None or latest.start != m):
            committer.note_start(start=m)
        if self._plan and not _only_removes(self._plan, committer.snapshot):
            self.roll_back()

    def _warn(self, text: str) -> None:
        tables = [table for table in self._committer.snapshot.tables.values() if not table.is_of_view]
        if not all(table.upserts for table in tables):  # one with a version may be appended to since
            self.notes.append(f"{text}: rows that it sends again are in append-only tables twice")

    @property
    def pending(self) -> bool:
        return self._plan is not None

    @property
    def snapshot(self) -> Snapshot:
        """The lake with the STATE that the tap starts from."""
        return replace(self._committer.snapshot, pipeline_state=PipelineState(self.state))

    def roll_back(self, spared: Collection[str] = ()) -> None:
        """Make the rollback if it is pending; the run's first commit follows.

        `spared`: streams whose uncovered rows stay, as this run, too, ends without any STATE.
        """
        plan, self._plan = self._plan, None
        if plan and spared and self._facts:
            plan = self._without(plan, spared)
        if plan:
            reason = f"the tap was started again from the STATE of commit {self._m}, and sends these rows once more"
            commit_plan(self._committer, plan, reason=reason, supersedes=True, **self._facts)

    def _without(self, plan: RollbackPlan, spared: Collection[str]) -> RollbackPlan | None:
        """The rollback of uncovered rows without those of some streams."""
        streams = {*_streams(plan.tables).values()} - set(spared)
        rejects = self._committer.snapshot.rejects
        self._facts = {
            "rejects": [reject for reject in self._facts["rejects"] if reject.stream in streams],
            "consumed": [file for file in self._facts["consumed"] if rejects[file].stream in streams],
        }
        return _only(plan, self._committer.snapshot, streams)

    def _back(self, state: Any) -> tuple[list[CommitRecord], int | None]:
        """The records since the commit with this STATE, the last one first, and that commit's number.

        Records that were taken back are left out. None: there is no such commit, or what came after it must stay.
        If the STATE was set by hand, the commit with its rows goes before.
        """
        log, records, runs = self._committer.log, list[CommitRecord](), set[str]()
        n, first = self._committer.snapshot.n, log.beginning().first
        by_hand: tuple[list[CommitRecord], int | None] | None = None
        while n >= first and (record := log.record(n)):
            records.append(record)
            if _has(record, state):
                at = records, n if all((one.start or 0) <= n for one in records) else None
                if record.kind != "state":
                    return at
                by_hand = by_hand or ([*records], at[1])
            if _adds(record):
                runs.add(record.run)
            if len(runs) > 1 or not _is_passed(record):
                return by_hand or (records, None)
            n = _before(record)
        began = is_empty(state) and n == 0 and not any(one.start for one in records)
        return by_hand or (records, 0 if began and _died(records) else None)

    def _origin(self, record: CommitRecord) -> CommitRecord | None:
        """The commit whose rows and STATE a record keeps: often itself. None if its rows cannot be told apart."""
        log, is_kept = self._committer.log, True
        first, state = log.beginning().first, record.state
        while not record.uncovered and record.n > first and _may_keep(record):
            before = log.record(record.to if record.kind == "rollback" and record.to else record.n - 1)
            if not before or not same_state(before.state, state):
                break
            is_kept = is_kept and self._keeps_rows(record)
            record = before
        if is_kept or not record.uncovered:
            return record
        self._warn("rows after the tap's first STATE cannot be told from those that were added since")
        return None

    def _keeps_rows(self, record: CommitRecord) -> bool:
        """Whether a record has no rows but those that were there, or rejects that can be rejects again.

        One that repairs views replaces only their files.
        """
        if record.kind != "data":
            return True
        before = self._committer.log.snapshot(record.n - 1).tables
        views = {name: table.view for name, table in before.items() if table.view}
        return all(
            not change.adds or change.closes or (change.view and views.get(change.stream) == change.view)
            for change in record.tables
        )

    def _note_replays(self, m: int) -> None:
        """Say which replays of rejects the rollback undoes."""
        tables = {change.stream for change in self._plan.tables} if self._plan else set()
        for record in self._committer.log.history(self._committer.snapshot.n) if tables else ():
            if record.n <= m:
                return
            if record.kind == "replay" and (streams := sorted({one.stream for one in record.tables} & tables)):
                what = f"the replay of rejects at commit {record.n} is taken back with rows that the tap sends again"
                again = f"singer-bridge rejects replay {self._committer.log.pipeline}"
                self.notes.append(f"{', '.join(streams)}: {what}; they are rejects again: {again}")

    def _planned(self, m: int, after: bool, uncovered: set[str]) -> RollbackPlan | None:
        """The rollback, None if there is nothing to remove, or if it is not possible any more."""
        log, snapshot = self._committer.log, self._committer.snapshot
        if not after and not uncovered:
            return None
        then = m if after else m - 1
        try:
            undo: RollbackPlan | None = plan(log, snapshot, then)
        except (LakeError, SettingsError) as error:
            self._warn(f"what came after the tap's first STATE cannot be taken back, {error.message}")
            return None
        back, consumed = snapshot.rejects_again(log.snapshot(then))
        assert undo
        if after:
            undo = None if undo.nothing_to_do else undo
        else:
            back = [reject for reject in back if reject.stream in uncovered]
            consumed = [file for file in consumed if snapshot.rejects[file].stream in uncovered]
            undo = _only(undo, snapshot, uncovered)
            self._facts = {"rejects": back, "consumed": consumed}
        lost = [reject.file for reject in back if log.storage.size(reject.file) is None]
        if undo and lost:
            self._warn(f"rejects that were replayed since are not on file any more ({lost[0]})")
            return None
        return undo


def listen(committer: Committer, piped: Piped, tick: Callable[[], None], result: Result) -> ReplayGuard:
    """The guard of a run, once the tap has said where it starts; what it has to say is in the result."""
    guard = ReplayGuard(committer, piped.started(tick), accepts_missing=piped.accepts_missing)
    result.warnings += guard.notes
    for difference in guard.differences:
        result.differ(difference)
    return guard


def _only(undo: RollbackPlan, snapshot: Snapshot, uncovered: Collection[str]) -> RollbackPlan | None:
    """The part of a rollback that concerns these streams and their views; STATE and half loaded tables stay."""
    before, after = _streams(undo.tables), _streams(undo.tables, then=True)
    changes = [change for change in undo.tables if before[change.stream] in uncovered]
    tables = tuple(_without_moved(change, follows=after[change.stream] in uncovered) for change in changes)
    rest = replace(undo, after=snapshot.pipeline_state, staged=snapshot.staged, tables=tables, restarted=(), dropped=())
    return rest if tables else None


def _is_passed(record: CommitRecord) -> bool:
    """Whether a record may be rolled back, as long as only one run added rows."""
    return record.kind != "rollback" or record.supersedes


def _may_keep(record: CommitRecord) -> bool:
    """Whether a record may have kept the STATE of the one before it, and rows that this does not cover."""
    is_load = record.kind == "data" and record.through is not None and record.reason is None
    return not (is_load or record.supersedes or record.kind == "void") and record.given is UNSET


def _streams(changes: Sequence[TableRollback], *, then: bool = False) -> dict[str, str]:
    """By table the stream whose rows are in it, also in a view; `then`: by the views that there are afterwards."""
    texts = {one.stream: one.then.view if then else one.now.view or one.then.view for one in changes}
    views = {name: text for name, text in texts.items() if text}
    tables = {one.stream: one.now.closes or one.then.closes or one.stream for one in changes}
    return {name: root_stream(table, views) for name, table in tables.items()}


def _without_moved(change: TableRollback, *, follows: bool) -> TableRollback:
    """The rollback of a table; of a view that selected from a stream which stays, one that has it filled anew.

    `follows`: the stream is rolled back, too.
    """
    if not change.then.view or follows:
        return change
    return replace(change, then=structs.replace(change.then, view=""))


def _before(record: CommitRecord) -> int:
    """The number of the commit whose lake this one changed, or restored."""
    if record.voids is not None:
        return record.voids - 1
    return record.to if record.supersedes and record.to is not None else record.n - 1


def _has(record: CommitRecord, state: Any) -> bool:
    """Whether a tap that was started with this STATE continues after this record."""
    if record.kind == "fence":
        return record.given is not UNSET and same_state(record.given, state)
    return same_state(record.state, state)


def _adds(record: CommitRecord) -> bool:
    """Whether a run made it that loaded, or files were adopted; a repair and the filling of views have no rows."""
    is_repair = record.reason is not None and not any(change.adds and not change.is_of_view for change in record.tables)
    return record.supersedes or (record.kind == "data" and not is_repair)


def _died(records: list[CommitRecord]) -> bool:
    """Whether the run that committed last died: then the next one began with a fence.

    Otherwise a tap without a STATE may be intended: a full refresh, or another tap under the same name.
    """
    last = next((i for i, record in enumerate(records) if _adds(record)), 0)
    after = records[last - 1] if last else None
    fenced = after is not None and after.kind == "fence" and after.start is None and after.given is UNSET
    return fenced or not any(map(_adds, records))


def _only_removes(plan: RollbackPlan, snapshot: Snapshot) -> bool:
    """Whether the rollback only removes rows, so that the run may go on as if it were done already.

    Views do not count: their files are replaced by each commit, and no run looks at them before its own.
    """
    tables = [change for change in plan.tables if not (change.now.is_of_view or change.then.is_of_view)]
    versions = (version for change in tables for version in (change.now.version, change.then.version))
    back = any(change.back for change in tables)
    return not (back or snapshot.staged or plan.staged or any(version is not None for version in versions))
