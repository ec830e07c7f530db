"""Calls that look at buckets, at the side of the service's loop. Nobody waits for them, not even the process's end."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Looks:
    """At most `threads` calls at once, in daemon threads; others wait. An executor's threads end with its last call."""

    def __init__(self, threads: int, name: str) -> None:
        self._threads, self._name = threads, name
        self._lock = threading.Lock()
        self._waiting = deque[Callable[[], None]]()
        self._working = 0

    def submit(self, call: Callable[..., T], *args: Any) -> Future[T]:
        """Call it in a thread; the result is in the future, and so is what it raises."""
        future = Future[T]()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(call(*args))
            except BaseException as error:  # noqa: BLE001 - whoever asks for the result gets it
                future.set_exception(error)

        with self._lock:
            self._waiting.append(work)
            if self._working < self._threads:
                self._working += 1
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._working -= 1
                    return
                work = self._waiting.popleft()
            work()

    def close(self) -> None:
        """Forget the calls that wait."""
        with self._lock:
            self._waiting.clear()
