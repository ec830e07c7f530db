"""Start a pipeline, strike it at a random moment, start it again until it exits 0; in the end count its rows."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field

from .counting import NOTHING, Count, count
from .faults import Moment, Victim
from .measuring import Cost, Meter, metered
from .source import Source
from .system import System

_RUN_SECONDS = 300
"""A run that takes longer hangs; all take about ten."""
_GRACE_SECONDS = 30
"""A run that has not ended so long after its signal is killed, as Kubernetes does."""
_STARTS = 5
"""So often a run is started again after a strike; if none exits 0, the system is stuck."""
_SMALL = 1_000
"""Records of the run that tells how long a small one takes."""


class Stuck(Exception):
    """A run without a fault did not exit 0: the tail of its log."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended: the exit codes as a shell tells them, and whether the fault came in time."""

    codes: tuple[int, ...]
    seconds: float
    struck: bool
    meter: Meter

    @property
    def failed(self) -> bool:
        return any(self.codes)


@dataclass
class Outcome:
    """What came of one system. `control` is the count after two runs without a fault, `final` the one at the end."""

    strikes: int = 0
    struck: Counter[int] = field(default_factory=Counter)
    """Exit codes of runs that were struck."""
    again: Counter[int] = field(default_factory=Counter)
    """Exit codes of the runs that followed, until one was 0."""
    silent: int = 0
    """Runs that exited 0 and left rows lost or doubled that were not so before."""
    stuck: bool = False
    """After the last strike no run exited 0 any more."""
    control: Count = NOTHING
    final: Count = NOTHING
    cost: Cost | None = None


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
        self._last = NOTHING

    def carry_out(self, strikes: int) -> Outcome:
        """Runs in peace, then so many that are struck, each with the runs that its end asks for, and a last one."""
        with self.system.fault.place(self.folder):
            seconds = self._measure()
            tries = 0
            while self.outcome.strikes < strikes and tries < 3 * strikes and not self.outcome.stuck:
                tries += 1
                self._grow()
                self._strike(self.system.fault.moment(self.chance, seconds))
            if not self.outcome.stuck:
                self._in_peace()
            self.outcome.final = self._count()
        return self.outcome

    def _measure(self) -> float:
        """Three runs in peace, of which the last is small; the seconds that the second one took."""
        self._grow()
        self._in_peace()
        self._grow()
        second = self._in_peace()
        self._grow(_SMALL)
        small = self._in_peace()
        self.outcome.control = self._last = self._count()
        rate = self.source.added / max(second.meter.seconds, 0.01)
        self.outcome.cost = Cost(rate, second.meter.peak_bytes, small.seconds)
        return second.seconds

    def _grow(self, added: int = 0) -> None:
        self.source.grow(added)
        self.system.set_up(self.source)

    def _count(self) -> Count:
        return count(self.system.numbers(self.folder), self.source.records)

    def _strike(self, moment: Moment) -> None:
        self.system.fault.arm(self.folder)
        ending = self._run(self.system.line(self.source), moment)
        self.system.fault.heal(self.folder)
        if ending.struck:
            self.outcome.strikes += 1
            self.outcome.struck.update(ending.codes)
        if ending.failed:
            self._again()
        else:
            self._look()

    def _again(self) -> None:
        """What the documentation says after a failure, until it exits 0."""
        for start in range(_STARTS):
            line = self.system.line_again(self.source) if start else self.system.line(self.source)
            ending = self._run(line)
            self.outcome.again.update(ending.codes)
            if not ending.failed:
                self._look()
                return
        self.outcome.stuck = True

    def _look(self) -> None:
        """After an exit code of 0: is what it claims true?"""
        now = self._count()
        self.outcome.silent += int(not now.exact and now != self._last)
        self._last = now

    def _in_peace(self) -> Ending:
        ending = self._run(self.system.line(self.source))
        if ending.failed:
            raise Stuck((self.folder / "run.log").read_text(encoding="utf-8", errors="replace")[-2000:])
        return ending

    def _run(self, line: str, moment: Moment | None = None) -> Ending:
        started = time.monotonic()
        runs = [self._start(line, "run.log")]
        struck = False
        with metered(runs[0].pid) as meter:
            try:
                if moment and moment(self.folder / "run.log", lambda: runs[0].poll() is None):
                    struck = True
                    victim = Victim(runs[0].pid, self.source, lambda: self._start(line, "second.log"))
                    second = self.system.fault.strike(victim)
                    runs += [second] if second else []
                ends = struck and self.system.fault.ends_run
                codes = [_ended(run, _GRACE_SECONDS if ends else _RUN_SECONDS) for run in runs]
            finally:
                for run in runs:
                    _ended(run, 0)
        shown = tuple(code if code >= 0 else 128 - code for code in codes)
        return Ending(shown, time.monotonic() - started, struck, meter)

    def _start(self, line: str, log: str) -> subprocess.Popen[bytes]:
        with (self.folder / log).open("wb") as out:
            return subprocess.Popen(
                ["bash", "-c", line],
                cwd=self.folder,
                env=self.system.environ(self.folder),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )


def _ended(run: subprocess.Popen[bytes], seconds: float) -> int:
    """Wait for a run, and kill it if that takes longer; its exit code, negative for a signal."""
    try:
        return run.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        return run.wait()
