"""The answer to `/metrics`: the figures of all pipelines, as their buckets have them now."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import Future, wait

from bridge.errors import BridgeError
from bridge.serve.facts.metrics import Figures, figures, metrics_text, unreadable
from bridge.serve.service.bucket_pool import BucketPool
from bridge.serve.service.web.pipelines import ListedPipeline

_AT_ONCE = 8
"""Pipelines of a bucket that are read in parallel."""
_DEADLINE = 8.0
"""Seconds. Prometheus gives up after 10."""
_LOG = logging.getLogger(__name__)


class Scrape:
    """Reads the figures within a deadline. A pipeline that cannot be read, or not in time, is `readable 0`."""

    def __init__(self) -> None:
        self._readers = BucketPool("figures", _AT_ONCE)
        self._reported: set[str] = set()

    def text(self, pipelines: Iterable[ListedPipeline]) -> str:
        """The answer. Raises `SettingsError` without the extra `metrics`."""
        futures: dict[str, Future[Figures]] = {}
        for shown in pipelines:
            bucket = shown.log.storage.uri if shown.log else ""
            futures[shown.key] = self._readers.submit(self._figures, shown, bucket=bucket, key=shown.key)
        wait(futures.values(), _DEADLINE)
        return metrics_text(future.result() if future.done() else unreadable(key) for key, future in futures.items())

    def _figures(self, shown: ListedPipeline) -> Figures:
        try:
            result = figures(shown.lake.storage, shown.lake.pipeline, shown.settings.stale_after)
        except Exception as error:  # noqa: BLE001 - whatever one bucket holds must not hide the others
            if not isinstance(error, BridgeError) and shown.key not in self._reported:
                self._reported.add(shown.key)
                _LOG.exception("%s: its figures cannot be read", shown.key)
            return unreadable(shown.key)
        self._reported.discard(shown.key)
        return result
