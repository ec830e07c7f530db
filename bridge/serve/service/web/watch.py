"""Looks at the pipelines: when a page is asked for, and again and again while somebody listens for events."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from bridge.errors import BridgeError
from bridge.lake.log import Log
from bridge.serve.service.bucket_pool import BucketPool
from bridge.serve.service.runs import LiveRun, Runs
from bridge.serve.service.web.hub import Hub
from bridge.serve.service.web.pipeline_status import PipelineStatus, look, silence, silent
from bridge.serve.service.web.pipelines import ListedPipeline, ServedPipelines

_EVERY = 1.0
"""Seconds between two looks, at least; twenty times the CPU of a look, so that it costs a twentieth of a core."""
_SHARE = 20
_PATIENCE = 0.08
"""Seconds that a page of all pipelines waits for a look; it then shows what was seen before."""
_FRESH = 0.5
_AT_ONCE = 16
"""Pipelines of one bucket that are looked at in parallel."""
_DEADLINE = 5.0
"""Seconds that a bucket has to answer. What it says later counts when it comes."""
_GRACE = 1.0
"""Seconds that the end of the service waits for a look."""
_LOG = logging.getLogger(__name__)
T = TypeVar("T")


class Watch:
    """The latest status of all pipelines. Any thread may ask; one thread looks."""

    def __init__(self, pipelines: ServedPipelines, runs: Runs, hub: Hub) -> None:
        self.pipelines, self._runs, self._hub = pipelines, runs, hub
        self._sights: dict[str, PipelineStatus] = {}
        self._looks, self._reads = BucketPool("sight", _AT_ONCE), BucketPool("read", _AT_ONCE)
        self._late = set[Future[PipelineStatus]]()
        self._looked = float("-inf")
        self._seen = threading.Condition()
        self._begun = self._ended = 0
        self._closed = False
        self._progress: dict[str, tuple[float, int, float]] = {}
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to look: the first time at once, so that the first page need not wait."""
        self._hub.wake.set()
        thread = threading.Thread(target=self._work, name="watch", daemon=True)
        with self._seen:
            if not self._closed:
                thread.start()
                self._thread = thread

    def close(self) -> None:
        """End looking, for good, and every connection that waits for events."""
        with self._seen:
            self._closed = True
            thread = self._thread
            self._seen.notify_all()
        self._hub.wake.set()
        self._hub.close()
        if thread:
            thread.join(_GRACE)

    def all(self, patience: float | None = None) -> list[PipelineStatus]:
        """How all pipelines stand, in order; those never seen yet are without a status.

        It was so a moment ago, or before, if a look takes long. With `patience`, in seconds, a new look is waited for.
        """
        if patience is not None or time.monotonic() - self._looked > _FRESH:
            with self._seen:
                last = self._begun  # one that has begun may have passed by what is new
                self._hub.wake.set()
                self._seen.wait_for(lambda: self._ended > last or self._closed, patience or _PATIENCE)
        every = self.pipelines.all().items()
        return [self._sights.get(key) or PipelineStatus(shown, error=shown.error) for key, shown in every]

    def one(self, shown: ListedPipeline) -> PipelineStatus:
        """How a pipeline stands now, as far as its bucket says so in time."""
        before = self._sights.get(shown.key)
        if shown.log is None or shown.log.storage.parallel == 1:
            sight = look(shown, before)
            if self._thread is None:
                self._sights[shown.key] = sight
            return sight
        looking = self._start(shown, shown.log)
        wait([looking], _DEADLINE)
        return looking.result() if looking.done() else silent(shown, before)

    def first_read(self, shown: ListedPipeline, read: Callable[[], T]) -> T:
        """Read something small of a pipeline's bucket, for who needs no sight. Raises `LakeError` as a sight does."""
        if shown.lake.storage.parallel == 1:
            return read()
        reading = self._reads.submit(read, bucket=shown.lake.storage.uri)
        wait([reading], _DEADLINE)
        if not reading.done():
            raise silence(shown)
        return reading.result()

    def live(self, key: str | None = None) -> list[LiveRun]:
        """The runs of this service that have not ended, of one pipeline or of all."""
        return [run for run in self._runs.live() if key in (None, run.pipeline)]

    def rate(self, run: LiveRun) -> float | None:
        """Records a second of a run, over the last seconds in which somebody watched; None if nobody knows yet."""
        noted = self._progress.get(run.run_id)
        return noted[2] if noted and noted[2] >= 0 else None

    def _work(self) -> None:
        pause = _EVERY
        while not self._closed:
            if not self._hub.wake.wait(pause) and not self._hub.listeners:
                continue
            with self._seen:
                self._hub.wake.clear()
                self._begun += 1
            began = time.process_time()
            try:
                self._look()
            except BridgeError as error:  # the next look may do better
                self._hub.publish("problem", {"message": error.message, "hint": error.hint})
            except Exception:  # noqa: BLE001 - whatever it was, the page goes on
                _LOG.exception("the page could not look at the pipelines")
            pause = max(_EVERY, _SHARE * (time.process_time() - began)) if self._hub.listeners else 60.0
            with self._seen:
                self._ended = self._begun
                self._looked = time.monotonic()
                self._seen.notify_all()

    def _look(self) -> None:
        every = self.pipelines.all()
        elsewhere = {s.key: self._start(s, s.log) for s in every.values() if s.log and s.log.storage.parallel > 1}
        for key, shown in every.items():
            if key not in elsewhere:
                self._see(shown)
        wait([looking for looking in elsewhere.values() if looking not in self._late], _DEADLINE)
        late = {key: looking for key, looking in elsewhere.items() if not looking.done()}
        self._late = set(late.values())  # the next look does not wait for them once more
        for key in late:
            self._sights[key] = silent(every[key], self._sights.get(key))
        for key in self._sights.keys() - every.keys():
            self._sights.pop(key, None)
        self._note_progress()

    def _start(self, shown: ListedPipeline, log: Log) -> Future[PipelineStatus]:
        return self._looks.submit(self._see, shown, bucket=log.storage.uri, key=shown.key)

    def _see(self, shown: ListedPipeline) -> PipelineStatus:
        """Look at a pipeline. What is new is an event at once, whatever the other buckets do."""
        before = self._sights.get(shown.key)
        sight = self._sights[shown.key] = look(shown, before)
        for kind, facts in _news(before, sight):
            self._hub.publish(kind, facts)
        return sight

    def _note_progress(self) -> None:
        now, progress = time.monotonic(), {}
        for run in self._runs.live():
            at, records, rate = self._progress.get(run.run_id, (now, run.records, -1.0))
            if now - at >= _EVERY:
                at, records, rate = now, run.records, (run.records - records) / (now - at)
            progress[run.run_id] = (at, records, rate)
            facts = {"pipeline": run.pipeline, "run_id": run.run_id, "status": run.status, "stage": run.stage}
            self._hub.publish("progress", facts | {"records": run.records, "rate": max(0, round(rate))})
        self._progress = progress


def _news(before: PipelineStatus | None, after: PipelineStatus) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events between two looks at a pipeline."""
    if before is None or before is after or before.status is None or after.status is None:
        return
    old = {run.run_id: run.status for run in before.runs}
    newest = before.runs[0].run_id if before.runs else ""
    for run in reversed(after.runs):
        if run.run_id not in old and run.run_id < newest:
            continue  # it was older than all that were seen
        facts: dict[str, Any] = {"pipeline": after.key, "run_id": run.run_id, "status": run.status}
        facts |= {"read": run.read, "records": run.records}
        if run.run_id not in old:
            yield "run_started", facts | {"started": run.started}
        if run.status != "running" and old.get(run.run_id, "running") == "running":
            yield "run_ended", facts | {"ended": run.ended, "error": run.error or None}
    if after.changed != before.changed:
        yield "committed", {"pipeline": after.key, "commit": after.changed, "rows": after.status["rows"]}
