"""Loads rows that a comparison with the source found wrong: one commit adds, replaces and removes them by key.

```
lease (the caller's) -> messages, the way of a tap's -> commit n, with its reason -> publish
```
There is no STATE among the messages, so the pipeline's stays, and nothing is committed before their end. Whatever dies
on the way leaves what any run leaves, and the next one repairs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridge.errors import TapError
from bridge.lake.commit.committer import Committer
from bridge.lake.commit.open import open_pipeline
from bridge.lake.lease import Lease, take
from bridge.lake.runs import new_run_id
from bridge.lake.storage import lake_of
from bridge.lake.stream_files import StreamFiles
from bridge.load.run.loader import Loader
from bridge.load.run.plan import LoadPlan, RunContext
from bridge.load.run.scratch import Scratch
from bridge.load.run.stop import Stop
from bridge.load.run.tables.table_plan import TablePlanner
from bridge.load.run.tap_reader import TapReader
from bridge.settings.destination import HISTORY, UPSERT
from bridge.settings.options import Pipeline

if TYPE_CHECKING:
    from bridge.protocol.singer.messages import Message


_OF_RUNS: dict[str, Any] = dict.fromkeys(
    ("transform", "columns", "on_error", "guard", "lookback", "replication_method", "replication_key", "schema_policy")
)
"""Settings of the tap, and of columns that come and go: none is meant for a correction."""


@dataclass(frozen=True, slots=True)
class Corrector:
    """The one writer of a pipeline: no run goes on meanwhile."""

    committer: Committer
    _lease: Lease
    _pipeline: Pipeline
    _home: Path
    _stop: Stop

    @classmethod
    @contextmanager
    def of(cls, pipeline: Pipeline, home: Path, stop: Stop, wait: timedelta) -> Iterator[Corrector]:
        """Hold the pipeline for the block. Raises `PipelineHeld` if a run is alive for longer than `wait`."""
        storage, name, run = lake_of(pipeline.destination), pipeline.name, new_run_id()
        lease = take(storage, name, run, wait=wait, pause=stop.sleep)
        with open_pipeline(storage, name, run, lease=lease) as committer:
            yield cls(committer, lease, pipeline, home, stop)

    def correct(self, keys: Mapping[str, Sequence[str]], messages: Iterable[bytes], reason: str) -> list[str]:
        """Merge the rows of these messages into the tables of `keys`; returns warnings.

        Raises `BridgeError`; then nothing is committed.
        """
        pipeline, committer = _merging(self._pipeline, keys), self.committer
        before, scratch = committer.snapshot, Scratch(self._home, pipeline, committer.run)
        scratch.prepare(committer.storage)
        files = StreamFiles(committer.log, before)
        planner = TablePlanner(committer.storage, pipeline, before, None, full=False, append=False, corrects=True)
        context = RunContext(self._stop, lease=self._lease, stream_files=files)
        plan = LoadPlan(pipeline, committer, planner, scratch, context, reason=reason)
        loader = Loader(plan)
        try:
            TapReader(plan, loader).read(_Messages(messages))
        finally:
            warnings = loader.close()
            files.follow(committer.snapshot)
            scratch.delete()
        return warnings


def _merging(pipeline: Pipeline, keys: Mapping[str, Sequence[str]]) -> Pipeline:
    """The pipeline that merges rows into these tables, or fails. They have the columns of the tables, and come as a
    `transform` has left them."""
    for stream, key in keys.items():
        is_made = pipeline.stream(stream).transform is not None
        changes = _OF_RUNS | ({"rename": None} if is_made else {})
        method = HISTORY if pipeline.load_method(stream) == HISTORY else UPSERT
        pipeline = pipeline.with_stream(stream, changes | {"load_method": method, "key_properties": list(key)})
    rejects = pipeline.rejects.model_copy(update={"on_reject": "fail"})
    return pipeline.model_copy(update={"rejects": rejects, "on_no_state": "warn", "mask": {}})  # they are masked


class _Messages:
    """The messages in the place of a tap."""

    proves_end = True

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks

    def chunks(self, *, idle: timedelta | None, tick: Callable[[], None]) -> Iterator[bytes]:
        for chunk in self._chunks:
            tick()
            yield chunk

    def select_messages(self, messages: Iterable[Message]) -> Iterable[Message]:
        return messages

    def wait(self, *, idle: timedelta | None, tick: Callable[[], None]) -> None:
        tick()

    def terminate(self) -> None:
        pass

    def failure(self, message: str) -> TapError:
        return TapError(message)
