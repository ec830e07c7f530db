"""The JVM's process: how it starts fast and quiet. It needs no pyspark, which is imported while the JVM starts."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from bridge.durations import duration
from bridge.errors import BridgeError, EngineError, SettingsError
from bridge.load.spark.jvm.class_archive import ClassArchive, JvmCommand, being_made
from bridge.load.spark.jvm.java import VECTOR, Java, find_java, spark_home
from bridge.load.spark.log import LOG4J
from bridge.settings.options import is_local
from bridge.settings.redact import SPARK_SECRET

_POLL = 0.02
"""Seconds between two checks for the port on which the JVM listens."""
_LEAVE = 60
"""Seconds that a JVM may take to end."""
_LEAVE_DATA = 300
"""The same, if it is to leave its class data: on a busy machine that takes minutes."""
_LOOK = 0.5
"""Seconds between two checks of its log for a failure."""
_PATIENCE = 300.0
"""Seconds that it may take until it listens; it may have packages to download."""
_FAILED = 'Exception in thread "main" '
# The JVM ends with its stdin, but only once it reads that. If its main thread fails before, such as on a full disk,
# another thread keeps it alive for ever. So this guard waits beside it until we close the guard's stdin, or die.
_WATCH = """
read -r _
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
    kill -0 "$0" 2>/dev/null || exit
    sleep 1
