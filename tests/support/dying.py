"""A piece of work in a process of its own that is killed at the k-th change it makes to a folder."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.syscalls import CHANGES, changed_paths


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
        if inside or event not in CHANGES:
            return
        inside = True  # what is looked up here is not the work's doing
        paths = [path for path in changed_paths(event, args) if path == "renameat2" or folder in Path(path).parents]
        if paths:
            os.write(out, f"{event} {paths[-1]}\n".encode())
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1
        inside = False

    try:
        sys.addaudithook(see)
        work()
        code = 0
    finally:
        os._exit(code)
