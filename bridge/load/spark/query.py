"""Loads sealed batches: one streaming query carries them to the executors; until it is up, this process does.

Both call `write_bundles`, and what they report is checked alike. A row of the query is a bundle: a list of segments,
not their records. Python workers read the segments and write Parquet, so no record crosses the JVM, unless SQL
transforms its stream. Spark's file source is only a doorbell: what it delivers is compared with what was sealed, and a
batch that it runs again is skipped. Spark's callback thread, or this process's, checks and queues finished batches; the
main thread takes them from there.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from bridge.errors import BridgeError, EngineError
from bridge.load.spark.jvm.diagnosis import of_spark, of_this_process
from bridge.load.spark.jvm.jvm import Jvm
from bridge.load.spark.shipping import AT_ONCE, REPORT_IT, batches_in, bundles_of, cores, loaded, spread, warm_up
from bridge.load.spool.folder import SealedBatch
from bridge.load.spool.spool import Spool
from bridge.load.write.context import WriteContext
from bridge.load.write.report import WorkReport, read_report
from bridge.load.write.task import write_bundles
from bridge.settings.options import is_local

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from bridge.load.spark.lookups import Lookups
    from bridge.load.spark.session import Session
    from bridge.load.spark.transform import TransformPlan
    from bridge.protocol.schema.table_schema import TableSchema
    from bridge.settings.sql.transform import Statement

Result = TypeVar("Result")

STARTING = "starting Spark"
"""The stage of a run, for people, until the query is up; a colon and what needs it follow."""
_TRIGGER = "100 milliseconds"
_ALL, _MANY = "it writes all rows", "more than spark.small of rows wait"
_VIEWS, _TABLES = "for views", "to write large tables again"
_LOOK_EVERY = 0.5
"""Seconds between two checks of the query in the JVM."""
_START_POLL = 0.05
"""Seconds between two checks whether the session is up."""
_START = 8
"""How many jobs Spark could do in the time that it takes to start."""
_LETS_GO = 10.0
"""Seconds that a batch which this process loads has to end, once the run has failed."""
_GRACE = 60.0
"""Seconds that Spark has for its next step once the run is to end."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A sealed batch that is loaded, with the reports of all its bundles."""

    batch: SealedBatch
    reports: list[WorkReport]


