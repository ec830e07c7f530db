"""Asks buckets side by side. One that does not answer holds up what is asked of it, and nothing else."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class SideBySide:
    """Works in threads of its own, at most `at_once` for each bucket. The process does not wait for them at its end."""

    def __init__(self, name: str, at_once: int) -> None:
        self._name, self._at_once = name, at_once
        self._lock = threading.Lock()
        self._under_way: dict[str, Future[Any]] = {}
        self._queues: defaultdict[str, deque[tuple[str, Future[Any], Callable[[], Any]]]] = defaultdict(deque)
        self._threads: defaultdict[str, int] = defaultdict(int)

    def start(self, bucket: str, key: str, work: Callable[[], Any]) -> Future[Any]:
        """Begin to work for a bucket. While the work of that key is under way, it is not begun again."""
        with self._lock:
            if future := self._under_way.get(key):
                return future
            future = self._under_way[key] = Future()
            self._queues[bucket].append((key, future, work))
            if self._threads[bucket] < self._at_once:
                self._threads[bucket] += 1
                threading.Thread(target=self._work, args=(bucket,), name=self._name, daemon=True).start()
            return future

    def _work(self, bucket: str) -> None:
        while True:
            with self._lock:
                if not self._queues[bucket]:
                    self._threads[bucket] -= 1
                    return
                key, future, work = self._queues[bucket].popleft()
            result, failure = None, None
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - whoever waits for the future gets it
                failure = error
            with self._lock:
                del self._under_way[key]
            if failure is None:
                future.set_result(result)
            else:
                future.set_exception(failure)
