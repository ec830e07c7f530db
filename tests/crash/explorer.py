"""Tries every order of the steps of several runs, and everything that may go wrong with the bucket meanwhile.

Breadth first, so that the trace of a broken promise is one of the shortest. A run that never goes on is one that was
killed, one that goes on much later was only paused; where more runs are alive than `alive`, one of them was killed.

What a run has yet to do depends on where its generators stand and on what their locals are, not on how it got there:
runs that agree in these are the same (`_Runs`). That works as long as no generator loops over equal things.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from .bucket import Bucket, File, Record
from .model import Committer, Stop, World

State = tuple[int, int, tuple[int, ...]]
"""The bucket's number, how many runs were started, the numbers of those that are alive."""


@dataclass
class Broken:
    """A promise that does not hold, and the shortest way there."""

    promise: str
    trace: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([*self.trace, f"=> {self.promise}"])


@dataclass
class Explored:
    """What an exploration went through. `ends` says how runs ended, `broken` is None if every promise held."""

    states: int
    buckets: set[Bucket]
    ends: set[str]
    broken: Broken | None

    @property
    def kinds(self) -> set[str]:
        return {record.kind for bucket in self.buckets for record in bucket.log}


class _Runs:
    """Every position in the life of every run, by number. With `merge`, those with the same future have the same."""

    def __init__(self, world: World, broken: str, merge: bool) -> None:
        self.world, self.broken, self._merge = world, broken, merge
        self.run: list[int] = []
        self.asks: list[tuple[Any, ...] | None] = []  # what it asks the bucket next; None at its end
        self.end: list[str] = []
        self._answers: list[tuple[Any, ...]] = []
        self._numbers: dict[Any, int] = {}
        self._next: dict[tuple[int, Any], int] = {}

    def new(self, run: int) -> int:
        """Return the beginning of a run."""
        return self._position(run, ())

    def after(self, number: int, answer: Any) -> int:
        """Return where a run is once it has got this answer."""
        key = (number, answer)
        if key not in self._next:
            self._next[key] = self._position(self.run[number], (*self._answers[number], answer))
        return self._next[key]

    def _position(self, run: int, answers: tuple[Any, ...]) -> int:
        asks, end = None, ""
        committer = Committer(run, self.world, self.broken)
        life = committer.life()
        try:
            asks = next(life)
            for answer in answers:
                asks = life.send(answer)
        except StopIteration:
            asks, end = None, "closed"
        except Stop as stop:
            asks, end = None, str(stop)
        key: Any = (run, end)
        if asks is not None:
            key = (run, tuple(_frames(life)), tuple(vars(committer).items())) if self._merge else (run, answers)
        if key not in self._numbers:
            self._numbers[key] = len(self.run)
            self.run.append(run)
            self.asks.append(asks)
            self.end.append(end)
            self._answers.append(answers)
        life.close()
        return self._numbers[key]


def _frames(generator: Any) -> Iterator[Any]:
    """Yield where a generator stands, and those it delegates to, with their locals."""
    while generator is not None:
        frame = generator.gi_frame
        seen = tuple(sorted((name, value) for name, value in frame.f_locals.items() if name != "self"))
        yield frame.f_code.co_name, frame.f_lasti, seen
        generator = generator.gi_yieldfrom


