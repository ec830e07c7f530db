"""Reads a pipe in large chunks; `Feed` is what a load reads: a tap that we start, or standard input."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Protocol

from bridge.errors import TapError
from bridge.protocol.singer.messages import Message

_CHUNK = 1 << 20
_SMALL = 1 << 16
READ_BYTES = _SMALL + _CHUNK
"""The largest chunk."""

_GATHER = timedelta(milliseconds=2)
_STEP = 0.05
"""Seconds between two ticks while the pipe is silent."""
LEFT_OPEN = timedelta(seconds=10)
"""After a tap's exit, this much silence ends its output, even if a program that it started holds the pipe open."""


class Silent(Exception):
    """Nothing came for longer than allowed."""


class Feed(Protocol):
    """The input of a load. `proves_end`: its exit code tells us whether it ended well; a pipe's end does not."""

    @property
    def proves_end(self) -> bool: ...

    def chunks(self, *, idle: timedelta | None, tick: Callable[[], None]) -> Iterator[bytes]:
        """Yield chunks until the end; `tick` runs at least twice a second, and may raise to end the reading."""
        ...

    def select_messages(self, messages: Iterable[Message]) -> Iterable[Message]:
        """The messages to act upon; a target may rewrite or drop some."""
        ...

    def wait(self, *, idle: timedelta | None, tick: Callable[[], None]) -> None:
        """Wait for the writer after the end of its output. Raises `TapError` if we know that it failed."""
        ...

    def terminate(self) -> None:
        """Stop the writer."""
        ...

    def failure(self, message: str) -> TapError:
        """An error with the writer's last lines on stderr, if we have them."""
        ...


def read_pipe(
    fd: int, *, idle: timedelta | None, tick: Callable[[], None], ended: Callable[[], bool] = lambda: False
) -> Iterator[bytes]:
    """Yield chunks until the end. `tick` runs at least twice a second, and may raise to end the reading.

    If the writer has `ended` but another process keeps the pipe open, silence for `LEFT_OPEN` is the end, too. Raises
    `Silent` if nothing at all came for `idle`.
    """
    last, limit = time.monotonic(), idle.total_seconds() if idle else float("inf")
    alone: float | None = None
    while True:
        tick()
        if not select.select([fd], [], [], _STEP)[0]:
            if ended():
                alone = alone or time.monotonic()
                if time.monotonic() - max(alone, last) > LEFT_OPEN.total_seconds():
                    return
            elif time.monotonic() - last > limit:
                raise Silent
            continue
        chunk = _fill(fd)
        if not chunk:
            return
        yield chunk
        last = time.monotonic()  # time spent on our side of the pipe is not the writer's silence


def _fill(fd: int) -> bytes:
    """Read what is available now, up to one chunk; waits only for the first byte."""
    first = os.read(fd, _CHUNK)
    if not first or len(first) >= _SMALL:
        return first
    time.sleep(_GATHER.total_seconds())  # a tap that flushes every record should not cost us a wake-up for each
    if not select.select([fd], [], [], 0)[0]:
        return first
    return first + os.read(fd, _CHUNK)
