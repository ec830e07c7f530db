"""The steps of `run --backfill --step`: one run each. A command that was stopped goes on where it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bridge.lake.run_status import current
from bridge.lake.runs import RunRecord, read_opened
from bridge.lake.storage import Storage
from bridge.settings.values.request import Request
from bridge.settings.values.window import Window

_RUNS_BACK = 100
"""How many runs back a step of the backfill is looked for."""


def steps_left(storage: Storage, pipeline: str, request: Request, windows: Sequence[Window]) -> list[Request]:
    """A request for each step that is left to do: all of them, or those after the last one that succeeded.

    `windows`: all steps. The last step of a backfill of the same streams, window and length counts, if it was not its
    last: other runs may have come since.
    """
    steps = [replace(request, backfill=window, step_of=request.backfill) for window in windows]
    asked = [step.to_record()["requested"] for step in steps]
    last = next((run for run in read_opened(storage, pipeline, _RUNS_BACK) if "backfill" in run.requested), None)
    place = asked.index(last.requested) if last and last.requested in asked else -1
    if last is None or place < 0:
        return steps
    done = place + _is_done(storage, last)
    return steps[done:] or steps


def _is_done(storage: Storage, run: RunRecord) -> bool:
    return current(storage, run).status == "success"
