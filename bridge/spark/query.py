"""One streaming query carries the spool's manifests to the executors.

Rows are bundles of segments, the data plane is Arrow inside the Python workers; no record crosses the JVM. Spark's file
source is a doorbell: what it delivered is checked against what was sealed, and a batch that it runs again is skipped.
"""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, convert, json

from bridge.errors import BridgeError, EngineError, Interrupted, TapError
from bridge.spark.diagnosis import diagnose
from bridge.spark.jvm import Jvm
from bridge.spark.log import tail
from bridge.spark.shipping import cores, executor_task, executor_work, is_local
from bridge.spark.worker import REPORTS
from bridge.spool.spool import SealedBatch, Spool
from bridge.write.parquet import Job
from bridge.write.report import Failure, WorkReport, raise_failure, read_report

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from bridge.schema.table_schema import TableSchema
    from bridge.settings.transform_sql import Statement
    from bridge.spark.session import Session
    from bridge.spark.transform import Plan

_SEGMENT = (
    "stream:string,schema:string,file:string,start:bigint,end:bigint,lines:bigint,crc:bigint,prefix:string,"
    "order:bigint,at:bigint,first:bigint"
)
_BUNDLES = f"seq bigint, bundle int, segments array<struct<{_SEGMENT}>>"
_GLOB = re.compile(r"[\\\[\]{}*?]")
"""What the file source, which takes its path for a pattern, takes as it stands behind a backslash only."""
_TRIGGER = "100 milliseconds"
_START_POLL = 0.05
"""Seconds between two looks whether the JVM is up."""
_GRACE = 60.0
"""Seconds that Spark has for its next manifest once the run is to end."""


def _warm_up(spark: SparkSession, tasks: int) -> None:
    """Have the Python workers start and import what they need, while the JVM is busy with the query's first plan."""
    with suppress(Exception):  # whatever is wrong, the query says it
        spark.range(0, tasks, 1, tasks).mapInArrow(_same, "id bigint").collect()


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


