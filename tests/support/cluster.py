"""A standalone Spark cluster on loopback: a master, and workers on hosts of their own, whose Python has no `bridge`.

Every address of 127.0.0.0/8 is this machine, and a host of its own to Spark: without that it would never give the
second attempt of a slow task to another worker.
"""

from __future__ import annotations

import importlib.metadata
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

STARTS_WITHIN_SECONDS = 60
EXECUTORS_NEED = ("boto3", "msgspec", "numpy", "orjson", "pyarrow", "simplejson")
"""All that docs/cluster.md asks of the executors' Python."""


_HIDE = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"')


def can_hide(folder: Path) -> bool:
    """Whether this user may give a process another view of the files, as another machine has it."""
    return (
        bool(shutil.which("unshare"))
        and not subprocess.run([*_HIDE, folder, "true"], capture_output=True, check=False).returncode
    )


class Daemon:
    """A process of the cluster whose log lines can be waited for."""

    def __init__(
        self,
        spark: Path,
        folder: Path,
        host: str,
        *words: str,
        within: Sequence[str] = (),
        hidden: Path | None = None,
        **environ: str,
    ) -> None:
        """`within`: the words that start it in a network of its own."""
        wrapped = [*within, *_HIDE, str(hidden)] if hidden else [*within]
        self.process = subprocess.Popen(
            [*wrapped, str(spark.with_name("spark-class")), *words, "--host", host, "--port", "0", "--webui-port", "0"],
            env={name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
            | {
                "PYSPARK_PYTHON": str(spark),  # finds Spark's folder; what executors start is the driver's to say
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_LOCAL_DIRS": str(folder),
                "SPARK_LOCAL_IP": host,
            }
            | environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def said(self, pattern: str) -> str:
        """Wait for a line that matches; return its first group."""
        deadline, seen = time.monotonic() + STARTS_WITHIN_SECONDS, []
        while (line := self._lines.get(timeout=max(0.0, deadline - time.monotonic()))) is not None:
            seen.append(line)
            if match := re.search(pattern, line):
                return match[1]
        raise AssertionError(f"it ended without saying {pattern!r}:\n{''.join(seen)}")

    def family(self, word: str) -> list[psutil.Process]:
        """What it started, itself or through others, with this word in its command line."""
        with suppress(psutil.NoSuchProcess):
            members = psutil.Process(self.process.pid).children(recursive=True)
            return [member for member in members if word in " ".join(_words(member))]
        return []

    def kill(self) -> None:
        """SIGKILL it and all it started, executors and their Python workers, as if the machine were lost."""
        if self.process.poll() is None:
            leader = psutil.Process(self.process.pid)
            for member in [*leader.children(recursive=True), leader]:
                with suppress(psutil.NoSuchProcess):
                    member.kill()
        self.process.wait()


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it ended, or is about to
        return []


class Cluster:
    """A running cluster: where drivers find it, the Python of its executors, and its workers."""

    def __init__(self, folder: Path, *, spark: Path, python: Path, environ: dict[str, str]) -> None:
        self.python = python
        self.workers: list[Daemon] = []
        self._folder, self._spark, self._environ = folder, spark, environ
        self._stack = ExitStack()
        self._hosts = 1
        self.master = self._start("127.0.0.1", "master.Master").said(r"Starting Spark master at (spark://\S+)")

    def grow(self, workers: int, hidden: Path | None = None) -> None:
        """Have so many workers of one core each, lost ones replaced; new ones find a folder empty if it is `hidden`."""
        new = []
        while len(self.workers) < workers:
            self._hosts += 1
            work = self._folder / f"work-{self._hosts}"
            sizes = ("--cores", "1", "--memory", "512m", "--work-dir", str(work), self.master)
            new.append(self._start(f"127.0.0.{self._hosts}", "worker.Worker", *sizes, hidden=hidden))
            self.workers.append(new[-1])
        for worker in new:
            worker.said(r"(Successfully registered) with master")

    def lose_worker(self) -> None:
        """Take one away without a word."""
        self.workers.pop().kill()

    def _start(self, host: str, role: str, *words: str, hidden: Path | None = None) -> Daemon:
        kind = f"org.apache.spark.deploy.{role}"
        daemon = Daemon(self._spark, self._folder, host, kind, *words, hidden=hidden, **self._environ)
        self._stack.callback(daemon.kill)
        return daemon

    def close(self) -> None:
        """Kill all of it."""
        self._stack.close()


@contextmanager
def running_cluster(
    folder: Path, *, spark: Path = Path(sys.executable), python: Path, **environ: str
) -> Iterator[Cluster]:
    """Run the Spark of one Python, with executors in another, for the block."""
    cluster = Cluster(folder, spark=spark, python=python, environ=environ)
    try:
        yield cluster
    finally:
        cluster.close()


def make_venv(folder: Path, *packages: str) -> Path:
    """Return the Python of a new environment with these packages: a name means our own version of it."""
    versions = [package if re.search(r"\W", package) else _own(package) for package in packages]
    uv = [str(Path(sys.executable).with_name("uv")), "--quiet"]
    python = folder / "bin" / "python"
    environ = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    subprocess.run([*uv, "venv", "--python", sys.executable, str(folder)], check=True, env=environ)
    if versions:
        subprocess.run([*uv, "pip", "install", "--python", str(python), *versions], check=True, env=environ)
    return python


def _own(package: str) -> str:
    return f"{package}=={importlib.metadata.version(package)}"
