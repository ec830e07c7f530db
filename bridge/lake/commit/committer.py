"""The commit protocol. Every step can be repeated; a crash between any two is repaired by the next run's step 1.

0. Take the lease, which only saves work. Read the *head*, the last commit. Unless the last run closed cleanly, create
   an empty *fence* commit: an older run that is only slow finds its number taken. The number of the head is then this
   run's *generation*, which is part of every file name.
1. Roll the last commit that changed files forward: publish it again. If one of its files is neither pending nor
   visible, take it back by a *void* commit, which is allowed as nobody has seen its STATE yet. Then compare
   `state.json`, and delete the pending files of lower generations. Only then does the tap start, from the head's STATE.
2. At a barrier, check that every pending file exists with its full size, and that a table with a log of its own is as
   we left it.
3. Create `commits/<head + 1>.json` by put-if-absent. This is the commit point. Of two writers the loser ends; it never
   tries the next number. If the outcome of the put is unknown, the record is read back: its nonce tells whose it is,
   and no file is deleted meanwhile. A number is never used twice: one whose record the retention has deleted counts as
   taken.
4. `publish` the files, then the tables' own logs, where they have one, and their manifests.
5. Write `state.json`, then its witness `published.json`. `state_file.py` says what each crash leaves there, and how an
   edit by hand is recognised.
6. Report to the caller. 7. The spool deletes the segments. 8. Close: the lease notes the head, so that the next run
   needs no fence.

`n + 1` is created only after `n` is published, so recovery never looks further back than the last commit that changed
files. Manifests and `state.json` are swapped by their version, so a run that was suspended while another one replaced
it changes none of them. One case is left: the bytes that it had seen may be back, as a table's files or the STATE are
again what they were. Then its swap of a manifest succeeds, and is undone at once; `state_file.py` says what becomes of
`state.json`.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TypedDict

from msgspec import UNSET

from bridge.errors import CommitLost, CommitUnknown, EngineError, LakeError
from bridge.lake.commit.head import Head
from bridge.lake.commit.manifests import undo_manifests, write_manifests
from bridge.lake.commit.state_file import write_state
from bridge.lake.file_records import RejectFile
from bridge.lake.formats.registry import TableLogs
from bridge.lake.log import Log, Snapshot, add_of, storage_changes
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.records import CommitRecord, StagedTable, TableChange
from bridge.lake.storage import Missing
from bridge.lake.storage.parallel import parallel_map

if TYPE_CHECKING:
    from typing_extensions import Unpack

FILES_CHANGED = ("data", "void", "rollback", "replay", "compact", "forget")
"""The kinds of commits that change table folders. Recovery publishes the last of these again."""

_LOST_FILE = (
    "nothing was committed. On a cluster the bucket must be a folder that driver and executors share, or a store's; "
    "else something deletes pending files: run again"
)
_LOST = "two runs of this pipeline were alive; this one ended before it changed anything, the other goes on"
_UNKNOWN = "check the bucket and run again: the next run finds out what happened; nothing was aborted"


class Facts(TypedDict, total=False):
    """Fields of a `CommitRecord` beside its STATE and its tables; that class says what they mean."""

    staged: dict[str, StagedTable]
    voids: int
    uncovered: Sequence[str]
    merged: bool
    through: int
    rejects: Sequence[RejectFile]
    consumed: Sequence[str]
    refused: str
    supersedes: bool
    to: int
    after: int
    start: int | None
    given: Any
    reason: str


class Committer:
    """The one writer of a pipeline's log during a run. `bridge.lake.commit.open.open_pipeline` makes it.

    `generation` is lower than the number of any later fence, even if this run ends without a commit of its own. `notes`
    tells the operator, in sentences, what it did beyond its task.
    """

    def __init__(self, log: Log, run: str, snapshot: Snapshot, generation: int) -> None:
        self.log, self.storage = log, log.storage
        self.run, self.generation = run, generation
        self.head = Head(log, snapshot)
        self.table_logs = TableLogs(log)
        self.notes: list[str] = []

    @property
    def snapshot(self) -> Snapshot:
        """The lake after the last commit that is ours."""
        return self.head.snapshot

    # steps 0 and 3

    def create(
        self, kind: str, state: PipelineState, *, tables: Sequence[TableChange] = (), **facts: Unpack[Facts]
    ) -> CommitRecord:
        """Create the next record. Raises `CommitLost` or `CommitUnknown`; either ends the run."""
        record = self._record(kind, state, tables, facts)
        try:
            created, after = self.log.create(self.snapshot, record)
        except LakeError as error:
            created, after = self._read_back(record, error), self.snapshot.after(record)
        if not created and ((existing := self.log.record(record.n)) is None or existing.nonce != record.nonce):
            raise CommitLost("another run committed first", hint=_LOST, commit=record.n)
        if record.n < self.log.beginning().first:
            self.storage.delete(self.log.key(record.n))
            raise CommitLost("other runs committed long ago", hint=_LOST, commit=record.n)
        self.head.snapshot = after
        return record

    def _record(self, kind: str, state: PipelineState, tables: Sequence[TableChange], facts: Facts) -> CommitRecord:
        fields: dict[str, Any] = {"staged": self.snapshot.staged, **facts}
        return CommitRecord(
            n=self.snapshot.n + 1,
            kind=kind,
            run=self.run,
            generation=self.generation,
            nonce=uuid.uuid4().hex,
            at=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            state=state.shown,
            groups=state.per_process,
            tables=tables,
            **fields,
        )

    def _read_back(self, record: CommitRecord, error: LakeError) -> bool:
        """Settle a put whose outcome is unknown: True only if the record is there and ours."""
        try:
            existing = self.log.record(record.n)
        except LakeError:
            existing = None
            error = CommitUnknown("it is not known whether the commit landed", hint=_UNKNOWN, commit=record.n)
        if existing is None:
            raise error
        return existing.nonce == record.nonce

    # steps 2 to 5

    def commit(
        self, state: PipelineState, tables: Sequence[TableChange], *, kind: str = "data", **facts: Unpack[Facts]
    ) -> CommitRecord:
        """Make one epoch visible together with its STATE, and return its record."""
        self._verify(tables, facts.get("staged", {}))
        parallel_map(self.storage, lambda change: self.table_logs.check(self.snapshot, change), tables)
        record = self.create(kind, state, tables=tables, **facts)
        try:
            self.publish(record)
        except Missing as missing:
            self.head.check()
            hint = "something deletes pending files; run again: the next run takes this commit back"
            raise LakeError("a pending file is gone", hint=hint, file=missing.keys[0], commit=record.n) from missing
        self.write_state()
        return record

    def set_state(self, state: Any, reason: str) -> None:
        """Commit a STATE that an operator gave."""
        given = self.snapshot.pipeline_state.given(state)
        self.create("state", given, reason=reason, staged=self.snapshot.still_staged(state))
        self.write_state()

    def note_start(self, start: int | None = None, given: Any = UNSET) -> None:
        """Commit a fence that says from where this run's tap resumes: the commit `start`, or the STATE `given`.

        `bridge.load.run.checks.replay_guard` reads it.
        """
        self.create("fence", self.snapshot.pipeline_state, after=self.snapshot.last_change, start=start, given=given)

    def _verify(self, tables: Sequence[TableChange], staged: dict[str, StagedTable]) -> None:
        adds = [add_of(change.folder, add) for change in tables for add in change.adds]
        adds += [add_of(stage.folder, file) for stage in staged.values() for file in stage.files]
        for add in self.storage.missing_pending(adds)[:1]:
            self.head.check()
            raise EngineError(
                "a pending file is not what was written", hint=_LOST_FILE, file=add.source, bytes=add.size
            )

    def publish(self, record: CommitRecord) -> None:
        """Make the files of the last commit visible, then update the tables' logs and manifests. Repeatable.

        Raises `Missing` if one of them is lost, and `CommitLost` if another run took over.
        """
        try:
            self.storage.publish(storage_changes(self.log.pipeline, record))
            changes, tables = record.tables, self.snapshot.tables
            parallel_map(self.storage, lambda c: self.table_logs.publish(record, c, tables[c.stream]), changes)
            if changes:
                write_manifests(self.head, {change.stream: change.shared for change in changes})
                self.head.check()  # somebody may have taken over just before the last manifest's swap
        except LakeError as error:
            try:
                self.head.check()  # an overtaken run fails on what the other run has changed
            except CommitLost as lost:
                undo_manifests(self.head, record)
                raise lost from error
            raise

    def write_state(self) -> None:
        """Write the head's STATE into `state.json`."""
        self.notes += write_state(self.head)
