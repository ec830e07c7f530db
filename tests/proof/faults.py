"""Which signal strikes a run, and when."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_LOOK = 0.002
"""Seconds between two looks at a log."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A signal to the whole pipeline: at a random moment, or up to `within` seconds after a word in its log."""

    signal: signal.Signals
    word: str = ""
    within: float = 0.0
    occurrences: int = 3
    """The word is waited for so many times at most: a random one of them counts."""

    def __str__(self) -> str:
        return f"{self.signal.name}{' while it drains' if self.word else ''}"

    def moment(self, chance: random.Random, seconds: float) -> Callable[[Path, Callable[[], bool]], bool]:
        """Draw the moment of one strike in a run that takes `seconds`.

        The result is called with the run's log and a question, whether the run is alive; it returns at the moment,
        with False if the run was over before.
        """
        count, late = chance.randint(1, self.occurrences), chance.random()
        if not self.word:
            return lambda log, alive: _wait(late * seconds, alive)
        return lambda log, alive: _read(log, self.word, count, alive) and _wait(late * self.within, alive)


KILL = Fault(signal.SIGKILL)
STOP = Fault(signal.SIGTERM)


def _wait(seconds: float, alive: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while alive():
        if time.monotonic() >= end:
            return True
        time.sleep(min(_LOOK, max(0.0, end - time.monotonic())))
    return False


def _read(log: Path, word: str, count: int, alive: Callable[[], bool]) -> bool:
    while alive():
        if log.read_text(encoding="utf-8", errors="replace").count(word) >= count:
            return True
        time.sleep(_LOOK)
    return False
