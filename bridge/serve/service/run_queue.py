"""The service's runs: those that wait, and those in runner processes. It implements `Runs`."""

from __future__ import annotations

import errno
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from msgspec import json

from bridge.durations import duration
from bridge.errors import BridgeError, LakeError, PipelineHeld, SettingsError, did_you_mean
from bridge.lake.lease import require_free
from bridge.lake.runs import new_run_id
from bridge.lake.storage import lake_of
from bridge.serve.service.assigned import Assignment
from bridge.serve.service.assignment import RunnerReport
from bridge.serve.service.current_settings import CurrentSettings
from bridge.serve.service.log import ServiceLog
from bridge.serve.service.past_runs import served_until
from bridge.serve.service.requested import read_request
from bridge.serve.service.runners import Runner
from bridge.serve.service.runs import LiveRun
from bridge.serve.service.timetable import Due, Timetable, utc_now
from bridge.settings.options import Pipeline
from bridge.settings.values.cron import next_time, zone
from bridge.settings.values.request import Request

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
"""Seconds until a held pipeline is looked at again; the pause doubles each time."""
_PATIENCE = 5.0
"""Seconds that a bucket has to say who holds a pipeline. After that its run keeps no other one waiting."""
_FOR_NOW = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM})
"""Errors that keep this machine from starting a process, and pass: the run is tried again, as one that is held."""
_REASONS = 1000
"""The number of runs that never started whose reason is remembered."""


@dataclass(eq=False, slots=True)
class _Job:
    """One run, from its request to its end."""

    run_id: str
    pipeline: str
    request: Request
    reason: Literal["schedule", "missed", "request"]
    due: datetime | None = None
    since: datetime = field(default_factory=utc_now)
    is_started: bool = False
    looks_since: float | None = None
    """While its bucket is asked whether it may start: it has no process yet."""
    is_silent: bool = False
    """The bucket takes long to answer: until then others may run."""
    not_run: str = ""
    """Why it never ran."""
    stops: list[int] = field(default_factory=list)
    """The signals that somebody wants to be sent to it."""
    sent: int = 0
    """How many of them it got. It gets none before its first report: it could not handle it yet."""
    runner: Runner | None = None
    reported: bool = False
    stage: str = ""
    records: int = 0
    attempts: list[str] = field(default_factory=list)
    """The ids of all of its attempts."""
    attempt: int = 1
    """The number of the last one."""
    result: dict[str, Any] | None = None
    is_loaded: bool = False
    """It only waits for receivers: others may run."""
    not_before: float = 0.0
    pause: float = _FIRST_PAUSE

    @property
    def has_slot(self) -> bool:
        """Whether it counts among `max_runs`."""
        return self.is_started and not self.is_loaded and not self.is_silent

    def live(self) -> LiveRun:
        status: Literal["waiting", "running", "stopping"] = "running" if self.is_started else "waiting"
        status = "stopping" if self.stops else status
        facts = (self.since, self.reason, self.stage, self.records, tuple(self.attempts))
        return LiveRun(self.run_id, self.pipeline, status, *facts)