class _Explorer:
    def __init__(self, world: World, broken: str, mend: bool, merge: bool) -> None:
        self.world, self._mend = world, mend
        self.runs = _Runs(world, broken, merge)
        self.buckets: list[Bucket] = []
        self.ends: set[str] = set()
        self._numbers: dict[Bucket, int] = {}
        self._steps: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._events: dict[int, list[int]] = {}
        self._mended: dict[tuple[int, int], str] = {}
        self.wrong: dict[int, str] = {}

    def number(self, bucket: Bucket) -> int:
        known = self._numbers.get(bucket)
        if known is None:
            known = self._numbers[bucket] = len(self.buckets)
            self.buckets.append(bucket)
        return known

    def step(self, bucket: int, run: int) -> list[tuple[int, int]]:
        """Return the buckets and the run's positions after its next step: one of each possible answer."""
        key = (bucket, run)
        if key not in self._steps:
            name, *args = self.runs.asks[run] or ()
            answers = getattr(self.buckets[bucket], name)(*args)
            self._steps[key] = [(self.number(after), self.runs.after(run, answer)) for answer, after in answers]
        return self._steps[key]

    def events(self, bucket: int) -> list[int]:
        if bucket not in self._events:
            self._events[bucket] = [self.number(after) for _, after in self.buckets[bucket].events()]
        return self._events[bucket]

    def follow(self, state: State) -> Iterator[State]:
        """Yield the states after one more step of whoever is alive, one more run, or one more mishap."""
        bucket, started, alive = state
        for place, run in enumerate(alive):
            for after, position in self.step(bucket, run):
                if self.runs.asks[position] is None:
                    self.ends.add(self.runs.end[position])
                    yield after, started, alive[:place] + alive[place + 1 :]
                else:
                    yield after, started, (*alive[:place], position, *alive[place + 1 :])
        for after in self.events(bucket):
            yield after, started, alive
        if started < self.world.runs:
            run = self.runs.new(started + 1)
            if len(alive) < self.world.alive:
                yield bucket, started + 1, (*alive, run)
            else:
                for place in range(len(alive)):
                    yield bucket, started + 1, (*alive[:place], *alive[place + 1 :], run)

    def judge(self, bucket: int) -> str:
        """Return the promise that this bucket breaks, or that the next run could not keep from here."""
        if bucket not in self.wrong:
            self.wrong[bucket] = self.buckets[bucket].wrong()
            if self._mend and not self.wrong[bucket]:
                quiet = self.number(self.buckets[bucket].quiet())
                self.wrong[bucket] = self.mend(quiet, self.runs.new(self.world.runs + 1))
        return self.wrong[bucket]

    def alarms(self) -> list[str]:
        """Return how runs ended that blamed the lake or its user: never right here, nobody has touched it."""
        return [end for end in sorted(self.ends) if end.startswith(("corrupt", "refused"))]

    def mend(self, bucket: int, run: int) -> str:
        """Let a run go on alone, whatever it is answered, and return what is wrong then."""
        key = (bucket, run)
        if key not in self._mended:
            wrong = self.buckets[bucket].wrong()
            if not wrong and self.runs.asks[run] is None:
                wrong = "" if self.runs.end[run] == "closed" else f"the next run ends: {self.runs.end[run]}"
            elif not wrong:
                wrong = next(filter(None, (self.mend(*after) for after in self.step(bucket, run))), "")
            self._mended[key] = wrong and (wrong if "next run" in wrong else f"after the next run: {wrong}")
        return self._mended[key]


def explore(
    world: World, broken: str = "", *, mend: bool = True, merge: bool = True, limit: int = 5_000_000
) -> Explored:
    """Go through all states, or to the first that breaks a promise. Raises `MemoryError` above so many states.

    With `mend` one more run goes on alone from every bucket that comes up: it has to get everything right.
    Without `merge` each history of a run is told apart from any other, which takes many more states.
    """
    explorer = _Explorer(world, broken, mend, merge)
    start: State = (explorer.number(world.bucket()), 0, ())
    came: dict[State, State | None] = {start: None}
    queue = deque([start])
    found = None
    while queue and found is None:
        state = queue.popleft()
        for after in explorer.follow(state):
            if after in came:
                continue
            came[after] = state
            if explorer.judge(after[0]) or explorer.alarms():
                found = after
                break
            queue.append(after)
        if len(came) > limit:
            raise MemoryError(f"more than {limit} states")
    trouble = None
    if found is not None:
        promise = explorer.judge(found[0]) or f"a run ends: {explorer.alarms()[0]}"
        trouble = Broken(promise, _trace(explorer, came, found))
    return Explored(len(came), {explorer.buckets[number] for number, _, _ in came}, explorer.ends, trouble)


def _trace(explorer: _Explorer, came: dict[State, State | None], state: State | None) -> list[str]:
    states = []
    while state is not None:
        states.append(state)
        state = came[state]
    states.reverse()
    return [_line(explorer, before, after) for before, after in pairwise(states)]


def _line(explorer: _Explorer, before: State, after: State) -> str:
    """Say who did what between two states."""
    bucket, runs = before[0], explorer.runs
    if after[1] > before[1]:
        gone = [runs.run[run] for run in before[2] if run not in after[2]]
        return f"run {after[1]} starts" + "".join(f"; run {run} was killed" for run in gone)
    for place, run in enumerate(before[2]):
        for answer, (then, position) in zip(_answers(explorer, bucket, run), explorer.step(bucket, run), strict=True):
            ended = runs.asks[position] is None
            alive = (*before[2][:place], *(() if ended else (position,)), *before[2][place + 1 :])
            if (then, before[1], alive) == after:
                name, *args = runs.asks[run] or ()
                what = " ".join(map(_short, args))
                end = f", ends: {runs.end[position]}" if ended else ""
                return f"run {runs.run[run]}: {name} {what} -> {_short(answer)}{end}"
    named = (text for text, then in explorer.buckets[bucket].events() if explorer.number(then) == after[0])
    return next(named)


def _answers(explorer: _Explorer, bucket: int, run: int) -> list[Any]:
    name, *args = explorer.runs.asks[run] or ()
    return [answer for answer, _ in getattr(explorer.buckets[bucket], name)(*args)]


def _short(value: Any) -> str:
    if isinstance(value, File):
        return f"{value.part}{value.load}g{value.generation}r{value.run}"
    if isinstance(value, Record):
        return f"{value.kind}(STATE {value.state}{f', takes back {value.voids}' if value.voids else ''})"
    if isinstance(value, (tuple, frozenset)):
        return "[" + " ".join(map(_short, sorted(value, key=str) if isinstance(value, frozenset) else value)) + "]"
    return str(value)
