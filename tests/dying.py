"""A piece of work in a process of its own that is killed at the k-th change it makes to a folder."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["Ended", "die_at"]

_CHANGES = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "open", "ctypes.dlsym"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Ended:
    """How it ended. `steps` are the changes that it came to, the last of which it did not make if it was `killed`."""

    def __init__(self, status: int, steps: list[str]) -> None:
        self.killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        self.failed = os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0
        self.steps = steps


def die_at(folder: Path, step: int | None, work: Callable[[], object]) -> Ended:
    """Do the work in a fork of this process that a SIGKILL ends right before change `step` of the folder, from 0."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of libraries wait; they hold no lock
        pid = os.fork()
    if not pid:
        os.close(read)
        _live(folder, step, work, write)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        steps = pipe.read().decode().splitlines()
    return Ended(os.waitpid(pid, 0)[1], steps)


def _live(folder: Path, step: int | None, work: Callable[[], object], out: int) -> None:
    code, count, inside = 1, 0, False

    def see(event: str, args: tuple[Any, ...]) -> None:
        nonlocal count, inside
        if inside or event not in _CHANGES or not (path := _changed(event, args, folder)):
            return
        inside = True
        os.write(out, f"{event} {path}\n".encode())
        if count == step:
            os.kill(os.getpid(), signal.SIGKILL)
        count, inside = count + 1, False

    try:
        sys.addaudithook(see)
        work()
        code = 0
    finally:
        os._exit(code)


def _changed(event: str, args: tuple[Any, ...], folder: Path) -> str:
    """Return the path inside the folder that an event is about to change; nothing for any other event."""
    if event == "ctypes.dlsym":
        return "renameat2" if args[1] == "renameat2" else ""
    if event == "open" and not args[2] & _WRITES:
        return ""
    paths = args[:2] if event in ("os.rename", "os.link") else args[:1]
    inside = [str(path) for path in paths if isinstance(path, str | Path) and folder in Path(path).parents]
    return inside[-1] if inside else ""
