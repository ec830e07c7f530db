"""Hands sealed batches to the engine, takes loaded ones back, and commits at barriers: all in the main thread.

The engine's threads only queue loaded batches. Another thread prepares a commit (it merges rows and rewrites old
files), so that the tap is read meanwhile. Until that commit is made, no further batch is accounted for.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from bridge.durations import duration
from bridge.errors import BridgeError, Interrupted, TapError
from bridge.lake.records import CommitRecord
from bridge.load.run.accounting import Accounting, PreparedCommit
from bridge.load.run.barriers import Barrier
from bridge.load.run.checks.replay_guard import same_state
from bridge.load.run.checks.table_guard import Guard
from bridge.load.run.events import SchemaNeedsSpark, Sealed
from bridge.load.run.plan import LoadPlan
from bridge.load.run.result import Counts
from bridge.load.run.tables.views import ViewTables
from bridge.load.spark.log import tail
from bridge.load.spark.lookups import Lookups
from bridge.load.spark.query import Engine, Finished
from bridge.load.spool.spool import Spool
from bridge.load.tap.pipe import READ_BYTES
from bridge.load.write.context import WriteContext
from bridge.load.write.rejects import write_rejects
from bridge.load.write.shared_spool import PackedBatch, delete_files, pack, upload
from bridge.protocol.schema.table_schema import TableSchema
from bridge.settings.redact import redactor

Result = TypeVar("Result")

_START_POLL = 0.05
"""Seconds between two checks whether the JVM is up."""
_ABANDONED_AFTER = 30.0
"""Seconds that a commit's preparation may take to end: it may wait for a catalog. What it leaves, no commit names."""
_GIVEN_UP = "rows that are in no commit were given up"


