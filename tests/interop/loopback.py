"""What each server on loopback needs: a port, its process, and an environment that names it while it runs."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def started(command: Sequence[str | Path], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A process with this environment, which reads and says nothing."""
    silent = subprocess.DEVNULL
    return subprocess.Popen(list(command), env=dict(environ), stdin=silent, stdout=silent, stderr=silent)


def wait_for(process: subprocess.Popen[bytes], name: str, is_up: Callable[[], bool]) -> None:
    """Wait until a server that was started answers."""
    deadline = time.monotonic() + 60
    while not is_up():
        assert process.poll() is None, f"{name} did not start"
        assert time.monotonic() < deadline, f"{name} does not answer"
        time.sleep(0.1)
