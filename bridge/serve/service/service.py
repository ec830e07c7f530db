"""The service: a loop that starts what is due, and takes changed settings over."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType

from bridge.errors import BridgeError, SettingsError
from bridge.load.spark.jvm.archive_maker import ANNOUNCEMENT, make_in_background
from bridge.load.tap.source import home_folder
from bridge.serve.service.bucket_pool import BucketPool
from bridge.serve.service.clock import Clock
from bridge.serve.service.comparisons import Comparisons
from bridge.serve.service.current_settings import CurrentSettings
from bridge.serve.service.log import ServiceLog
from bridge.serve.service.past_runs import served_until
from bridge.serve.service.run_queue import RunQueue
from bridge.serve.service.timetable import Timetable, utc_now
from bridge.settings.options import is_local

_TICK = 1.0
"""Seconds between two looks at the clock and at the settings."""
_LOOK_AGAIN = 30.0
"""Seconds until a bucket that could not be read is asked again."""
_LOOKS = 4
"""How many buckets are asked at once."""


class PipelineService:
    """One service for one bridge.yaml. `runs` starts and stops runs, for a page; see `bridge.serve.service.runs`."""

    def __init__(self, path: Path, environment: str | None, log: ServiceLog) -> None:
        """Raises `SettingsError` if the file is wrong."""
        self.settings = CurrentSettings(path, environment, log.refused)
        self.home = home_folder(self.settings.path)
        self._log = log
        self._name = f"{self.settings.path}{f', environment {environment}' if environment else ''}"
        self._timetable, self._clock = Timetable(), Clock(log)
        self._wakes = SimpleQueue[None]()
        self.runs = RunQueue(self.settings, self._timetable, self.home, log, lambda: self._wakes.put(None))
        self._comparisons = Comparisons(self.settings, self.home, log)
        self._pool = BucketPool("past-runs", _LOOKS)
        self._looks: dict[str, Future[datetime | None]] = {}
        self._look_after: dict[str, float] = {}
        self._signals: list[int] = []
        self._noted: list[str] = []
        self._asked_class_data = False

    def run(self, beside: AbstractContextManager[object]) -> None:
        """Work until SIGINT, SIGTERM or SIGHUP, which is passed on to the runs; return when they have ended.

        Each further signal is passed on, too: a run ends at once at its second one. Raises `SettingsError` if another
        service works in its folder.
        """
        with self._alone(), self._signalled(), beside:
            try:
                scheduled = sum(1 for each in self.settings.pipelines.values() if each.schedule or each.reconcile)
                self._log.begun(len(self.settings.pipelines), scheduled)
                while not self._signals:
                    self._step()
                    self._wait()
            finally:
                self._end()

    def _step(self) -> None:
        if self.settings.refresh():
            self._log.changed()
            self._note_restart()
        self._look()
        self._clock.tend(self.settings.pipelines)
        for due in self._timetable.due(utc_now()):
            self.runs.start_due(due)
        self.runs.dispatch()
        self._comparisons.start_due(utc_now())
        self._make_class_data()

    def _make_class_data(self) -> None:
        """Once, when nothing else is to be done: have what makes all later starts of Spark faster."""
        pipelines = self.settings.pipelines.values()
        if (
            not self._asked_class_data
            and not self.runs.live()
            and any(is_local(each.spark.master) for each in pipelines)
        ):
            self._asked_class_data = True
            self._pool.submit(_make_class_data, self._log)

    def _note_restart(self) -> None:
        """Say once of each change that the page stays where it was."""
        later = self.settings.changed_since_start()
        if later and later != self._noted:
            keys = ", ".join(f"service.{key}" for key in later)
            self._log.noted(f"changed, but the page keeps the old value until the service is started again: {keys}")
        self._noted = later

    def _look(self) -> None:
        """Ask the buckets of pipelines with a new schedule what was missed; nobody waits for the answer."""
        now, since_boot = utc_now(), time.monotonic()
        pipelines = self.settings.pipelines
        for name in self._timetable.update({name: each.schedule for name, each in pipelines.items()}, now):
            if name not in self._looks and self._look_after.get(name, since_boot) <= since_boot:
                self._looks[name] = self._pool.submit(served_until, pipelines[name], now)
        for name, look in [(name, look) for name, look in self._looks.items() if look.done()]:
            del self._looks[name]
            schedule = pipelines[name].schedule if name in pipelines else None
            try:
                since = look.result()
                if schedule:
                    self._timetable.begin(name, schedule, min(since or now, now))  # it may have been set back
            except Exception as error:  # noqa: BLE001 - whatever one bucket holds must not end the service
                if name not in self._look_after:
                    self._log.unreadable(name, error if isinstance(error, BridgeError) else BridgeError(repr(error)))
                self._look_after[name] = since_boot + _LOOK_AGAIN
            else:
                self._look_after.pop(name, None)

    def _wait(self) -> None:
        with suppress(Empty):
            self._wakes.get(timeout=_TICK)

    def _end(self) -> None:
        self._pool.close()
        self._clock.close()
        first = (self._signals or [signal.SIGTERM])[0]
        self.runs.close(first)
        comparisons = self._comparisons.close(first)
        self._log.ending(len(self.runs.live()) + comparisons)
        passed = 1
        while not (self.runs.is_empty and self._comparisons.is_empty):
            self._wait()
            for number in self._signals[passed:]:
                self.runs.close(number)
                self._comparisons.close(number)
                passed += 1

    @contextmanager
    def _signalled(self) -> Iterator[None]:
        """Take signals as wishes to end."""

        def take(number: int, _: FrameType | None) -> None:
            self._signals.append(number)
            self._wakes.put(None)

        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, take) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep a second service of this project away. Raises `SettingsError`."""
        try:
            self.home.mkdir(parents=True, exist_ok=True)
            opened = (self.home / "service.lock").open("a+")
        except OSError as error:
            hint = "let this user write there, or set SINGER_BRIDGE_HOME to another folder"
            raise SettingsError(f"cannot write: {error.strerror}", hint=hint, folder=self.home) from error
        with opened as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                hint = f"stop it first: its process is {lock.read().strip() or 'unknown'}"
                raise SettingsError("another service works in this folder", hint=hint, folder=self.home) from None
            lock.truncate(0)
            lock.write(f"{os.getpid()}, for {self._name}")
            lock.flush()
            yield


def _make_class_data(log: ServiceLog) -> None:
    if make_in_background(asked=True):
        log.noted(ANNOUNCEMENT)
