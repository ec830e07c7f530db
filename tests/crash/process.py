"""A run as a real process: a fork of the warm test process, which a real signal ends."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .faults import Fault, Watcher

_HANGS = 200
"""Seconds after which a process that is waited for has to say where it stands, and is killed."""


@dataclass(frozen=True)
class Step:
    """The instant before a change; see `points.Point` for the phases."""

    change: str
    phase: str
    path: str


@dataclass
class Ending:
    """How a process ended: the signal, or the error's class and text, or neither; and the steps it came to."""

    signal: signal.Signals | None = None
    error: str | None = None
    text: str = ""
    steps: list[Step] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    @property
    def killed(self) -> bool:
        return self.signal == signal.SIGKILL


class Child:
    """A process that does one piece of work under a fault; `work` is given its watcher. Always ended by `wait`.

    `prepare` is called in it first; `hangs` where it was started, when it seems to hang.
    """

    def __init__(
        self,
        work: Callable[[Watcher], None],
        lake: str,
        scratch: Path,
        fault: Fault,
        *,
        prepare: Callable[[], None],
        hangs: Callable[[], None],
    ) -> None:
        self._hangs = hangs
        self._read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of libraries wait; they do not hold a lock
            self.pid = os.fork()
        if self.pid:
            os.close(write)
            os.set_blocking(self._read, False)
            self._data = b""
            return
        os.close(self._read)
        code = 1
        try:
            code = _live(work, lake, scratch, fault, write, prepare)
        finally:
            os._exit(code)

    def stopped(self) -> bool:
        """Wait until the process stands still, or has ended; return whether it stands still."""
        until = time.monotonic() + _HANGS
        while True:
            self._take()
            pid, status = os.waitpid(self.pid, os.WUNTRACED | os.WNOHANG)
            if pid:
                self._status = status
                return os.WIFSTOPPED(status)
            _breathe(self._read)
            if time.monotonic() > until:
                self._give_up()

    def _give_up(self) -> None:
        os.kill(self.pid, signal.SIGUSR1)
        time.sleep(0.5)
        self._hangs()
        time.sleep(0.5)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        raise AssertionError(f"a process did not end within {_HANGS} s; its stacks are on stderr")

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def wait(self) -> Ending:
        """Wait for the end."""
        assert not self.stopped()
        self._take()
        os.close(self._read)
        ending = Ending(signal.Signals(os.WTERMSIG(self._status)) if os.WIFSIGNALED(self._status) else None)
        for line in self._data.splitlines():
            said = json.loads(line)
            if "step" in said:
                ending.steps.append(Step(*said["step"]))
            elif "told" in said:
                ending.told.append(said["told"])
            else:
                ending.error, ending.text = said["error"]
        return ending

    def _take(self) -> None:
        while True:
            try:
                part = os.read(self._read, 1 << 16)
            except BlockingIOError:
                return
            if not part:
                return
            self._data += part


def _breathe(fd: int) -> None:
    """Wait for the pipe to have something, for a moment: a stopped process says nothing."""
    import select

    select.select([fd], [], [], 0.002)


def _live(
    work: Callable[[Watcher], None], lake: str, scratch: Path, fault: Fault, out: int, prepare: Callable[[], None]
) -> int:
    def tell(**said: object) -> None:
        os.write(out, json.dumps(said).encode() + b"\n")

    faulthandler.register(signal.SIGUSR1, file=2)
    watcher = Watcher(lake, scratch, fault, lambda *step: tell(step=step), lambda text: tell(told=text))
    try:
        prepare()
        watcher.arm()
        work(watcher)
    except BaseException as error:
        tell(error=[type(error).__name__, f"{error}\n{traceback.format_exc()}"])
        return 1
    return 0
