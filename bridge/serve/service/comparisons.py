"""Compares pipelines with their sources when `reconcile.schedule` says so: one at a time, in a runner process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bridge.errors import BridgeError, Interrupted
from bridge.serve.service.assignment import RunnerReport
from bridge.serve.service.current_settings import CurrentSettings
from bridge.serve.service.log import ServiceLog
from bridge.serve.service.runners import Runner
from bridge.serve.service.timetable import Timetable
from bridge.settings.options import Pipeline

_HEARS = "hears"
"""The stage of a comparison that a signal ends as it should."""


@dataclass(frozen=True, slots=True)
class ScheduledComparison:
    """A comparison of the service. Implements `Work`: what it reports is a text, and as its stage the text's level."""

    pipeline: Pipeline
    home: Path

    def do(self, report: Callable[[RunnerReport], None], stdout: int) -> int:
        """See `Work`."""
        # Here: the service itself needs neither the engine nor DuckDB.
        from bridge.lake.storage import lake_of
        from bridge.load.run.stop import Stop
        from bridge.load.tap.catalog_store import with_names
        from bridge.operate.reconcile.reconcile import Comparing
        from bridge.serve.facts.after_run import after_comparison

        settings, pipeline = self.pipeline.reconcile, with_names(self.pipeline, self.home)
        assert settings
        try:
            with Stop() as stop:
                report(RunnerReport(stage=_HEARS))
                comparing = Comparing(pipeline, self.home, stop, keys_only=settings.keys, wait=settings.WAIT)
                outcome = comparing.apply() if settings.apply else comparing.look()
                warnings = after_comparison(lake_of(pipeline.destination), pipeline, outcome.proofs, outcome.former)
        except Interrupted:
            report(RunnerReport(stage="info", result="its comparison with its source was stopped"))
            return 0
        except BridgeError as error:
            text = f"not compared with its source: {error.message}; {error.hint}"
            report(RunnerReport(stage="error", result=text))
            return error.exit_code
        text = "; ".join([outcome.sentence, *outcome.sentences(), *outcome.warnings, *warnings])
        report(RunnerReport(stage="warning" if outcome.differs else "info", result=text))
        return 0


def _shown(time: datetime) -> str:
    """A time on the machine's clock, as those of the log are."""
    return f"{time.astimezone():%Y-%m-%d %H:%M}"


class Comparisons:
    """The comparisons of a service. All methods but the work itself are called by one thread."""

    def __init__(self, settings: CurrentSettings, home: Path, log: ServiceLog) -> None:
        self._settings, self._home, self._log = settings, home, log
        self._timetable = Timetable()
        self._worker = ThreadPoolExecutor(1, "comparisons")
        self._waiting = dict[str, Future[None]]()
        self._runner: Runner | None = None
        self._hears, self._sent, self._lock = False, 0, threading.Lock()
        self._signals = list[int]()

    def start_due(self, now: datetime) -> None:
        """Begin, or put in the queue, what is due; a pipeline that waits or is compared already is left out."""
        pipelines = self._settings.pipelines
        times = {name: each.reconcile.times if each.reconcile else None for name, each in pipelines.items()}
        for name in self._timetable.update(times, now):
            if schedule := times[name]:
                self._timetable.begin(name, schedule, now)
                if following := self._timetable.next_run(name):
                    self._log.compared(name, f"its next comparison with its source is at {_shown(following)}")
        for due in self._timetable.due(now):
            if due.pipeline not in self._waiting or self._waiting[due.pipeline].done():
                self._waiting[due.pipeline] = self._worker.submit(self._compare, due.pipeline)

    def _compare(self, name: str) -> None:
        try:
            pipeline = self._settings.fresh(name) if name in self._settings.pipelines else None
            if pipeline is None or pipeline.reconcile is None or self._signals:
                return
            self._log.compared(name, "it is compared with its source")
            level, text = "error", ""

            def hear(news: RunnerReport) -> None:
                nonlocal level, text
                if news.result:
                    level, text = news.stage, news.result
                self._hears = True
                self._pass_signals()

            self._hears, self._sent = False, 0
            self._runner = runner = Runner(self._home)
            try:
                self._pass_signals()  # they came while it started
                code = runner.run(ScheduledComparison(pipeline, self._home), hear)
            finally:
                runner.close()
                runner.wait()
                self._runner = None
            self._log.compared(name, text or f"its comparison with its source ended with exit code {code}", level)
        except Exception as error:  # noqa: BLE001 - one that cannot be started must not end the service
            text = f"it could not be compared with its source: {type(error).__name__}: {error}"
            self._log.compared(name, text, "error")

    def close(self, number: int) -> int:
        """Begin no more, and send a signal to the one that is under way; may be called again. Returns how many wait."""
        self._signals.append(number)
        self._worker.shutdown(wait=False, cancel_futures=True)
        for name, future in self._waiting.items():
            if len(self._signals) == 1 and future.cancelled():
                self._log.compared(name, "not compared with its source, the service ends")
        self._pass_signals()
        return int(self._runner is not None)

    def _pass_signals(self) -> None:
        """Not before it listens: Python would take the first one for itself. A second one ends it at once."""
        with self._lock:
            runner = self._runner
            if runner and self._hears:
                for number in self._signals[self._sent :]:
                    runner.signal(number)
                self._sent = len(self._signals)
            elif runner and len(self._signals) > 1:
                runner.signal(signal.SIGKILL)

    @property
    def is_empty(self) -> bool:
        """Whether none waits, and none is under way."""
        return all(one.done() for one in self._waiting.values())
