"""A process for runs one after another, which has all code loaded after its first.

It is in a process group of its own, so that tap and JVM end with it; signals are passed on to it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bridge.cli import events, set_up_output
from bridge.cli.run.reporter import RunReporter
from bridge.cli.selection import ChosenPipeline
from bridge.exact_json import dumps
from bridge.load.run.stop import Stop
from bridge.serve.service.assignment import RunnerReport
from bridge.serve.service.runners import Runner
from bridge.settings.values.request import Request

_STEP = 0.1
"""Seconds within which a signal is passed on."""


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
    """One runner for runs one after another, in turn; a new one where it has died. `close` ends it."""

    def __init__(self, folder: Path, stop: Stop) -> None:
        """`folder` is only for who looks at processes. What `stop` receives goes to the run."""
        self._folder, self._stop = folder, stop
        self._idle: Runner | None = None

    def run(self, work: ReportedRun) -> RunOutcome:
        """Do a run to its end."""
        waited = self._idle
        outcome = self._run(waited or Runner(self._folder), work)
        if waited and outcome.code < 0 and not outcome.began and not self._stop.received:
            # It died while it waited, and nobody had noticed.
            self.close()
            return self._run(Runner(self._folder), work)
        return outcome

    def _run(self, runner: Runner, work: ReportedRun) -> RunOutcome:
        outcome = RunOutcome()

        def take(report: RunnerReport) -> None:
            outcome.began = True
            outcome.document = report.result or outcome.document

        def run() -> None:
            outcome.code = runner.run(work, take)

        thread = threading.Thread(target=run, name="run")
        thread.start()
        self._idle = runner
        sent = False
        while thread.is_alive():
            thread.join(_STEP)
            if self._stop.received and outcome.began and not sent:
                runner.signal(self._stop.received)
                sent = True
        if not runner.is_alive:
            self.close()
        return outcome

    def close(self) -> None:
        """End the runner, which has no run, and wait until it has ended."""
        if self._idle:
            self._idle.close()
            self._idle.wait()
            self._idle = None
