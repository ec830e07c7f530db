"""Compares pipelines with their sources when `reconcile.schedule` says so: one at a time, in a runner process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bridge.errors import BridgeError
from bridge.serve.service.assignment import RunnerReport
from bridge.serve.service.current_settings import CurrentSettings
from bridge.serve.service.log import ServiceLog
from bridge.serve.service.runners import Runner
from bridge.serve.service.timetable import Timetable
from bridge.settings.options import Pipeline


@dataclass(frozen=True, slots=True)
class ScheduledComparison:
    """A comparison of the service. Implements `Work`: the result that it reports is a sentence."""

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
                comparing = Comparing(pipeline, self.home, stop, keys_only=settings.keys, wait=settings.WAIT)
                outcome = comparing.apply() if settings.apply else comparing.look()
        except BridgeError as error:
            report(RunnerReport(result=f"not compared with its source: {error.message}; {error.hint}"))
            return error.exit_code
        warnings = after_comparison(lake_of(pipeline.destination), pipeline, outcome.proofs, outcome.former)
        report(RunnerReport(result="; ".join([outcome.sentence, *outcome.warnings, *warnings])))
        return 0


class Comparisons:
    """The comparisons of a service. All methods but the work itself are called by one thread."""

    def __init__(self, settings: CurrentSettings, home: Path, log: ServiceLog) -> None:
        self._settings, self._home, self._log = settings, home, log
        self._timetable = Timetable()
        self._worker = ThreadPoolExecutor(1, "comparisons")
        self._waiting = dict[str, Future[None]]()
        self._runner: Runner | None = None
        self._signals = list[int]()

    def start_due(self, now: datetime) -> None:
        """Begin, or put in the queue, what is due; a pipeline that waits or is compared already is left out."""
        pipelines = self._settings.pipelines
        times = {name: each.reconcile.times if each.reconcile else None for name, each in pipelines.items()}
        for name in self._timetable.update(times, now):
            if schedule := times[name]:
                self._timetable.begin(name, schedule, now)
                if following := self._timetable.next_run(name):
                    self._log.noted(f"{name}: its next comparison with its source is at {following:%Y-%m-%d %H:%M}")
        for due in self._timetable.due(now):
            if due.pipeline not in self._waiting or self._waiting[due.pipeline].done():
                self._waiting[due.pipeline] = self._worker.submit(self._compare, due.pipeline)

    def _compare(self, name: str) -> None:
        try:
            pipeline = self._settings.fresh(name) if name in self._settings.pipelines else None
            if pipeline is None or pipeline.reconcile is None or self._signals:
                return
            self._log.noted(f"{name}: it is compared with its source")
            texts: list[str] = []
            self._runner = runner = Runner(self._home)
            try:
                if self._signals:  # they came while it started
                    return
                code = runner.run(ScheduledComparison(pipeline, self._home), lambda news: texts.append(news.result))
            finally:
                runner.close()
                runner.wait()
                self._runner = None
            text = "".join(texts) or f"the comparison with its source ended with exit code {code}"
            self._log.noted(f"{name}: {text}") if code == 0 else self._log.failed(name, text)
        except Exception as error:  # noqa: BLE001 - one that cannot be started must not end the service
            self._log.failed(name, f"it could not be compared with its source: {type(error).__name__}: {error}")

    def close(self, number: int) -> None:
        """Begin no more, and send a signal to the one that is under way; may be called again."""
        self._signals.append(number)
        self._worker.shutdown(wait=False, cancel_futures=True)
        if runner := self._runner:
            runner.signal(number)

    @property
    def is_empty(self) -> bool:
        """Whether none waits, and none is under way."""
        return all(one.done() for one in self._waiting.values())
