"""Several taps read at once, into one thread: each by a thread that only waits for its pipe.

What they say is acted upon by one thread alone, in the order in which it came. Whoever has more to say than that one
takes waits, and its pipe with it; a tap that says nothing holds up nobody.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from queue import Empty, Full, Queue
from types import TracebackType

from bridge.tap.pipe import Feed

SIGNAL_GRACE = 0.05
"""Seconds after a tap's end in which a signal to us still counts: `systemctl stop` reaches both, the tap first."""

_LISTEN = 0.05
"""Seconds between two ticks while no tap says anything."""
_STEP = 0.5
"""Seconds after which a thread that waits looks whether it shall end."""

Said = bytes | None | BaseException
"""A chunk of output; nothing of it any more; that the tap ended in good order; or how it did not."""


class _Stopped(Exception):
    """Nobody listens any more."""


class Pumps:
    """A thread for each of the taps while it is entered; leaving it waits for them. The taps are started, and are ended
    by who started them.
    """

    def __init__(self, taps: Sequence[Feed], *, idle: timedelta | None) -> None:
        self._taps, self._idle = taps, idle
        self._said: Queue[tuple[int, Said]] = Queue(maxsize=1)
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

    def heard(self, tick: Callable[[], None]) -> Iterator[tuple[int, Said]]:
        """Yield what each of the taps says until all have ended; `tick` runs at least twice a second and may raise.

        Of each: chunks, `b""` at the end of its output, and None once it has exited 0; or the error that ended it.
        """
        while self._live:
            tick()
            try:
                number, said = self._said.get(timeout=_LISTEN)
            except Empty:
                continue
            if number in self._live:
                if said is None or isinstance(said, BaseException):
                    self._live.discard(number)
                yield number, said

    @property
    def live(self) -> set[int]:
        """The taps that have not ended, and were not stopped."""
        return set(self._live)

    def stop(self, number: int) -> None:
        """Have a tap stopped, and hear no more of it. Its thread waits until it is gone."""
        self._live.discard(number)
        self._stopped[number].set()

    def stop_all(self) -> None:
        """Stop those that are left, all at once, and wait until they are gone."""
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
            self._read(number, tap, partial(self._tick, number))
        except _Stopped:
            if self._stopped[number].is_set():
                tap.terminate()
        except BaseException as error:  # noqa: BLE001 - whatever it was, who listens raises it
            with suppress(_Stopped):
                self._say(number, error)

    def _read(self, number: int, tap: Feed, tick: Callable[[], None]) -> None:
        for chunk in tap.chunks(idle=self._idle, tick=tick):
            self._say(number, chunk)
        self._say(number, b"")
        tap.wait(idle=self._idle, tick=tick)
        time.sleep(SIGNAL_GRACE)
        self._say(number, None)

    def _say(self, number: int, said: Said) -> None:
        while True:
            self._tick(number)
            try:
                return self._said.put((number, said), timeout=_STEP)
            except Full:
                continue
