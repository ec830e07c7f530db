"""Several runs, of several pipelines or with `--every`: one after another, each in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from bridge.cli import events
from bridge.cli.run.batch import RunBatch, new_batch, resumed_batch
from bridge.cli.run.relay import Relay, ReportedRun, RunOutcome
from bridge.cli.run.reporter import RunReporter
from bridge.cli.selection import ChosenPipeline
from bridge.cli.show import as_json, count_of, moment
from bridge.errors import EngineError, Interrupted
from bridge.exact_json import loads
from bridge.load.run.result import Result
from bridge.load.run.stop import Stop
from bridge.load.spark.jvm.archive_maker import ANNOUNCEMENT, make_in_background
from bridge.settings.values.request import Request


class PipelineRunner:
    """Some pipelines, run one after another; or one pipeline, by several requests."""

    def __init__(
        self, chosen: Sequence[ChosenPipeline], requests: Sequence[Request], reporter: RunReporter, *, keep_going: bool
    ) -> None:
        self._chosen, self._requests, self._request, self._reporter = chosen, requests, requests[0], reporter
        self._keep_going = keep_going
        self._stop = Stop()
        self._relay = Relay(chosen[0].home, self._stop)
        self._code = 0

    def once(self) -> int:
        """Run them, and return the worst exit code. The first failure ends it, unless `keep_going`; a signal always."""
        with self._stop, closing(self._relay):
            if self._reporter.several:
                document: Any = self._all(self._first_batch())
            else:
                result, self._code = self._reporter.run(self._chosen[0], self._request, self._stop)
                document = result.to_json()
                self._make_class_data()
        if self._reporter.json:
            as_json(document)
        return self._code

    def repeat(self, every: timedelta) -> int:
        """Run them again and again, until a signal comes or a setting turns out to be wrong.

        If a run takes longer than `every`, the times that it missed are skipped.
        """
        with self._stop, closing(self._relay):
            batch = self._first_batch()
            while True:
                began = time.monotonic()
                self._all(batch)
                batch = new_batch()
                if self._code == 2 or self._code > 128:
                    return self._code
                rest = every - timedelta(seconds=time.monotonic() - began) % every
                at = (datetime.now().astimezone() + rest).isoformat(timespec="seconds")
                self._reporter.announce(f"next run at {moment(at)}", "next_run", at=at)
                try:
                    self._stop.sleep(rest)
                except Interrupted as error:
                    return error.exit_code

    def _first_batch(self) -> RunBatch:
        return resumed_batch(self._chosen) if self._request.resume and self._reporter.several else new_batch()

    def _all(self, batch: RunBatch) -> list[Any]:
        """Run them; return their results as JSON has them."""
        results = []
        self._code = 0
        if batch.loaded:
            text = f"left out, the last batch loaded them: {', '.join(batch.loaded)}"
            self._reporter.announce(text, "left_out", pipelines=batch.loaded)
        rest = [chosen for chosen in self._chosen if chosen.pipeline.name not in batch.loaded]
        requests = [replace(one, batch=batch.id if self._reporter.several else None) for one in self._requests]
        turns = [(chosen, request) for chosen in rest for request in requests]
        for place, (chosen, request) in enumerate(turns):
            if request.backfill:
                step = f"step {place + 1} of {len(turns)}: {request.backfill}"
                self._reporter.announce(step, "step", window=str(request.backfill))
            work = ReportedRun(chosen, request, self._reporter, events.chosen())
            outcome = self._relay.run(work)
            results.append(self._result(chosen, outcome))
            is_stopped = outcome.code > 128
            self._code = outcome.code if is_stopped else max(self._code, outcome.code)
            if is_stopped or (outcome.code and not self._keep_going):
                self._report_skipped(turns[place + 1 :], is_stopped=is_stopped)
                break
        self._make_class_data()
        return results

    def _result(self, chosen: ChosenPipeline, outcome: RunOutcome) -> Any:
        if outcome.document:
            return loads(outcome.document) if self._reporter.json else None
        hint = "what was committed stays: run again to go on from there. Was it killed, or did memory run out?"
        error = EngineError("the run's process ended without a result", hint=hint, exit_code=outcome.code)
        if outcome.code:
            outcome.code = events.report(error)
        return Result("", chosen.pipeline.name, error=error).to_json()

    def _make_class_data(self) -> None:
        if not self._code and make_in_background(self._chosen[-1].pipeline.spark.master, asked=False):
            self._reporter.announce(ANNOUNCEMENT, "class_data")

    def _report_skipped(self, turns: Sequence[tuple[ChosenPipeline, Request]], *, is_stopped: bool) -> None:
        names = [chosen.pipeline.name for chosen, _ in turns]
        if self._request.backfill:
            text = f"{count_of(len(turns) + 1, 'step')} left: the same command goes on with them"
            self._reporter.announce(text, "not_run", pipelines=names[:1])
        elif names:
            why = "" if is_stopped else "; --keep-going goes on after a failure"
            self._reporter.announce(f"not run: {', '.join(names)}{why}", "not_run", pipelines=names)
