"""One run of the command line as a child process, and every process that belongs to it.

A mark in the environment, which all of its descendants inherit, tells a run's processes from all others, whoever
their parent is by then.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

_MARK = "CRASH_TEST_RUN"
_POLL_SECONDS = 0.02

TARGETS = ("bridge", "jvm", "worker", "tap")
"""The orchestrator, Spark's JVM, a Python worker of Spark, the tap."""


class Missed(Exception):
    """The run ended before the moment that was waited for."""


@dataclass(frozen=True)
class Strike:
    """An instant at which a process of the run kills itself, just before something happens: strike/sitecustomize.py."""

    events: str
    count: int = 1
    phase: str | None = "load"
    process: str = "bridge"
    after_ms: int = 0

    def environment(self, mark: Path) -> dict[str, str]:
        """Return what arms it. `mark` is the file that it leaves."""
        path = os.pathsep.join(filter(None, [str(Path(__file__).parent / "strike"), os.environ.get("PYTHONPATH")]))
        return {"PYTHONPATH": path, "CRASH_TEST_STRIKE": json.dumps(asdict(self) | {"mark": str(mark)})}


class Orchestrator:
    """A running `singer-bridge run`. Use it as a context manager: leaving it kills what is still there.

    After `leave()` that is left to `clear()`.
    """

    def __init__(
        self,
        project: Path,
        *,
        flags: tuple[str, ...] = (),
        environ: Mapping[str, str] | None = None,
        strike: Strike | None = None,
    ) -> None:
        self._mark = uuid.uuid4().hex
        self._project = project
        self._known_runs = set(self._run_folders())
        self._out, self._err = (project / f"run-{self._mark[:8]}.{name}" for name in ("out", "err"))
        self._left = False
        self._struck = project / f"run-{self._mark[:8]}.struck"
        environment = os.environ | {_MARK: self._mark, "TMPDIR": str(project / "tmp")} | dict(environ or {})
        if strike:
            environment |= strike.environment(self._struck)
        command = [sys.executable, "-m", "bridge", "run", "crash", "--json", *flags]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                command,
                cwd=project,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def __enter__(self) -> Orchestrator:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._left:
            self.clear()

    def leave(self) -> None:
        """Let what is still there live on beyond the context."""
        self._left = True

    def clear(self) -> None:
        """Kill what is still there."""
        for process in self.family():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()

    # what it is doing

    def _run_folders(self) -> Iterator[Path]:
        return (self._project / ".singer-bridge" / "spool").glob("*/*")

    def wait_for_records(self) -> None:
        """Return once the tap has written its first records. Raises `Missed`."""
        self._wait(self._has_records)

    def _has_records(self) -> bool:
        return self.said > 0

    @property
    def scratch(self) -> Path | None:
        """The run's own folder of the spool, None before it is made and after it is deleted."""
        return next((folder for folder in self._run_folders() if folder not in self._known_runs), None)

    @property
    def said(self) -> int:
        """How many records the tap, each of its processes, has counted on stderr, 0 when there is no log."""
        try:
            text = (self.scratch / "tap.log").read_text() if self.scratch else ""
        except FileNotFoundError:
            return 0
        lines = [line.rsplit(maxsplit=2) for line in text.splitlines() if line.endswith(" records")]
        return sum({process: int(count) for process, count, _ in lines}.values())

    @property
    def struck(self) -> bool:
        """Whether the strike took place."""
        return self._struck.exists()

    def wait_for(self, target: str) -> psutil.Process:
        """Return the target's process once there is one. Raises `Missed`."""
        return self._wait(lambda: self.find(target))

    def wait_until(self, condition: Callable[[], Any], seconds: float = _POLL_SECONDS) -> None:
        """Return as soon as the condition holds, asked every so many seconds. Raises `Missed`."""
        self._wait(condition, seconds)

    def _wait(self, condition: Any, seconds: float = _POLL_SECONDS) -> Any:
        while not (found := condition()):
            if self.process.poll() is not None:
                raise Missed
            time.sleep(seconds)
        return found

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Have the orchestrator stand still, for a look at what there is. Raises `Missed`."""
        if self.process.poll() is not None:
            raise Missed
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    # its processes

    def find(self, target: str) -> psutil.Process | None:
        """Return a process of that kind, None while there is none."""
        with suppress(psutil.NoSuchProcess):
            root = psutil.Process(self.process.pid)
            if target == "bridge":
                return root
            for process in root.children(recursive=True):
                with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                    if _kind(process) == target:
                        return process
        return None

    def family(self) -> list[psutil.Process]:
        """Return every living process of this run, orphans too."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(_MARK) == self._mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def survivors(self, within: float) -> list[str]:
        """Return the command lines of what is still alive so many seconds from now; [] as soon as all are gone."""
        limit = time.monotonic() + within
        while (alive := self.family()) and time.monotonic() < limit:
            time.sleep(0.1)
        lines = []
        for process in alive:
            with suppress(psutil.Error):
                lines.append(f"{process.pid} {process.status()} {' '.join(process.cmdline())[:200]}")
        return lines

    # how it ended

    def wait(self, within: float) -> int:
        """Return the exit code, negative after a signal. Raises `subprocess.TimeoutExpired`: it hangs."""
        return self.process.wait(within)

    @property
    def silent(self) -> bool:
        """Whether it has written no result."""
        return not self._out.read_bytes()

    @property
    def result(self) -> dict[str, Any]:
        """The JSON object on stdout. Raises ValueError if there is anything else."""
        value: dict[str, Any] = json.loads(self._out.read_bytes())
        return value

    @property
    def stderr(self) -> str:
        return self._err.read_text(errors="replace")


def _kind(process: psutil.Process) -> str:
    words = process.cmdline()
    if not words:
        return ""
    if Path(words[0]).name == "java":
        # spark-submit asks a short-lived JVM for the command line of the real one
        return "jvm" if "org.apache.spark.deploy.SparkSubmit" in words else ""
    if "pyspark.worker" in words:
        parent = process.parent()
        return "worker" if parent and "pyspark.worker" in parent.cmdline() else ""
    is_tap = any(Path(word).name == "tap-smoke" for word in words) and "--config" in words
    return "tap" if is_tap and Path(words[0]).name != "sh" else ""
