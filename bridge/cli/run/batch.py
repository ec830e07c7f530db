"""A batch: the runs of several pipelines that one command starts. With `--resume` it goes on with the last one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from bridge.cli.selection import ChosenPipeline
from bridge.errors import LakeError
from bridge.lake.runs import RunRecord, new_run_id, read_attempts


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
