"""A plan of kills on one lake: which process, when; drawn from a seed, so that a plan can be had again.

A run without a kill comes first: it gives the lake its first rows and tells how long each process lives. A moment is
then a fraction of that life, or the instant at which a commit gets on record. A run that ends before its moment was a
clean run; the kill is tried again, earlier.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import psutil

from .oracle import check_bookmarks, check_clean
from .orchestrator import TARGETS, Missed, Orchestrator
from .project import Project

RUN_SECONDS = 90.0
"""A run that takes longer hangs; it takes about ten on a quiet machine."""
STOP_SECONDS = 30.0
"""How long the orchestrator may take to end without its JVM."""
ORPHAN_SECONDS = 5.0
"""How long a process may outlive its orchestrator."""

_TRIES = 6


@dataclass(frozen=True)
class Kill:
    """`moment` is a fraction of the target's life; with `commits` it is the instant of that commit of the run."""

    target: str
    moment: float
    commits: int = 0

    def __str__(self) -> str:
        return f"{self.target} at " + (f"commit {self.commits}" if self.commits else f"{self.moment:.2f} of its life")


def plan(seed: str, count: int) -> list[Kill]:
    """Return so many kills, every target once before any comes again. A third is at a commit's very instant."""
    rng = random.Random(seed)
    targets = [target for _ in range(-(-count // len(TARGETS))) for target in rng.sample(TARGETS, len(TARGETS))][:count]
    kills = [Kill(target, rng.random(), rng.choice([0, 0, 1])) for target in targets]
    return [kill if kill.target != "worker" else Kill("worker", kill.moment) for kill in kills]


@dataclass
class Campaign:
    """Runs on one project. `notes` tells what was done, in order, for whoever reads a failure."""

    project: Project
    kills: int = 0
    notes: list[str] = field(default_factory=list)
    exits: Counter[str] = field(default_factory=Counter)
    _lives: dict[str, float] = field(default_factory=dict)

    def clean_run(self, *, measure: bool = False) -> None:
        """Run to the end and hold the lake against the source."""
        self.project.grow(pause_ms=120 if measure else 0)
        state = self.project.next_state()
        with Orchestrator(self.project.folder) as run:
            if measure:
                self._measure(run)
            assert run.wait(RUN_SECONDS) == 0, run.stderr
            assert run.survivors(ORPHAN_SECONDS) == []
            assert run.result["status"] == "success", run.result
        check_clean(self.project, state)

    def _measure(self, run: Orchestrator) -> None:
        seen: dict[str, list[float]] = {}
        run.wait_for_records()
        while run.process.poll() is None:
            for target in TARGETS:
                if run.find(target):
                    seen.setdefault(target, []).append(time.monotonic())
            time.sleep(0.1)
        self._lives = {target: times[-1] - times[0] for target, times in seen.items()}
        assert set(self._lives) == set(TARGETS), "not every process was seen"

    def kill(self, kill: Kill) -> None:
        """Carry out one kill; what must hold at once is asserted, bookmarks and orphans included."""
        for number in range(_TRIES):
            self.project.grow()
            with Orchestrator(self.project.folder) as run:
                try:
                    self._victim(run, kill, misses=number).kill()
                except (Missed, psutil.NoSuchProcess):
                    assert run.wait(RUN_SECONDS) == 0, f"{self.notes}\n{run.stderr}"
                    continue
                self._outcome(run, kill)
                return
        raise AssertionError(f"never in time for {kill}")

    def _victim(self, run: Orchestrator, kill: Kill, *, misses: int) -> psutil.Process:
        run.wait_for_records()
        if kill.commits and not misses:  # on a slow machine the tap has ended before the first commit
            run.wait_for_commits(self.project.commits, kill.commits)
        else:
            run.wait_for(kill.target)
            time.sleep(kill.moment * 0.6**misses * self._lives[kill.target])
        victim = run.find(kill.target)
        if victim is None or run.process.poll() is not None:
            raise Missed
        return victim

    def _outcome(self, run: Orchestrator, kill: Kill) -> None:
        began, head = time.monotonic(), self.project.history.head()
        code = run.wait(STOP_SECONDS if kill.target in ("bridge", "jvm") else RUN_SECONDS)
        seconds = time.monotonic() - began
        survivors = run.survivors(ORPHAN_SECONDS)
        self.kills += 1
        self.exits[f"{kill.target}: {code}"] += 1
        self.notes.append(f"{kill}: commits {head}..{self.project.history.head()}, exit {code} after {seconds:.1f} s")
        assert survivors == [], f"{self.notes[-1]}: these live on: {survivors}"
        _CHECKS[kill.target](run, code)
        check_bookmarks(self.project)


def _bridge_killed(run: Orchestrator, code: int) -> None:
    assert code == -9


def _jvm_killed(run: Orchestrator, code: int) -> None:
    """Without its JVM a run fails and says so; one that had nothing left to do with it may succeed."""
    result = run.result
    if code == 0:
        assert result["status"] == "success"
        return
    assert (code, result["status"]) == (1, "failed"), run.stderr
    assert result["error"]["type"] == "EngineError", result["error"]
    assert "Spark" in result["error"]["message"], result["error"]


def _worker_killed(run: Orchestrator, code: int) -> None:
    """Spark runs a lost task again: nobody notices."""
    assert code == 0, run.stderr
    assert run.result["status"] == "success"


def _tap_killed(run: Orchestrator, code: int) -> None:
    """The tap's end is told with its signal."""
    assert code == 1, run.stderr
    result: dict[str, Any] = run.result
    assert result["status"] == "failed"
    assert result["error"]["type"] == "TapError"
    assert "SIGKILL" in result["error"]["message"], result["error"]


_CHECKS = {"bridge": _bridge_killed, "jvm": _jvm_killed, "worker": _worker_killed, "tap": _tap_killed}
