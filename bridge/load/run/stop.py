"""How a run, or a wait between runs, is stopped from outside: by a signal, or by a time limit."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType, TracebackType
from typing import Any, ParamSpec

from bridge.errors import BridgeError, EngineError, Interrupted, TapError, TimedOut

P = ParamSpec("P")
_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STEP = 0.1
"""Seconds within which a wait notices a signal."""
_GRACE = 60.0
"""Seconds that a run may take to end without a sign of life."""
_LAST_WORDS = 10.0
"""Seconds that the record of a run which does not end may take."""

_AT_ONCE = "stopped at once; what was committed stays, run again"


def _end_process(code: int, words: str) -> None:
    """End this process now. The tap's guard stops the tap, the JVM ends with us, the next run repairs."""
    # The progress display has hidden the cursor, somewhere in its last frame.
    shown = "\x1b[?25h\x1b[J\n" if os.isatty(2) else ""
    with suppress(OSError):  # stderr may be closed
        os.write(2, f"{shown}{words}\n".encode(errors="replace"))
    os._exit(code)


class Stop:
    """Tells whether to stop.

    Inside `with`, `tick` raises after the first signal; a second one ends the process at once.

    It may be entered again inside itself: several runs, and the waits between them, share one. Without `signals` it
    leaves signals to the program, so it works in any thread; only a limit makes it raise.
    """

    def __init__(self, *, signals: bool = True) -> None:
        self.grace = _GRACE
        self._numbers = _NUMBERS if signals else ()
        self._signal, self._alive = 0, 0.0
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
            _end_process(128 + number, _AT_ONCE)
        self._signal, self._alive = number, time.monotonic()

    @property
    def received(self) -> int:
        """The first signal that came; 0 before it."""
        return self._signal

    def tick(self) -> None:
        """Raise `Interrupted` after a signal, `TimedOut` after the limit."""
        self._alive = time.monotonic()
        if error := self._reason():
            raise error

    def _reason(self) -> BridgeError | None:
        if self._signal:
            return Interrupted(self._signal)
        if time.monotonic() > self._end:
            hint = "what was committed stays, run again to go on from there; or raise --timeout"
            return TimedOut("the run took longer than its time-out", hint=hint, timeout=self._limit)
        return None

    def cause(self, error: BridgeError) -> BridgeError:
        """The error to report: a signal to all of a service's processes also ends the tap and Spark's JVM."""
        return Interrupted(self._signal) if self._signal and isinstance(error, (TapError, EngineError)) else error

    @contextmanager
    def within(self, limit: timedelta | None, give_up: Callable[[BridgeError], None] | None = None) -> Iterator[None]:
        """Make `tick` raise `TimedOut` when the block takes longer than `limit`; None is no limit.

        A block that is to end and calls no `tick` for `grace` seconds is stuck: `give_up` is called with the reason, in
        another thread, and the process ends. Not without signals, as the process is the caller's then.
        """
        self._limit, self._end = limit, time.monotonic() + limit.total_seconds() if limit else float("inf")
        self._alive, ended = time.monotonic(), threading.Event()
        if give_up and self._numbers:
            threading.Thread(target=self._watch, args=(ended, give_up), name="watchdog", daemon=True).start()
        try:
            yield
        finally:
            ended.set()
            self._limit, self._end = None, float("inf")

    def _watch(self, ended: threading.Event, give_up: Callable[[BridgeError], None]) -> None:
        while not ended.wait(_STEP):
            reason = self._reason()
            since = max(self._alive, 0.0 if self._signal else self._end)
            if reason and time.monotonic() > since + self.grace:
                writer = threading.Thread(target=give_up, args=(reason,), daemon=True)
                writer.start()
                writer.join(_LAST_WORDS)  # what the run waits for may be the bucket
                _end_process(reason.exit_code, f"error: {reason.message}\nhint: {reason.hint}")

    def aside(self, work: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Do what may never answer. Raises what `tick` raises, at once; then nobody waits for the work any more."""
        failure = list[BaseException]()

        def run() -> None:
            try:
                work(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - raised below
                failure.append(error)

        worker = threading.Thread(target=run, name="aside", daemon=True)
        worker.start()
        while worker.is_alive():
            self.tick()
            worker.join(_STEP)
        if failure:
            raise failure[0]

    def sleep(self, duration: timedelta) -> None:
        """Wait. Raises what `tick` raises, at once."""
        end = time.monotonic() + duration.total_seconds()
        self.tick()
        while (rest := end - time.monotonic()) > 0:
            time.sleep(min(_STEP, rest))
            self.tick()
