"""Where a load's messages come from: a pipe, read in large chunks, whoever writes at its other end."""

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
"""At most so many bytes come in one piece."""

_GATHER = timedelta(milliseconds=2)
_STEP = 0.05
"""Seconds between two ticks while nothing comes."""
LEFT_OPEN = timedelta(seconds=10)
"""Silence after a tap's exit that is the end of its output, though a program that it left holds the pipe open."""


class Silent(Exception):
    """Nothing came for as long as that was allowed."""


class Feed(Protocol):
    """What a load reads. `proves_end`: its end is known to be in good order, as that of a tap that exits 0."""

    @property
    def proves_end(self) -> bool: ...

    def chunks(self, *, idle: timedelta | None, tick: Callable[[], None]) -> Iterator[bytes]:
        """Yield what was written, until its end; `tick` runs at least twice a second, and may raise to end it."""
        ...

    def heard(self, messages: Iterable[Message]) -> Iterable[Message]:
        """Return those of the messages that are to be acted upon."""
        ...

    def wait(self, *, idle: timedelta | None, tick: Callable[[], None]) -> None:
        """Wait for the writer after the end of its output. Raises `TapError` if it is known to have failed."""
        ...

    def terminate(self) -> None:
        """Have no more written."""
        ...

    def failure(self, message: str) -> TapError:
        """Return the error that says what the writer did, and what it said last."""
        ...


def read_pipe(
    fd: int, *, idle: timedelta | None, tick: Callable[[], None], ended: Callable[[], bool] = lambda: False
) -> Iterator[bytes]:
    """Yield what comes, until its end. `tick` runs at least twice a second and may raise to end the reading.

    Once the writer has `ended`, it is the end, too, that nothing comes for `LEFT_OPEN`: something else holds the pipe.
    Raises `Silent` when nothing at all came for `idle`.
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
    """Read what is there now, up to one chunk; waits only for the first byte."""
    first = os.read(fd, _CHUNK)
    if not first or len(first) >= _SMALL:
        return first
    time.sleep(_GATHER.total_seconds())  # a tap that flushes every record should not cost us a wake-up for each
    if not select.select([fd], [], [], 0)[0]:
        return first
    return first + os.read(fd, _CHUNK)
