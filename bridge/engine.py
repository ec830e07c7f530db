"""Spark: one streaming query carries the spool's manifests to the executors. The only module that imports pyspark.

Rows are bundles of segments, the data plane is Arrow inside the Python workers; no record crosses the JVM. Spark's file
source is a doorbell: what it delivered is checked against what was sealed, and a batch that it runs again is skipped.
The JVM's own output goes to a log file, never to our stdout or stderr.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from bridge.errors import BridgeError, EngineError
from bridge.java import check_version
from bridge.spool import Manifest, Segment, Spool
from bridge.tables.parquet import Job, write_bundles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Engine", "open_session", "session_conf"]

_SEGMENT = "stream:string,schema:string,file:string,start:bigint,end:bigint,lines:bigint,crc:bigint,prefix:string"
_BUNDLES = f"seq bigint, bundle int, segments array<struct<{_SEGMENT}>>"
_REPORTS = pa.schema([("seq", pa.int64()), ("bundle", pa.int32()), ("report", pa.string())])
_TRIGGER = "100 milliseconds"

_LOG4J = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


def session_conf(master: str, conf: dict[str, str], folder: Path) -> dict[str, str]:
    """Return the settings of our own session: small, quiet, its scratch under `folder`; `conf` wins."""
    java = [
        # Most runs are short: the JVM's start is most of their time.
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Xshare:auto",
        "-XX:-UsePerfData",  # a file in /tmp for each JVM
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        f"-Djava.io.tmpdir={folder}",
    ]
    ours = {
        "spark.app.name": "singer-bridge",
        "spark.driver.extraJavaOptions": " ".join(java),
        # A worker asks for the same few megabytes again and again: it shall keep them, not give them back each time.
        "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 << 20),
        "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(256 << 20),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.minBatchesToRetain": "2",
        "spark.sql.streaming.numRecentProgressUpdates": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if master.startswith("local"):
        ours |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(folder),
        }
    return ours | conf


def open_session(master: str, conf: dict[str, str], folder: Path, log: Path) -> SparkSession:
    """Start a JVM whose output goes to `log`. Raises `EngineError` when it does not come up."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    if os.environ.get("SPARK_REMOTE") or master.startswith("sc://"):
        hint = "Spark Connect runs foreachBatch on its server; set `spark.master` to local[*] or spark://"
        raise EngineError("Spark Connect sessions cannot be used", hint=hint)
    if master.startswith("local"):
        os.environ["PYSPARK_PYTHON"] = sys.executable  # pyspark would take whatever `python3` is on PATH
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the driver's word decides for executors, too
    check_version()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log4j2.properties").write_text(_LOG4J)
    settings = (
        SparkConf(loadDefaults=False)
        .setMaster(_retrying(master))
        .setAll(list(session_conf(master, conf, folder).items()))
    )
    try:
        with log.open("ab") as output:
            gateway = launch_gateway(settings, {"stdout": output, "stderr": output})
        return SparkSession(SparkContext(conf=settings, gateway=gateway))
    except Exception as error:  # pyspark, py4j and the system each have their own
        raise EngineError("Spark did not start", hint=_tail(log), cause=type(error).__name__) from error


def close_session(session: SparkSession, *, now: bool) -> None:
    """End a session and its JVM; with `now` without its second of leave-taking, which only a cluster needs."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = session.sparkContext._gateway
    process = getattr(gateway, "proc", None)
    if now and process:
        updates = session.sparkContext._accumulatorServer
        updates.handle_error = lambda *_: None  # it would print that its JVM is gone
        process.kill()
        updates.shutdown()
    else:
        with suppress(Exception):
            session.stop()
    with suppress(Exception):
        gateway.shutdown()
    if process:
        _end(process)
    # pyspark would give what is gone to the next session of this process.
    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _warm_up(session: SparkSession, tasks: int) -> None:
    """Have the Python workers start and import what they need, while the JVM is busy with the query's first plan."""
    with suppress(Exception):  # whatever is wrong, the query says it
        session.range(0, tasks, 1, tasks).mapInArrow(_same, "id bigint").collect()


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def _retrying(master: str) -> str:
    """Return the master with task retries: plain `local[*]` fails a job at its first lost task."""
    return f"{master[:-1]},4]" if master.startswith("local[") and "," not in master else master


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-15:] if log.exists() else []
    return "the end of Spark's log:\n" + "\n".join(lines) if lines else "check that Java 17 or newer is installed"


