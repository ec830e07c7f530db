"""Two processes for runs one after another: while one runs a pipeline, the other makes Spark's session for the next.

Each run is in a process group of its own, so that its tap and its JVM end with it; signals are passed on to it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bridge.cli import events, set_up_output
from bridge.cli.run.reporter import RunReporter
from bridge.cli.selection import ChosenPipeline
from bridge.exact_json import dumps
from bridge.load.run.stop import Stop
from bridge.load.spark.warm import ahead
from bridge.serve.service.assignment import Ahead, RunnerReport, SparkSettings
from bridge.serve.service.runners import Runner
from bridge.settings.options import is_local
from bridge.settings.values.request import Request

_STEP = 0.1
"""Seconds within which a signal is passed on."""
_BEHIND = 1.0
"""Seconds after which a run is one that needs Spark, and the next one may be, too: without news it takes less."""


@dataclass(frozen=True, slots=True)
class ReportedRun:
    """A run in a runner that shows itself where the command does. Implements `Work`."""

    chosen: ChosenPipeline
    request: Request
    reporter: RunReporter
    log_format: str

    def do(self, report: Callable[[RunnerReport], None], stdout: int) -> int:
        errors = os.dup(1)
        os.dup2(stdout, 1)
        set_up_output()
        events.use(self.log_format)
        try:
            with Stop() as stop:
                report(RunnerReport(stage="starting"))
                result, code = self.reporter.run(self.chosen, self.request, stop)
            report(RunnerReport(result=dumps(result.to_json()).decode()))
            sys.stdout.flush()
        except BrokenPipeError:  # `| head` has seen enough, and the other pipelines are to be loaded
            os.dup2(os.open(os.devnull, os.O_WRONLY), stdout)
            return 0
        finally:
            os.dup2(errors, 1)
            os.close(errors)
        return code


@dataclass(slots=True)
class RunOutcome:
    """How a run in a runner ended. `code`: its exit code, negative if a signal killed it."""

    code: int = 0
    document: str = ""
    """The JSON of its result; empty if it was killed."""
    began: bool = False


class Relay:
    """At most two runners; see the module. `close` ends them."""

    def __init__(self, folder: Path, stop: Stop) -> None:
        """Sessions have their scratch below `folder`. What `stop` receives goes to the run."""
        self._folder, self._stop = folder, stop
        self._idle: list[Runner] = []

    def run(self, work: ReportedRun, following: SparkSettings | None = None) -> RunOutcome:
        """Do a run to its end; meanwhile make a session for the `following` one."""
        outcome = self._run(self._take(SparkSettings.of(work.chosen.pipeline)), work, following)
        if outcome.code < 0 and not outcome.began and not self._stop.received:
            # It died while it waited, and nobody had noticed.
            return self._run(Runner(self._folder), work, None)
        return outcome

    def _run(self, runner: Runner, work: ReportedRun, following: SparkSettings | None) -> RunOutcome:
        outcome = RunOutcome()

        def take(report: RunnerReport) -> None:
            outcome.began = True
            outcome.document = report.result or outcome.document

        def run() -> None:
            outcome.code = runner.run(work, take)

        thread = threading.Thread(target=run, name="run")
        thread.start()
        sent, due = False, time.monotonic() + _BEHIND
        while thread.is_alive():
            thread.join(_STEP)
            if following and time.monotonic() > due:
                self.prepare(following)
                following = None
            if self._stop.received and outcome.began and not sent:
                runner.signal(self._stop.received)
                sent = True
        self._idle.append(runner)
        return outcome

    def _take(self, spark: SparkSettings) -> Runner:
        """The runner that made a session for it, else one that made none, else a new one."""
        for runner in [each for each in self._idle if not each.is_alive]:
            self._end(runner)
        fitting = [each for made in (spark, None) for each in self._idle if each.spark == made]
        if not fitting:
            return Runner(self._folder)
        self._idle.remove(fitting[0])
        return fitting[0]

    def prepare(self, spark: SparkSettings) -> None:
        """Start to make a session for the next run, if Spark is on this machine. Returns at once."""
        if not is_local(spark.master) or any(runner.spark == spark and runner.is_alive for runner in self._idle):
            return
        for runner in [each for each in self._idle if each.spark]:
            self._end(runner)
        with suppress(OSError):  # the run starts its process itself, and reports what is wrong
            runner = self._idle[0] if self._idle else Runner(self._folder)
            runner.prepare(Ahead(spark, self._folder))
            self._idle = [runner]

    def _end(self, runner: Runner) -> None:
        self._idle.remove(runner)
        runner.close()
        runner.wait()

    def close(self) -> None:
        """End the runners, which have no run, and wait until they have ended."""
        if self._idle:
            for runner in list(self._idle):
                self._end(runner)
            ahead.delete_leftovers(self._folder)
