"""What strikes a run, and when."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.venvs import NotInstalled

from .source import Source

_LOOK = 0.002
"""Seconds between two looks at a log."""

Moment = Callable[[Path, Callable[[], bool]], bool]
"""Is called with a run's log and a question, whether the run is alive; returns at the moment, False if it was over."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A run that is under way: its process group, its source, and a way to start the same line once more."""

    group: int
    source: Source
    start: Callable[[], subprocess.Popen[bytes]]


class Fault:
    """One kind of fault, at a random moment of a run."""

    suffix: str
    """The end of the names of the systems that it strikes."""
    at_most = 5
    """So many strikes are enough: what it does depends less on the moment than a kill."""
    ends_run = False
    """It tells the run to end: one that has not, half a minute later, is killed."""

    def moment(self, chance: random.Random, seconds: float) -> Moment:
        """Draw the moment of one strike in a run that takes `seconds`."""
        late = chance.random()
        return lambda log, alive: _wait(late * seconds, alive)

    def strike(self, victim: Victim) -> subprocess.Popen[bytes] | None:
        """At the moment; the result is a second run, if the fault is one."""
        raise NotImplementedError

    @contextmanager
    def place(self, folder: Path) -> Iterator[None]:
        """The empty folder of all runs, for the block."""
        yield

    def arm(self, folder: Path) -> None:
        """Called before a run that will be struck."""

    def heal(self, folder: Path) -> None:
        """Called when the struck run has ended, before it is started again."""


@dataclass(frozen=True, slots=True)
class Signal(Fault):
    """A signal to the whole pipeline: at a random moment, or up to `within` seconds after a word in its log."""

    signal: signal.Signals
    word: str = ""
    within: float = 0.0
    occurrences: int = 3
    """The word is waited for so many times at most: a random one of them counts."""
    ends_run = True
    at_most = 10**6

    def __str__(self) -> str:
        return f"{self.signal.name}{' while it drains' if self.word else ''}"

    def moment(self, chance: random.Random, seconds: float) -> Moment:
        """With a word, behind it."""
        count, late = chance.randint(1, self.occurrences), chance.random()
        if not self.word:
            return lambda log, alive: _wait(late * seconds, alive)
        return lambda log, alive: _read(log, self.word, count, alive) and _wait(late * self.within, alive)

    def strike(self, victim: Victim) -> None:
        """Send it to tap, target and shell alike."""
        os.killpg(victim.group, self.signal)


class Restart(Fault):
    """The source's server stops at once and starts again."""

    suffix = "restart"

    def __str__(self) -> str:
        return "PostgreSQL restarted"

    def strike(self, victim: Victim) -> None:
        """It is back when this returns."""
        victim.source.restart()


class Twice(Fault):
    """The same line is typed again while the run is under way."""

    suffix = "twice"

    def __str__(self) -> str:
        return "a second run at once"

    def strike(self, victim: Victim) -> subprocess.Popen[bytes]:
        """Both run to their end."""
        return victim.start()


class FullDisk(Fault):
    """The disk of the pipeline's folder, a small tmpfs, has no byte left until the run has ended. It takes root."""

    suffix = "full"
    _BYTES = 1 << 29
    _LEFT = 1 << 25
    """So much room a run has until the moment: less than takes a noticeable time to fill."""
    _FILLER = "filler"

    def __str__(self) -> str:
        return "a full disk"

    def strike(self, victim: Victim) -> None:
        """What is written so far stays."""
        self._fill(victim.source.folder, 0)

    def arm(self, folder: Path) -> None:
        """The disk is nearly full."""
        self._fill(folder, self._LEFT)

    def _fill(self, folder: Path, left: int) -> None:
        disk = os.statvfs(folder)
        with (folder / self._FILLER).open("ab", buffering=0) as filler:
            size = os.fstat(filler.fileno()).st_size
            for room in (disk.f_bavail * disk.f_frsize - left, *(disk.f_frsize for _ in range(0 if left else 1000))):
                with suppress(OSError):
                    os.posix_fallocate(filler.fileno(), size, max(room, 1))
                    size = os.fstat(filler.fileno()).st_size

    def heal(self, folder: Path) -> None:
        """There is room again."""
        (folder / self._FILLER).unlink(missing_ok=True)

    @contextmanager
    def place(self, folder: Path) -> Iterator[None]:
        """Mounts it, and unmounts it whatever happens."""
        mount = ["mount", "-t", "tmpfs", "-o", f"size={self._BYTES}", "proof", str(folder)]
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotInstalled(f"no small disk: {done.stderr.strip()}")
        try:
            yield
        finally:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)


KILL = Signal(signal.SIGKILL)
STOP = Signal(signal.SIGTERM)


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
