"""A pipeline's runs by its bucket, wherever they ran: since when a schedule has missed something."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice

from bridge.lake.run_status import current
from bridge.lake.runs import readable_runs
from bridge.lake.storage import lake_of
from bridge.lake.times import is_ahead, read_time
from bridge.settings.options import Pipeline

_BACK = 20
"""How many runs back one is looked for that came to its end."""
_READ = 200
"""How many records are read at most: those of runs of some streams only do not count."""
_ANY_TIME = timedelta(days=366)
"""However rarely a pipeline is due, it was in this time."""


def served_until(pipeline: Pipeline, now: datetime) -> datetime | None:
    """The time up to which the pipeline's schedule has been served, as its run records tell. Raises `LakeError`.

    A run that is under way, has succeeded or has failed serves all due times up to its start. One that died or was
    interrupted serves none: its time is due again. Neither does one of some streams only, or of some records; nor one
    whose record nobody can read, or whose clock was ahead of `now`: nobody knows when it began. None: the pipeline
    never ran, and has missed nothing.
    """
    storage = lake_of(pipeline.destination)
    unfinished = None
    records = islice(readable_runs(storage, pipeline.name, now), _READ)
    whole = (record for record in records if record.status != "held" and not record.is_narrowed)
    for record in islice(whole, _BACK):
        started = read_time(record.started)
        if is_ahead(started, now):
            continue
        if current(storage, record).status in ("running", "success", "failed"):
            return min(started, now)
        unfinished = started
    return unfinished - _ANY_TIME if unfinished else None
