"""`retry`: runs a failed run again, from its last commit. Each attempt is a run with a record of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from bridge.errors import (
    BridgeError,
    CommitLost,
    CorruptLake,
    DatabaseUnreachable,
    EngineError,
    Interrupted,
    LakeError,
    TapError,
    TapNotFound,
    TimedOut,
)
from bridge.load.run.result import Result
from bridge.load.run.run import Run
from bridge.load.run.stop import Stop
from bridge.settings.options import Pipeline
from bridge.settings.values.request import Request


def may_pass(error: BridgeError | None) -> bool:
    """Whether a failure may pass by itself: one of the tap, its database, Spark or the bucket.

    Wrong settings, and data that does not fit its schema, will be the same in a minute. A lake that contradicts itself,
    or that another run writes to, must not be tried again. A time-out or a signal was intended.
    """
    if isinstance(error, (TapNotFound, TimedOut, CorruptLake, CommitLost)):
        return False
    return isinstance(error, (TapError, EngineError, LakeError, DatabaseUnreachable))


class Attempts:
    """Runs one pipeline until it succeeds, or until `retry` allows no more attempts.

    `execute` runs one attempt; `waiting` is called with a failure and the pause before the next attempt.
    """

    def __init__(
        self, stop: Stop, execute: Callable[[Run], Result], waiting: Callable[[Pipeline, Result, timedelta], None]
    ) -> None:
        self._stop, self._execute, self._waiting = stop, execute, waiting

    def run(self, pipeline: Pipeline, request: Request, home: Path) -> Result:
        """The last attempt's result; a signal while we wait makes it an interrupted one."""
        for attempt in range(request.attempt, max(pipeline.retry.attempts, request.attempt) + 1):
            run = Run(pipeline, request, home, stop=self._stop, attempt=attempt)
            result = self._execute(run)
            if attempt >= pipeline.retry.attempts or not may_pass(result.error):
                break
            request = replace(request, run_id=None)
            if run.took_state:
                request = replace(request, state=None)  # a second time it would undo later commits
            pause = pipeline.retry.pause_before(attempt + 1)
            self._waiting(pipeline, result, pause)
            try:
                self._stop.sleep(pause)
            except Interrupted as error:
                result.status, result.error = "interrupted", error
                break
        return result
