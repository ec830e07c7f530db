"""Events for those who listen: each gets what comes from now on, as `text/event-stream`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

from bridge.exact_json import dumps

_WAITING = 1000
"""Events that wait for a listener; one that is slower misses some, and learns that by a gap in the ids."""
_MOST = 100
"""Listeners at once. Each has a connection, and the page needs some for other requests."""
_SILENCE = 15.0
"""Seconds after which a comment is sent, so that proxies do not close the connection."""


class Hub:
    """Passes events on, from any thread to any number of listeners. `listeners` is how many there are.

    `wake` is set whenever one comes: whoever looks for news need not look before.
    """

    def __init__(self) -> None:
        self.wake = threading.Event()
        self._lock = threading.Lock()
        self._queues: dict[asyncio.Queue[bytes | None], asyncio.AbstractEventLoop] = {}
        self._last = 0
        self._closed = False

    @property
    def listeners(self) -> int:
        return len(self._queues)

    @property
    def is_full(self) -> bool:
        """Whether no more may listen."""
        return len(self._queues) >= _MOST

    def publish(self, kind: str, facts: dict[str, Any]) -> None:
        """Send an event to everybody who listens."""
        with self._lock:
            self._last += 1
            text = f"id: {self._last}\nevent: {kind}\n".encode() + b"data: " + dumps(facts) + b"\n\n"
            self._send(text)

    def close(self) -> None:
        """End every connection, and each one that comes."""
        with self._lock:
            self._closed = True
            self._send(None)

    def _send(self, item: bytes | None) -> None:
        for queue, loop in list(self._queues.items()):
            if not loop.is_closed():
                loop.call_soon_threadsafe(_put, queue, item)

    async def listen(self) -> AsyncIterator[bytes]:
        """Yield events until the service ends. A comment comes at once, so that a client knows it is connected."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(_WAITING)
        with self._lock:
            if self._closed:
                return
            self._queues[queue] = asyncio.get_running_loop()
        self.wake.set()
        try:
            yield b": connected\nretry: 2000\n\n"
            while True:
                try:
                    item = await asyncio.wait_for(queue.get(), _SILENCE)
                except asyncio.TimeoutError:
                    yield b": still here\n\n"
                    continue
                if item is None:
                    return
                yield item
        finally:
            with self._lock:
                self._queues.pop(queue, None)


def _put(queue: asyncio.Queue[bytes | None], item: bytes | None) -> None:
    if queue.full():
        queue.get_nowait()
    queue.put_nowait(item)