class Engine:
    """One streaming query. `handle(manifest, reports)` is called in order, once a manifest, in Spark's callback thread.

    The JVM starts at `start`, in the background; until then sealing manifests costs files only.
    """

    def __init__(
        self,
        *,
        master: str,
        conf: dict[str, str],
        spool: Spool,
        scratch: Path,
        log: Path,
        job: Job,
        handle: Callable[[SealedBatch, list[WorkReport]], None],
    ) -> None:
        self._master, self._conf = master, conf
        self._spool, self._scratch, self._log, self._job = spool, scratch, log, job
        self._handle = handle
        self._sealed: dict[int, SealedBatch] = {}
        self._handled = 0
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._jvm: Jvm | None = None
        self._session: Session | None = None
        self._shipped: str | None = None
        self._warming: threading.Thread | None = None
        self._query: Any = None
        self._plans: dict[tuple[str, str], Plan] = {}
        self._changed = threading.Condition()
        self._handling = threading.Lock()
        self._stopping = False
        self.tasks, self.grace = cores(master), _GRACE

    def start(self) -> None:
        """Start the JVM and the query in the background, once."""
        if not self._thread:
            self._thread = threading.Thread(target=self._run, name="spark-start", daemon=True)
            self._thread.start()

    def seal(self, manifest: SealedBatch) -> None:
        """Note a manifest that Spark is to deliver. Called before anything else is sealed."""
        with self._changed:
            self._sealed[manifest.seq] = manifest

    def check(self) -> None:
        """Raise what went wrong in the background, if anything did."""
        if self._failure:
            raise self._failure
        if self._query is None or self._stopping:
            return
        try:
            ended = self._query.exception()
        except Exception as error:  # noqa: BLE001 - py4j has a dozen ways to say that the JVM is gone
            ended = error
        if ended:
            raise self._explained(ended)

    def drain(self, tick: Callable[[], None]) -> None:
        """Wait until every sealed manifest was handled; `tick` runs twice a second and may raise.

        When it says that the run is to end, Spark has `grace` seconds for each further manifest. Then that error is
        raised, here and by each later `check`, and no further manifest is handled.
        """
        self._await(lambda: not self._sealed, tick)

    def commit(self, work: Callable[[], None], tick: Callable[[], None]) -> None:
        """Do work that uses `each` when all manifests are handled, and wait for it as `drain` does."""
        if self._query is None:
            work()
            return
        raised: list[BaseException | None] = []

        def run() -> None:
            error = None
            try:
                with self._handling:
                    self._require_going_on()
                    work()
            except BaseException as caught:  # noqa: BLE001 - whatever it was, who waits raises it
                error = caught
            with self._changed:
                raised.append(error)
                self._changed.notify_all()

        threading.Thread(target=run, name="commit", daemon=True).start()
        self._await(lambda: bool(raised), tick)
        if raised[0]:
            raise raised[0]

    def _await(self, done: Callable[[], bool], tick: Callable[[], None]) -> None:
        stop: BridgeError | None = None
        progress, limit = None, 0.0
        while True:
            try:
                tick()
            except (Interrupted, TapError) as error:
                stop = stop or error
            self.check()
            with self._changed:
                if done():
                    return
                self._changed.wait(0.5)
            if stop and progress != (progress := (self._query is not None, self._handled)):
                limit = time.monotonic() + self.grace
            if stop and time.monotonic() > limit:
                given_up = f"Spark had not finished {self.grace:.0f} s later: rows that are in no commit were given up"
                stop.hint = "\n".join((stop.hint, given_up, tail(self._log)))
                self._fail(stop)
                raise stop

    def wait(self) -> None:
        """Wait for the next manifest to be handled, half a second at most."""
        with self._changed:
            self._changed.wait(0.5)

    def each(self, work: Callable[[Job, Any], Struct], payloads: Sequence[Any]) -> list[Any]:
        """Do a piece of work for each payload, on the executors if there are any, and return the reports in order.

        `work` is a function of a module and pure but for its pending files: Spark may run it twice. To be called while
        a manifest is handled, or when all are. Raises what a report says that failed.
        """
        job = replace(self._job, targets=dict(self._job.targets))
        if self._query is None or not payloads:
            return [work(job, payload) for payload in payloads]
        assert self._session is not None
        return spread(self._session.spark, work, job, payloads, self._shipped)

    def analysed(self, statement: Statement, read: TableSchema, stream: str, tick: Callable[[], None]) -> pa.Schema:
        """Return what a statement makes of a stream's columns; waits for the JVM, while `tick` may raise.

        Raises `SettingsError` with Spark's words.
        """
        self.start()
        while self._query is None:
            tick()
            self.check()
            time.sleep(_START_POLL)
        from bridge.spark.transform import analysed

        assert self._session is not None
        metadata = self._job.targets[stream].metadata
        return analysed(self._session.spark, statement, read, stream, metadata=metadata)

    def transform(
        self,
        stream: str,
        schema: str,
        statement: Statement,
        read: TableSchema,
        made: pa.Schema,
        lake: TableSchema,
    ) -> None:
        """Have rows of a stream, read under this schema of the spool, go through a statement that `made` columns of
        it, and into the `lake`'s. Called before any of them is sealed.
        """
        from bridge.spark.transform import Plan

        target = self._job.targets[stream]
        plan = Plan(stream, schema, statement, read, target.metadata, made, lake, bool(target.keys))
        self._plans[stream, schema] = plan

    @property
    def stage(self) -> str:
        """What it is at, for people, while sealed manifests wait."""
        return "writing" if self._query is not None else "starting Spark"

    @property
    def takes_leave(self) -> bool:
        """Whether `stop` takes some seconds, once on a machine, for what makes later starts faster."""
        return bool(self._session and self._session.takes_leave)

    def stop(self, *, hurry: bool) -> None:
        """End query and JVM, in a `hurry` if the run is not a success.

        A batch that is being handled is waited for, though not its work in Spark for longer than `grace`; after that
        none is handled any more.
        """
        # A dead JVM does not wait for its callback; the lease must not go before the commit.
        if not self._handling.acquire(timeout=0 if self._failure else self.grace):
            self._cancel()
            self._handling.acquire()
        self._stopping = True
        self._handling.release()
        if self._jvm and not self._session:
            self._jvm.kill()  # it is not up yet, and may never be: nothing in it is worth waiting for
        if self._thread:
            self._thread.join(timeout=60)
        if self._warming and not hurry:
            self._warming.join(timeout=60)
        if self._session:
            if not is_local(self._master):
                if hurry:
                    self._cancel()
                with suppress(Exception):
                    self._query.stop()
            self._session.close(hurry=hurry)

    def _cancel(self) -> None:
        """Have all that runs in Spark fail: whoever waits for it hears of that."""
        if self._jvm and self._jvm.process and is_local(self._master):
            self._jvm.kill()
        elif self._session:
            with suppress(Exception):
                self._session.spark.sparkContext.cancelAllJobs()

    def _run(self) -> None:
        try:
            self._jvm = jvm = Jvm(self._master, self._conf, self._scratch, self._log)
            if self._stopping:
                jvm.kill()  # `stop` may have looked for it too early
            from bridge.spark.session import Session  # and with it pyspark: the JVM starts meanwhile

            self._session = Session(self._master, self._conf, self._scratch, self._log, jvm=jvm)
            if self._stopping:
                return
            spark, self._shipped = self._session.spark, self._session.shipped
            self._warming = threading.Thread(target=_warm_up, args=(spark, self.tasks), name="warm-up", daemon=True)
            self._warming.start()
            self._query = self._start_query(spark)
        except BaseException as error:  # noqa: BLE001 - whatever it was, the main thread raises it
            self._fail(error if isinstance(error, BridgeError) else self._explained(error))

    def _start_query(self, session: SparkSession) -> Any:
        source = (
            session.readStream.schema(_BUNDLES)
            .option("mode", "FAILFAST")
            .option("maxFileAge", "36500d")
            .option("maxFilesPerTrigger", 4)
            .json(_GLOB.sub(r"\\\g<0>", _uri(self._spool.folder / "manifests")))
        )
        checkpoint = _uri(self._scratch / "checkpoint")
        writer = source.writeStream.foreachBatch(self._batch).option("checkpointLocation", checkpoint)
        return writer.trigger(processingTime=_TRIGGER).start()

    def _batch(self, frame: DataFrame, _: int) -> None:
        """Load one micro-batch: one Spark job for all of its streams, then its manifests in order."""
        try:
            with self._changed:
                bundles = sum(len(manifest.bundles) for manifest in self._sealed.values())
            if not bundles:
                return  # Spark runs a finished batch again after a stop
            parts = min(bundles, frame.sparkSession.sparkContext.defaultParallelism)
            spread = frame.repartition(parts) if parts > 1 else frame
            job = replace(self._job, targets=dict(self._job.targets))  # they grow while this one is on its way
            rows = spread.mapInArrow(executor_task(job, self._shipped), REPORTS).collect()
            self._deliver(rows, self._transformed(spread, job, {row.seq for row in rows}))
        except BaseException as error:
            self._fail(error if isinstance(error, BridgeError) else self._explained(error))
            raise

    def _transformed(self, frame: DataFrame, job: Job, seqs: set[int]) -> list[Any]:
        """Load the rows of these manifests that go through Spark SQL: a job for each stream and schema."""
        bundles = [bundle for seq in seqs if seq in self._sealed for bundle in self._sealed[seq].bundles]
        found = {(segment.stream, segment.schema): None for bundle in bundles for segment in bundle}
        rows: list[Any] = []
        for plan in (self._plans[each] for each in found if each in self._plans):
            from bridge.spark.transform import reports_of

            rows += reports_of(frame, plan, job, self._shipped)
        return rows

    def _deliver(self, rows: list[Any], more: list[Any]) -> None:
        reports: dict[int, dict[int, WorkReport]] = defaultdict(dict)
        transformed: dict[int, list[WorkReport]] = defaultdict(list)
        for row in more:
            transformed[row.seq].append(read_report(row.report))
        for row in rows:
            if row.seq <= self._handled:
                continue
            if row.bundle in reports[row.seq]:
                raise EngineError("Spark delivered a bundle twice", hint=_REPORT_IT, manifest=row.seq)
            reports[row.seq][row.bundle] = read_report(row.report)
        for seq in sorted(reports):
            manifest = self._sealed.get(seq)
            if seq != self._handled + 1 or manifest is None:
                raise EngineError("Spark skipped a manifest", hint=_REPORT_IT, want=self._handled + 1, have=seq)
            with self._handling:
                self._require_going_on()
                self._handle(manifest, [*reports[seq].values(), *transformed[seq]])
            self._spool.retire(manifest)
            with self._changed:
                self._handled = seq
                del self._sealed[seq]
                self._changed.notify_all()

    def _require_going_on(self) -> None:
        if self._stopping or self._failure:
            raise EngineError("the run ended before this batch", hint="nothing was committed for it")

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def _explained(self, error: BaseException | None) -> BridgeError:
        code = self._session.exit_code() if self._session else None
        if code is not None:
            hint = "the system may have been short of memory; what was committed stays, run again\n" + tail(self._log)
            return EngineError("Spark's JVM is gone", hint=hint, exit_code=code)
        log = self._log.read_text(errors="replace") if self._log.exists() else ""
        if known := diagnose(str(error), log, self._job.spool):
            return known
        text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        return EngineError("Spark failed", hint=tail(self._log), cause=text[:300])


def spread(
    spark: SparkSession,
    work: Callable[[Job, Any], Struct],
    job: Job,
    payloads: Sequence[Any],
    shipped: str | None = None,
) -> list[Any]:
    """Do a piece of work for each payload, a task each, and return the reports in order; see `Engine.each`."""
    count = len(payloads)
    numbers = spark.range(0, count, 1, count)
    rows = numbers.mapInArrow(executor_work(work, job, payloads, shipped), REPORTS).collect()
    reports = {row.seq: json.decode(row.report) for row in rows}
    if len(rows) != count or reports.keys() != set(range(count)):
        raise EngineError("Spark's work does not add up", hint=_REPORT_IT, wanted=count, reports=len(rows))
    for report in reports.values():
        raise_failure(convert(report.get("failed"), Failure | None))
    return [reports[number] for number in range(count)]


_REPORT_IT = "nothing was committed; run again, and report it with the run's log if it comes back"


def _uri(folder: Path) -> str:
    """Return a folder as Spark finds it whatever its default filesystem is."""
    return f"file://{folder}"
