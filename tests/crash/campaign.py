"""A plan of kills on one lake, drawn from a seed, so that it can be had again; and what must hold at once after each.

Runs are chained: the run after a kill repairs what that left, loads on, and is the next victim; some are killed while
they repair. A kill aims at a step of the commit protocol, by waiting for what the bucket shows or by a strike (an
audit hook in the victim, see strike/sitecustomize.py); what it is counted as, the autopsy says. A run that ended before
its moment was a clean run; the kill is tried again.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil

from .autopsy import Autopsy, Finding
from .lakes import Folder
from .oracle import check_bookmarks, check_clean
from .orchestrator import TARGETS, Missed, Orchestrator, Strike
from .project import Project

RUN_SECONDS = 240.0
"""A run that takes longer hangs; it takes about ten on a quiet machine."""
STOP_SECONDS = 30.0
"""How long the orchestrator may take to end without its JVM."""
ORPHAN_SECONDS = 60.0
"""How long a process may outlive its orchestrator: two seconds on a quiet machine. A leaked one lives on for ever."""
CLEAN_EVERY = 10
"""After so many kills a run is left alone and the whole lake is held against the source."""

_TRIES = 6
_SLOW_MS = 200
"""The tap's pause after each STATE where a run has to make several commits."""
_WAITING_MS = 500
"""The same where the tap must still be at it, however slowly Spark starts: the kill ends the run anyway."""

_LOCAL = {
    "before record": "os.link .*/commits/",
    "record": r"os.remove .*/commits/\.",
    "visible": r"os.rename .*/pending/.* .*/lake/crash/\w+/part-|ctypes.dlsym .*renameat2",
    "manifest": r"os.rename .*/\.bridge/tables/.*manifest",
    "state": r"os.rename .*/crash/(state|published)\.json",
    "streams": "os.rename .*/crash/streams/",
    "run record": "os.rename .*/crash/runs/",
    "scratch": "shutil.rmtree .*/(spool|checkpoint)/",
    "lease": r"os.truncate \d+ 0",
    "close": r"os.truncate \d+ 0",
    "writing": r"open .*/pending/part-",
}
# Not a pending file, nor the bytes of an upload that is completed once its commit is on record.
_PUBLISHED = (
    r"http.client.send (PUT|POST) \S*/crash/(?!pending/)\w+/part-(?!\S*(uploads|partNumber|comp=block(?!list)))"
)
_S3 = {
    "before record": r"http.client.send PUT \S*/crash/commits/",
    "record": _PUBLISHED,
    "visible": _PUBLISHED,
    "manifest": r"http.client.send PUT \S*/\.bridge/tables/\S*manifest",
    "state": r"http.client.send PUT \S*/crash/(state|published)\.json",
    "streams": r"http.client.send PUT \S*/crash/streams/",
    "run record": r"http.client.send PUT \S*/crash/runs/",
    "scratch": "shutil.rmtree .*/(spool|checkpoint)/",
    "lease": r"http.client.send PUT \S*/crash/lease\.json",
    "close": "shutil.rmtree .*/checkpoint/",  # the lease is renewed all the time, its last renewal looks like any other
    "writing": r"http.client.send (PUT|POST) \S*/part-",
}
"""What is about to happen at the instant of a strike. `record` is the first thing after a record is there."""
_BODY = r'http.client.send .*"name": "\S*'
"""The part of an upload that names the object; it is sent after the line and the headers, before the bytes."""
_GCS = {
    "before record": rf"{_BODY}/crash/commits/",
    "record": r"http.client.send POST \S*/rewriteTo/\S*%2Fcrash%2F\w+%2Fpart-",
    "visible": r"http.client.send POST \S*/rewriteTo/\S*%2Fcrash%2F\w+%2Fpart-",
    "manifest": rf"{_BODY}/\.bridge/tables/\S*manifest",
    "state": rf"{_BODY}/crash/(state|published)\.json",
    "streams": rf"{_BODY}/crash/streams/",
    "run record": rf"{_BODY}/crash/runs/",
    "scratch": "shutil.rmtree .*/(spool|checkpoint)/",
    "lease": rf"{_BODY}/crash/lease\.json",
    "close": "shutil.rmtree .*/checkpoint/",
    "writing": rf"{_BODY}/part-",
}
_EVENTS = {"gs": _GCS}
"""By the scheme of a lake's URI; other stores have requests as S3 has them."""