def _load(job: Job, batches: Iterator[Any]) -> Iterator[Any]:
    """Turn bundles into reports, on an executor."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    bundles = ((row["seq"], [Segment(**segment) for segment in row["segments"]]) for row in rows)
    for row, report in zip(rows, write_bundles(job, bundles), strict=True):
        columns = {"seq": [row["seq"]], "bundle": [row["bundle"]], "report": [orjson.dumps(report).decode()]}
        yield pa.RecordBatch.from_pydict(columns, _REPORTS)


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
        handle: Callable[[Manifest, list[dict[str, Any]]], None],
    ) -> None:
        self._master, self._conf = master, conf
        self._spool, self._scratch, self._log, self._job = spool, scratch, log, job
        self._handle = handle
        self._sealed: dict[int, Manifest] = {}
        self._handled = 0
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._session: SparkSession | None = None
        self._query: Any = None
        self._changed = threading.Condition()
        self._handling = threading.Lock()
        self._stopping = False
        self.tasks = _cores(master)

    def start(self) -> None:
        """Start the JVM and the query in the background, once."""
        if not self._thread:
            self._thread = threading.Thread(target=self._run, name="spark-start", daemon=True)
            self._thread.start()

    def seal(self, manifest: Manifest) -> None:
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
        """Wait until every sealed manifest was handled; `tick` runs twice a second and may raise."""
        while True:
            tick()
            self.check()
            with self._changed:
                if not self._sealed:
                    return
                self._changed.wait(0.5)

    def wait(self) -> None:
        """Wait for the next manifest to be handled, half a second at most."""
        with self._changed:
            self._changed.wait(0.5)

    def stop(self) -> None:
        """End query and JVM. A batch that is being handled is waited for; after that none is handled any more."""
        with self._handling:  # a dead JVM does not wait for its callback; the lease must not go before the commit
            self._stopping = True
        if self._thread:
            self._thread.join(timeout=60)
        if self._session is not None:
            with suppress(Exception):  # the JVM may be dead already; it dies with us in any case
                if not self._master.startswith("local"):
                    self._query.stop()
            close_session(self._session, now=self._master.startswith("local"))

    def _run(self) -> None:
        try:
            self._session = open_session(self._master, self._conf, self._scratch, self._log)
            if self._stopping:
                return
            warming = threading.Thread(target=_warm_up, args=(self._session, self.tasks), daemon=True)
            warming.start()
            self._query = self._start_query(self._session)
        except BaseException as error:  # noqa: BLE001 - whatever it was, the main thread raises it
            self._fail(error if isinstance(error, BridgeError) else self._explained(error))

    def _start_query(self, session: SparkSession) -> Any:
        source = (
            session.readStream.schema(_BUNDLES)
            .option("mode", "FAILFAST")
            .option("maxFileAge", "36500d")
            .option("maxFilesPerTrigger", 4)
            .json(str(self._spool.folder / "manifests"))
        )
        checkpoint = str(self._scratch / "checkpoint")
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
            rows = spread.mapInArrow(partial(_load, self._job), "seq bigint, bundle int, report string").collect()
            self._deliver(rows)
        except BaseException as error:
            self._fail(error if isinstance(error, BridgeError) else self._explained(error))
            raise

    def _deliver(self, rows: list[Any]) -> None:
        reports: dict[int, dict[int, dict[str, Any]]] = defaultdict(dict)
        for row in rows:
            if row.seq <= self._handled:
                continue
            if row.bundle in reports[row.seq]:
                raise EngineError("Spark delivered a bundle twice", hint=_REPORT_IT, manifest=row.seq)
            reports[row.seq][row.bundle] = orjson.loads(row.report)
        for seq in sorted(reports):
            manifest = self._sealed.get(seq)
            if seq != self._handled + 1 or manifest is None:
                raise EngineError("Spark skipped a manifest", hint=_REPORT_IT, want=self._handled + 1, have=seq)
            with self._handling:
                if self._stopping:
                    raise EngineError("the run ended before this batch", hint="nothing was committed for it")
                self._handle(manifest, list(reports[seq].values()))
            self._spool.retire(manifest)
            with self._changed:
                self._handled = seq
                del self._sealed[seq]
                self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def _explained(self, error: BaseException | None) -> BridgeError:
        code = _ended(self._session)
        if code is not None:
            hint = "the system may have been short of memory; what was committed stays, run again\n" + _tail(self._log)
            return EngineError("Spark's JVM is gone", hint=hint, exit_code=code)
        text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        return EngineError("Spark failed", hint=_tail(self._log), cause=text[:300])


_REPORT_IT = "nothing was committed; run again, and report it with the run's log if it comes back"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Have the JVM go: it leaves when its stdin ends, and is killed when it does not."""
    with suppress(OSError):
        process.stdin.close()  # type: ignore[union-attr]
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _ended(session: SparkSession | None) -> int | None:
    """Return the exit code of our own JVM, None while it lives. Its socket breaks an instant before it ends."""
    process = session and getattr(session.sparkContext._gateway, "proc", None)
    if not process:
        return None
    try:
        return int(process.wait(timeout=0.5))
    except subprocess.TimeoutExpired:
        return None


def _cores(master: str) -> int:
    """Return how many tasks a master runs at once, as far as its name tells."""
    inside = master[6:-1].split(",", maxsplit=1)[0] if master.startswith("local[") else ""
    return (
        int(inside) if inside.isdigit() else (os.cpu_count() or 2) if inside == "*" else 1 if master == "local" else 8
    )
