"""Runner processes: those that wait ahead of their runs with Spark up, and those that are started for one."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import DecodeError, json

from bridge.service.assignment import Ahead, Assignment, Report, SparkSettings
from bridge.settings.options import is_local
from bridge.spark.warm import ahead

_BEHIND = 5.0
"""Seconds that a run has the machine for itself before the next session is made behind it."""
_FIRST_PAUSE, _LONGEST_PAUSE = 30.0, 1800.0
"""Seconds until another one is tried after one could not be prepared; the pause doubles each time."""


class Runner:
    """One runner process, in a process group of its own. It ends with its run, or with `close`."""

    def __init__(self, folder: Path, order: Ahead | None = None) -> None:
        """Start it; with an order it makes a session and then waits. `folder` is only for who looks at processes."""
        self.spark = order.spark if order else None
        self.is_ready, self.problem = False, ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bridge.service.runner", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._sending = threading.Lock()
        if order:
            self._send(order)
            threading.Thread(target=self._wait_for_spark, name="runner", daemon=True).start()

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def run(self, assignment: Assignment, report: Callable[[Report], None]) -> int:
        """Do a run to its end, passing on its reports; return the exit code, negative if a signal killed it."""
        self._send(assignment)
        for each in self._reports():
            report(each)
        code = self._process.wait()
        assert self._process.stdin
        assert self._process.stdout
        with suppress(OSError):
            self._process.stdin.close()
        self._process.stdout.close()
        return code

    def signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        self._process.send_signal(number)

    def close(self) -> None:
        """End one that waits for a run. It is not waited for."""
        assert self._process.stdin
        if self.spark and not self.is_ready:
            self._process.terminate()  # it would make its session first
        with suppress(OSError), self._sending:
            self._process.stdin.close()

    def wait(self) -> None:
        """Wait until one that was closed has ended."""
        self._process.wait()
        if self.is_ready and self._process.stdout:
            self._process.stdout.close()

    def _send(self, order: Ahead | Assignment) -> None:
        assert self._process.stdin
        with suppress(BrokenPipeError), self._sending:  # it has died: its exit code says so
            self._process.stdin.write(pickle.dumps(order))
            self._process.stdin.flush()

    def _wait_for_spark(self) -> None:
        """Take the first report, in a thread; those after it are of a run."""
        assert self._process.stdout
        report = next(self._reports(), Report(problem="its process has ended"))
        self.problem, self.is_ready = report.problem, report.ready
        if not self.is_ready:
            self._process.stdout.close()

    def _reports(self) -> Iterator[Report]:
        assert self._process.stdout
        for line in self._process.stdout:
            with suppress(DecodeError):  # half of one, if the process was killed
                yield json.decode(line, type=Report)


class Runners:
    """The runners that wait ahead. `take` gives one to a run; `tend` starts what is missing. Any thread may take."""

    def __init__(self, folder: Path, report: Callable[[str], None]) -> None:
        """Sessions have their scratch below `folder`; `report` is told why there is none ahead."""
        self._folder, self._report = folder, report
        self._lock = threading.Lock()
        self._ahead: list[Runner] = []
        self._due, self._pause, self._problem = 0.0, _FIRST_PAUSE, ""

    def take(self, spark: SparkSettings) -> Runner:
        """A runner for a run with these settings: one that is ready, else a new one.

        A runner that is still starting is discarded: a new process starts the run sooner.
        """
        with self._lock:
            self._due = max(self._due, time.monotonic() + _BEHIND)
            for runner in [runner for runner in self._ahead if not runner.is_ready]:
                self._ahead.remove(runner)
                runner.close()
            fits = (runner for runner in self._ahead if runner.spark == spark and runner.is_alive)
            runner = next(fits, None) or self.new()
            if runner in self._ahead:
                self._ahead.remove(runner)
            return runner

    def new(self) -> Runner:
        """A runner that starts Spark when its run needs it."""
        return Runner(self._folder)

    def tend(self, settings: Sequence[SparkSettings]) -> None:
        """Have a runner ahead for each of the settings, and no other. Returns at once."""
        with self._lock:
            missing = [one for one in settings if is_local(one.master)]
            staying = []
            for runner in self._ahead:
                if runner.problem or not runner.is_alive:
                    runner.close()
                    self._failed(runner.problem or "its process has ended")
                elif runner.spark in missing:
                    missing.remove(runner.spark)
                    staying.append(runner)
                else:
                    runner.close()
                if runner.is_ready:
                    self._pause, self._problem = _FIRST_PAUSE, ""
            self._ahead = staying
            # One after another: two that start at once hinder each other, and the runs.
            if missing and all(runner.is_ready for runner in staying) and time.monotonic() >= self._due:
                try:
                    self._ahead.append(Runner(self._folder, Ahead(missing[0], self._folder)))
                except OSError as error:
                    self._failed(str(error))

    @property
    def are_ready(self) -> bool:
        """Whether none of those ahead is still at its start."""
        with self._lock:
            return all(runner.is_ready for runner in self._ahead)

    def _failed(self, problem: str) -> None:
        self._due = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        if problem != self._problem:
            self._report(f"no warm runner, runs start Spark themselves: {problem}")
            self._problem = problem

    def close(self) -> None:
        """End all that wait, and wait until they have ended."""
        with self._lock:
            for runner in self._ahead:
                runner.close()
            for runner in self._ahead:
                runner.wait()
            if self._ahead:
                ahead.delete_leftovers(self._folder)
            self._ahead = []