_STRIKES: dict[str, list[tuple[str, int, str]]] = {
    "record": [("record", 1, "load")],
    "part": [("visible", 2, "load")],
    "pending": [("before record", 1, "load")],
    "manifest": [("manifest", 1, "load"), ("manifest", 2, "load")],
    "state": [("state", 1, "load")],
    "closing": [("streams", 1, "load"), ("run record", 1, "load"), ("scratch", 1, "load"), ("close", 1, "load")],
    "before fence": [("before record", 1, "recovery"), ("lease", 1, "recovery")],
    "fence": [("record", 1, "recovery"), ("visible", 1, "recovery")],
    "forward": [("visible", 2, "recovery"), ("manifest", 1, "recovery"), ("state", 1, "recovery")],
    "repaired": [("run record", 2, "recovery")],  # the first is written before the lease is taken
    "writing": [("writing", 1, "load"), ("writing", 2, "load")],
}
"""Where an aim strikes: one of these, the kill's moment decides which; (what, which time, phase)."""

_RECOVERY = ("before fence", "fence", "forward", "repaired")

_SCENES: list[tuple[tuple[str, str], ...]] = [
    (("bridge", "pending"), ("bridge", "before fence")),
    (("bridge", "record"), ("bridge", "fence")),
    (("bridge", "part"), ("bridge", "forward")),
    (("bridge", "between"), ("bridge", "repaired")),
    (("bridge", "record"), ("bridge", "fence"), ("bridge", "forward"), ("bridge", "repaired")),
    (("bridge", "state"), ("bridge", "before fence"), ("bridge", "fence")),
    (("bridge", "manifest"),),
    (("bridge", "closing"),),
    (("bridge", "closing"),),
    (("bridge", "extracting"), ("bridge", "pending")),
    (("bridge", "extracting"), ("bridge", "between")),
    (("bridge", "part"), ("bridge", "pending")),
    (("bridge", "any"),),
    (("jvm", "any"), ("bridge", "between")),
    (("tap", "any"), ("bridge", "closing")),
    (("worker", "writing"), ("bridge", "manifest")),
    (("worker", "any"),),
]
"""Kills that follow each other; those of a recovery need one before them."""


@dataclass(frozen=True)
class Kill:
    """One kill: of which process, at which step, and when in it (`moment`, from 0 to 1)."""

    target: str
    aim: str
    moment: float

    def __str__(self) -> str:
        return f"{self.target}, {self.aim} {self.moment:.2f}"


def plan(
    seed: str, count: int, targets: Sequence[str] = TARGETS, never: Collection[tuple[str, str]] = ()
) -> list[Kill]:
    """Return so many kills: every scene once before any comes again, the order and the moments from the seed.

    `never`: aims, each of a process, that the lake's runs do not have.
    """
    rng = random.Random(seed)
    scenes = [scene for scene in _SCENES if {target for target, _ in scene} <= {*targets}]
    scenes = [scene for scene in scenes if not {*scene} & {*never}]
    kills: list[Kill] = []
    while len(kills) < count:
        for scene in rng.sample(scenes, len(scenes)):
            kills += [Kill(target, aim, rng.random()) for target, aim in scene]
    return kills[:count]


