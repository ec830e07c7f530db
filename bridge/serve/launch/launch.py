"""`attempts`: runs a pipeline, and after a failure that may pass runs it again, from its last commit.

Each attempt is a run with a record of its own. The caller's loop executes and shows it; the iterator waits between two.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
from bridge.lake.storage import Storage
from bridge.load.run.result import Result
from bridge.load.run.run import Run
from bridge.load.run.stop import Stop
from bridge.serve.facts.after_run import after_run, end_lineage
from bridge.serve.facts.lineage import Lineage
from bridge.settings.options import Pipeline
from bridge.settings.values.request import Request

_TURN = threading.Lock()
"""A process has one Spark: runs that several threads start take turns."""


def may_pass(error: BridgeError | None) -> bool:
    """Whether a failure may pass by itself: one of the tap, its database, Spark or the bucket.

    Wrong settings, and data that does not fit its schema, will be the same in a minute. A lake that contradicts itself,
    or that another run writes to, must not be tried again. A time-out or a signal was intended.
    """
    if isinstance(error, (TapNotFound, TimedOut, CorruptLake, CommitLost)):
        return False
    return isinstance(error, (TapError, EngineError, LakeError, DatabaseUnreachable))


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a pipeline, and what follows it."""

    pipeline: Pipeline
    run: Run
    lineage: Lineage | None

    @property
    def result(self) -> Result:
        """The result of the run; a `BridgeError` is in it."""
        return self.run.result

    @property
    def pause(self) -> timedelta | None:
        """The time until the next attempt; None if this is the last one."""
        retry, number = self.pipeline.retry, self.result.attempt
        if number >= retry.attempts or not may_pass(self.result.error):
            return None
        return retry.pause_before(number + 1)

    @contextmanager
    def turn(self) -> Iterator[Run]:
        """Yield the run, to be executed in the block; meanwhile and then bring the system tables up to date."""
        if self.lineage:
            self.lineage.follow(self.run)
        with _TURN:
            if not (path := self.pipeline.system_tables):
                yield self.run
                return
            from bridge.serve.launch.system_tables import following, update_system_tables  # it imports pandas

            with following(self.run, path):
                yield self.run
            if storage := self.bucket:
                self.result.warnings += update_system_tables(storage, self.pipeline.name, path)

    def tell_receivers(self) -> None:
        """Tell all receivers of the last attempt. What they answer is among the result's warnings."""
        if storage := self.bucket:
            self.result.warnings += after_run(storage, self.pipeline, self.result.run_id, self.lineage)

    @property
    def bucket(self) -> Storage | None:
        """The bucket with the run's record. None where it is the reason of the failure: nobody waits for it again."""
        return None if isinstance(self.result.error, LakeError) else self.run.storage


def attempts(pipeline: Pipeline, request: Request, home: Path, stop: Stop) -> Iterator[Attempt]:
    """Yield attempts until one succeeds, or until `retry` allows no more; a signal while we wait makes it the last.

    After the loop, call `tell_receivers` of the last one.
    """
    for number in range(request.attempt, max(pipeline.retry.attempts, request.attempt) + 1):
        lineage = Lineage(pipeline.openlineage) if pipeline.openlineage else None
        attempt = Attempt(pipeline, Run(pipeline, request, home, stop=stop, attempt=number), lineage)
        yield attempt
        if (pause := attempt.pause) is None:
            return
        if lineage and (storage := attempt.bucket):
            end_lineage(storage, pipeline.name, attempt.result.run_id, lineage)
        # A given STATE that was committed would undo later commits a second time.
        request = replace(request, run_id=None, state=None if attempt.run.context.took_state else request.state)
        try:
            stop.sleep(pause)
        except Interrupted as error:
            attempt.result.status, attempt.result.error = "interrupted", error
            return


def launch(pipeline: Pipeline, request: Request, home: Path, *, stop: Stop) -> Result:
    """Run a pipeline with its retries, show nothing, and return the last attempt's result."""
    for attempt in attempts(pipeline, request, home, stop):
        with attempt.turn() as run:
            run.execute()
    attempt.tell_receivers()
    return attempt.result
