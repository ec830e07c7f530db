"""Die at the k-th change of a folder, inside this process: an audit hook sees each system call that changes files.

A dead process does nothing more: after the crash every further change of the folder raises again, so that no `finally`
can tidy up what a SIGKILL would have left.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from tests.support.syscalls import CHANGES, changed_paths, tear


class Crash(BaseException):
    """The process died here. No `except Exception` survives it."""


@dataclass
class Faults:
    """Counts the steps of one run over `folder` and dies at step `at`, counted from 0; None never dies.

    A step is the instant before a change; creating or truncating a file has a second one, at which the file is torn.
    """

    folder: Path
    at: int | None
    steps: list[str] = field(default_factory=list)
    crashed: bool = False

    def see(self, event: str, args: tuple[Any, ...]) -> None:
        """Take one audit event; raise `Crash` at the chosen step and at each one after it."""
        paths = changed_paths(event, args)
        inside = [path for path in paths if path == "renameat2" or Path(path).is_relative_to(self.folder)]
        if not inside:
            return
        self._step(f"{event} {inside[-1]}")
        if event == "os.truncate" or (event == "open" and not os.path.exists(inside[0])):
            self._step(f"torn {inside[0]}", partial(tear, inside[0]))

    def _step(self, name: str, damage: Callable[[], None] | None = None) -> None:
        if self.crashed:
            raise Crash(name)
        self.steps.append(name)
        if len(self.steps) - 1 == self.at:
            if damage:
                damage()
            self.crashed = True
            raise Crash(name)


_armed: list[Faults] = []


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if not _armed or event not in CHANGES:
        return
    faults = _armed.pop()  # what the hook does itself is not the process's doing
    try:
        faults.see(event, args)
    finally:
        _armed.append(faults)


@cache
def _install() -> None:
    sys.addaudithook(_hook)  # for good: Python cannot take an audit hook away again


@contextmanager
def crashing(folder: Path, at: int | None = None) -> Iterator[Faults]:
    """Run the block as a process that dies at step `at` of changing `folder`; its death ends only the block."""
    _install()
    faults = Faults(folder.absolute(), at)
    _armed.append(faults)
    try:
        yield faults
    except Crash:
        assert faults.crashed
    finally:
        _armed.clear()
        if faults.crashed:
            _let_go(faults.folder)


def _let_go(folder: Path) -> None:
    """Let go of a dead process's locks, as its kernel would; files of libraries belong to threads that close them."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):  # a library's thread was faster
            path = Path(os.readlink(f"/proc/self/fd/{fd}"))
            if path.is_relative_to(folder) and "\nlock:" in Path(f"/proc/self/fdinfo/{fd}").read_text():
                os.close(fd)