@dataclass
class Campaign:
    """Runs on one project. `notes` tells what was done, in order, for whoever reads a failure."""

    project: Project
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    exits: Counter[str] = field(default_factory=Counter)
    _lives: dict[str, float] = field(default_factory=dict)
    _dead: Orchestrator | None = None

    def __enter__(self) -> Campaign:
        return self

    def __exit__(self, *_: object) -> None:
        if self._dead:
            self._dead.clear()

    def clean_run(self, *, measure: bool = False) -> None:
        """Run to the end and hold the lake against the source. `measure` how long each process lives, for `any`."""
        self._check_dead()
        self.project.grow(pause_ms=120 if measure else 0)
        state = self.project.next_state()
        with Orchestrator(self.project.folder, environ=self.project.environ) as run:
            if measure:
                self._measure(run)
            assert run.wait(RUN_SECONDS) == 0, f"{self.notes[-10:]}\n{run.stderr}"
            assert run.survivors(ORPHAN_SECONDS) == []
            assert run.result["status"] == "success", run.result
        check_clean(self.project, state)

    def _measure(self, run: Orchestrator) -> None:
        seen: dict[str, list[float]] = {}
        run.wait_until(lambda: run.said)
        while run.process.poll() is None:
            for target in TARGETS:
                if run.find(target):
                    seen.setdefault(target, []).append(time.monotonic())
            time.sleep(0.1)
        self._lives = {target: times[-1] - times[0] for target, times in seen.items()}
        assert set(self._lives) >= set(self.project.targets), "not every process was seen"

    def kill(self, kill: Kill) -> None:
        """Carry out one kill; what must hold at once is asserted, bookmarks and orphans included."""
        for misses in range(_TRIES):
            if kill.aim in _RECOVERY and not self.project.needs_recovery():
                self.kill(Kill("bridge", "record", kill.moment))
            strike = self._strike(kill, misses)
            planned = self.project.grow(pause_ms=self._pause(kill))
            autopsy = Autopsy(self.project, planned)
            with Orchestrator(self.project.folder, environ=self.project.environ, strike=strike) as run:
                try:
                    finding = self._struck(run, kill, autopsy) if strike else self._met(run, kill, autopsy, misses)
                except (Missed, psutil.NoSuchProcess):
                    code = run.wait(RUN_SECONDS)
                    assert code == 0, f"{kill}: {self.notes[-10:]}\nexit {code}\n{run.stderr}"
                    finding = None
                if finding:
                    self._outcome(run, kill, finding)
                    return
        raise AssertionError(f"never in time for {kill}")

    def _strike(self, kill: Kill, misses: int) -> Strike | None:
        if kill.aim not in _STRIKES or (kill.aim == "pending" and kill.moment < 0.5):
            return None
        choice = _STRIKES[kill.aim]
        what, count, phase = choice[(int(kill.moment * len(choice)) + misses) % len(choice)]
        lake = self.project.lake
        events = (_LOCAL if isinstance(lake, Folder) else _EVENTS.get(lake.uri.partition("://")[0], _S3))[what]
        if kill.aim == "writing":
            return Strike(events, count, None, "pyspark.worker", after_ms=int(kill.moment * 1000) % 16)
        return Strike(events, count, phase)

    def _pause(self, kill: Kill) -> int:
        """Return the tap's pause: a kill at a late step shall not have to wait for a slow tap."""
        if kill.aim in ("extracting", "between", "pending"):
            return _WAITING_MS
        return _SLOW_MS if kill.aim == "any" else 0

    def _struck(self, run: Orchestrator, kill: Kill, autopsy: Autopsy) -> Finding | None:
        """Wait for the strike. Raises `Missed` if the run ended without it."""
        run.wait_until(lambda: run.struck, seconds=0.002)
        if kill.target != "bridge":
            with run.frozen():
                return autopsy.look(run)
        run.wait(STOP_SECONDS)
        return autopsy.look(run)

    def _met(self, run: Orchestrator, kill: Kill, autopsy: Autopsy, misses: int) -> Finding | None:
        """Kill from outside, at the kill's moment."""
        run.wait_until(lambda: run.said)
        self._await(run, kill, misses)
        if kill.target == "bridge":
            if run.process.poll() is not None:
                raise Missed
            run.process.kill()
            run.wait(STOP_SECONDS)
            return autopsy.look(run)
        with run.frozen():
            victim = run.find(kill.target)
            if victim is None:
                raise Missed
            victim.kill()
            return autopsy.look(run)

    def _await(self, run: Orchestrator, kill: Kill, misses: int) -> None:
        if kill.aim == "extracting":
            time.sleep(kill.moment * 0.8)
        elif kill.aim == "pending":
            # a server that is asked all the time would have none left for the run
            run.wait_until(self.project.pending, seconds=0.005 if isinstance(self.project.lake, Folder) else 0.1)
            time.sleep(kill.moment * 0.1)
        elif kill.aim == "between":
            head = self.project.history.head()
            run.wait_until(lambda: self._committed(head), seconds=0.02)
            time.sleep(kill.moment * 0.5 * 0.6**misses)
        else:
            run.wait_for(kill.target)
            time.sleep(kill.moment * 0.6**misses * self._lives[kill.target])

    def _committed(self, since: int) -> bool:
        history = self.project.history
        return history.head() > since and bool(self.project.json("state.json") == history.state)

    def _outcome(self, run: Orchestrator, kill: Kill, finding: Finding) -> None:
        began, head = time.monotonic(), self.project.history.head()
        code = run.wait(STOP_SECONDS if kill.target in ("bridge", "jvm") else RUN_SECONDS)
        seconds = time.monotonic() - began
        self.findings.append(finding)
        self.exits[f"{kill.target}: {code}"] += 1
        self.notes.append(
            f"{self.project.name}: {kill}: {finding.step}{', pending' if finding.pending else ''}: "
            f"commits {head}..{self.project.history.head()}, exit {code} after {seconds:.1f} s"
        )
        _CHECKS[kill.target](run, code)
        check_bookmarks(self.project)
        self._check_dead()
        # The next run starts at once, as a scheduler would have it, beside what is left of this one.
        run.leave()
        self._dead = run

    def _check_dead(self) -> None:
        """Find nothing of the run before this one: no process, no secrets."""
        run, self._dead = self._dead, None
        if run:
            survivors = run.survivors(ORPHAN_SECONDS)
            run.clear()
            assert survivors == [], f"{self.notes[-3:]}: these live on: {survivors}"


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


_CHECKS: dict[str, Callable[[Orchestrator, int], None]] = {
    "bridge": _bridge_killed,
    "jvm": _jvm_killed,
    "worker": _worker_killed,
    "tap": _tap_killed,
}
