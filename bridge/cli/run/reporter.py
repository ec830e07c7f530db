"""One run for people or programs: what it shows while it works, and how it ended."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import timedelta

from bridge.cli import events
from bridge.cli.flags import explain
from bridge.cli.plain import PlainLines
from bridge.cli.run.progress import Progress
from bridge.cli.run.summary import summary
from bridge.cli.selection import ChosenPipeline
from bridge.cli.show import console
from bridge.durations import duration
from bridge.errors import SettingsError
from bridge.load.run.result import Result
from bridge.load.run.run import Run
from bridge.load.run.stop import Stop
from bridge.serve.launch.launch import launch
from bridge.settings.options import Pipeline
from bridge.settings.values.request import Request

_NOT_IN_EVENTS = {"format", "state", "state_before", "warnings", "error"}
"""Facts of a run that have an event of their own, or that may be large."""


@dataclass(frozen=True, slots=True)
class RunReporter:
    """How runs are reported, in this process or in another."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False
    progress: bool = True
    several: bool = False
    """The JSON is an array, and summaries name the pipeline."""
    variables: str = ""
    """Those that set flags of the command; see `bridge.cli.flags.explain`."""

    def run(self, chosen: ChosenPipeline, request: Request, stop: Stop) -> tuple[Result, int]:
        """Run a pipeline, with its retries, and report all of it. Returns the last attempt's result and exit code."""
        attempts = chosen.pipeline.retry.attempts

        def waiting(_: Pipeline, result: Result, pause: timedelta) -> None:
            self._finished(result, attempts)
            following, seconds = f"{result.attempt + 1} of {attempts}", pause.total_seconds()
            self.announce(f"attempt {following} in {duration(pause)}", "retry", attempt=following, seconds=seconds)

        result = launch(chosen.pipeline, request, chosen.home, stop=stop, execute=self._execute, waiting=waiting)
        return result, self._finished(result, attempts)

    def _execute(self, run: Run) -> Result:
        if self.verbose:
            run.echo = events.TapLines(run.pipeline.name) if events.is_json() else PlainLines(sys.stderr.buffer)
        if events.is_json() and not self.quiet:
            events.emit("info", "run_started", pipeline=run.pipeline.name, run_id=run.result.run_id)
        with Progress(run, enabled=self._shows_progress()):
            return run.execute()

    def announce(self, text: str, event: str, **facts: object) -> None:
        """Report what happens between runs."""
        if self.quiet:
            return
        if events.is_json():
            events.emit("info", event, **facts)
        else:
            console(err=True).print(text, markup=False, soft_wrap=True)

    def _finished(self, result: Result, attempts: int) -> int:
        if isinstance(result.error, SettingsError):
            explain(result.error, self.variables)
        if not self.quiet and events.is_json():
            facts = result.to_json()
            events.emit("info", "run_finished", **{key: facts[key] for key in facts if key not in _NOT_IN_EVENTS})
            for warning in result.warnings:
                events.emit("warning", "warning", pipeline=result.pipeline, message=warning)
        elif not self.quiet and not self.json:
            summary(result, attempts=attempts, named=self.several)
        if result.error is None:
            return 0
        if self.verbose:
            events.trace(result.error)
        return events.report(result.error)

    def _shows_progress(self) -> bool:
        # The tap's own lines, and --json, replace it.
        return self.progress and not self.quiet and (events.is_json() or not (self.json or self.verbose))
