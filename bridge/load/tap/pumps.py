"""Reads several taps at once: each has a thread that only waits for its pipe.

The main thread handles their output, in the order in which it came. A tap that is faster than the main thread waits; a
silent tap delays nobody.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from queue import Empty, Full, Queue
from types import TracebackType

from bridge.load.tap.pipe import Feed

SIGNAL_GRACE = 0.05
"""Seconds after a tap's end in which a signal to us still counts: `systemctl stop` reaches both, the tap first."""

_LISTEN = 0.05
"""Seconds between two ticks while no tap sends anything."""
_STEP = 0.5
"""Seconds after which a waiting thread checks whether it should end."""

Output = bytes | None | BaseException
"""A chunk of output, `b""` at its end; None when the tap ended in good order, or the error that ended it."""


class _Stopped(Exception):
    """The reader of the taps has stopped."""


class Pumps:
    """A context manager with a thread for each tap; it ends with them. The caller starts and ends the taps."""

    def __init__(self, taps: Sequence[Feed], *, idle: timedelta | None) -> None:
        self._taps, self._idle = taps, idle
        self._outputs: Queue[tuple[int, Output]] = Queue(maxsize=1)
        self._live = set(range(len(taps)))
        self._stopped = [threading.Event() for _ in taps]
        self._left = threading.Event()
        self._threads = [
            threading.Thread(target=self._pump, args=(number, tap), name=f"tap-{number}", daemon=True)
            for number, tap in enumerate(taps)
        ]

    def __enter__(self) -> Pumps:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        self._join()

    def outputs(self, tick: Callable[[], None]) -> Iterator[tuple[int, Output]]:
        """Yield each tap's output until all have ended, as `Output`, with the tap's number.

        `tick` runs at least twice a second and may raise.
        """
        while self._live:
            tick()
            try:
                number, output = self._outputs.get(timeout=_LISTEN)
            except Empty:
                continue
            if number in self._live:
                if output is None or isinstance(output, BaseException):
                    self._live.discard(number)
                yield number, output

    @property
    def live(self) -> set[int]:
        """The taps that have neither ended nor been stopped."""
        return set(self._live)

    def stop(self, number: int) -> None:
        """Stop a tap, and read it no more. Its thread waits for its end."""
        self._live.discard(number)
        self._stopped[number].set()

    def stop_all(self) -> None:
        """Stop all that are left at once, and wait for their end."""
        for number in self.live:
            self.stop(number)
        self._left.set()
        self._join()

    def _join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _tick(self, number: int) -> None:
        if self._left.is_set() or self._stopped[number].is_set():
            raise _Stopped

    def _pump(self, number: int, tap: Feed) -> None:
        try:
            self._read(number, tap, lambda: self._tick(number))
        except _Stopped:
            if self._stopped[number].is_set():
                tap.terminate()
        except BaseException as error:  # noqa: BLE001 - whatever it was, the reader raises it
            with suppress(_Stopped):
                self._put(number, error)

    def _read(self, number: int, tap: Feed, tick: Callable[[], None]) -> None:
        for chunk in tap.chunks(idle=self._idle, tick=tick):
            self._put(number, chunk)
        self._put(number, b"")
        tap.wait(idle=self._idle, tick=tick)
        time.sleep(SIGNAL_GRACE)
        self._put(number, None)

    def _put(self, number: int, output: Output) -> None:
        while True:
            self._tick(number)
            try:
                return self._outputs.put((number, output), timeout=_STEP)
            except Full:
                continue
