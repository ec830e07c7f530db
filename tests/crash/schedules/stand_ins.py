"""What stands in for threads, queues, clocks and chance in the product's modules while a world is there.

Called by nobody of the world, or by a library's own thread, they do their work without waiting.
"""

from __future__ import annotations

import queue
import time as real_time
import uuid as real_uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta, timezone, tzinfo
from random import Random
from types import SimpleNamespace
from typing import Any

from .world import Process, World, current, here

BEGINNING = 1_780_000_000.0
"""The time on the wall when a world begins."""
_HURRIED = 0.25
"""How often a thread is overtaken where it gives something to another."""


def _give_way() -> None:
    """Perhaps let others overtake this thread."""
    if world := here():
        world.check()
        process = current().process  # type: ignore[union-attr]
        dice = world.dice(process.name)
        if dice.random() < _HURRIED:
            world.sleep(dice.random() * 0.003)


class Lock:
    """A lock; the same thread may take it again if it is `again`."""

    again = False

    def __init__(self) -> None:
        self._owner: Any = None
        self._count = 0
        self._waiting: list[Any] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Wait for it."""
        _give_way()
        me, world = current(), here()
        if self.again and self._owner is me and self._count:
            self._count += 1
            return True
        while self._count and world:
            if not blocking:
                return False
            self._waiting.append(world.waiter())
            if not world.block(None if timeout < 0 else timeout):
                return False
            world.check()
        self._owner, self._count = me, 1
        return True

    def release(self) -> None:
        """Let another have it."""
        self._count -= 1
        if not self._count and (world := here()):
            world.wake_all(self._waiting)

    def locked(self) -> bool:
        """Whether a thread has it."""
        return bool(self._count)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock(Lock):
    """One that the same thread may take again."""

    again = True


class Event:
    """A flag that threads wait for."""

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[Any] = []

    def is_set(self) -> bool:
        """Whether it is up."""
        return self._set

    def set(self) -> None:
        """Put it up."""
        self._set = True
        if world := here():
            world.wake_all(self._waiting)

    def clear(self) -> None:
        """Put it down."""
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is up."""
        world = here()
        if not self._set and world:
            world.check()
            self._waiting.append(world.waiter())
            world.block(timeout)
            world.check()
        return self._set


class Thread:
    """A thread of the process that starts it."""

    def __init__(
        self, target: Callable[..., Any], args: Any = (), kwargs: Any = None, name: str = "thread", daemon: Any = None
    ) -> None:
        del daemon
        self.name = name
        self._work = lambda: target(*args, **(kwargs or {}))
        self._task: Any = None

    def start(self) -> None:
        """Start it."""
        _give_way()
        world = here()
        assert world
        self._task = world.start(current().process, self._work, self.name)  # type: ignore[union-attr]

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        world = here()
        if world and self._task:
            world.check()
            if not self._task.done:
                self._task.waiting.append(world.waiter())
                world.block(timeout)
                world.check()

    def is_alive(self) -> bool:
        """Whether it has begun and not ended."""
        return self._task is not None and not self._task.done


class SimpleQueue:
    """A queue without a bound."""

    def __class_getitem__(cls, _: Any) -> type[SimpleQueue]:
        return cls

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._waiting: list[Any] = []

    def put(self, item: Any) -> None:
        """Add an item."""
        _give_way()
        self._items.append(item)
        if world := here():
            world.wake_all(self._waiting)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Wait for an item, and take it."""
        world = here()
        while not self._items and block and world:
            self._waiting.append(world.waiter())
            if not world.block(timeout):
                break
            world.check()
        return self.get_nowait()

    def get_nowait(self) -> Any:
        """Take an item. Raises `queue.Empty`."""
        if not self._items:
            raise queue.Empty
        return self._items.popleft()


class _Future:
    def __init__(self) -> None:
        self._ended = Event()
        self._value: Any = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        """Whether there is a result."""
        return self._ended.is_set()

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the result. Raises what the work raised."""
        self._ended.wait(timeout)
        if self._error:
            raise self._error
        return self._value

    def work(self, work: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """Do it."""
        try:
            self._value = work(*args, **kwargs)
        except Exception as error:
            self._error = error
        self._ended.set()


class ThreadPoolExecutor:
    """So many threads, each started when it is needed. One that nobody of the world makes works at once."""

    def __init__(self, max_workers: int = 8, thread_name_prefix: str = "pool", **_: Any) -> None:
        self._most, self._name = max_workers, thread_name_prefix
        self._open: list[tuple[_Future, Any, Any, Any]] = []
        self._threads: list[Thread] = []
        self._idle = 0

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> _Future:
        """Have a thread do it."""
        future = _Future()
        if not here():
            future.work(work, args, kwargs)
            return future
        self._open.append((future, work, args, kwargs))
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if len(self._threads) < self._most:
            self._threads.append(Thread(self._work, name=self._name))
            self._threads[-1].start()
        return future

    def _work(self) -> None:
        while self._open:
            future, work, args, kwargs = self._open.pop(0)
            future.work(work, args, kwargs)

    def map(self, work: Callable[..., Any], *items: Iterable[Any]) -> Iterator[Any]:
        """The results in the items' order."""
        futures = [self.submit(work, *each) for each in zip(*items, strict=False)]
        return (future.result() for future in futures)

    def shutdown(self, wait: bool = True, cancel_futures: bool = False) -> None:
        """Wait for what is under way."""
        if cancel_futures:
            self._open.clear()
        for thread in self._threads if wait else ():
            thread.join()

    def __enter__(self) -> ThreadPoolExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


# clocks and chance


def _process() -> Process | None:
    task = current()
    return task.process if task else None


def now() -> float:
    """The seconds since the world began; real ones outside of it."""
    world = World.now_there
    return world.now if world else real_time.monotonic()


def on_the_wall() -> float:
    """The time on the wall of this process."""
    process, world = _process(), World.now_there
    return BEGINNING + world.now + (process.wall if process else 0.0) if world else real_time.time()


def sleep(seconds: float) -> None:
    """Let others go on."""
    if world := here():
        world.check()
        world.sleep(seconds)


class _Kind(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, datetime)


class Datetime(datetime, metaclass=_Kind):
    """`datetime`, whose `now` is that of the world."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        at = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=on_the_wall())
        return at.astimezone(tz) if tz else at.replace(tzinfo=None)


def uuid4() -> real_uuid.UUID:
    """One that was not there before."""
    return real_uuid.UUID(int=World.now_there.unique()) if World.now_there else real_uuid.uuid4()


class SystemRandom(Random):
    """The process's dice."""

    def random(self) -> float:
        process, world = _process(), World.now_there
        return world.dice(process.name).random() if process and world else 0.5


THREADING = SimpleNamespace(Thread=Thread, Lock=Lock, RLock=RLock, Event=Event)
TIME = SimpleNamespace(
    monotonic=now, perf_counter=now, time=on_the_wall, time_ns=lambda: int(on_the_wall() * 1e9), sleep=sleep
)
UUID = SimpleNamespace(uuid4=uuid4, UUID=real_uuid.UUID)
SECRETS = SimpleNamespace(choice=lambda options: options[uuid4().int % len(options)])
