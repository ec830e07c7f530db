"""`retry`: a run that failed is run again, from its last commit. Each attempt is a run with a record of its own."""

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
from bridge.load.result import Result
from bridge.load.run import Request, Run
from bridge.load.stop import Stop
from bridge.settings.options import Pipeline


def may_pass(error: BridgeError | None) -> bool:
    """Return whether a failure may be gone by itself: the tap's, its database's, Spark's, the bucket's.

    Wrong settings and data that does not fit its schema are the same a minute later. A lake that contradicts itself, or
    that another run writes to, is not to be tried on; a time-out, or a signal, is somebody's will.
    """
    if isinstance(error, (TapNotFound, TimedOut, CorruptLake, CommitLost)):
        return False
    return isinstance(error, (TapError, EngineError, LakeError, DatabaseUnreachable))


class Attempts:
    """The runs of one pipeline until one is a success, or its `retry` says that it was enough.

    `execute` runs one; `waiting` is told of a failure, and of how long we wait before the next.
    """

    def __init__(
        self, stop: Stop, execute: Callable[[Run], Result], waiting: Callable[[Pipeline, Result, timedelta], None]
    ) -> None:
        self._stop, self._execute, self._waiting = stop, execute, waiting

    def run(self, pipeline: Pipeline, request: Request, home: Path) -> Result:
        """Return the last attempt's result; a signal while we wait makes it an interrupted one."""
        pause = pipeline.retry.backoff
        for attempt in range(1, pipeline.retry.attempts + 1):
            run = Run(pipeline, request, home, stop=self._stop, attempt=attempt)
            result = self._execute(run)
            if attempt == pipeline.retry.attempts or not may_pass(result.error):
                break
            if run.took_state:
                request = replace(request, state=None)  # once more it would set back what was committed since
            self._waiting(pipeline, result, pause)
            try:
                self._stop.sleep(pause)
            except Interrupted as error:
                result.status, result.error = "interrupted", error
                break
            pause *= 2
        return result
