"""One run of the product in a world: `Run.execute`, with ours in the place of the tap's process and of boto3."""

from __future__ import annotations

import json
import secrets
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, partial
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from random import SystemRandom
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from bridge.errors import TapError
from bridge.lake.lease import process as lease_process
from bridge.lake.lease import remote
from bridge.lake.storage.s3 import pending, store
from bridge.load.run import run as runs
from bridge.load.run import stop as stops
from bridge.load.run.checks.commit_clock import CommitClock
from bridge.load.run.run import Run
from bridge.load.run.stop import Stop
from bridge.load.tap import pipe
from bridge.load.tap.database.source_database import SourceDatabase
from bridge.load.tap.pipe import Silent, read_pipe
from bridge.load.tap.stdin import Piped, Start, Stdin
from bridge.settings.destination import StreamKeys
from bridge.settings.inline import inline_pipeline
from bridge.settings.options import Pipeline
from bridge.settings.values.request import Request

from . import stand_ins
from .bucket import Client
from .world import Process, World, current

PIPELINE, URI = "p", "s3://lake"


class Pipe:
    """The tap's stdout."""

    def __init__(self) -> None:
        self.chunks: deque[bytes] = deque()
        self.closed = False
        self._waiting: list[Any] = []

    def fileno(self) -> Pipe:
        return self

    def write(self, world: World, data: bytes) -> None:
        """Add bytes; empty ones close it."""
        if data:
            self.chunks.append(data)
        else:
            self.closed = True
        world.wake_all(self._waiting)

    def wait(self, world: World, seconds: float) -> bool:
        """Wait for bytes or the end."""
        if not self.chunks and not self.closed and seconds:
            self._waiting.append(world.waiter())
            world.block(seconds)
            world.check()
        return bool(self.chunks) or self.closed

    def read(self, most: int) -> bytes:
        """What there is, up to `most` bytes."""
        data = b"".join(self.chunks)
        self.chunks.clear()
        if data[most:]:
            self.chunks.append(data[most:])
        return data[:most]


class Tap:
    """A tap that says `lines`; a process of its own. `ends`: after so many lines it fails, in the middle of one.

    `stalls`: before this line it is silent for so many seconds.
    """

    proves_end = True

    def __init__(
        self, lines: Iterator[bytes], name: str, ends: int | None = None, stalls: tuple[int, float] | None = None
    ) -> None:
        self._lines, self._name, self._ends, self._stalls = lines, name, ends, stalls
        self.pipe = Pipe()
        self._code: int | None = None
        self._stopped = False
        self._process: Process | None = None

    def __enter__(self) -> Tap:
        world = current().world  # type: ignore[union-attr]
        self._process = world.process(self._name)
        world.start(self._process, partial(self._live, world), "tap")
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            self._process.alive = False

    def says_first(self, message: Any) -> None:
        """Have it begin with this message."""
        self._lines = chain([json.dumps(message).encode()], self._lines)

    def _live(self, world: World) -> None:
        dice = world.dice(self._name)
        for number, line in enumerate(self._lines):
            if self._stalls and self._stalls[0] == number:
                world.sleep(self._stalls[1])
            if self._ends == number:
                self.pipe.write(world, line[: dice.randint(0, len(line))])
                self._end(world, 1)
                return
            world.note(self._name, line.decode()[:160])
            cut = dice.randint(1, len(line)) if dice.random() < 0.2 else 0
            if cut:
                self.pipe.write(world, line[:cut])
                world.sleep(dice.expovariate(200.0))
            self.pipe.write(world, line[cut:] + b"\n")
            world.sleep(dice.expovariate(100.0))
        self._end(world, 0)

    def _end(self, world: World, code: int) -> None:
        self._code = code
        self.pipe.write(world, b"")

    def chunks(self, *, idle: timedelta | None, tick: Callable[[], None]) -> Iterator[bytes]:
        try:
            yield from read_pipe(self.pipe, idle=idle, tick=tick, ended=lambda: self._code is not None)  # type: ignore[arg-type]
        except Silent:
            self.terminate()
            raise TapError("the tap was silent for too long and was stopped", hint="") from None

    def select_messages(self, messages: Iterable[Any]) -> Iterable[Any]:
        return messages

    def wait(self, *, idle: timedelta | None, tick: Callable[[], None]) -> None:
        del idle
        while self._code is None:
            tick()
            stand_ins.sleep(0.05)
        if self._code or self._stopped:
            raise TapError("the tap failed", hint="")

    def terminate(self) -> None:
        self._stopped = True
        if self._process:
            self._process.alive = False

    def failure(self, message: str) -> TapError:
        return TapError(message, hint="")


class TapSource:
    """What stands in for `bridge.load.tap.source.Source`."""

    def __init__(self, pipeline: Pipeline, home: Path, tick: Callable[[], None]) -> None:
        del home, tick
        self.argv, self.declared = list(pipeline.source.argv), None
        self.notes: list[str] = []
        self.news: list[Any] = []
        self.database = SourceDatabase(None, self.argv)

    def catalog(self, only: Any, *, refresh: bool) -> tuple[Any, set[str]]:
        del only, refresh
        return current().process.catalog, set()  # type: ignore[union-attr]

    def start(self, catalog: Any, state: Any, log: Any, settings: Any = None) -> Tap:
        del catalog, log, settings
        return current().process.tap(state)  # type: ignore[union-attr, no-any-return]