class Engine:
    """Loads sealed batches, and returns each once, in their order, by `finished`.

    `start` starts the JVM in the background, as more than `small` bytes do. Until its query is up, a thread of this
    process loads the batches, one after the other, but for those that Spark loads sooner although it has to start; then
    all go to the query. Neither waits for commits: the size of the spool limits how far they get ahead of them.
    """

    def __init__(
        self,
        master: str,
        conf: dict[str, str],
        spool: Spool,
        scratch: Path,
        log: Path,
        context: WriteContext,
        *,
        lookups: Lookups,
        small: int = 0,
    ) -> None:
        self._master, self._conf = master, conf
        self._spool, self._scratch, self._log, self._context = spool, scratch, log, context
        self._small, self._lookups = small, lookups
        self._turn = threading.RLock()
        self._waiting = deque[SealedBatch]()
        self._here: SealedBatch | None = None  # this process loads it
        self._sealed: dict[int, SealedBatch] = {}
        self._finished = SimpleQueue[Finished | None]()
        self._delivered = 0
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._loading: threading.Thread | None = None
        self._warming: threading.Thread | None = None
        self._session: Session | None = None
        self._jvm: Jvm | None = None
        self._shipped: str | None = None
        self._query: Any = None
        self._plans: dict[tuple[str, str], TransformPlan] = {}
        self._stopping, self._stopped = False, threading.Event()
        self._cancelled = False
        self.tasks = cores(master)
        self.why = ""  # Spark was started
        self.grace = _GRACE

    def start(self, why: str) -> None:
        """Start the JVM and the query in the background, once. `why` tells people what needs it."""
        with self._turn:
            if not self._thread:
                self.why = why
                self._thread = threading.Thread(target=self._run, name="spark-start", daemon=True)
                self._thread.start()

    def read(self, size: int) -> None:
        """Note how many bytes of the spool are in no commit: with more than `small`, Spark starts."""
        if size > self._small:
            self.start(_MANY if self._small else _ALL)

    def load(self, batch: SealedBatch) -> None:
        """Load a sealed batch, after those before it."""
        self.read(batch.size)
        with self._turn:
            self._sealed[batch.seq] = batch
            self._waiting.append(batch)
            self._next()

    def _next(self) -> None:
        """Hand on the batches whose turn it is; with the lock."""
        while self._waiting and not self._here:
            if not self.is_up and self._waiting[0].size > _START * self._small:
                return
            batch = self._waiting.popleft()
            if self.is_up:
                self._spool.release(batch)
            else:
                self._here = batch
                self._loading = threading.Thread(target=self._load_here, args=(batch,), name="load", daemon=True)
                self._loading.start()

    def _load_here(self, batch: SealedBatch) -> None:
        try:
            reports = [*write_bundles(self._context_now(), ((batch.seq, bundle) for bundle in batch.bundles))]
            with self._turn:
                self._take(batch, reports)
                self._spool.folder.hidden(batch.seq).unlink(missing_ok=True)
                self._here = None
                self._next()
        except BaseException as error:  # noqa: BLE001 - whatever it was, the main thread raises it
            self.fail(of_this_process(error))

    def finished(self, wait: float = 0.0) -> list[Finished]:
        """The batches that are loaded; waits up to `wait` seconds for the first one, or for `wake`."""
        items: list[Finished] = []
        with suppress(Empty):
            if wait and (item := self._finished.get(timeout=wait)):
                items.append(item)
            while True:
                if item := self._finished.get_nowait():
                    items.append(item)
        return items

    def wake(self) -> None:
        """End a wait in `finished`; from any thread."""
        self._finished.put(None)

    def fail(self, error: BaseException) -> None:
        """Let `check` raise this error from now on, and take no more batches from Spark; from any thread."""
        self._failure = self._failure or (error if isinstance(error, BridgeError) else self._explained(error))
        self.wake()

    def check(self) -> None:
        """Raise the error of the query or of a background thread, if there is one. Never waits for the JVM."""
        if self._failure:
            raise self._failure

    def each(self, work: Callable[[WriteContext, Any], Struct], payloads: Sequence[Any], *, cost: float) -> list[Any]:
        """Run `work` on each payload and return the reports in order; see `MapOnExecutors`.

        `work` is a module-level function without effects but pending files, as Spark may run it twice. Raises the error
        that a report holds.
        """
        if cost <= (1 if self.is_up or not self._small else _START) or not payloads:
            context = self._context_now()
            return [work(context, payload) for payload in payloads]
        return self.in_spark(lambda spark, job, zip_: spread(spark, work, job, payloads, zip_), why=_TABLES)

    def in_spark(
        self, work: Callable[[SparkSession, WriteContext, str | None], Result], *, why: str = _VIEWS
    ) -> Result:
        """Do work with the session, which is started if it is not up yet. Raises `EngineError` if the run ends first.

        The work also gets the context, and what executors import us from; see `Session`.
        """
        self.start(why)
        while not self.is_up:
            self.check()
            if self._cancelled:
                raise EngineError("the run ended before Spark was up", hint="nothing was committed; run again")
            time.sleep(_START_POLL)
        assert self._session is not None
        return work(self._session.spark, self._context_now(), self._shipped)

    def _context_now(self) -> WriteContext:
        # with a copy of its layouts, which grow while work is on its way
        return replace(self._context, layouts=dict(self._context.layouts))

    def analysed(self, statement: Statement, read: TableSchema, stream: str) -> pa.Schema:
        """The columns that a statement results in. The query must be up.

        Raises `SettingsError`, and `EngineError` if the JVM dies meanwhile.
        """
        from py4j.protocol import Py4JError

        from bridge.load.spark.transform import analysed

        assert self._session is not None
        metadata = self._context.layouts[stream].metadata
        try:
            made = analysed(self._session.spark, statement, read, stream, metadata=metadata, lookups=self._lookups)
            for lookup in statement.lookups:
                self._lookups.rows(lookup)  # not while a batch is on its way: the run says what is wrong with it
            return made
        except (Py4JError, OSError) as error:
            raise self._explained(error) from error

    def transform(
        self,
        stream: str,
        schema: str,
        statement: Statement,
        read: TableSchema,
        made: pa.Schema,
        lake: TableSchema,
    ) -> None:
        """Let Spark transform a stream's rows of this spool `schema` by a statement, before any of them is sealed.

        Rows are decoded into the columns `read`, the statement results in `made`, and files have the columns `lake`.
        """
        from bridge.load.spark.transform import TransformPlan

        target = self._context.layouts[stream]
        plan = TransformPlan(stream, schema, statement, read, target.metadata, made, lake, bool(target.keys))
        self._plans[stream, schema] = plan

    @property
    def is_up(self) -> bool:
        return self._query is not None

    @property
    def stage(self) -> str:
        """The stage to show while sealed batches wait."""
        return "writing" if self.is_up or self._here else f"{STARTING}: {self.why}"

    def stop(self, *, hurry: bool) -> None:
        """Stop the query and the JVM; in a `hurry` if the run has failed."""
        self._stopping = True
        self._stopped.set()
        if self._jvm and not self._session:
            self._jvm.kill()  # not up yet, and may never be: nothing to wait for
        if hurry:
            self.cancel()  # it may hang: nobody is to wait for its answer
        if self._loading:
            self._loading.join(timeout=_LETS_GO)  # what it writes after that, the next run deletes
        if self._thread:
            self._thread.join(timeout=60)
        if self._warming and not hurry:
            self._warming.join(timeout=60)
        if self._session:
            if not is_local(self._master):
                with suppress(Exception):
                    self._query.stop()
            self._session.close(hurry=hurry)

    def cancel(self) -> None:
        """Make all work in Spark fail, so that whoever waits for it gets an error."""
        self._cancelled = True
        if self._jvm and self._jvm.process and is_local(self._master):
            self._jvm.kill()
        elif self._session:
            with suppress(Exception):
                self._session.spark.sparkContext.cancelAllJobs()

    def _run(self) -> None:
        try:
            session = self._open_session()
            if self._stopping:
                return
            self._shipped = session.shipped
            query = self._start_query(session.spark)
            with self._turn:
                self._query = query
                self._next()
            self._watch()
        except BaseException as error:  # noqa: BLE001 - whatever it was, the main thread raises it
            self.fail(error)

    def _open_session(self) -> Session:
        self._jvm = jvm = Jvm(self._master, self._conf, self._scratch, self._log)
        if self._stopping:
            jvm.kill()  # `stop` may have come before `_jvm` was set
        from bridge.load.spark.session import Session  # imports pyspark while the JVM starts

        self._session = session = Session(self._master, self._conf, self._scratch, self._log, jvm=jvm)
        if not self._stopping:
            of = session.spark, self.tasks
            self._warming = threading.Thread(target=warm_up, args=of, name="warm-up", daemon=True)
            self._warming.start()
        return session

    def _watch(self) -> None:
        """Raise the error with which the query ends. If the JVM hangs, this thread waits for it, and no other."""
        while not self._failure:
            if ended := self._query.exception():
                raise ended
            if self._stopped.wait(_LOOK_EVERY):
                return

    def _start_query(self, session: SparkSession) -> Any:
        writer = batches_in(session, self._spool.folder).writeStream.foreachBatch(self._batch)
        checkpoint = f"file://{self._scratch}/checkpoint"
        return writer.option("checkpointLocation", checkpoint).trigger(processingTime=_TRIGGER).start()

    def _batch(self, frame: DataFrame, _: int) -> None:
        """Load one micro-batch: one Spark job for all of its streams; in Spark's callback thread."""
        try:
            sealed = list(self._sealed.values())
            bundles = sum(len(batch.bundles) for batch in sealed)
            if not bundles:
                return  # Spark runs a finished batch again after a stop
            if self._context.in_bucket:
                # At least those whose files were listed: Spark calls again for later ones, and there is nothing to do.
                frame = bundles_of(frame.sparkSession, sealed[:AT_ONCE])
            context = self._context_now()
            parts, rows = loaded(frame, bundles, context, self._shipped)
            self._deliver(rows, self._transformed(parts, context, {row.seq for row in rows}))
        except BaseException as error:
            self.fail(error)
            raise

    def _transformed(self, frame: DataFrame, context: WriteContext, seqs: set[int]) -> list[Any]:
        """Load the rows of these batches that Spark SQL transforms: one job for each stream and schema."""
        segments = [segment for seq in seqs if seq in self._sealed for segment in self._sealed[seq].segments]
        pairs = {(segment.stream, segment.schema): None for segment in segments}
        rows: list[Any] = []
        for plan in (self._plans[each] for each in pairs if each in self._plans):
            from bridge.load.spark.transform import reports_of

            rows += reports_of(frame, plan, context, self._shipped, self._lookups)
        return rows

    def _deliver(self, rows: list[Any], more: list[Any]) -> None:
        """Queue the batches of these reports. Raises `EngineError` unless they are the next ones, in order."""
        reports: dict[int, dict[int, WorkReport]] = defaultdict(dict)
        transformed: dict[int, list[WorkReport]] = defaultdict(list)
        for row in more:
            transformed[row.seq].append(read_report(row.report))
        for row in rows:
            if row.seq <= self._delivered:
                continue
            if row.bundle in reports[row.seq]:
                raise EngineError("Spark delivered a bundle twice", hint=REPORT_IT, batch=row.seq)
            reports[row.seq][row.bundle] = read_report(row.report)
        for seq in sorted(reports):
            batch = self._sealed.get(seq)
            if seq != self._delivered + 1 or batch is None:
                raise EngineError("Spark skipped a batch", hint=REPORT_IT, want=self._delivered + 1, have=seq)
            # Here, as Spark does not list files now.
            self._spool.folder.batch(seq).unlink(missing_ok=True)
            self._take(batch, [*reports[seq].values(), *transformed[seq]])

    def _take(self, batch: SealedBatch, reports: list[WorkReport]) -> None:
        """Queue the next batch's reports for the main thread."""
        if self._stopping or self._failure:
            raise EngineError("the run ended before this batch", hint="nothing was committed for it")
        self._delivered = batch.seq
        del self._sealed[batch.seq]
        self._finished.put(Finished(batch, reports))

    def _explained(self, error: BaseException) -> BridgeError:
        code = self._session.exit_code(error) if self._session else None
        return of_spark(error, self._log, self._context.spool, code)
