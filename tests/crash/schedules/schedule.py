"""A schedule: what a seed decides, and what comes of it.

`drawn` draws it; every number in it can be changed, so that one which fails can be made smaller (`shrink`).
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from bridge.errors import BridgeError

from .bucket import DEATHS, TROUBLE, UPLOADS_GONE, Bucket, Fault, Faults
from .judge import Broken, Judge
from .lives import Piping, Tap, begin, install, live, pipeline_of
from .source import CATALOG, Source
from .world import Endless, Process, World

_REQUESTS = 110
"""About as many as a run sends."""
_OF = {
    "": _REQUESTS,
    "put commits/": 4,
    "put state.json": 3,
    "put published.json": 3,
    "put .manifest": 3,
    "put lease.json": 2,
    "put pending/": 5,
    "copy parquet": 5,
    "complete": 5,
    "delete": 5,
    "head pending": 5,
    "parts": 5,
}
"""The requests that faults are aimed at, and about how many of them a run sends."""
_PUBLISHING = ("put commits/", "complete", "copy parquet", "delete", "put .manifest", "put state.json", "parts")
_WAKES = ("", "", "put commits/", "copy", "complete", "parts", "head p/", "put .manifest", "get state.json", "list p/")
"""Until another run sends these, or for their time, runs sleep."""
_THEMES = {
    "": (),
    "a slow writer": (("sleeps before", "sleeps after"),),
    "an upload gone": (UPLOADS_GONE,),
    "two uploads gone": (UPLOADS_GONE, UPLOADS_GONE),
    "a commit without an answer": (("lost answer", "late"),),
}
"""What goes wrong beside what goes wrong by chance: one of each, in one run."""
_LONG = 60.0
"""Longer than a lease lives."""


@dataclass(frozen=True)
class Life:
    """One run. It begins `after` seconds after the last one has ended, or (`beside`) has begun."""

    after: float = 0.0
    beside: bool = False
    host: str = "h1"
    wait: float = 0.0
    wall: float = 0.0
    faults: tuple[Fault, ...] = ()
    tap_ends: int | None = None
    tap_stalls: tuple[int, float] | None = None


@dataclass(frozen=True)
class Schedule:
    """All that is decided beforehand; the rest is thrown by the dice of `seed`."""

    seed: int
    source: Source = field(default_factory=Source)
    lives: tuple[Life, ...] = (Life(),)
    small: int = 1 << 23
    page: int = 1000
    every: float = 0.0
    idle: float = 600.0
    lists_pending: bool = True
    """Whether the store lets runs list what is pending."""
    piped: bool = False
    """Another program starts the taps, and keeps the STATEs that runs report."""
    leases: bool = True
    """Without, each run takes the pipeline at once, on a host of its own: no promise rests on leases."""


def drawn(seed: int) -> Schedule:
    """The schedule of a seed."""
    dice = Random(f"schedule {seed}")
    streams = dice.choice(["a", "a", "ab", "u", "au", "t", "at", "abu", "aut", "v", "av", "uv"])
    grows = tuple(dice.randint(0, 6) for _ in range(dice.randint(1, 3)))
    source = Source(streams, (grows[0] + 2, *grows[1:]), dice.choice([1, 3, 6]), dice.choice([0.2, 0.5, 1.0]))
    leases, theme = dice.random() < 0.6, dice.choice([*_THEMES])
    lives = tuple(_life(dice, number, leases) for number in range(dice.choice([1, 2, 2, 2, 3])))
    struck = dice.randrange(len(lives))
    if _THEMES[theme]:
        more = [_aimed(dice, dice.choice(kinds)) for kinds in _THEMES[theme]]
        kept = lives[struck].faults if dice.random() < 0.3 else ()  # they would mostly be the end of it
        lives = (*lives[:struck], replace(lives[struck], faults=(*kept, *more)), *lives[struck + 1 :])
    piped = leases and dice.random() < 0.3
    if piped:
        source = replace(source, streams=dice.choice(["a", "ab", "u", "au"]))
        lives = tuple(replace(life, beside=False) for life in lives)
    small, page = dice.choice([1 << 23, 0]) if "upload" not in theme else 0, dice.choice([1000, 1000, 2])
    return Schedule(
        seed,
        source,
        lives,
        small,
        page,
        every=dice.choice([0.0, 0.02, 0.2]),
        idle=dice.choice([600.0, 20.0]),
        lists_pending=dice.random() < 0.7,
        piped=piped,
        leases=leases,
    )


def _life(dice: Random, number: int, leases: bool) -> Life:
    beside = bool(number) and dice.random() < (0.4 if leases else 0.8)
    after = dice.choice([0.0, 0.01, 1.0, 70.0]) + (dice.random() * 2 if beside else 0.0)
    host, wait = dice.choice(["h1", "h1", "h2"]) if leases else f"h{number}", dice.choice([0.0, 100.0, 100.0])
    faults = [_fault(dice, dice.choice(TROUBLE)) for _ in range(dice.choice([0, 0, 1, 1, 2]))]
    if dice.random() < 0.7:
        faults.append(_fault(dice, dice.choice(DEATHS)))
    ends = dice.randint(0, 25) if dice.random() < 0.25 else None
    stalls = (dice.randint(0, 15), dice.choice([1.0, 30.0, 90.0])) if dice.random() < 0.1 else None
    return Life(after, beside, host, wait, dice.choice([0.0, 0.0, -100.0, 3600.0]), tuple(faults), ends, stalls)


def _aimed(dice: Random, kind: str) -> Fault:
    of = dice.choice(_PUBLISHING) if kind not in ("lost answer", "late") else "put commits/"
    seconds = dice.choice([0.5, 70.0, 130.0, 1000.0]) * (0.5 + dice.random())
    until = dice.choice(_WAKES) if "sleeps" in kind else ""
    return Fault(dice.choice([1, 1, 2, 2, 3, 5]), kind, seconds, of, until)


def _fault(dice: Random, kind: str) -> Fault:
    seconds = dice.choice([0.001, 0.05, 1.0, 30.0, 65.0, 130.0, 1000.0]) * (0.5 + dice.random())
    if kind == "dies while it is on its way":
        seconds = dice.choice([0.001, 0.05, 1.0]) * (0.5 + dice.random())
    of = dice.choice([*_OF]) if dice.random() < 0.6 else ""
    return Fault(dice.randint(1, _OF[of]), kind, seconds, of)


@dataclass
class Outcome:
    """What came of it. `broken` is empty if every promise held."""

    schedule: Schedule
    broken: str
    operations: list[str]
    ends: list[str] = field(default_factory=list)
    """How its runs ended."""
    commits: list[str] = field(default_factory=list)
    """The kinds of its commits."""
    struck: list[str] = field(default_factory=list)
    """What went wrong with requests."""

    def __str__(self) -> str:
        return "\n".join([*self.operations, f"=> {self.broken}", repr(self.schedule)])


class _Show:
    """One schedule on its way."""

    def __init__(self, schedule: Schedule, homes: Path) -> None:
        self.schedule, self._homes = schedule, homes
        self.world = world = World(schedule.seed)
        self.bucket = world.bucket = Bucket(page=schedule.page, lists_pending=schedule.lists_pending)
        self.judge = Judge(self.bucket, schedule.source)
        self.runs: list[Process] = []
        self.ends: dict[str, Any] = {}
        self.reported: Any = None
        """The STATE that a run has reported last."""

    def play(self) -> None:
        """Raise `Broken` if a promise does not hold."""
        lives = self.schedule.lives
        for number, life in enumerate(lives):
            if number and not life.beside:
                self.world.run(lambda: self._over(self.runs[-1]))
            self._later(number, life)
        self.world.run(lambda: all(map(self._over, self.runs)))
        self._clean(len(lives))
        if any(run.alive for run in self.runs):
            self.world.run(lambda: not any(run.alive for run in self.runs))
            self._check_ends()
            self.judge.settled(None)
            self._clean(len(lives) + 1)

    def _later(self, number: int, life: Life) -> None:
        started: list[Process] = []
        moment = self.world.now + life.after
        self.world.at(moment, lambda: started.append(self._start(number, life)))
        self.world.run(lambda: bool(started))

    def _over(self, run: Process) -> bool:
        given_up = run.until > self.world.now + 2 * _LONG and not self.schedule.piped
        return bool(self.judge.broken) or not run.alive or given_up

    def _start(self, number: int, life: Life) -> Process:
        source, world = self.schedule.source, self.world
        run = world.process(f"run {number + 1}", host=life.host, wall=life.wall)
        run.on_request = Faults(life.faults).of
        run.catalog = CATALOG if {*"tv"} & {*source.streams} else None
        name = f"tap {number + 1}"
        run.tap = lambda state: Tap(
            source.lines(number, state, world.dice(f"{name} says")), name, life.tap_ends, life.tap_stalls
        )
        pipeline = pipeline_of(self.schedule.every, self.schedule.idle)
        home = self._homes / life.host
        home.mkdir(exist_ok=True)
        tells = self.schedule.seed % 2 == 0
        piping = Piping(self.reported, partial(self._report, run), tells) if self.schedule.piped else None
        work = partial(live, run, pipeline, home, life.wait, partial(self._ended, run), piping)
        world.note(run.name, "begins")
        world.start(run, work, "main")
        self.runs.append(run)
        return run

    def _report(self, run: Process, state: Any) -> None:
        self.reported = state
        self.world.note(run.name, f"reports {state}")

    def _ended(self, run: Process, result: Any) -> None:
        self.ends[run.name] = result
        said = result.error or result.status if not isinstance(result, Exception) else repr(result)
        self.world.note(run.name, f"ends: {said!r} {getattr(said, 'facts', '')}")

    def _clean(self, number: int) -> None:
        """One more run, alone and without a fault: it gets everything right."""
        if not self.judge.broken:
            self.bucket.sleepers.clear()  # it is alone: nobody wakes up for it
            self.bucket.calm = not any(run.alive for run in self.runs)
            run = self._start(number, Life(wait=1000.0, host="h1" if self.schedule.leases else f"h{number}"))
            self.world.run(lambda: bool(self.judge.broken) or not run.alive)
        if not self.judge.broken:
            self._check_ends()
            self._succeeded(run)
        self.judge.settled(number)
        faults = [fault.kind for life in self.schedule.lives for fault in life.faults]
        flying = any(run.alive for run in self.runs) or {"late", "dies while it is on its way"} & {*faults}
        if self.schedule.lists_pending and not flying:
            self.judge.nothing_is_pending()

    def _succeeded(self, run: Process) -> None:
        result = self.ends.get(run.name)
        if getattr(result, "status", "") != "success":
            raise Broken(f"the next run does not end well: {_said(result)}")

    def _check_ends(self) -> None:
        for name, result in self.ends.items():
            if isinstance(result, Exception) or (result.error and type(result.error).__name__ in _ALARMS):
                raise Broken(f"{name} ends with {_said(result)}")


_ALARMS = {"CorruptLake", "BridgeError", "SettingsError", "DataError"}
"""How no run may end here: nobody has touched the lake."""


def _said(result: Any) -> str:
    error = result if isinstance(result, BaseException) else getattr(result, "error", None)
    if isinstance(error, BridgeError):
        return f"{type(error).__name__}: {error.message} {error.facts}"
    return repr(error or result)


def play(schedule: Schedule, homes: Path) -> Outcome:
    """Play a schedule. `homes` is a folder for the hosts' own files, which is emptied."""
    install()
    begin(schedule.small)
    shutil.rmtree(homes, ignore_errors=True)
    homes.mkdir(parents=True)
    show = _Show(schedule, homes)
    World.now_there, broken = show.world, ""
    show.world.leases = schedule.leases
    try:
        show.play()
    except (Broken, Endless) as error:
        broken = str(error)
    finally:
        show.world.end()
        World.now_there = None
    ends = [type(getattr(result, "error", result)).__name__ for result in show.ends.values()]
    kinds = [record["kind"] for record in show.judge.records]
    return Outcome(schedule, broken, show.world.operations, ends, kinds, show.bucket.struck)
