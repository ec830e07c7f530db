"""Send facts after a run, or after a look at the clock, to those whom the pipeline's settings name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial

from bridge.errors import BridgeError
from bridge.lake.runs import add_warnings
from bridge.lake.storage import Storage
from bridge.serve.facts.facts import Fact, facts_by_clock, facts_of, record_of
from bridge.serve.facts.lineage import Lineage
from bridge.serve.facts.metrics import write_textfile
from bridge.serve.facts.notifications import notifications
from bridge.serve.facts.receivers import DEADLINE, tell_all
from bridge.settings.options import Pipeline


def after_run(
    storage: Storage, pipeline: Pipeline, run: str, lineage: Lineage | None = None, deadline: float = DEADLINE
) -> list[str]:
    """Tell the receivers of a run that has ended; returns warnings, and never raises. `lineage`: it has begun there.

    Its record has the warnings, too. Everything is committed, and the lease is given back: whatever a receiver does,
    the run's outcome stays.
    """
    if not (pipeline.notify or pipeline.openlineage or pipeline.metrics.textfile):
        return []
    try:
        record = record_of(storage, pipeline.name, run)
        if record is None:
            return []
        facts = list(facts_of(storage, record)) if pipeline.notify else []
        calls: dict[str, Callable[[], bool]] = notifications(pipeline.notify, facts)
        if pipeline.openlineage:
            calls["openlineage"] = partial((lineage or Lineage(pipeline.openlineage)).end, storage, record)
        if folder := pipeline.metrics.textfile:
            calls["metrics.textfile"] = partial(write_textfile, folder, storage, pipeline.name, pipeline.stale_after)
        warnings = tell_all(calls, deadline)
        if warnings:
            with suppress(BridgeError):
                add_warnings(storage, record, warnings)
        return warnings
    except Exception as error:  # noqa: BLE001 - all is committed: whatever fails here must not fail the run
        return [f"no receiver was notified of this run: {type(error).__name__}"]


def end_lineage(storage: Storage, pipeline: str, run: str, lineage: Lineage) -> None:
    """Tell of an attempt's end that another one follows; of the last one `after_run` does. Never raises."""
    with suppress(BridgeError):
        if record := record_of(storage, pipeline, run):
            tell_all({"openlineage": partial(lineage.end, storage, record)})


def look_at_clock(storage: Storage, pipeline: Pipeline, deadline: float = DEADLINE) -> tuple[list[Fact], list[str]]:
    """Tell the receivers what only the clock shows: a run that died, a pipeline that is stale. Each once.

    Returns the facts, and warnings of receivers that failed. Call it each minute, or as often as you like. Raises
    `LakeError`.
    """
    now = datetime.now(timezone.utc)
    facts = list(facts_by_clock(storage, pipeline.name, pipeline.stale_after, now)) if pipeline.notify else []
    return facts, tell_all(notifications(pipeline.notify, facts), deadline) if facts else []
