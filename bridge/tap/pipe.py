"""Where a load's messages come from: a pipe, read in large chunks, whoever writes to it."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Protocol

from bridge.errors import TapError
from bridge.singer.messages import Message

_CHUNK = 1 << 20
_SMALL = 1 << 16
READ_BYTES = _SMALL + _CHUNK
"""At most this many bytes come in one piece."""

_GATHER = timedelta(milliseconds=2)
_STEP = 0.05
"""Seconds between two ticks while nothing comes."""
LEFT_OPEN = timedelta(seconds=10)
"""After a tap's exit, this much silence ends its output, even if a program that it started holds the pipe open."""


class Silent(Exception):
    """Nothing came for longer than allowed."""


class Feed(Protocol):
    """What a load reads. `proves_end`: we know whether it ended in good order, as with a tap that exits 0."""

    @property
    def proves_end(self) -> bool: ...

    def chunks(self, *, idle: timedelta | None, tick: Callable[[], None]) -> Iterator[bytes]:
        """Yield what comes, until its end; `tick` runs at least twice a second, and may raise to end the reading."""
        ...

    def heard(self, messages: Iterable[Message]) -> Iterable[Message]:
        """Return the messages to act upon."""
        ...

    def wait(self, *, idle: timedelta | None, tick: Callable[[], None]) -> None:
        """Wait for the writer after the end of its output. Raises `TapError` if we know that it failed."""
        ...

    def terminate(self) -> None:
        """Stop the writer."""
        ...

    def failure(self, message: str) -> TapError:
        """The error that says what the writer did, with its last lines on stderr."""
        ...


def read_pipe(
    fd: int, *, idle: timedelta | None, tick: Callable[[], None], ended: Callable[[], bool] = lambda: False
) -> Iterator[bytes]:
    """Yield what comes, until its end. `tick` runs at least twice a second and may raise to end the reading.

    If the writer has `ended` but something else holds the pipe, `LEFT_OPEN` of silence is the end, too. Raises `Silent`
    when nothing at all came for `idle`.
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
