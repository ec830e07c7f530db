"""Pipelines with `notify`, looked at each minute: one that is stale, or whose run died, cannot tell of itself."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future

from bridge.errors import BridgeError
from bridge.lake.storage import lake_of
from bridge.serve.facts.after_run import look_at_clock
from bridge.serve.facts.facts import Fact
from bridge.serve.service.bucket_pool import BucketPool
from bridge.serve.service.log import ServiceLog
from bridge.settings.options import Pipeline

_EVERY = 60.0
"""Seconds between two looks at a pipeline."""
_AT_ONCE = 4
"""How many are looked at at once."""


class Clock:
    """Tells the receivers of pipelines what only the clock shows, in threads of its own: a receiver may hang."""

    def __init__(self, log: ServiceLog) -> None:
        self._log = log
        self._due = 0.0
        self._pool = BucketPool("clock", _AT_ONCE)
        self._looks: dict[str, Future[tuple[list[Fact], list[str]]]] = {}
        self._unreadable: set[str] = set()

    def tend(self, pipelines: Mapping[str, Pipeline]) -> None:
        """Start looks that are due, and report those that have ended. Nobody waits for them."""
        for name in [name for name, look in self._looks.items() if look.done()]:
            self._report(name, self._looks.pop(name))
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + _EVERY
        for name, pipeline in pipelines.items():
            if pipeline.notify and name not in self._looks:
                self._looks[name] = self._pool.submit(_look, pipeline)

    def close(self) -> None:
        """Start no more looks."""
        self._pool.close()

    def _report(self, name: str, look: Future[tuple[list[Fact], list[str]]]) -> None:
        try:
            facts, warnings = look.result()
        except Exception as error:  # noqa: BLE001 - whatever one bucket holds must not end the service
            if name not in self._unreadable:
                self._unreadable.add(name)
                cause = error.message if isinstance(error, BridgeError) else repr(error)
                self._log.noted(f"{name}: nobody is told whether it is stale, its bucket cannot be read: {cause}")
            return
        self._unreadable.discard(name)
        for text in (*(f"{fact.kind}: {fact.text}" for fact in facts), *warnings):
            self._log.noted(f"{name}: {text}")


def _look(pipeline: Pipeline) -> tuple[list[Fact], list[str]]:
    return look_at_clock(lake_of(pipeline.destination), pipeline)
