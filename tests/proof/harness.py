"""Start a pipeline, strike it at a random moment, start it again until it exits 0; in the end count its rows."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .counting import NOTHING, Count, count
from .source import Source
from .system import System

_RUN_SECONDS = 300
"""A run that takes longer hangs; all take about ten."""
_GRACE_SECONDS = 30
"""A run that has not ended so long after its signal is killed, as Kubernetes does."""
_STARTS = 5
"""So often a run is started again after a strike; if none exits 0, the system is stuck."""

Moment = Callable[[Path, Callable[[], bool]], bool]


class Stuck(Exception):
    """A run without a fault did not exit 0: the tail of its log."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended: the exit code as a shell tells it, and whether the fault came in time."""

    code: int
    seconds: float
    struck: bool


@dataclass
class Outcome:
    """What came of one system. `control` is the count after two runs without a fault, `final` the one at the end."""

    strikes: int = 0
    struck: Counter[int] = field(default_factory=Counter)
    """Exit codes of runs that were struck."""
    again: Counter[int] = field(default_factory=Counter)
    """Exit codes of the runs that followed, until one was 0."""
    control: Count = NOTHING
    final: Count = NOTHING


@dataclass
class Siege:
    """One system in the source's folder, which is emptied. Each run loads what the source got since the last one."""

    system: System
    source: Source
    chance: random.Random
    outcome: Outcome = field(default_factory=Outcome)

    def __post_init__(self) -> None:
        self.folder = self.source.folder
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def carry_out(self, strikes: int) -> Outcome:
        """Two runs in peace, then so many that are struck, each with the runs that its end asks for, and a last one."""
        self._grow()
        self._in_peace()
        self._grow()
        seconds = self._in_peace()
        self.outcome.control = self._count()
        tries = 0
        while self.outcome.strikes < strikes and tries < 3 * strikes:
            tries += 1
            self._grow()
            self._strike(self.system.fault.moment(self.chance, seconds))
        self._in_peace()
        self.outcome.final = self._count()
        return self.outcome

    def _grow(self) -> None:
        self.source.grow()
        self.system.set_up(self.source)

    def _count(self) -> Count:
        return count(self.system.numbers(self.folder), self.source.records)

    def _strike(self, moment: Moment) -> None:
        ending = self._run(self.system.line(self.source), moment)
        if ending.struck:
            self.outcome.strikes += 1
            self.outcome.struck[ending.code] += 1
        if ending.code:
            self._again()

    def _again(self) -> None:
        """What the documentation says after a failure, until it exits 0."""
        for start in range(_STARTS):
            line = self.system.line_again(self.source) if start else self.system.line(self.source)
            ending = self._run(line)
            self.outcome.again[ending.code] += 1
            if not ending.code:
                return
        raise Stuck(self._log_tail())

    def _in_peace(self) -> float:
        ending = self._run(self.system.line(self.source))
        if ending.code:
            raise Stuck(self._log_tail())
        return ending.seconds

    def _run(self, line: str, moment: Moment | None = None) -> Ending:
        log = self.folder / "run.log"
        started = time.monotonic()
        with log.open("wb") as out:
            run = subprocess.Popen(
                ["bash", "-c", line],
                cwd=self.folder,
                env=self.system.environ(self.folder),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        try:
            struck = bool(moment and moment(log, lambda: run.poll() is None))
            if struck:
                os.killpg(run.pid, self.system.fault.signal)
            code = _ended(run, _GRACE_SECONDS if struck else _RUN_SECONDS)
        finally:
            _ended(run, 0)
        return Ending(code if code >= 0 else 128 - code, time.monotonic() - started, struck)

    def _log_tail(self) -> str:
        return (self.folder / "run.log").read_text(encoding="utf-8", errors="replace")[-2000:]


def _ended(run: subprocess.Popen[bytes], seconds: float) -> int:
    """Wait for a run, and kill it if that takes longer; its exit code, negative for a signal."""
    try:
        return run.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        return run.wait()