class RunQueue:
    """Starts runs in their order, at most `max_runs` at once, and one of a pipeline. See `Runs` for what others call.

    `dispatch` is called by one thread only, after `wake` and now and then.
    """

    def __init__(
        self,
        settings: CurrentSettings,
        timetable: Timetable,
        home: Path,
        log: ServiceLog,
        wake: Callable[[], None],
    ) -> None:
        self._settings, self._timetable = settings, timetable
        self._home, self._log, self._wake = home, log, wake
        self._lock = threading.Lock()
        self._jobs: list[_Job] = []
        self._not_run: dict[str, str] = {}
        self._closings = 0

    def start(self, pipeline: str, *options: str) -> str:
        names = self._settings.pipelines
        if pipeline not in names:
            hint = did_you_mean(pipeline, names) or f"there are: {', '.join(names)}"
            raise SettingsError("unknown pipeline", hint=hint, name=pipeline)
        job = _Job(new_run_id(), pipeline, read_request(options), "request")
        with self._lock:
            if self._closings:
                raise SettingsError("the service is about to end", hint="start the run when it is up again")
            if self._waits(pipeline):
                raise SettingsError("a run of this pipeline waits already", hint="stop it first, or wait for it")
            self._jobs.append(job)
        self._wake()
        return job.run_id

    def start_due(self, due: Due) -> None:
        """Put a run that is due in the queue, unless one of its pipeline waits there already, and loads as much."""
        with self._lock:
            if not self._closings and not self._waits(due.pipeline, whole=True):
                self._jobs.append(_Job(new_run_id(), due.pipeline, Request(), due.reason, due.at))

    def _waits(self, pipeline: str, *, whole: bool = False) -> bool:
        waiting = [job for job in self._jobs if job.pipeline == pipeline and not job.is_started]
        return any(not (whole and job.request.is_narrowed) for job in waiting)

    def stop(self, run_id: str) -> bool:
        with self._lock:
            job = next((job for job in self._jobs if job.live().has_id(run_id)), None)
            if job:
                self._stop(job, signal.SIGINT, "stopped before it started")
        if job and job.not_run:
            self._log.left_out(job.pipeline, job.not_run)
        return job is not None

    def _stop(self, job: _Job, number: int, reason: str) -> None:
        job.stops.append(number)
        if not job.is_started or job.looks_since is not None:
            job.not_run = reason
            self._remove(job)
        self._pass_signals(job)

    def _remove(self, job: _Job) -> None:
        self._jobs.remove(job)
        if job.not_run:
            self._not_run[job.run_id] = job.not_run
            for oldest in list(self._not_run)[:-_REASONS]:
                del self._not_run[oldest]

    def _pass_signals(self, job: _Job) -> None:
        if job.runner and job.reported:
            for number in job.stops[job.sent :]:
                job.runner.signal(number)
            job.sent = len(job.stops)
        elif job.runner and len(job.stops) > 1:
            job.runner.signal(signal.SIGKILL)

    def live(self) -> list[LiveRun]:
        with self._lock:
            return [job.live() for job in self._jobs]

    def not_run(self, run_id: str) -> str | None:
        with self._lock:
            return self._not_run.get(run_id)

    def next_run(self, pipeline: str) -> datetime | None:
        settings = self._settings.pipelines.get(pipeline)
        if settings is None or settings.schedule is None:
            return None
        schedule = settings.schedule
        following = self._timetable.next_run(pipeline)
        return following or next_time(schedule.cron, utc_now().astimezone(zone(schedule.timezone)))

    def close(self, number: int) -> None:
        """Take no more runs, forget those that wait, and send the others a signal.

        May be called again. The n-th call is the n-th signal of each run, also if somebody has stopped it before.
        """
        with self._lock:
            self._closings += 1
            stopped = [job for job in self._jobs if len(job.stops) < self._closings]
            for job in stopped:
                self._stop(job, number, "the service ends")
        for job in stopped:
            if job.not_run:
                self._log.left_out(job.pipeline, job.not_run)

    @property
    def is_empty(self) -> bool:
        """Whether no run waits, and none is under way."""
        with self._lock:
            return not self._jobs

    def dispatch(self) -> None:
        """Start what may start now, each in a thread."""
        now = time.monotonic()
        with self._lock:
            silent = [job for job in self._jobs if not job.is_silent and now - (job.looks_since or now) > _PATIENCE]
            for job in silent:
                job.is_silent = True
            busy = {job.pipeline for job in self._jobs if job.is_started}
            for job in self._jobs:
                if self._has_room and not job.is_started and job.not_before <= now and job.pipeline not in busy:
                    job.is_started, job.looks_since = True, now
                    busy.add(job.pipeline)
                    # No process waits for it at its end: the bucket may never answer.
                    threading.Thread(target=self._work, args=(job,), name=f"run of {job.pipeline}", daemon=True).start()
        for job in silent:
            self._log.waits(job.pipeline, LakeError("its bucket does not answer"))

    @property
    def _has_room(self) -> bool:
        return sum(job.has_slot for job in self._jobs) < self._settings.service.max_runs

    def _work(self, job: _Job) -> None:
        code = None
        try:
            code = self._run(job)
        except Exception as error:  # noqa: BLE001 - one run that cannot be started must not end the service
            reason = f"the run could not be started: {type(error).__name__}: {error}"
            if isinstance(error, OSError) and error.errno in _FOR_NOW and not job.attempts:
                code = PipelineHeld.exit_code
                if job.pause == _FIRST_PAUSE:
                    self._log.waits(job.pipeline, LakeError(reason))
            else:
                job.not_run = "" if job.attempts else reason
                self._log.failed(job.pipeline, reason)
        finally:
            with self._lock:
                if code == PipelineHeld.exit_code and not job.stops:
                    self._wait_longer(job)
                elif job in self._jobs:  # else it was stopped before it had a process
                    self._remove(job)
            self._wake()

    def _wait_longer(self, job: _Job) -> None:
        job.is_started, job.reported, job.is_loaded, job.runner, job.result = False, False, False, None, None
        job.looks_since, job.is_silent = None, False
        job.not_before = time.monotonic() + job.pause
        job.pause = min(2 * job.pause, _LONGEST_PAUSE)

    def _is_tried_again(self, job: _Job, pipeline: Pipeline, code: int) -> bool:
        """Whether `retry` has another attempt for a run whose process was killed; if so, prepare it."""
        attempt = job.attempt + 1
        if code >= 0 or job.is_loaded or job.stops or attempt > pipeline.retry.attempts:
            return False
        job.request, job.run_id, job.attempt = replace(job.request, attempt=attempt), new_run_id(), attempt
        job.pause = pipeline.retry.pause_before(attempt).total_seconds()
        text = f"attempt {attempt} of {pipeline.retry.attempts} starts in {duration(job.pause)}"
        self._log.noted(f"{job.pipeline}: {text}")
        return True

    def _run(self, job: _Job) -> int:
        """Run it, or find that it has to wait; return the exit code."""
        pipeline = self._settings.fresh(job.pipeline) if job.pipeline in self._settings.pipelines else None
        if pipeline is None:
            job.not_run = "it is no longer in the file"
            self._log.failed(job.pipeline, f"not run: {job.not_run}")
            return 0
        if (code := self._look(job, pipeline)) is not None:
            return code
        assignment = Assignment(pipeline, replace(job.request, run_id=job.run_id), self._home)
        self._log.started(job.pipeline, job.run_id, job.reason)
        code = self._run_in(Runner(self._home), job, assignment)
        self._log.finished(job.pipeline, job.run_id, job.result, code)
        # It waits for its next attempt as one that is held does for its turn.
        return PipelineHeld.exit_code if self._is_tried_again(job, pipeline, code) else code

    def _look(self, job: _Job, pipeline: Pipeline) -> int | None:
        """Ask its bucket whether it may start, and is still needed; the exit code if it does not start now."""
        holder = _holder(pipeline)
        due = job.due if job.attempt == 1 else None  # an earlier attempt of its own is no other run
        is_served = not holder and due is not None and _is_served(pipeline, due)
        with self._lock:
            if job.stops:  # it is forgotten already
                return 0
            if not holder and not is_served and (not job.is_silent or self._has_room):
                job.looks_since, job.is_silent = None, False
                return None
        if is_served:
            job.not_run = "another run has come first"
            self._log.left_out(job.pipeline, job.not_run)
            return 0
        if holder and job.pause == _FIRST_PAUSE:
            self._log.waits(job.pipeline, holder)
        return PipelineHeld.exit_code

    def _run_in(self, runner: Runner, job: _Job, assignment: Assignment) -> int:
        with self._lock:
            job.runner = runner
        code = runner.run(assignment, lambda report: self._take(job, report))
        runner.close()
        runner.wait()
        return code

    def _take(self, job: _Job, report: RunnerReport) -> None:
        with self._lock:
            if report.run_id:
                job.run_id = report.run_id
                if report.run_id not in job.attempts:
                    job.attempts.append(report.run_id)
                    job.result = None  # it was that of the attempt before
                job.attempt = max(job.attempt, report.attempt)
            job.result = json.decode(report.result) if report.result else job.result
            job.is_loaded = job.is_loaded or report.loaded
            if report.stage:
                job.stage, job.records, job.reported = report.stage, report.records, True
            if job.stops:
                self._pass_signals(job)


def _holder(pipeline: Pipeline) -> PipelineHeld | None:
    """Who holds the pipeline. None also where that cannot be seen: its run will report why."""
    try:
        require_free(lake_of(pipeline.destination), pipeline.name)
    except PipelineHeld as held:
        return held
    except BridgeError:
        pass
    return None


def _is_served(pipeline: Pipeline, due: datetime) -> bool:
    """Whether another run, somewhere, has started since a scheduled one was due, and did not die."""
    with suppress(BridgeError):
        until = served_until(pipeline, utc_now())
        return until is not None and until >= due
    return False
