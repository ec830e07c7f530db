"""Sealed batches to Spark, and finished work from there to commits: all in the main thread.

Spark's callback thread only puts what is finished into a queue. A commit is prepared (rows are merged, old files are
written anew) in a thread of its own, so that the tap is read meanwhile; nothing else is accounted for until it is made.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from bridge.errors import BridgeError, Interrupted, TapError
from bridge.lake.records import CommitRecord
from bridge.load.accounting import Accounting, PreparedCommit
from bridge.load.barriers import Barrier
from bridge.load.checks.replay_guard import same_state
from bridge.load.checks.table_guard import Guard
from bridge.load.events import SchemaNeedsSpark, Sealed
from bridge.load.plan import LoadPlan
from bridge.load.result import Counts
from bridge.schema.table_schema import TableSchema
from bridge.spark.log import tail
from bridge.spark.query import Engine, Finished
from bridge.spool.spool import Spool
from bridge.tap.pipe import READ_BYTES
from bridge.write.context import WriteContext
from bridge.write.rejects import write_rejects

LEAVING = "preparing Spark's next start, once on this machine"
"""The stage after which all is committed and the JVM writes its class data."""
_GIVEN_UP = "rows that are in no commit were given up"


class Loader:
    """Loads what the tap's reader hands over. Another thread may read `counts` and `commits`."""

    def __init__(self, plan: LoadPlan) -> None:
        self._plan, self._pipeline, self._committer = plan, plan.pipeline, plan.committer
        self.counts = dict[str, Counts]()
        self.commits, self.leave_seconds, self.held_until = 0, 0.0, 0.0
        self.spool = Spool(plan.scratch.spool)
        uri, run, generation = plan.committer.storage.uri, plan.committer.run, plan.committer.generation
        layouts, folder = plan.tables.layouts, str(plan.scratch.spool)
        self._context = WriteContext.of(plan.pipeline, uri, run, generation, layouts, folder)
        self._engine = self._new_engine()
        self._guard = Guard(plan.pipeline, piped=plan.replay_guard is not None)
        self._accounting = Accounting(
            plan.committer,
            self._context,
            shared=plan.tables.shared,
            adopted=plan.adopted,
            max_rejects=plan.max_rejects,
            each=self._engine.each,
            guard=self._guard,
        )
        self._waiting = deque[Sealed]()
        self._finished = deque[Finished]()
        self._preparing: threading.Thread | None = None
        self._prepared: PreparedCommit | None = None
        self._last_seq = self._steps = self._most_spilled = 0
        self._failure: BaseException | None = None
        self._is_done = False

    def _new_engine(self) -> Engine:
        spark, scratch = self._pipeline.spark, self._plan.scratch
        return Engine(spark.master, spark.conf, self.spool, scratch.spark, scratch.spark_log, self._context)

    @property
    def tasks(self) -> int:
        """How many tasks work on a batch at once."""
        return self._engine.tasks

    def submit(self, sealed: Sealed) -> None:
        """Hand a sealed batch to Spark; with a barrier, a commit follows once all before it is stored."""
        if sealed.batch:
            self._engine.start()
            self._engine.seal(sealed.batch)
            self.spool.release(sealed.batch)
        self._waiting.append(sealed)

    def columns_of(self, question: SchemaNeedsSpark) -> TableSchema:
        """Return the columns that a stream's statement leads to, and have its rows go through it. Waits for Spark."""
        stream, incoming = question.stream, question.incoming
        assert incoming.statement is not None
        self._plan.context.stage = "starting Spark"
        read = incoming.read()
        made = self._engine.analysed(incoming.statement, read, stream.name, self.check)
        lake = incoming.into(question.table, stream.evolution, made)
        self.spool.put_schema(lake.hash, lake.to_json())
        self._engine.transform(stream.name, question.name, incoming.statement, read, made, lake)
        self._plan.context.stage = "extracting"
        return lake

    def check(self) -> None:
        """Commit what is finished. Raises when the run is to end, and what went wrong in the background."""
        self._plan.context.tick()
        self.collect()

    def collect(self, wait: float = 0.0) -> None:
        """Account for what Spark has finished, in order, and commit at barriers. Waits so many seconds for news.

        Raises what went wrong in the background. After any error nothing is committed any more.
        """
        if self._failure:
            raise self._failure
        try:
            self._finished += self._engine.finished(wait)
            while self._step():
                self._steps += 1
            self._engine.check()
        except BaseException as error:
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self._engine.fail(error)

    def _step(self) -> bool:
        """Do the next thing that can be done without waiting; False if there is none."""
        if self._preparing:
            return self._take_prepared()
        sealed = self._waiting[0] if self._waiting else None
        if not sealed or (sealed.batch and not self._finished):
            return False
        self._accounting.discard_staged(sealed.begun_anew)
        if sealed.batch:
            self._accounting.add(sealed.batch, self._finished.popleft().reports)
            self._last_seq = sealed.batch.seq
        if sealed.barrier and self._is_new(sealed):
            self._prepare(sealed.barrier)
        else:
            self._let_go(sealed)
        return True

    def _is_new(self, sealed: Sealed) -> bool:
        """Get ready for a commit: what the tap sends again is taken back; False where there is nothing to commit.

        Then rows stay that the tap's STATE does not cover, rather than none: the next run may send them still.
        """
        assert sealed.barrier
        if sealed.noise:
            noise = write_rejects(self._committer.storage, self._context, None, list(sealed.noise))
            self._accounting.reject(noise)
        replay = self._plan.replay_guard
        if replay and replay.pending:
            if same_state(sealed.barrier.state, replay.state) and not self._accounting.has_news(sealed.barrier):
                return False
            replay.at_commit()
        return True

    def _prepare(self, barrier: Barrier) -> None:
        if not self._engine.is_up:  # there are no executors to wait for
            self._commit(self._accounting.prepare(barrier, self._last_seq))
            return
        arguments = (barrier, self._last_seq)
        self._preparing = threading.Thread(target=self._prepare_aside, args=arguments, name="prepare", daemon=True)
        self._preparing.start()

    def _prepare_aside(self, barrier: Barrier, through: int) -> None:
        try:
            self._prepared = self._accounting.prepare(barrier, through)
            self._engine.wake()
        except BaseException as error:  # noqa: BLE001 - whatever it was, the main thread raises it
            self._engine.fail(error)

    def _take_prepared(self) -> bool:
        prepared, self._prepared = self._prepared, None
        if prepared is None:
            return False
        self._preparing = None
        self._commit(prepared)
        return True

    def _commit(self, prepared: PreparedCommit) -> None:
        record = self._accounting.commit(prepared)
        if record:
            self._count(record)
        if prepared.refusal:
            raise prepared.refusal
        self._let_go(self._waiting[0])

    def _let_go(self, sealed: Sealed) -> None:
        """Note that a batch is accounted for, and that the STATE it ends at is committed."""
        self._waiting.popleft()
        if sealed.barrier:
            if sealed.barrier.said:
                self._plan.context.committed(sealed.barrier.state)
            for stream, lines in self._accounting.filtered.items():
                self.counts[stream].filtered = lines
        if sealed.batch:
            self.spool.retire(sealed.batch)

    def _count(self, record: CommitRecord) -> None:
        self.commits += 1
        self._plan.slots.committed(self._committer.view)
        for change in record.tables:
            self.counts[change.stream].took(change)
        for reject in record.rejects:
            if reject.stream is not None:
                self.counts[reject.stream].rejected += reject.lines
                self.counts[reject.stream].refused |= record.refused is not None

    def show_stage(self) -> None:
        """Say what the rows that wait are waiting for."""
        with_spark = self._waiting and self._waiting[0].batch and not self._preparing
        self._plan.context.stage = self._engine.stage if with_spark else "committing"

    def drain(self) -> None:
        """Wait until all that was sealed is stored and committed.

        When the run is to end, Spark has `Engine.grace` seconds for each further step. Then that error is raised, and
        nothing more is committed.
        """
        stop: BridgeError | None = None
        steps, limit = None, 0.0
        while True:
            try:
                self._plan.context.tick()
            except (Interrupted, TapError) as error:
                stop = stop or error
            self.collect()
            if not self._waiting:
                return
            self.show_stage()
            self.collect(0.5)
            if stop and steps != (steps := (self._engine.is_up, self._steps)):
                limit = time.monotonic() + self._engine.grace
            if stop and time.monotonic() > limit:
                given_up = f"Spark had not finished {self._engine.grace:.0f} s later: {_GIVEN_UP}"
                stop.hint = "\n".join((stop.hint, given_up, tail(self._plan.scratch.spark_log)))
                self._fail(stop)
                raise stop

    def hold_back(self) -> None:
        """Leave the tap waiting while the spool is full: bounded disk and memory, whatever it sends.

        Rows waiting for an upsert are freed only by a commit, and so by reading on: for those it only warns.
        """
        if self.spool.held:
            self._engine.start()  # at the first RECORD: a run that finds nothing starts no JVM
        limit = self._pipeline.spool.max_bytes - READ_BYTES
        # What is not sealed yet, only reading on can move.
        while self.spool.held > max(limit - self._accounting.spilled, self.spool.unsealed):
            self._plan.context.tick()
            self.collect(0.5)
            self.held_until = time.monotonic()
        self._most_spilled = max(self._most_spilled, self._accounting.spilled)

    def finish(self) -> None:
        """Commit all that is left after the tap's clean end. Raises `DataError` for a stream of rejects only."""
        self.drain()
        self._is_done = True
        if complaint := self._guard.complaint():
            raise complaint

    def close(self) -> list[str]:
        """Stop Spark, delete the spool, and return what the operator should know."""
        leaves, began = self._is_done and self._engine.takes_leave, time.monotonic()
        self._plan.context.stage = LEAVING if leaves else "stopping Spark"
        if self._preparing:  # of a run that failed: it ends when its work in Spark does
            self._engine.cancel()
            self._preparing.join()
        self._engine.stop(hurry=not self._is_done)
        self.leave_seconds = time.monotonic() - began if leaves else 0.0
        self.spool.close()
        warnings = self._accounting.warnings()
        if self._most_spilled > self._pipeline.spool.max_bytes:
            most = self._most_spilled >> 20
            waiting = "more than spool.max_bytes; they wait for a STATE at which a commit can be made"
            warnings.append(f"rows to be merged by key took {most:,} MiB of the spool, {waiting}")
        for stream, counts in self.counts.items():
            if counts.rejected:
                warnings.append(f"{stream}: {counts.rejected} record(s) do not fit their SCHEMA: kept as rejects")
        return warnings
