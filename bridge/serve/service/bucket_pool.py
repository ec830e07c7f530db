"""Calls that look at buckets, beside the service's loop. A bucket that does not answer holds up only its own."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class BucketPool:
    """Makes at most `at_once` calls for each bucket, in daemon threads; others wait. A thread ends with its last call.

    Nobody waits for them, not even the end of the process.
    """

    def __init__(self, name: str, at_once: int) -> None:
        self._name, self._at_once = name, at_once
        self._lock = threading.Lock()
        self._under_way: dict[str | None, Future[Any]] = {}
        self._waiting: defaultdict[str, deque[tuple[str | None, Future[Any], Callable[[], Any]]]] = defaultdict(deque)
        self._threads = Counter[str]()

    def submit(self, call: Callable[..., T], *args: Any, bucket: str = "", key: str | None = None) -> Future[T]:
        """Have it called; the result is in the future, and so is what it raises.

        While a call with that `key` is under way, it is not made again.
        """
        with self._lock:
            if future := self._under_way.get(key):
                return future
            future = Future[T]()
            if key is not None:
                self._under_way[key] = future
            self._waiting[bucket].append((key, future, partial(call, *args)))
            if self._threads[bucket] < self._at_once:
                self._threads[bucket] += 1
                threading.Thread(target=self._work, args=(bucket,), name=self._name, daemon=True).start()
            return future

    def _work(self, bucket: str) -> None:
        while True:
            with self._lock:
                if not self._waiting[bucket]:
                    self._threads[bucket] -= 1
                    return
                key, future, call = self._waiting[bucket].popleft()
            result, failure, is_awaited = None, None, future.set_running_or_notify_cancel()
            try:
                result = call() if is_awaited else None
            except BaseException as error:  # noqa: BLE001 - whoever asks for the result gets it
                failure = error
            with self._lock:
                self._under_way.pop(key, None)
            if failure:
                future.set_exception(failure)
            elif is_awaited:
                future.set_result(result)

    def close(self) -> None:
        """Forget the calls that wait."""
        with self._lock:
            self._waiting.clear()
