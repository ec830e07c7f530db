"""Tries every order of the steps of several runs, and everything that may go wrong with the bucket meanwhile.

Breadth first, so that the trace of a broken promise is one of the shortest. A run that never goes on is one that was
killed, one that goes on much later was only paused; where more runs are alive than `alive`, one of them was killed.

What a run has yet to do depends on where its generators stand and on what their locals are, not on how it got there:
runs that agree in these are the same (`_Runs`). That works as long as no generator loops over equal things.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from typing import Any

from .lives import Life, Parked, World
from .store import NEVER_CHANGES, Bucket, File, Object, Request, is_over, record_of

State = tuple[int, int, tuple[int, ...]]
"""The bucket's number, how many runs were started, the numbers of those that are alive."""


ENDS = {"closed", "lost", "unknown", "a pending file is gone", "a pending file is not what was written"}
"""How a run may end."""


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
        return {record_of(data).kind for bucket in self.buckets for data in bucket.log}


class _Runs:
    """Every position in the life of every run, by number. With `merge`, those with the same future have the same."""

    def __init__(self, world: World, life: type[Life], merge: bool) -> None:
        self.world, self._life, self._merge = world, life, merge
        self.run: list[int] = []
        self.asks: list[Request | None] = []  # what it asks the bucket next; None at its end
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
        try:
            end = self._life(run, self.world, answers, merge=self._merge).end()
            key: Any = (run, end)
        except Parked as parked:
            asks, key = parked.request, (run, parked.request, parked.place)
        if key not in self._numbers:
            self._numbers[key] = len(self.run)
            self.run.append(run)
            self.asks.append(asks)
            self.end.append(end)
            self._answers.append(answers)
        return self._numbers[key]


class _Explorer:
    def __init__(self, world: World, life: type[Life], mend: bool, merge: bool) -> None:
        self.world, self._mend = world, mend
        self.runs = _Runs(world, life, merge)
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
            answers = self.buckets[bucket].answers(self.runs.asks[run] or ())
            self._steps[key] = [self._on(after, self.runs.after(run, answer)) for answer, after in answers]
        return self._steps[key]

    def _on(self, bucket: Bucket, run: int) -> tuple[int, int]:
        """Go on over requests whose answer is settled: it is all the same when they are made."""
        while (asks := self.runs.asks[run]) and bucket.is_settled(asks):
            ((answer, bucket),) = bucket.answers(asks)
            run = self.runs.after(run, answer)
        return self.number(bucket), run

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
        return sorted(self.ends - ENDS)

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


@cache
def _first(world: World) -> Bucket:
    """The bucket at the beginning: for an overwrite, and for files that are rewritten, with a first load in it."""
    owner = b'{"format": 1, "pipeline": "p", "stream": "s"}'
    trouble = {"purges": world.purges, "losses": world.losses, "repeats": world.repeats}
    bucket = Bucket({NEVER_CHANGES[1]: Object(owner)}, overwrite=world.overwrite, repeats=world.repeats)
    over = tuple(filter(is_over, world.parts))
    if world.overwrite or over:
        parts = over or world.parts[-1:]
        runs = _Runs(replace(world, parts=parts, last=1), Life, merge=True)
        run = runs.new(0)
        while (asks := runs.asks[run]) is not None:
            answer, bucket = bucket.answers(asks)[0]
            run = runs.after(run, answer)
        assert runs.end[run] == "closed"
    return replace(bucket, **trouble)


def explore(
    world: World, life: type[Life] = Life, *, mend: bool = True, merge: bool = True, limit: int = 5_000_000
) -> Explored:
    """Go through all states, or to the first that breaks a promise. Raises `MemoryError` above so many states.

    With `mend` one more run goes on alone from every bucket that comes up: it has to get everything right.
    Without `merge` each history of a run is told apart from any other, which takes many more states.
    """
    explorer = _Explorer(world, life, mend, merge)
    start: State = (explorer.number(_first(world)), 0, ())
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
    return [answer for answer, _ in explorer.buckets[bucket].answers(explorer.runs.asks[run] or ())]


def _short(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode() if len(value) < 60 else _commit(value)
    if isinstance(value, File):
        return value.name
    if isinstance(value, tuple):
        return "[" + " ".join(map(_short, value)) + "]"
    return str(value)


def _commit(data: bytes) -> str:
    if b'"nonce"' not in data:
        return "..."
    record = record_of(data)
    return f"{record.kind}(STATE {record.state}{f', takes back {record.voids}' if record.voids else ''})"
