"""One load: the tap's messages through the spool and Spark to commits. The parts are wired together here, only here.

After a failure of the tap, or when somebody stops us, everything up to the tap's last STATE is still committed. After
a failure of ours (Spark, the bucket, the accounting) nothing more is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from bridge.commit.committer import Committer
from bridge.lake.records import CommitRecord, TapGroup
from bridge.load.accounting import Accounting
from bridge.load.barriers import Barrier, BarrierPolicy, StreamProgress
from bridge.load.checks.replay_guard import ReplayGuard, same_state
from bridge.load.checks.table_guard import Guard
from bridge.load.column_plan import IncomingSchema
from bridge.load.dispatcher import Counts, Dispatcher
from bridge.load.division import Division
from bridge.load.scratch import Scratch
from bridge.load.table_plan import TablePlanner
from bridge.load.tap_reader import TapReader
from bridge.load.tap_session import JointBarriers, RunContext, TapSession
from bridge.schema.table_schema import TableSchema
from bridge.settings.load import Pipeline, redactor
from bridge.singer.messages import LONGEST_LINE, Reader
from bridge.slots.guard import SlotGuard
from bridge.spark import Engine
from bridge.spool.spool import SealedBatch, Spool
from bridge.state.lookback import Lookback
from bridge.tap.batch_files import Batches
from bridge.tap.pipe import READ_BYTES, Feed
from bridge.write.layout import Target
from bridge.write.parquet import Job, write_rejects
from bridge.write.report import WorkReport

LEAVING = "preparing Spark's next start, once on this machine"
"""The stage after which all is committed and the JVM writes its class data."""
_LONG_LINE = 64 << 20
"""Bytes that one line may have, however small the spool is."""


class Loader:
    """What reads a tap, or several processes of it. `counts` and `commits` may be read by another thread meanwhile."""

    def __init__(
        self,
        pipeline: Pipeline,
        committer: Committer,
        placement: TablePlanner,
        scratch: Scratch,
        follow: RunContext,
        *,
        full: bool,
        deselected: set[str],
        kept: set[str],
        restarted: set[str],
        max_records: int | None = None,
        lookbacks: Sequence[Lookback] = (Lookback(),),
        superseding: ReplayGuard | None = None,
        division: Division | None = None,
        slots: SlotGuard | None = None,
    ) -> None:
        """RECORDs of `deselected` are ignored, `kept` keep their bookmarks, `restarted` start again with `--full`.

        `superseding`: the tap was started by somebody else, from a STATE that may not be the lake's. `division`: there
        are several processes of the tap; each has one of the `lookbacks`. `slots` follow the commits.
        """
        self.commits, self.leave_seconds, self.waiting_seconds, self._held_until = 0, 0.0, 0.0, 0.0
        self.counts, self._warnings, self._parts = dict[str, Counts](), list[str](), list[TapSession]()
        self._pipeline, self._committer, self._follow = pipeline, committer, follow
        self._superseding, self._placement, self._slots = superseding, placement, slots or SlotGuard()
        self._deselected, self._max_records = deselected, max_records
        self._barriers: dict[int, tuple[Barrier, list[dict[str, Any]]]] = {}
        self._begun_anew, self._void = list[str](), dict[int, list[str]]()
        self._last_seq = self._most_spilled = 0
        self._done = self._committing = False
        staged = committer.view.staged
        adopted = {s: stage.version for s, stage in staged.items() if not full or s not in restarted}
        self._limit = pipeline.rejects.max if pipeline.rejects.on_reject == "quarantine" else 0
        self._job = self._new_job(scratch, placement.targets)
        self._guard = Guard(pipeline, piped=superseding is not None)
        self._ledger = self._new_ledger(adopted)
        self._spool = Spool(scratch.spool)
        self._engine = self._new_engine(scratch)
        start = superseding.state if superseding else committer.view.state
        self._joint = JointBarriers(division, start, adopted) if division else None
        groups = division.groups if division else (TapGroup((), start),)
        for number, (group, lookback) in enumerate(zip(groups, lookbacks, strict=True)):
            mine = self._joint.staged[number] if self._joint else adopted
            kept = set() if division else kept  # it keeps those of others, which have a STATE of their own here
            kept |= self._slots.kept
            epochs = BarrierPolicy(group.state, staged=mine, kept=kept, whole=full, restored=lookback.stored)
            reader = Reader(every_state=max_records is not None, longest=self._longest)
            self._parts.append(TapSession(self._new_intake(epochs, division), group.label, reader))

    def _new_intake(self, epochs: BarrierPolicy, division: Division | None) -> Dispatcher:
        pipeline, placement, number = self._pipeline, self._placement, len(self._parts)
        spool = Spool(self._spool.folder, beside=self._spool) if number else self._spool
        return Dispatcher(
            epochs=epochs,
            spool=spool,
            opened=placement.open,
            incoming=placement.incoming,
            transformed=self._transformed,
            checked=placement.check,
            flush=partial(self._flush, number),
            discard=self._begun_anew.append,
            commit_every=pipeline.commit.every,
            commit_bytes=pipeline.commit.bytes // (len(division.groups) if division else 1),
            commit_rows=pipeline.commit.rows,
            max_noise=self._limit,
            redact=redactor(pipeline.secrets),
            batches=Batches(spool.folder, pipeline.destination.s3_options, self._between, self._longest),
            validates=pipeline.rejects.validate == "full",
            own=division.names[number] if division else None,
            counts=self.counts,
            deselected=self._deselected,
            max_records=self._max_records,
        )

    @property
    def _longest(self) -> int:
        return min(LONGEST_LINE, max(_LONG_LINE, self._pipeline.spool.max_bytes // 4))

    def _new_job(self, scratch: Scratch, targets: dict[str, Target]) -> Job:
        return Job(
            bucket=self._committer.storage.uri,
            pipeline=self._pipeline.name,
            run=self._committer.run,
            generation=self._committer.generation,
            spool=str(scratch.spool),
            compression=self._pipeline.destination.compression,
            level=self._pipeline.destination.compression_level,
            targets=targets,
            s3=self._pipeline.destination.s3_options,
        )

    def _new_ledger(self, adopted: dict[str, int]) -> Accounting:
        return Accounting(
            self._committer,
            self._job,
            shared=self._placement.shared,
            adopted=adopted,
            max_rejects=self._limit,
            seen=self._committed,
            each=self._each,
            guard=self._guard,
        )

    def _each(self, work: Callable[[Job, Any], Struct], payloads: Sequence[Any]) -> list[Any]:
        return self._engine.each(work, payloads)  # it is made after the ledger

    def _transformed(
        self, stream: StreamProgress, incoming: IncomingSchema, table: TableSchema | None, name: str
    ) -> TableSchema:
        """Return the columns that a stream's statement leads to, and have its rows go through it. Waits for Spark."""
        assert incoming.statement is not None
        self._follow.stage("starting Spark")
        read, statement = incoming.read(), incoming.statement
        made = self._engine.analysed(statement, read, stream.name, self._check)
        lake = incoming.into(table, stream.evolution, made)
        self._spool.put_schema(lake.hash, lake.to_json())
        self._engine.transform(stream.name, name, statement, read, made, lake)
        self._follow.stage("extracting")
        return lake

    def _new_engine(self, scratch: Scratch) -> Engine:
        return Engine(
            master=self._pipeline.spark.master,
            conf=self._pipeline.spark.conf,
            spool=self._spool,
            scratch=scratch.spark,
            log=scratch.spark_log,
            job=self._job,
            handle=self._handle,
        )

    def read(self, *taps: Feed) -> None:
        """Read the taps, one for each group, to their ends and commit. Raises what failed first, after keeping what can
        be kept: of several taps the others go on to their ends.
        """
        idle, began = self._pipeline.source.idle_timeout, time.monotonic()
        reading = TapReader(self._parts, self._engine, self._follow, idle, self._warnings, self._hold_back, self._tell)
        if len(taps) == 1:
            reading.one(taps[0])
        else:
            reading.all(taps)
        self.waiting_seconds = self._waited(began, time.monotonic())
        self._engine.drain(self._watch)
        self._done = True
        if complaint := self._guard.complaint():
            raise complaint

    def _waited(self, began: float, ended: float) -> float:
        """Return the seconds before the first RECORD and after the last in which the tap had nothing to load."""
        times = [(counts.first_at, counts.last_at) for counts in self.counts.values() if counts.first_at is not None]
        if not times:
            return 0.0
        last = max(self._held_until, *(last for _, last in times))
        return min(first for first, _ in times) - began + max(0.0, ended - last)

    @property
    def partial(self) -> bool:
        """Whether the tap was stopped as it had sent enough: rows that no STATE covers may be pending still."""
        return any(part.intake.enough for part in self._parts)

    def _check(self) -> None:
        self._follow.tick()
        self._engine.check()

    def _between(self) -> None:
        """Do between the parts of a BATCH what is done between chunks of the tap's output."""
        self._check()
        self._hold_back()

    def _tell(self) -> None:
        """Say what the rows that wait are waiting for."""
        self._follow.stage("committing" if self._committing or not self._spool.held else self._engine.stage)

    def _watch(self) -> None:
        """What is done twice a second while Spark is waited for."""
        self._tell()
        self._follow.tick()

    def _hold_back(self) -> None:
        """Leave the tap waiting while the spool is full: bounded disk and memory, whatever it sends.

        Rows that are to be merged by key leave it with a commit only, which reading on brings: of them we can but warn.
        """
        if self._spool.held:
            self._engine.start()  # at the first RECORD: a run that finds nothing starts no JVM
        limit = self._pipeline.spool.max_bytes - READ_BYTES
        fresh = sum(part.intake.spool.fresh for part in self._parts)  # what is not sealed yet, only reading on can move
        while self._spool.held > max(limit - self._ledger.spilled, fresh):
            self._check()
            self._engine.wait()
            self._held_until = time.monotonic()
        self._most_spilled = max(self._most_spilled, self._ledger.spilled)

    def _flush(self, number: int, barrier: Barrier | None, all_lines: bool) -> None:
        """Seal a part's lines; with a barrier, a commit follows when Spark is done with what was sealed."""
        part, noise = self._parts[number], list[dict[str, Any]]()
        if barrier is not None:
            noise, part.intake.noise = part.intake.noise, noise
            barrier = self._joint.barrier(number, barrier) if self._joint else barrier
        manifest = part.intake.spool.seal(tasks=self._engine.tasks, all_lines=all_lines)
        if manifest is not None:
            self._last_seq = manifest.seq
            if barrier is not None:
                self._barriers[manifest.seq] = (barrier, noise)
            self._void[manifest.seq] = self._voided()  # not before: a barrier that Spark still has counts on the files
            self._engine.start()
            self._engine.seal(manifest)
            self._spool.release(manifest)
        elif barrier is not None:
            self._engine.drain(self._watch)
            self._ledger.discard_staged(self._voided())
            self._engine.commit(partial(self._commit, barrier, noise), self._watch)

    def _voided(self) -> list[str]:
        """Return the tables that the tap began anew since this was last asked."""
        streams = self._begun_anew[:]
        self._begun_anew.clear()
        return streams

    def _handle(self, manifest: SealedBatch, reports: list[WorkReport]) -> None:
        """Take in one manifest's reports and commit if it ends at a barrier; in Spark's callback thread."""
        self._ledger.discard_staged(self._void.pop(manifest.seq))
        self._ledger.add(manifest, reports)
        if manifest.seq in self._barriers:
            self._commit(*self._barriers.pop(manifest.seq))

    def _commit(self, barrier: Barrier, noise: list[dict[str, Any]]) -> None:
        self._committing = True
        if noise:
            self._ledger.reject(write_rejects(self._committer.storage, self._job, None, noise))
        if self._superseded(barrier):
            self._ledger.commit(barrier, self._last_seq)
        if barrier.said:
            self._follow.said(barrier.state)
        for stream, lines in self._ledger.filtered.items():
            self.counts[stream].filtered = lines
        self._committing = False

    def _superseded(self, barrier: Barrier) -> bool:
        """Take back what the tap sends again, at the first commit; return False where there is nothing to commit.

        Then rows stay that the tap's STATE does not cover, rather than none: the next run may send them still.
        """
        if self._superseding and self._superseding.pending:
            if same_state(barrier.state, self._superseding.state) and not self._ledger.has_news(barrier):
                return False
            self._superseding.at_commit()
        return True

    def _committed(self, record: CommitRecord) -> None:
        self.commits += 1
        self._slots.committed(self._committer.view)
        for change in record.tables:
            self.counts[change.stream].took(change)
        for reject in record.rejects:
            if reject.stream is not None:
                self.counts[reject.stream].rejected += reject.lines
                self.counts[reject.stream].refused |= record.refused is not None

    def close(self) -> list[str]:
        """Stop Spark, delete the spool, and return what the operator should know."""
        once, began = self._done and self._engine.takes_leave, time.monotonic()
        self._follow.stage(LEAVING if once else "stopping Spark")
        self._engine.stop(hurry=not self._done)
        self.leave_seconds = time.monotonic() - began if once else 0.0
        self._spool.close()
        warnings = [text for part in self._parts for text in part.intake.told()]
        warnings += [*self._warnings, *self._ledger.told()]
        if self._most_spilled > self._pipeline.spool.max_bytes:
            most = self._most_spilled >> 20
            waiting = "more than spool.max_bytes; they wait for a STATE at which a commit can be made"
            warnings.append(f"rows to be merged by key took {most:,} MiB of the spool, {waiting}")
        for stream, counts in self.counts.items():
            if counts.rejected:
                warnings.append(f"{stream}: {counts.rejected} record(s) do not fit their SCHEMA: kept as rejects")
        return warnings
