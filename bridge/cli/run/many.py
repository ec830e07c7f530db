"""Several runs in one process: several pipelines, several attempts, and `--every`."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from bridge.cli import events
from bridge.cli.flags import explain
from bridge.cli.plain import PlainLines
from bridge.cli.run.batch import Batch, new_batch, resumed_batch
from bridge.cli.run.progress import Progress
from bridge.cli.run.summary import summary
from bridge.cli.selection import ChosenPipeline
from bridge.cli.show import as_json, console, moment
from bridge.errors import BridgeError, Interrupted, SettingsError
from bridge.launch.launch import launch
from bridge.load.plan import Request
from bridge.load.result import Result
from bridge.load.run import Run
from bridge.load.stop import Stop
from bridge.settings.options import Pipeline
from bridge.spark.archive_maker import ANNOUNCEMENT, make_in_background
from bridge.spark.warm.ahead import prepare, tidy

_WORTH_WAITING = timedelta(seconds=15), timedelta(minutes=15)
"""Intervals of `--every` between whose runs Spark stays up: it needs about 10 s to come up, and 600 MB all the time."""
_NOT_IN_EVENTS = {"format", "state", "state_before", "warnings", "error"}
"""Facts of a run that have an event of their own, or that may be large."""


@dataclass(frozen=True, slots=True)
class RunReporter:
    """How runs are reported. `several`: the JSON is an array, and summaries name the pipeline."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False
    progress: bool = True
    several: bool = False

    def announce(self, text: str, event: str, **facts: object) -> None:
        """Report what happens between runs."""
        if self.quiet:
            return
        if events.is_json():
            events.emit("info", event, **facts)
        else:
            console(err=True).print(text, markup=False, soft_wrap=True)

    def finished(self, result: Result, attempts: int) -> int:
        """Report how one run ended, and return its exit code."""
        if isinstance(result.error, SettingsError):
            explain(result.error)
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

    def shows_progress(self) -> bool:
        """Whether progress is shown. The tap's own lines, and --json, replace it."""
        return self.progress and not self.quiet and (events.is_json() or not (self.json or self.verbose))


def _make_ahead(chosen: ChosenPipeline) -> None:
    spark = chosen.pipeline.spark
    with suppress(BridgeError, OSError):  # the run starts Spark itself, and reports what is wrong
        prepare(spark.master, spark.conf, chosen.home / "warm")


class PipelineRunner:
    """Some pipelines, run one after another."""

    def __init__(
        self, chosen: Sequence[ChosenPipeline], request: Request, reporter: RunReporter, *, keep_going: bool
    ) -> None:
        self._chosen, self._request, self._reporter = chosen, request, reporter
        self._keep_going = keep_going
        self._stop = Stop()
        self._code = 0

    def once(self) -> int:
        """Run them, and return the worst exit code. The first failure ends it, unless `keep_going`; a signal always."""
        with self._stop:
            results = self._all(self._first_batch())
        if self._reporter.json:
            as_json([result.to_json() for result in results] if self._reporter.several else results[0].to_json())
        return self._code

    def repeat(self, every: timedelta) -> int:
        """Run them again and again, until a signal comes or a setting turns out to be wrong.

        If a run takes longer than `every`, the times that it missed are skipped.
        """
        with self._stop:
            batch = self._first_batch()
            while True:
                began = time.monotonic()
                self._all(batch)
                tidy()
                batch = new_batch()
                if self._code == 2 or self._code > 128:
                    return self._code
                ahead = self._start_ahead(every)
                rest = every - timedelta(seconds=time.monotonic() - began) % every
                at = (datetime.now().astimezone() + rest).isoformat(timespec="seconds")
                self._reporter.announce(f"next run at {moment(at)}", "next_run", at=at)
                try:
                    self._stop.sleep(rest)
                except Interrupted as error:
                    if ahead and not ahead.is_alive():
                        tidy()  # else the JVM ends with this process, and the next run deletes what it leaves
                    return error.exit_code
                if ahead:
                    ahead.join()

    def _start_ahead(self, every: timedelta) -> threading.Thread | None:
        """Make Spark's session for the next run of the first pipeline while we wait, if that is worth its memory."""
        if self._code or not _WORTH_WAITING[0] <= every <= _WORTH_WAITING[1]:
            return None
        first = self._chosen[0]
        thread = threading.Thread(target=_make_ahead, args=(first,), name="spark-ahead", daemon=True)
        thread.start()
        return thread

    def _first_batch(self) -> Batch:
        return resumed_batch(self._chosen) if self._request.resume and self._reporter.several else new_batch()

    def _all(self, batch: Batch) -> list[Result]:
        results: list[Result] = []
        self._code = 0
        if batch.loaded:
            text = f"left out, the last batch loaded them: {', '.join(batch.loaded)}"
            self._reporter.announce(text, "left_out", pipelines=batch.loaded)
        rest = [chosen for chosen in self._chosen if chosen.pipeline.name not in batch.loaded]
        for place, chosen in enumerate(rest):
            result = self._one(chosen, batch)
            results.append(result)
            if result.status == "interrupted" or (result.error and not self._keep_going):
                self._report_skipped([other.pipeline.name for other in rest[place + 1 :]], result)
                break
        if not self._code and make_in_background(self._chosen[-1].pipeline.spark.master, asked=False):
            self._reporter.announce(ANNOUNCEMENT, "class_data")
        return results

    def _one(self, chosen: ChosenPipeline, batch: Batch) -> Result:
        pipeline = chosen.pipeline
        request = replace(self._request, batch=batch.id if self._reporter.several else None)
        result = launch(
            pipeline, request, chosen.home, stop=self._stop, execute=self._execute, waiting=self._report_retry
        )
        code = self._reporter.finished(result, pipeline.retry.attempts)
        self._code = code if result.status == "interrupted" else max(self._code, code)
        return result

    def _execute(self, run: Run) -> Result:
        reporter = self._reporter
        if reporter.verbose:
            run.echo = events.TapLines(run.pipeline.name) if events.is_json() else PlainLines(sys.stderr.buffer)
        if events.is_json() and not reporter.quiet:
            events.emit("info", "run_started", pipeline=run.pipeline.name, run_id=run.result.run_id)
        with Progress(run, enabled=reporter.shows_progress()):
            return run.execute()

    def _report_retry(self, pipeline: Pipeline, result: Result, pause: timedelta) -> None:
        self._reporter.finished(result, pipeline.retry.attempts)
        following, seconds = f"{result.attempt + 1} of {pipeline.retry.attempts}", pause.total_seconds()
        self._reporter.announce(f"attempt {following} in {seconds:.0f} s", "retry", attempt=following, seconds=seconds)

    def _report_skipped(self, names: list[str], result: Result) -> None:
        if names:
            why = "" if isinstance(result.error, Interrupted) else "; --keep-going goes on after a failure"
            self._reporter.announce(f"not run: {', '.join(names)}{why}", "not_run", pipelines=names)
