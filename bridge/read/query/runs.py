"""The runs of a pipeline as people see them: those that were kept out in a row are one, each as it stands now."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import groupby
from typing import Any

from msgspec import structs

from bridge.lake.log import Log
from bridge.lake.run_status import current
from bridge.lake.runs import RunRecord, read_runs
from bridge.protocol.singer.state import bookmark
from bridge.settings.options import Pipeline


def latest_runs(
    log: Log, *, since: datetime | None = None, before: str | None = None, every: bool = False
) -> Iterator[RunRecord]:
    """Yield the runs of a pipeline, newest first; only those whose id is below `before`.

    Unless `every`: of those that met the same holder in a row, only the last, so they do not hide the holder's run.
    `held_times` in what is stored says how many there are.
    """
    storage = log.storage
    records = (current(storage, record) for record in read_runs(storage, log.pipeline, since=since, before=before))
    for is_held, row in groupby(records, key=lambda record: record.status == "held" and str(record.previous)):
        if not is_held or every:
            yield from row
        else:
            last, *others = row
            yield structs.replace(
                last, held_times=1 + len(others), stored=last.stored | {"held_times": 1 + len(others)}
            )


def run_bookmarks(record: RunRecord, pipeline: Pipeline) -> dict[str, tuple[Any, Any]]:
    """The bookmark of each stream before and after the run."""
    names = {stream: pipeline.names_of(stream) for stream in record.streams}
    return {s: (bookmark(record.state_before, own), bookmark(record.state, own)) for s, own in names.items()}


def stream_results(record: RunRecord, pipeline: Pipeline) -> dict[str, Any]:
    """The result of each stream as it is stored, with its bookmark before and after."""
    return {
        stream: record.stored["streams"][stream] | {"bookmark_before": before, "bookmark": after}
        for stream, (before, after) in run_bookmarks(record, pipeline).items()
    }
