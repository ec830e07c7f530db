"""A world of one thread and one clock: processes whose threads are greenlets, and events in the order of their time.

Whatever a thread waits for is an event at a later moment; between two events nothing else runs. A process that was
killed is never resumed; what it had sent may still arrive. At the end of the world its threads are unwound, which
changes nothing any more.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

_MOST_EVENTS = 60_000
"""Events of one world: one that needs more goes round in circles."""


class Gone(GreenletExit):
    """The process of this thread was killed."""


class Endless(AssertionError):
    """The world does not come to an end."""


@dataclass(eq=False)
class Process:
    """A run, or a tap. `requests` counts those that it has sent; `wall` is how far its clock on the wall is off."""

    name: str
    host: str = "h1"
    pid: int = 0
    wall: float = 0.0
    alive: bool = True
    until: float = 0.0
    """It stands still until then."""
    cut_until: float = 0.0
    """It reaches nobody until then."""
    held: list[tuple[Task, int, bool]] = field(default_factory=list)
    """The threads that go on then."""
    requests: int = 0
    tasks: list[Task] = field(default_factory=list)
    on_request: Callable[[str], Any] = lambda _what: None
    """What goes wrong with the next request."""
    stop: Callable[[], None] = lambda: None
    """Send it a SIGTERM."""
    catalog: Any = None
    tap: Callable[[Any], Any] = lambda _state: None
    """A run's tap, from a STATE on."""


class Task:
    """A thread. Whoever waits for its end is in `waiting`."""

    def __init__(self, world: World, process: Process, work: Callable[[], Any], name: str) -> None:
        self.world, self.process, self.name = world, process, name
        self.turn = 0
        self.done = False
        self.waiting: list[tuple[Task, int]] = []
        self._work = work
        self.greenlet = greenlet(self._run, world.hub)
        process.tasks.append(self)

    def _run(self, *_: Any) -> None:
        try:
            self._work()
        except GreenletExit:
            pass
        except BaseException as error:
            self.world.note(self.process.name, f"thread {self.name} ends: {error!r}")
        finally:
            self.done = True
            self.world.wake_all(self.waiting)


class World:
    """The clock, the events, and what happened. One exists at a time: `World.now_there`."""

    now_there: World | None = None

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.hub = getcurrent()
        self.operations: list[str] = []
        self.processes: list[Process] = []
        self._seed = seed
        self._dice: dict[str, Random] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = self._ids = self._done = 0
        self.ended = False
        self.running: Task | None = None
        self.bucket: Any = None
        self.leases = True
        """Whether runs respect each other's leases."""

    def dice(self, of: str) -> Random:
        """The dice of one part of the world: what others throw does not change its own."""
        if of not in self._dice:
            self._dice[of] = Random(f"{self._seed} {of}")
        return self._dice[of]

    def unique(self) -> int:
        """A number that was not there before."""
        self._ids += 1
        return self._ids

    def note(self, who: str, what: str) -> None:
        """Add a line to what happened."""
        self.operations.append(f"{self.now:10.4f} {who}: {what}")

    # events

    def at(self, moment: float, action: Callable[[], None]) -> None:
        """Have something happen then."""
        self._number += 1
        heapq.heappush(self._events, (moment, self._number, action))

    def run(self, until: Callable[[], bool]) -> None:
        """Let events happen until that holds, or none is left."""
        while not until():
            if not self._events:
                return
            self.now, _, action = heapq.heappop(self._events)
            self._done += 1
            if self._done > _MOST_EVENTS:
                raise Endless(f"{_MOST_EVENTS} events, and no end")
            action()

    # threads

    def process(self, name: str, **facts: Any) -> Process:
        """A new process."""
        process = Process(name, pid=5_000_000 + len(self.processes), **facts)
        self.processes.append(process)
        return process

    def start(self, process: Process, work: Callable[[], Any], name: str) -> Task:
        """A new thread."""
        task = Task(self, process, work, name)
        self.at(self.now + self.dice(process.name).random() * 1e-4, partial(self._resume, task, 0, True))
        return task

    def _resume(self, task: Task, turn: int, value: bool) -> None:
        process = task.process
        if task.turn != turn or task.done or not process.alive:
            return
        if process.until > self.now:
            if not process.held:
                self.at(process.until, partial(self.thaw, process))
            process.held.append((task, turn, value))
            return
        task.turn += 1
        self.running = task
        task.greenlet.switch(value)
        self.running = None

    def thaw(self, process: Process) -> None:
        """Let a process go on, if it is time."""
        if process.until > self.now:
            self.at(process.until, partial(self.thaw, process))
            return
        held, process.held = process.held, []
        for one in held:
            self.at(self.now + self.dice(process.name).random() * 1e-4, partial(self._resume, *one))

    def block(self, timeout: float | None = None) -> bool:
        """Let others go on until this thread is woken; False if the time is over before."""
        task = self.running
        assert task is not None
        if not task.process.alive:
            raise Gone
        if timeout is not None:
            self.at(self.now + max(timeout, 0.0), partial(self._resume, task, task.turn, False))
        return bool(self.hub.switch())

    def sleep(self, seconds: float) -> None:
        """Let this thread stand still for a while."""
        self.block(seconds)

    def waiter(self) -> tuple[Task, int]:
        """This thread as it waits now, for `wake`."""
        task = self.running
        assert task is not None
        return task, task.turn

    def wake(self, waiter: tuple[Task, int]) -> None:
        """Let a thread go on that waits."""
        task, turn = waiter
        later = self.dice(task.process.name).random() * 1e-4
        self.at(self.now + later, partial(self._resume, task, turn, True))

    def wake_all(self, waiting: list[tuple[Task, int]]) -> None:
        """Let all of these go on."""
        if not self.ended:
            for waiter in waiting:
                self.wake(waiter)
        waiting.clear()

    def check(self) -> None:
        """Raise `Gone` in a thread whose process was killed: it is only unwound."""
        if self.running and not self.running.process.alive:
            raise Gone

    def kill(self, process: Process) -> None:
        """End a process, with all of its threads; if one of them asks for it, it does not go on."""
        process.alive = False
        task = self.running
        if task and task.process is process and not self.ended:
            self.hub.switch()

    def end(self) -> None:
        """Unwind all threads that are left."""
        self.ended = True
        for process in self.processes:
            process.alive = False
            for task in process.tasks:
                if task.greenlet and not task.greenlet.dead:
                    self.running = task
                    task.greenlet.throw(Gone)


def current() -> Task | None:
    """The thread that runs now; None in the event loop."""
    return World.now_there.running if World.now_there else None


def here() -> World | None:
    """The world, if one of its threads runs."""
    world = World.now_there
    return world if world and world.running else None
