"""The runs that one command starts: of several pipelines (a batch), or the steps of a backfill. Both can go on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile

from bridge.cli.selection import ChosenPipeline
from bridge.errors import LakeError
from bridge.lake.run_status import current
from bridge.lake.runs import RunRecord, new_run_id, read_attempts, read_opened
from bridge.settings.values.request import Request, Window

_RUNS_BACK = 100
"""How many runs back a step of a backfill is looked for."""


@dataclass(frozen=True, slots=True)
class RunBatch:
    """The id that the records of a batch's runs share, and the pipelines that have succeeded in it already."""

    id: str
    loaded: tuple[str, ...] = ()


def new_batch() -> RunBatch:
    """A batch in which nothing has run yet."""
    return RunBatch(new_run_id())


def resumed_batch(chosen: Sequence[ChosenPipeline]) -> RunBatch:
    """The last batch of these pipelines. A new one if there is none, or if all of them succeeded in it."""
    last = {each.pipeline.name: record for each in chosen if (record := _last_attempt(each))}
    latest = max((record.batch for record in last.values() if record.batch), default=None)
    if latest is None:
        return new_batch()
    loaded = tuple(name for name, record in last.items() if (record.batch, record.status) == (latest, "success"))
    return new_batch() if len(loaded) == len(chosen) else RunBatch(latest, loaded)


def _last_attempt(chosen: ChosenPipeline) -> RunRecord | None:
    with suppress(LakeError):  # its run will report it
        log = chosen.log
        return next(read_attempts(log.storage, log.pipeline, 1), None)
    return None


def steps_left(chosen: ChosenPipeline, request: Request, windows: Sequence[Window]) -> list[Request]:
    """A request for each step of a backfill that is left to do: all, or those after the last one that succeeded.

    `windows`: all steps. What counts is the newest step of a backfill of the same streams and window, if it was one of
    these and not the last: other runs may have come since, but no rollback.
    """
    steps = [replace(request, backfill=window, step_of=request.backfill) for window in windows]
    asked = [step.to_record()["requested"] for step in steps]
    runs = read_opened(chosen.log.storage, chosen.pipeline.name, _RUNS_BACK)
    newest = next((run for run in runs if "backfill" in run.requested), None)
    if newest is None or newest.requested not in asked:
        return steps
    log, commit = chosen.log, newest.commit or 0
    since = takewhile(lambda record: record.n > commit, log.history(log.latest()))
    if any(record.kind == "rollback" for record in since):
        return steps
    is_loaded = current(log.storage, newest).status == "success"
    return steps[asked.index(newest.requested) + is_loaded :] or steps
