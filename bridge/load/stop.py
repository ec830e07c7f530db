"""How a run, or a wait between runs, is stopped from outside: by a signal, or by a time limit."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType, TracebackType
from typing import Any

from bridge.errors import Interrupted, TimedOut

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STEP = 0.1
"""Seconds within which a wait notices a signal."""

_AT_ONCE = b"stopped at once; what was committed stays, run again\n"


class Stop:
    """Tells whether to stop.

    Inside `with`, `tick` raises after the first signal; a second one ends the process at once.

    It may be entered again inside itself: several runs, and the waits between them, share one. Without `signals` it
    leaves signals to the program, so it works in any thread; only a limit makes it raise.
    """

    def __init__(self, *, signals: bool = True) -> None:
        self._numbers = _NUMBERS if signals else ()
        self._signal = 0
        self._limit: timedelta | None = None
        self._end = float("inf")
        self._depth = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if not self._depth:
            self._before = {number: signal.signal(number, self._signalled) for number in self._numbers}
        self._depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if not self._depth:
            for number, before in self._before.items():
                signal.signal(number, before)

    def _signalled(self, number: int, _: FrameType | None) -> None:
        if self._signal:
            # The progress display has hidden the cursor, somewhere in its last frame.
            shown = b"\x1b[?25h\x1b[J\n" if os.isatty(2) else b""
            with suppress(OSError):  # stderr may be closed
                os.write(2, shown + _AT_ONCE)
            os._exit(128 + number)  # the guard stops the tap, the JVM ends with us, the next run repairs
        self._signal = number

    def tick(self) -> None:
        """Raise `Interrupted` after a signal, `TimedOut` after the limit."""
        if self._signal:
            raise Interrupted(self._signal)
        if time.monotonic() > self._end:
            hint = "what was committed stays, run again to go on from there; or raise --timeout"
            raise TimedOut("the run took longer than its time-out", hint=hint, timeout=self._limit)

    @contextmanager
    def within(self, limit: timedelta | None) -> Iterator[None]:
        """Have `tick` raise `TimedOut` when the block takes longer than `limit`; None is no limit."""
        self._limit, self._end = limit, time.monotonic() + limit.total_seconds() if limit else float("inf")
        try:
            yield
        finally:
            self._limit, self._end = None, float("inf")

    def sleep(self, duration: timedelta) -> None:
        """Wait. Raises what `tick` raises, at once."""
        end = time.monotonic() + duration.total_seconds()
        self.tick()
        while (rest := end - time.monotonic()) > 0:
            time.sleep(min(_STEP, rest))
            self.tick()
