"""Which process holds a lease, described so that others on its machine can tell whether it is still alive.

A pid alone says little: it is reused after a while, and a container has its own. So an owner is host, boot, pid
namespace, pid and the time when the process started. Only a process in the same pid namespace judges it.
"""

from __future__ import annotations

import os
import socket
import subprocess
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any, Literal

from bridge.errors import PipelineHeld

Fate = Literal["alive", "stopped", "gone", "unknown"]
"""The state of an owner: `stopped` by SIGSTOP, `unknown` on another machine, in another container, or hidden from
us.
"""

_PROC = Path("/proc")


def now() -> str:
    """The time in the form that a lease holds."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def oneself(run: str) -> dict[str, Any]:
    """The description of this process for a lease. `boot` and `pids` (the pid namespace) are None without `/proc`."""
    pid = os.getpid()
    seen = _seen(pid)
    place = {"host": socket.gethostname(), "boot": _boot(), "pids": _pids()}
    return {"format": 1, "run": run, **place, "pid": pid, "start": seen and seen[1], "since": now()}


def fate(owner: dict[str, Any]) -> Fate:
    """Find out what became of an owner: `gone` only if it is certainly dead."""
    pid, start = owner.get("pid"), owner.get("start")
    place = (owner.get("host"), owner.get("boot"), owner.get("pids"))
    if place != (socket.gethostname(), _boot(), _pids()) or not isinstance(pid, int) or not start:
        return "unknown"
    dead: Fate = "gone" if all(place) else "unknown"  # a name alone may be that of two machines
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return dead
    except (PermissionError, OverflowError):
        pass  # somebody else's, or none that there can be: what is seen of it decides
    seen = _seen(pid)
    if seen is None:  # ended just now, or hidden from us: who asks again will know
        return "unknown"
    state, started = seen
    if started != start or state in "ZX":
        return dead
    return "stopped" if state in "Tt" else "alive"


def held(owner: dict[str, Any]) -> PipelineHeld:
    """The error for a pipeline that this owner holds."""
    facts = {key: owner.get(key, "unknown") for key in ("run", "pid", "host", "since")}
    hint = "wait for it to end, or add --wait 10m to a run; `singer-bridge runs list` shows it"
    return PipelineHeld("another run holds this pipeline", hint=hint, **facts)


@cache
def _boot() -> str | None:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _pids() -> str | None:
    try:
        return os.readlink(_PROC / "self/ns/pid")
    except OSError:
        return None


def _seen(pid: int) -> tuple[str, str] | None:
    """A process's state, one letter, and its start; None if it cannot be seen."""
    if not (_PROC / "self/stat").exists():
        return _asked(pid)
    try:
        stat = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The name, in parentheses, may hold any character. The start is in clock ticks since the boot.
    fields = stat[stat.rindex(b")") + 1 :].decode().split()
    return fields[0], fields[19]


def _asked(pid: int) -> tuple[str, str] | None:
    """The same where there is no `/proc`."""
    words = ["ps", "-o", "stat=", "-o", "lstart=", "-p", str(pid)]
    try:
        result = subprocess.run(words, env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True, check=False)
    except OSError:
        return None
    state, _, started = result.stdout.strip().partition(" ")
    return (state[0], " ".join(started.split())) if started else None