class Loader:
    """Loads the batches that `TapReader` submits. Another thread may read `counts` and `commits`."""

    def __init__(self, plan: LoadPlan) -> None:
        self._plan, self._pipeline, self._committer = plan, plan.pipeline, plan.committer
        self.counts = dict[str, Counts]()
        self.commits, self.held_until = 0, 0.0
        self.spool = Spool(plan.scratch.spool)
        uri, run, generation = plan.committer.storage.uri, plan.committer.run, plan.committer.generation
        layouts, folder = plan.tables.layouts, str(plan.scratch.spool)
        in_bucket = plan.pipeline.spool_in_bucket
        self._context = WriteContext.of(plan.pipeline, uri, run, generation, layouts, folder, in_bucket=in_bucket)
        self._to_bucket = ThreadPoolExecutor(1, "spool-to-bucket")
        self._lookups = Lookups.of(plan.pipeline, plan.committer.storage, plan.committer.snapshot)
        self._engine = self._new_engine()
        self._views = ViewTables(plan.pipeline, plan.committer, self._context, plan.tables, self._engine.in_spark)
        self._guard = Guard(plan.pipeline, piped=plan.replay_guard is not None, full=plan.full)
        self._accounting = Accounting(
            plan.committer,
            self._context,
            shared=plan.pipeline.destination.shared,
            continued=plan.continued_versions,
            max_rejects=plan.max_rejects,
            each=self._engine.each,
            guard=self._guard,
            held=plan.held,
            views=self._views,
        )
        self._waiting = deque[Sealed]()
        self._finished = deque[Finished]()
        self._preparing: threading.Thread | None = None
        self._prepared: PreparedCommit | None = None
        self._last_seq = self._steps = self._most_spilled = 0
        self._failure: BaseException | None = None
        self._is_last = self._is_done = False

    def _new_engine(self) -> Engine:
        spark, scratch = self._pipeline.spark, self._plan.scratch
        log, small = scratch.spark_log, spark.small_bytes
        context, lookups = self._context, self._lookups
        return Engine(spark.master, spark.conf, self.spool, scratch.spark, log, context, lookups=lookups, small=small)

    @property
    def tasks(self) -> int:
        """How many tasks work on a batch at once."""
        return self._engine.tasks

    @property
    def spark(self) -> str:
        """Why Spark was started, if it was."""
        return self._engine.why

    def submit(self, sealed: Sealed) -> None:
        """Hand on a sealed batch; with a barrier, a commit follows once all before it is stored."""
        if sealed.batch:
            if not self._context.in_bucket:
                self._engine.load(sealed.batch)
            else:
                packed = pack(self._context, sealed.batch)
                sealed = replace(sealed, batch=packed.batch)
                self._to_bucket.submit(self._upload, packed)
        self._waiting.append(sealed)

    def _upload(self, packed: PackedBatch) -> None:
        """Bring a batch into the bucket, where executors find it; in a thread, one batch after the other."""
        try:
            self._engine.check()
            upload(self._context, self._committer.storage, packed)
            self._engine.load(packed.batch)
        except BaseException as error:  # noqa: BLE001 - whatever it was, the main thread raises it
            self._engine.fail(error)

    def columns_of(self, question: SchemaNeedsSpark) -> TableSchema:
        """Wait for Spark; ask it which columns a stream's SQL results in, and let it run that SQL on the rows."""
        stream, incoming = question.stream, question.incoming
        statement = incoming.statement
        assert statement is not None
        read = incoming.read()
        self._engine.start(f"for the SQL of {stream.name}")
        self._plan.context.stage = self._engine.stage
        while not self._engine.is_up:
            self._plan.context.tick()
            self.collect(_START_POLL)
        aside = ThreadPoolExecutor(1, "analyse")
        made = self._answer(aside.submit(self._engine.analysed, statement, read, stream.name))
        lake = incoming.into(question.table, stream.plan.evolution, made)
        self.spool.put_schema(lake.hash, lake.to_json())
        self._engine.transform(stream.name, question.name, statement, read, made, lake)
        self._plan.context.stage = "extracting"
        return lake

    def _answer(self, asked: Future[Result]) -> Result:
        """Wait for work in Spark that another thread does."""
        while not asked.done():  # a JVM that hangs never answers: `close` kills it after a time-out
            self._plan.context.tick()
            self.collect(_START_POLL)
        try:
            return asked.result()
        except BridgeError:
            raise
        except Exception as error:
            self._engine.fail(error)  # which says what became of Spark
            self._engine.check()
            raise

    def fill_views(self) -> None:
        """Fill new and changed views from the tables as they are, by a commit of its own.

        Not before a rollback that is due at the first commit: that commit fills them. Raises `SettingsError` for a view
        that does not fit its table, unless the run replaces that, or its stream may be held back.
        """
        replay = self._plan.replay_guard
        if (replay and replay.pending) or not (outdated := self._views.outdated):
            return
        self._plan.context.stage = "filling views"
        tables = self._plan.tables
        replaced = {view.name for view in outdated if not self._is_last and tables.replaced(self._views.names(view))}
        aside = ThreadPoolExecutor(1, "fill-views")
        if changes := self._answer(aside.submit(self._accounting.fill_views, self._last_seq, replaced)):
            self._note(self._accounting.commit_views(changes))

    def check(self) -> None:
        """Commit what is finished. Raises if the run must end, or if something failed in the background."""
        self._plan.context.tick()
        self.collect()
        if self._plan.trace:
            self._plan.trace.catch_up()

    def collect(self, wait: float = 0.0) -> None:
        """Account for the batches that Spark has finished, in order, and commit at barriers.

        Waits up to `wait` seconds.

        Raises what failed in the background. After any error nothing more is committed.
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
        """Do one step that needs no waiting: account for a batch, or make a commit. False if there is none."""
        if self._preparing:
            return self._take_prepared()
        sealed = self._waiting[0] if self._waiting else None
        if not sealed or (sealed.batch and not self._finished):
            return False
        self._accounting.discard_staged(sealed.begun_anew)
        if sealed.batch:
            self._accounting.add(sealed.batch, self._finished.popleft().reports)
            self._last_seq = sealed.batch.seq
        if sealed.noise:
            noise = write_rejects(self._committer.storage, self._context, None, list(sealed.noise))
            self._accounting.reject(noise)
        if sealed.barrier and self._ready_to_commit(sealed):
            self._prepare(sealed.barrier)
        else:
            self._let_go(sealed)
        return True

    def _ready_to_commit(self, sealed: Sealed) -> bool:
        """Get ready for a commit: roll back the rows that the tap sends again. False if there is nothing to commit.

        In that case nothing is rolled back: rows that no STATE covers stay, as the tap has not sent them again yet.
        """
        assert sealed.barrier
        replay = self._plan.replay_guard
        if replay and replay.pending:
            if same_state(sealed.barrier.state, replay.state) and not self._accounting.has_news(sealed.barrier):
                return False
            replay.roll_back(sealed.barrier.unresumed)
        return True

    def _prepare(self, barrier: Barrier) -> None:
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
        fields: dict[str, Any] = {"reason": self._plan.reason} if self._plan.reason else {}
        fields |= {"looked_up": commits} if (commits := self._lookups.commits) else {}
        if record := self._accounting.commit(prepared, **fields):
            self._note(record)
        if prepared.refusal:
            raise prepared.refusal
        self._waiting[0] = replace(self._waiting[0], barrier=prepared.barrier)
        self._let_go(self._waiting[0])

    def _note(self, record: CommitRecord) -> None:
        self._count(record)
        if files := self._plan.context.stream_files:
            files.follow(self._committer.snapshot, record)

    def _let_go(self, sealed: Sealed) -> None:
        """Finish with a batch: report its committed STATE, and delete its lines from spool and bucket."""
        self._waiting.popleft()
        if sealed.barrier:
            if sealed.barrier.from_tap:
                self._plan.context.committed(sealed.barrier.state)
            for stream, lines in self._accounting.filtered.items():
                self.counts[stream].filtered = lines
        if sealed.batch:
            self.spool.retire(sealed.batch)
            if self._context.in_bucket:
                names = sorted({segment.file for segment in sealed.batch.segments})
                self._to_bucket.submit(delete_files, self._context, names)

    def _count(self, record: CommitRecord) -> None:
        self.commits += 1
        self._plan.slots.committed(self._committer.snapshot)
        for change in record.tables:
            if change.stream in self.counts:  # a view is no stream
                self.counts[change.stream].took(change)
        for reject in record.rejects:
            if reject.stream is not None:
                self.counts[reject.stream].rejected += reject.lines
                self.counts[reject.stream].refused |= record.refused is not None
        if self._plan.trace:
            self._plan.trace.committed(self._committer.snapshot, self.commits, last=self._is_last)

    def show_stage(self) -> None:
        """Set the stage to what the waiting rows wait for."""
        with_spark = self._waiting and self._waiting[0].batch and not self._preparing
        self._plan.context.stage = self._engine.stage if with_spark else "committing"

    def drain(self) -> None:
        """Wait until all sealed batches are stored and committed.

        If the run is stopped meanwhile, Spark gets `Engine.grace` seconds for each further step. After that the error
        of the stop is raised, and nothing more is committed.
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
                given_up = f"Spark had not finished {duration(self._engine.grace)} later: {_GIVEN_UP}"
                stop.hint = "\n".join((stop.hint, given_up, tail(self._plan.scratch.spark_log)))
                self._fail(stop)
                raise stop

    def hold_back(self) -> None:
        """Block the tap while the spool is full, so that disk and memory are bounded.

        Rows waiting for an upsert are freed only by a commit, which needs further reading: for those, `close` only
        warns.
        """
        self._engine.read(self.spool.held)
        limit = self._pipeline.spool.max_bytes - READ_BYTES
        # Lines that are not sealed yet can leave the spool only if we read on.
        while self.spool.held > max(limit - self._accounting.spilled, self.spool.unsealed):
            self._plan.context.tick()
            self.collect(0.5)
            self.held_until = time.monotonic()
        self._most_spilled = max(self._most_spilled, self._accounting.spilled)

    def finish(self) -> None:
        """Commit what is left after the tap's clean end.

        Raises `DataError` if a stream had nothing but rejects, and if streams were held back.
        """
        self._is_last = True
        self.drain()
        self.fill_views()  # those of rows that could not be read before they were committed
        self._is_done = True
        if held := self._plan.held.result():
            raise held
        if complaint := self._guard.complaint():
            raise complaint

    def close(self) -> list[str]:
        """Stop Spark, delete the spool, and return warnings."""
        self._plan.context.stage = "stopping Spark" if self.spark else "ending"
        if self._preparing:  # only after a failure; the thread ends when its work in Spark is cancelled
            self._engine.cancel()
            self._preparing.join(_ABANDONED_AFTER)
        self._to_bucket.shutdown(wait=self._is_done, cancel_futures=not self._is_done)
        self._engine.stop(hurry=not self._is_done)
        self.spool.close()
        warnings = [*self._accounting.warnings(), *self._views.warnings]
        mask = redactor(self._pipeline.secrets).text
        for stream, error in self._plan.held.of(self.counts):
            error.message, error.hint = mask(error.message), mask(error.hint)
            self.counts[stream].held = error
        if self._most_spilled > self._pipeline.spool.max_bytes:
            most = self._most_spilled >> 20
            waiting = "more than spool.max_bytes; they wait for a STATE at which a commit can be made"
            warnings.append(f"rows to be merged by key took {most:,} MiB of the spool, {waiting}")
        for stream, counts in self.counts.items():
            counts.changed.count(self._accounting.changed[stream].values)
            if counts.rejected:
                warnings.append(f"{stream}: {counts.rejected} record(s) do not fit their SCHEMA: kept as rejects")
        return warnings
