"""Runner processes: those that wait ahead of their runs with Spark up, and those that are started for one."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import DecodeError, json

from bridge.load.spark.warm import ahead
from bridge.serve.service.assignment import Ahead, RunnerReport, SparkSettings, Work
from bridge.settings.options import is_local

_BEHIND = 5.0
"""Seconds that a run has the machine for itself before the next session is made behind it."""
_FIRST_PAUSE, _LONGEST_PAUSE = 30.0, 1800.0
"""Seconds until another one is tried after one could not be prepared; the pause doubles each time."""


class Runner:
    """One runner process, in a process group of its own, for one thing at a time. It ends with `close`."""

    def __init__(self, folder: Path) -> None:
        """Start it. `folder` is only for who looks at processes."""
        self.spark: SparkSettings | None = None
        self.is_ready, self.problem = False, ""
        reading, writing = os.pipe()
        self._reports_pipe = os.fdopen(reading, "rb")
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bridge.serve.service.runner", str(folder), str(writing)],
                stdin=subprocess.PIPE,
                pass_fds=[writing],
                start_new_session=True,
            )
        except BaseException:
            self._reports_pipe.close()
            raise
        finally:
            os.close(writing)
        self._sending = threading.Lock()
        self._preparing: threading.Thread | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def prepare(self, order: Ahead) -> None:
        """Make it start a session for its next run; return at once. `is_ready`, or `problem`, says how that ended."""
        self.spark, self.is_ready, self.problem = order.spark, False, ""
        self._send(order)
        self._preparing = threading.Thread(target=self._wait_for_spark, name="runner", daemon=True)
        self._preparing.start()

    def run(self, work: Work, report: Callable[[RunnerReport], None]) -> int:
        """Let it do a run, and pass on its reports; return the exit code, negative if a signal killed it.

        If it is making a session, the run waits for that.
        """
        if self._preparing:
            self._preparing.join()
        self._send(work)
        for each in self._reports():
            report(each)
            if each.exit_code is not None:
                self.is_ready = each.ready
                self.spark = self.spark if each.ready else None
                return each.exit_code
        return self._process.wait()

    def signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        self._process.send_signal(number)

    def close(self) -> None:
        """Let it end, if it has no run. It is not waited for."""
        assert self._process.stdin
        if self.spark and not self.is_ready:
            self._process.terminate()  # it would make its session first
        with suppress(OSError), self._sending:
            self._process.stdin.close()

    def wait(self) -> None:
        """Wait until one that was closed has ended."""
        self._process.wait()
        if self._preparing:
            self._preparing.join()
        self._reports_pipe.close()

    def _send(self, order: Ahead | Work) -> None:
        assert self._process.stdin
        with suppress(BrokenPipeError), self._sending:  # it has died: its exit code says so
            self._process.stdin.write(pickle.dumps(order))
            self._process.stdin.flush()

    def _wait_for_spark(self) -> None:
        """Take the first report, in a thread; those after it are of a run."""
        report = next(self._reports(), RunnerReport(problem="its process has ended"))
        self.problem, self.is_ready = report.problem, report.ready

    def _reports(self) -> Iterator[RunnerReport]:
        while not self._reports_pipe.closed and (line := self._reports_pipe.readline()):
            with suppress(DecodeError):  # half of one, if the process was killed
                yield json.decode(line, type=RunnerReport)
                continue
        self._reports_pipe.close()


class Runners:
    """The runners that wait ahead. `take` gives one to a run; `keep_warm` starts missing ones. Any thread may do so."""

    def __init__(self, folder: Path, report: Callable[[str], None]) -> None:
        """Sessions have their scratch below `folder`; `report` is told why there is none ahead."""
        self._folder, self._report = folder, report
        self._lock = threading.Lock()
        self._ahead: list[Runner] = []
        self._ending: list[Runner] = []
        self._due, self._pause, self._problem = 0.0, _FIRST_PAUSE, ""

    def take(self, spark: SparkSettings) -> Runner:
        """A runner for a run with these settings: one that is ready, else a new one.

        A runner that is still starting is discarded: a new process starts the run sooner.
        """
        with self._lock:
            self._due = max(self._due, time.monotonic() + _BEHIND)
            for runner in [runner for runner in self._ahead if not runner.is_ready]:
                self._ahead.remove(runner)
                self._close(runner)
            fits = (runner for runner in self._ahead if runner.spark == spark and runner.is_alive)
            runner = next(fits, None) or self.new()
            if runner in self._ahead:
                self._ahead.remove(runner)
            return runner

    def new(self) -> Runner:
        """A runner that starts Spark when its run needs it."""
        return Runner(self._folder)

    def keep_warm(self, settings: Sequence[SparkSettings]) -> None:
        """Keep one idle runner for each Spark configuration; stop all others. Returns at once."""
        with self._lock:
            missing = [one for one in settings if is_local(one.master)]
            staying = []
            self._ending = [runner for runner in self._ending if runner.is_alive]
            for runner in self._ahead:
                if runner.problem or not runner.is_alive:
                    self._close(runner)
                    self._failed(runner.problem or "its process has ended")
                elif runner.spark in missing:
                    missing.remove(runner.spark)
                    staying.append(runner)
                else:
                    self._close(runner)
                if runner.is_ready:
                    self._pause, self._problem = _FIRST_PAUSE, ""
            self._ahead = staying
            # One after another: two that start at once hinder each other, and the runs.
            if missing and all(runner.is_ready for runner in staying) and time.monotonic() >= self._due:
                try:
                    runner = self.new()
                    runner.prepare(Ahead(missing[0], self._folder))
                    self._ahead.append(runner)
                except OSError as error:
                    self._failed(str(error))

    def _close(self, runner: Runner) -> None:
        runner.close()
        self._ending.append(runner)

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
                self._close(runner)
            for runner in self._ending:
                runner.wait()
            if self._folder.exists():
                ahead.delete_leftovers(self._folder)
            self._ahead, self._ending = [], []
