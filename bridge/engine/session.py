"""A Spark session and its JVM: how it starts fast and quiet, how it ends, and how one knows that it is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from bridge.classdata import ClassData
from bridge.engine.shipping import is_local, ship
from bridge.engine.sparklog import LOG4J, tail
from bridge.errors import EngineError
from bridge.java import check_version, find_java
from bridge.settings.redact import SPARK_SECRET

__all__ = ["Session", "session_conf"]

_PYTHON = "spark.pyspark.python"


def session_conf(master: str, conf: dict[str, str], folder: Path, java: list[str]) -> dict[str, str]:
    """Return the settings of our own session: small, quiet, its scratch under `folder`; `conf` wins."""
    options = [
        # Most runs are short: the JVM's start is most of their time.
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Xshare:auto",
        "-XX:-UsePerfData",  # a file in /tmp for each JVM
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        f"-Djava.io.tmpdir={folder}",
        *java,
    ]
    ours = {
        "spark.app.name": "singer-bridge",
        "spark.driver.extraJavaOptions": " ".join(f'"{option}"' for option in options),
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
    if is_local(master):
        ours |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(folder),
        }
    return ours | conf


class Session:
    """An open session: `spark` is the `SparkSession`, `shipped` what executors import us from, None on this machine."""

    def __init__(self, master: str, conf: dict[str, str], folder: Path, log: Path) -> None:
        """Start a JVM whose output goes to `log`. Raises `EngineError` when it does not come up."""
        if os.environ.get("SPARK_REMOTE") or master.startswith("sc://"):
            hint = "Spark Connect runs foreachBatch on its server; set `spark.master` to local[*] or spark://"
            raise EngineError("Spark Connect sessions cannot be used", hint=hint)
        self._local = is_local(master)
        check_version()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "log4j2.properties").write_text(LOG4J)
        self._class_data = ClassData(find_java(), _installed())
        java = self._class_data.options if self._local else []
        values = session_conf(master, conf, folder, java)
        settings = SparkConf(loadDefaults=False).setMaster(_retrying(master)).setAll(list(values.items()))
        # The command line is for everyone to read: secrets reach the JVM by its socket, when the context starts.
        shown = [(key, value) for key, value in values.items() if not SPARK_SECRET.search(key)]
        launched = SparkConf(loadDefaults=False).setMaster(_retrying(master)).setAll(shown)
        self._process: subprocess.Popen[bytes] | None = None
        try:
            with log.open("ab") as output:
                gateway = launch_gateway(launched, {"stdout": output, "stderr": output})
            self._process = getattr(gateway, "proc", None)
            if self._process and self._local:
                self._class_data.begin(self._process)
            context = SparkContext(conf=settings, gateway=gateway)
            context.pythonExec = _executors_python(self._local, conf)
            self.shipped = None if self._local else ship(context, folder)
            self.spark = SparkSession(context)
        except Exception as error:  # pyspark, py4j and the system each have their own
            if self._process:
                self._process.kill()
                self._ended(self._process)
            raise EngineError("Spark did not start", hint=tail(log), cause=type(error).__name__) from error

    @property
    def takes_leave(self) -> bool:
        """Whether this JVM will spend its last seconds on the class data that the next one starts from."""
        return self._local and self._class_data.wanted

    def exit_code(self) -> int | None:
        """Return the JVM's exit code, None while it lives. Its socket breaks an instant before it ends."""
        if not self._process:
            return None
        try:
            return int(self._process.wait(timeout=0.5))
        except subprocess.TimeoutExpired:
            return None

    def close(self, *, hurry: bool) -> None:
        """End the JVM. A local one has nothing to hand back: it is killed, unless it is to leave its class data."""
        gateway, updates = self.spark.sparkContext._gateway, self.spark.sparkContext._accumulatorServer
        updates.handle_error = lambda *_: None  # it would print that its JVM is gone
        ours = self._process if self._local else None
        if ours and (hurry or not self.takes_leave):
            ours.kill()
            updates.shutdown()
        else:
            with suppress(Exception):  # the JVM may be dead already; it dies with us in any case
                self.spark.stop()
        with suppress(Exception):
            gateway.shutdown()
        if self._process:
            self._ended(self._process)
        # pyspark would give what is gone to the next session of this process.
        SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None

    def _ended(self, process: subprocess.Popen[bytes]) -> None:
        _end(process)
        self._class_data.end(process)


def _installed() -> str:
    """Return what tells this installation of Spark from others: an archive holds for its very jars."""
    jars = Path(pyspark.__file__).parent / "jars"
    return f"{pyspark.__version__} {jars} {jars.stat().st_mtime_ns if jars.exists() else ''}"


def _executors_python(local: bool, conf: dict[str, str]) -> str:
    """Return the Python that executors start: pyspark by itself takes whatever `python3` is on their PATH."""
    return sys.executable if local else conf.get(_PYTHON) or os.environ.get("PYSPARK_PYTHON") or sys.executable


def _retrying(master: str) -> str:
    """Return the master with task retries: plain `local[*]` fails a job at its first lost task."""
    return f"{master[:-1]},4]" if master.startswith("local[") and "," not in master else master


def _end(process: subprocess.Popen[bytes]) -> None:
    """Have the JVM go: it leaves when its stdin ends, and is killed when it does not."""
    with suppress(OSError):
        process.stdin.close()  # type: ignore[union-attr]
    try:
        process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
