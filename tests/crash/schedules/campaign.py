"""Plays many schedules, and tells of those that break a promise so that they can be played again."""

from __future__ import annotations

import gc
import hashlib
import os
import platform
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from itertools import chain, islice
from itertools import count as from_on
from pathlib import Path

from .schedule import Outcome, Schedule, drawn, play
from .shrink import shrink
from .wrong import AIMED, COSTS_WORK, WRONG

_LOCK = Path(__file__).parents[3] / "uv.lock"
_TELL = 500
_COLLECT = 50
"""Schedules between two collections of garbage, which has its own time nowhere else."""


def circumstances() -> str:
    """What a replay needs beside the seed."""
    lock = hashlib.sha256(_LOCK.read_bytes()).hexdigest()[:16]
    versions = ", ".join(f"{name} {version(name)}" for name in ("pyarrow", "greenlet", "boto3"))
    return f"uv.lock {lock}, Python {platform.python_version()}, {versions}"


@contextmanager
def folder() -> Iterator[Path]:
    """A folder for the hosts' own files, in memory where there is such a one."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="schedules-", dir=memory, ignore_cleanup_errors=True) as name:
        yield Path(name) / "hosts"


def outcomes(schedules: Iterable[Schedule], homes: Path) -> Iterator[Outcome]:
    """What comes of each schedule."""
    gc.collect()
    gc.disable()
    try:
        for number, schedule in enumerate(schedules, 1):
            yield play(schedule, homes)
            if number % _COLLECT == 0:
                gc.collect()
    finally:
        gc.enable()


def first_broken(first: int, count: int, name: str) -> tuple[Outcome, int] | None:
    """The first of so many schedules that breaks a promise with this part done wrong, and how many it took.

    Schedules that cannot see it are left out.
    """
    wrong = (WRONG | COSTS_WORK)[name]
    suitable = (schedule for schedule in map(drawn, from_on(first)) if wrong.suits(schedule))
    schedules = islice(chain([AIMED[name]] if name in AIMED else [], suitable), count)
    with folder() as homes:
        play(drawn(0), homes)
        with wrong.applied():
            tried = enumerate(outcomes(schedules, homes), 1)
            return next(((outcome, number) for number, outcome in tried if outcome.broken), None)


def report(outcome: Outcome) -> str:
    """All that is to be told of a failure."""
    with folder() as homes:
        smallest = shrink(outcome, partial(play, homes=homes))
    seed = outcome.schedule.seed
    lines = [
        f"seed {seed}: {outcome.broken}",
        f"again: SEED={seed} SCHEDULES=1 python -m tests.crash.schedules",
        circumstances(),
        f"the schedule: {outcome.schedule}",
        "made smaller:",
        *smallest.operations,
        f"=> {smallest.broken}",
        f"play({smallest.schedule})",
    ]
    return "\n".join(lines)


def campaign(first: int, count: int, jobs: int = 1) -> int:
    """Play so many schedules; print each failure, and how fast it went. Returns how many failed."""
    began = time.monotonic()
    children = [_fork(range(first + number, first + count, jobs)) for number in range(jobs)]
    failed = sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children)
    took = time.monotonic() - began
    print(f"{count:,} schedules from seed {first} in {took:.0f} s, {count / took:.1f} a second", flush=True)
    return failed


@dataclass
class Tally:
    """What schedules went through."""

    schedules: int = 0
    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, outcome: Outcome) -> None:
        """One more."""
        self.schedules += 1
        self.counts["runs"].update(outcome.ends)
        self.counts["commits"].update(outcome.commits)
        self.counts["faults"].update(outcome.struck)

    def __str__(self) -> str:
        return "\n".join(f"{what}: {dict(counts.most_common())}" for what, counts in self.counts.items())


def _fork(seeds: Iterable[int]) -> int:
    child = os.fork()
    if child:
        return child
    code = 2
    try:
        with folder() as homes:
            broken, tally = 0, Tally()
            for outcome in outcomes(map(drawn, seeds), homes):
                broken += bool(outcome.broken) and _told(outcome)
                tally.add(outcome)
                if tally.schedules % _TELL == 0:
                    print(f"{tally.schedules:,} schedules, {broken} broken", flush=True)
        print(tally, flush=True)
        code = 1 if broken else 0
    finally:
        os._exit(code)  # threads of libraries are of no interest any more


def _told(outcome: Outcome) -> bool:
    print(report(outcome), flush=True)
    return True
