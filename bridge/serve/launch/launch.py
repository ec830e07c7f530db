"""Run one pipeline with its retries; after each attempt, bring its system tables up to date; tell the receivers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from bridge.errors import LakeError
from bridge.load.run.result import Result
from bridge.load.run.retry import Attempts
from bridge.load.run.run import Run
from bridge.load.run.stop import Stop
from bridge.serve.facts.after_run import after_run, end_lineage
from bridge.serve.facts.lineage import Lineage
from bridge.settings.options import Pipeline
from bridge.settings.values.request import Request

_TURN = threading.Lock()
"""A process has one Spark: runs that several threads start take turns."""


def _say_nothing(_pipeline: Pipeline, _result: Result, _pause: timedelta) -> None:
    """For callers who only want the last attempt's result."""


def launch(
    pipeline: Pipeline,
    request: Request,
    home: Path,
    *,
    stop: Stop,
    execute: Callable[[Run], Result] = Run.execute,
    waiting: Callable[[Pipeline, Result, timedelta], None] = _say_nothing,
    loaded: Callable[[], None] = lambda: None,
) -> Result:
    """The last attempt's result; a `BridgeError` is in it. See `Attempts` for `execute` and `waiting`.

    `loaded` is called when there is nothing more to do but to tell receivers.
    """

    last: Run | None = None
    lineage: Lineage | None = None

    def attempt(run: Run) -> Result:
        nonlocal last, lineage
        last, lineage = run, Lineage(pipeline.openlineage) if pipeline.openlineage else None
        if lineage:
            run.begun = lineage.begin
        with _TURN:
            result = execute(run)
            # Where the bucket is the reason of a failure, nobody waits for it once more.
            if pipeline.system_tables and run.storage and not isinstance(result.error, LakeError):
                from bridge.serve.launch.system_tables import update_system_tables  # it imports pandas

                result.warnings += update_system_tables(run.storage, pipeline.name, pipeline.system_tables)
        return result

    def wait(pipeline: Pipeline, result: Result, pause: timedelta) -> None:
        waiting(pipeline, result, pause)  # first: a receiver may take its time
        if last and last.storage and lineage and not isinstance(result.error, LakeError):
            end_lineage(last.storage, pipeline.name, result.run_id, lineage)

    result = Attempts(stop, attempt, wait).run(pipeline, request, home)
    loaded()
    # Where the bucket is the reason of a failure, there is no record to tell of.
    if last and last.storage and not isinstance(result.error, LakeError):
        result.warnings += after_run(last.storage, pipeline, result.run_id, lineage)
    return result
