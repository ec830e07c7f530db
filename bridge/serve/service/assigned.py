"""A run of the service, in a runner process: all that it says is in its reports."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.exact_json import dumps
from bridge.load.run.result import Result
from bridge.load.run.stop import Stop
from bridge.serve.service.assignment import RunnerReport
from bridge.settings.options import Pipeline
from bridge.settings.values.request import Request

if TYPE_CHECKING:
    from bridge.load.run.run import Run

_EVERY = 0.5
"""Seconds between two reports of a run's progress."""
_LARGE = ("state", "state_before")
"""Fields that the run record has, and no report."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A run of the service. Implements `Work`."""

    pipeline: Pipeline
    request: Request
    home: Path

    def do(self, report: Callable[[RunnerReport], None], stdout: int) -> int:
        """See `Work`."""
        from bridge.serve.launch.launch import attempts  # the engine, which the service itself does not need

        with Stop() as stop:
            for attempt in attempts(self.pipeline, self.request, self.home, stop):
                with attempt.turn() as run:
                    _execute(run, report)
            report(RunnerReport(loaded=True))
            attempt.tell_receivers()
        result = attempt.result
        report(_ended(result))  # once more: it has the warnings of receivers now
        return result.error.exit_code if result.error else 0


def _execute(run: Run, report: Callable[[RunnerReport], None]) -> None:
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(run, report, ended), daemon=True)
    watcher.start()
    try:
        run.execute()
    finally:
        ended.set()
        watcher.join()
    report(_ended(run.result))


def _ended(result: Result) -> RunnerReport:
    facts = {key: value for key, value in result.to_json().items() if key not in _LARGE}
    return RunnerReport(run_id=result.run_id, result=dumps(facts).decode())


def _watch(run: Run, report: Callable[[RunnerReport], None], ended: threading.Event) -> None:
    """Report the run's stage and how many records the tap has sent, whenever one of them has changed."""
    last = None
    while True:
        streams = list(run.result.streams.values())
        records = sum(one.records for one in streams)
        news = RunnerReport(
            run_id=run.result.run_id, attempt=run.result.attempt, stage=run.context.stage, records=records
        )
        if news != last:
            report(news)
            last = news
        if ended.wait(_EVERY):
            return