done
kill -9 "$0"
"""
# What `spark-submit` does, for pyspark's own Spark: a JVM works out the JVM's command, and prints it as words that end
# with a zero byte, the first of them empty. A module is left out that not every Java has, and few use.
# Of the class path, a folder that is not there and a jar's second mention: with either, Java 21 ignores its archive.
_SUBMIT = f"""
. "$SPARK_HOME/bin/load-spark-env.sh"
export PYTHONHASHSEED=0
words=() absent=
[ -d "$SPARK_HOME/conf" ] || absent=$SPARK_HOME/conf:
while IFS= read -r -d '' word; do
    word=${{word#$'\\n'}}
    if [[ $word = *":$SPARK_HOME/jars/*" ]]; then
        word=${{word%"$SPARK_HOME/jars/*"}} word=${{word#"$absent"}}
        for jar in "$SPARK_HOME"/jars/*.jar; do [[ :$word = *":$jar:"* ]] || word+=$jar:; done
        word=${{word%:}}
    fi
    [ "$word" = --add-modules={VECTOR} ] || words+=("$word")
done < <("$0" -Xmx128m -cp "$SPARK_HOME/jars/*" org.apache.spark.launcher.Main org.apache.spark.deploy.SparkSubmit "$@")
[ ${{#words[@]}} -gt 1 ] || exit 1
exec "${{words[@]:1}}"
"""

LITERAL = {"spark.sql.variable.substitute": "false"}
"""Else Spark would fill in `${env:NAME}`, a variable of this machine, in a view of a bucket and in names of columns."""


def refuse_another_session() -> None:
    """Raise `SettingsError` if this process has a Spark session already: pyspark allows one, and it is not ours."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    if context is not None and context._active_spark_context is not None:
        hint = "end it with spark.stop(), or start the run in a process of its own: singer-bridge run NAME"
        raise SettingsError("this process has a Spark session of its own, and can have only one", hint=hint)


def session_conf(master: str, conf: dict[str, str], folder: Path, java: list[str]) -> dict[str, str]:
    """The settings of our own session: small, quiet, its scratch under `folder`; `conf` wins."""
    options = [
        # Most runs are short: the JVM's start is most of their time.
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:ReservedCodeCacheSize=240m",
        "-Xshare:auto",
        "-XX:-UsePerfData",  # a file in /tmp for each JVM
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        f"-Djava.io.tmpdir={folder}",
        *java,
    ]
    defaults = {
        "spark.app.name": "singer-bridge",
        "spark.driver.extraJavaOptions": " ".join(map(_quoted, options)),
        # A worker allocates the same few megabytes again and again: it should keep them, not return them each time.
        "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 << 20),
        "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(256 << 20),
        "spark.executorEnv.MIMALLOC_PURGE_DELAY": "2000",  # ms; Arrow's own allocator
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.cache.maxEntries": "2000",  # 100, else: two views have more, and compile at each commit
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.minBatchesToRetain": "2",
        "spark.sql.streaming.numRecentProgressUpdates": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if is_local(master):
        defaults |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": "." if _splits(folder) else str(folder),
        }
        if not master.startswith("local-cluster"):
            defaults["spark.authenticate"] = "true"  # its ports are open to all users of this machine
        if "SPARK_HOME" not in os.environ:  # otherwise it may be another Spark than our pyspark's
            defaults["spark.python.daemon.module"] = "bridge.load.spark.daemon"
    return defaults | conf | LITERAL | {"spark.master": _retrying(master)}


def _splits(folder: Path) -> bool:
    """Whether Spark takes a folder for several, as it has a comma: then the JVM works inside of it."""
    return "," in str(folder)


class Jvm:
    """A JVM that is starting. `process` is None where somebody else started it, such as `spark-submit`."""

    def __init__(self, master: str, conf: dict[str, str], folder: Path, log: Path) -> None:
        """Start it; its output goes to `log`. Raises `EngineError` or `SettingsError` where it cannot be."""
        if os.environ.get("SPARK_REMOTE") or master.startswith("sc://"):
            hint = "Spark Connect runs foreachBatch on its server; set `spark.master` to local[*] or spark://"
            raise EngineError("Spark Connect sessions cannot be used", hint=hint)
        self.log, self.local, self.wanted_python = log, is_local(master), conf.get("spark.pyspark.python")
        self._folder = folder
        self.patience = _PATIENCE
        java, home = find_java(), spark_home()
        if master.startswith("local-cluster") and not java.has_vector:
            hint = "set JAVA_HOME to a JDK, or spark.master to local[*]"
            raise SettingsError(f"{master} needs a Java with the module {VECTOR}", hint=hint, java=java.program)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "log4j2.properties").write_text(LOG4J)
        archive = ClassArchive(java.program, home / "jars") if self.local else None
        self.conf = session_conf(master, conf, folder, archive.options() if archive else [])
        self.process: subprocess.Popen[bytes] | None = None
        if "PYSPARK_GATEWAY_PORT" not in os.environ:
            self._info = tempfile.TemporaryDirectory(prefix="jvm-", dir=folder)  # a secret will be in it
            self.process = self._start(java, home)

    def _start(self, java: Java, home: Path) -> subprocess.Popen[bytes]:
        # Everyone can read the command line: secrets reach the JVM through its socket, when the context starts.
        shown = [f"{key}={value}" for key, value in self.conf.items() if not SPARK_SECRET.search(key)]
        words = [word for each in shown for word in ("--conf", each)]
        words += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        command = ["bash", "-c", _SUBMIT, java.program, *words]
        if java.has_vector and "SPARK_HOME" in os.environ:  # whose scripts may differ
            command = [str(home / "bin" / "spark-submit"), *words]
        self._command = JvmCommand(java.program, home, command, self._folder)
        environ = os.environ | {
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": f"{self._info.name}/info",
        }
        if environ.get("LC_ALL") in ("C", "POSIX"):  # Python reads paths as UTF-8 there, Java refuses all but ASCII
            environ["LC_ALL"] = "C.UTF-8"
        environ["SPARK_HOME"] = str(home)
        if self.local:  # a machine's own name may have no address
            environ.setdefault("SPARK_LOCAL_HOSTNAME", "localhost")
        noted = self._command.read()
        self._given = None if noted else environ
        if noted:
            command, environ = noted.words, environ | noted.variables
        with self.log.open("ab") as output:
            self._log_start = output.tell()
            process = subprocess.Popen(
                command,
                cwd=self._folder if _splits(self._folder) else None,
                stdin=subprocess.PIPE,  # at its end the JVM ends, too
                stdout=output,
                stderr=output,
                env=environ,
                start_new_session=True,  # signals to our process group are for us: the JVM is told what to do
            )
        try:
            self._watch = subprocess.Popen(
                ["/bin/sh", "-c", _WATCH, str(process.pid)], stdin=subprocess.PIPE, start_new_session=True
            )
        except OSError:
            process.kill()
            raise
        return process

    @property
    def leaves_class_data(self) -> bool:
        """Whether it will spend its last seconds on the class data that later ones start from."""
        return self.local and being_made() is not None

    def address(self) -> tuple[int, str]:
        """Wait until it listens, and return its port and the secret.

        Raises `ChildProcessError` with the JVM's message if it has ended, or does not listen after `patience` seconds.
        """
        assert self.process
        info, looked = Path(self._info.name) / "info", time.monotonic()
        limit = looked + self.patience
        try:
            while not info.exists():
                if self.process.poll() is not None:
                    raise ChildProcessError(self._complaint() or "the JVM ended")
                if time.monotonic() - looked > _LOOK:
                    if complaint := self._complaint():
                        raise ChildProcessError(complaint)
                    looked = time.monotonic()
                    if looked > limit:
                        raise ChildProcessError(f"the JVM was not up after {duration(self.patience)}")
                time.sleep(_POLL)
            if self._given:
                self._command.note(self.process.pid, self._given)
            data = info.read_bytes()  # two numbers of four bytes, the port and the length of the secret, which follows
            return int.from_bytes(data[:4], "big"), data[8:].decode()
        except ChildProcessError:
            self._command.forget()  # the next start asks `spark-submit`
            raise
        finally:
            self._info.cleanup()

    def _complaint(self) -> str:
        """The error with which its main thread ended, from its log; empty if none. The JVM may live on."""
        with suppress(OSError), self.log.open("rb") as log:
            log.seek(self._log_start)
            _, _, words = log.read().decode(errors="replace").partition(_FAILED)
            return words.split("\n", 1)[0].strip()
        return ""

    def kill(self) -> None:
        """Kill it, as it may never come up. `end` is still to be called."""
        if self.process and self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)  # `spark-submit` has processes of its own at first

    def end(self) -> None:
        """Close its stdin, at which it ends; kill it if it does not."""
        if not self.process:
            return
        with suppress(OSError):
            self.process.stdin.close()  # type: ignore[union-attr]
        try:
            self.process.wait(timeout=_LEAVE_DATA if self.leaves_class_data else _LEAVE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._watch.communicate()  # the JVM has ended, so this ends at once


def _quoted(option: str) -> str:
    """A JVM option, quoted as Spark parses a line of them."""
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _retrying(master: str) -> str:
    """The master with task retries: plain `local[*]` fails a job at its first lost task."""
    return f"{master[:-1]},4]" if master.startswith("local[") and "," not in master else master


def class_archive() -> ClassArchive | None:
    """The archive of the Java and the Spark that a run uses, whether it exists or not; None if one is missing."""
    try:
        return ClassArchive(find_java().program, spark_home() / "jars")
    except (BridgeError, FileNotFoundError):
        return None