@cache
def pipeline_of(every: float, idle: float) -> Pipeline:
    """The settings: a commit each `every` seconds, all rows written by this process."""
    made = inline_pipeline(name=PIPELINE, bucket=URI, tap="tap", environ={})
    update = {
        "spark": made.spark.model_copy(update={"small": 1 << 50}),
        "commit": made.commit.model_copy(update={"every": timedelta(seconds=every)}),
        "source": made.source.model_copy(update={"idle_timeout": timedelta(seconds=idle)}),
    }
    return made.model_copy(update=update | {"streams": {"u": StreamKeys(load_method="upsert", hard_delete=True)}})


@dataclass(frozen=True)
class Piping:
    """Another program that starts the tap, from `state`, and the run behind it; `emit` is given each STATE.

    `tells`: it says what the tap was started with; otherwise the tap's first message does.
    """

    state: Any
    emit: Callable[[Any], None]
    tells: bool

    def start(self, process: Process) -> Piped:
        """Start the tap."""
        tap: Tap = process.tap(self.state)
        if not self.tells:
            tap.says_first({"type": "STATE", "value": self.state or {}})
        tap.__enter__()
        return Piped("tap", Stdin(tap.pipe), self.emit, Start(self.state) if self.tells else None)  # type: ignore[arg-type]


def live(
    process: Process,
    pipeline: Pipeline,
    home: Path,
    wait: float,
    ended: Callable[[Any], None],
    piping: Piping | None = None,
) -> None:
    """Execute one run, as a thread of its process."""
    piped = piping.start(process) if piping else None
    stop = Stop(signals=False)
    process.stop = lambda: stop._signalled(15, None)
    try:
        ended(Run(pipeline, Request(wait=timedelta(seconds=wait)), home, stop=stop, piped=piped).execute())
    except Exception as error:
        ended(error)
    process.alive = False  # it exits


# the product's modules


def _oneself(run: str) -> dict[str, Any]:
    process = current().process  # type: ignore[union-attr]
    place = {"host": process.host, "boot": process.host, "pids": "pids"}
    return {"format": 1, "run": run, **place, "pid": process.pid, "start": "1", "since": lease_process.now()}


def _fate(owner: dict[str, Any]) -> str:
    task, world = current(), World.now_there
    if not task or not world or owner.get("host") != task.process.host:
        return "unknown"
    known = next((each for each in world.processes if each.pid == owner.get("pid")), None)
    if known is None or not known.alive:
        return "gone"
    return "stopped" if known.until > world.now else "alive"


_HELD = remote._is_held


def _is_held(lease: dict[str, Any]) -> bool:
    world = World.now_there
    return _HELD(lease) and (world is None or world.leases)


def _exit(*_: Any) -> None:
    task = current()
    assert task
    task.world.kill(task.process)


def _clients(_: Any) -> Any:
    bucket = World.now_there.bucket  # type: ignore[union-attr]
    return SimpleNamespace(once=Client(bucket, patient=False), patient=Client(bucket, patient=True))


def _select(files: list[Pipe], _: Any, __: Any, seconds: float) -> tuple[list[Pipe], list[Any], list[Any]]:
    task = current()
    assert task
    return [file for file in files if file.wait(task.world, seconds)], [], []


def _own_pid() -> int:
    task = current()
    assert task
    return task.process.pid


_SWAPS: dict[int, Any] = {
    id(threading): stand_ins.THREADING,
    id(time): stand_ins.TIME,
    id(uuid): stand_ins.UUID,
    id(secrets): stand_ins.SECRETS,
    id(ThreadPoolExecutor): stand_ins.ThreadPoolExecutor,
    id(SimpleQueue): stand_ins.SimpleQueue,
    id(SystemRandom): stand_ins.SystemRandom,
    id(datetime): stand_ins.Datetime,
    id(lease_process.oneself): _oneself,
    id(lease_process.fate): _fate,
}
"""What stands in for what, wherever the product has it."""
_PLACES: list[tuple[Any, str, Any]] = [
    (stops, "_end_process", _exit),
    (store, "clients", _clients),
    (runs, "Source", TapSource),
    (pipe, "select", SimpleNamespace(select=_select)),
    (pipe, "os", SimpleNamespace(read=Pipe.read)),
    (remote, "os", SimpleNamespace(getpid=_own_pid)),
    (remote, "_is_held", _is_held),
    # Who waits looks less often: each look is an event.
    (pipe, "_STEP", 0.5),
    (stops, "_STEP", 0.5),
    (remote, "_LOOK_AGAIN", timedelta(seconds=5)),
]
"""What stands at one place."""
_INSTALLED = [0]
"""The number of modules that were there last time."""


def install() -> None:
    """Put the stand-ins into each module of the product that is loaded. Nothing puts them back."""
    if len(sys.modules) == _INSTALLED[0]:
        return
    _INSTALLED[0] = len(sys.modules)
    for name, module in list(sys.modules.items()):
        if name.startswith(("bridge.lake", "bridge.load")):
            for attribute, value in list(vars(module).items()):
                if id(value) in _SWAPS and not attribute.startswith("__"):
                    setattr(module, attribute, _SWAPS[id(value)])
    for module, attribute, value in _PLACES:
        setattr(module, attribute, value)
    factory = next(cell for cell in CommitClock.__init__.__closure__ or () if callable(cell.cell_contents))
    factory.cell_contents = stand_ins.now
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


def begin(small: int) -> None:
    """Forget what the last world left in the product's modules; files above `small` bytes are uploads."""
    remote._NONCES.clear()
    pending._SMALL = small
