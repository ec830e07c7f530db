"""What a tap will send once more, taken back: exactly once for a target, too.

A target is told by nobody whether the STATE that it printed was kept. Killed between its commit and that, it is started
again beside a tap that goes on from an earlier STATE, and sends rows that are in the lake already. So a run whose tap's
start is known looks for the commit `m` with that STATE, and takes back what came after it, **at its own first commit**:

- *All of it*, if every commit after `m` is of one run, the last one that committed, and no run is on record that was
  started beyond `m`: then nobody ever went on from those. Each run that knows its start notes it, in a fence with
  `start`. Of a tap that starts without any STATE it is believed only if the run before was killed: else it is a full
  refresh, or another tap.
- *Of commit `m` itself the rows that its STATE does not cover* (`uncovered`): a tap's last rows, after its last STATE.
  Of streams that resume only: a full table is sent again by intent, and append-only adds it again.

Anything else is appended, as asked, with a warning; such a run notes the STATE that it was `given`, so that what it
adds can be taken back in its turn.

It is a rollback: files go to the trash. Those of rows that were only added go right before the run's first commit;
where tables were replaced or merged, or are half loaded, all goes at once: the run has to find the table its tap knows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msgspec import UNSET

from bridge.commit.committer import Committer
from bridge.commit.rollback import Plan, commit_plan, plan
from bridge.errors import LakeError, SettingsError
from bridge.lake.log import Snapshot
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.records import CommitRecord
from bridge.singer.state import is_empty
from bridge.singer.state_edits import same
from bridge.tap.stdin import Start


def same_state(one: Any, other: Any) -> bool:
    """Return whether two STATEs are the same JSON, or both start every stream from the beginning."""
    return same(one, other) or (is_empty(one) and is_empty(other))


class ReplayGuard:
    """What one run takes back, found when it opens. `state` is what its tap goes on from, as far as it is known.

    `pending`: something is still to be taken back, right before the first commit. `notes` are for the operator.
    """

    def __init__(self, committer: Committer, start: Start | None) -> None:
        self._committer = committer
        self._plan: Plan | None = None
        self._m = 0
        self._facts: dict[str, Any] = {}
        self.notes: list[str] = []
        self.state = committer.view.state if start is None else start.state
        if start is None:
            self._warn("the tap's first STATE is not known, see the setting start_state")
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
        uncovered = set(records[-1].uncovered) if m and not after else set()
        self._plan = self._planned(m, after, uncovered)
        if committer.view.n and (latest is None or latest.start != m):
            committer.note_start(start=m)
        if self._plan and not _only_removes(self._plan, committer.view):
            self.at_commit()

    def _warn(self, text: str) -> None:
        if self._committer.view.n:
            self.notes.append(f"{text}: rows that it sends again are in the lake twice")

    @property
    def pending(self) -> bool:
        return self._plan is not None

    @property
    def view(self) -> Snapshot:
        """Return the lake with the STATE that the tap goes on from."""
        return replace(self._committer.view, pipeline_state=PipelineState(self.state))

    def at_commit(self) -> None:
        """Take back what is still to be taken back: the first commit of the run follows."""
        done, self._plan = self._plan, None
        if done:
            reason = f"the tap was started again from the STATE of commit {self._m}, and sends these rows once more"
            commit_plan(self._committer, done, reason=reason, supersedes=True, **self._facts)

    def _back(self, state: Any) -> tuple[list[CommitRecord], int | None]:
        """Return the records that made the lake what it is, the last one first, and the commit with this STATE.

        Records that were taken back are left out. None: there is no such commit, or what came after it has to stay.
        """
        log, records, runs = self._committer.log, list[CommitRecord](), set[str]()
        n, first = self._committer.view.n, log.beginning().first
        while n >= first and (record := log.record(n)):
            records.append(record)
            if _has(record, state):
                return records, n if all((one.start or 0) <= n for one in records) else None
            if _adds(record):
                runs.add(record.run)
            if len(runs) > 1 or record.kind not in _PASSED or (record.to is not None and not record.supersedes):
                return records, None
            n = _before(record)
        began = is_empty(state) and n == 0 and not any(one.start for one in records)
        return records, 0 if began and _died(records) else None

    def _planned(self, m: int, after: bool, uncovered: set[str]) -> Plan | None:
        """Return what is to be taken back, None where that is nothing, or where it cannot be done any more."""
        log, view = self._committer.log, self._committer.view
        if not after and not uncovered:
            return None
        then = m if after else m - 1
        try:
            found = plan(log, view, then)
        except (LakeError, SettingsError) as error:
            self._warn(f"what came after the tap's first STATE cannot be taken back, {error.message}")
            return None
        if after:
            return None if found.nothing_to_do else found
        before = log.view(then).rejects
        gone = [file for file, reject in view.rejects.items() if file not in before and reject.stream in uncovered]
        self._facts = {"rejects": [], "consumed": gone}
        tables = tuple(change for change in found.tables if change.stream in uncovered)
        kept = replace(found, after=view.pipeline_state, staged=view.staged, tables=tables, restarted=(), dropped=())
        return kept if tables else None


_PASSED = ("fence", "data", "void", "compact", "purge", "rollback")
"""Kinds of records that do not keep the lake from being taken back to before them, if one run alone added rows."""


def _before(record: CommitRecord) -> int:
    """Return the commit whose lake this one changed, or brought back."""
    if record.voids is not None:
        return record.voids - 1
    return record.to if record.supersedes and record.to is not None else record.n - 1


def _has(record: CommitRecord, state: Any) -> bool:
    """Return whether a tap that was started with this STATE goes on after the record."""
    if record.kind == "fence":
        return record.given is not UNSET and same_state(record.given, state)
    return same_state(record.state, state)


def _adds(record: CommitRecord) -> bool:
    return record.kind == "data" or record.supersedes


def _died(records: list[CommitRecord]) -> bool:
    """Return whether the run that committed last did not end in good order: then the next one began with a fence.

    A tap that starts without a STATE may be meant to: a full refresh, or another tap under the same name.
    """
    last = next((i for i, record in enumerate(records) if _adds(record)), 0)
    after = records[last - 1] if last else None
    fenced = after is not None and after.kind == "fence" and after.start is None and after.given is UNSET
    return fenced or not any(map(_adds, records))


def _only_removes(plan: Plan, view: Snapshot) -> bool:
    """Return whether rows vanish and nothing else changes: then a run may go on as if that were done."""
    versions = (version for change in plan.tables for version in (change.now.version, change.then.version))
    back = any(change.back for change in plan.tables)
    return not (back or view.staged or plan.staged or any(version is not None for version in versions))
