"""The system calls that change files, as Python's audit events tell them the instant before."""

from __future__ import annotations

import os
from typing import Any

import psutil

CHANGES = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "open", "ctypes.dlsym"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_TORN = b'{"format": 1, "to'


def changed_paths(event: str, args: tuple[Any, ...]) -> list[str]:
    """Return the absolute paths that an event is about to change; the exchange of two folders is `renameat2`."""
    if event == "ctypes.dlsym":
        return ["renameat2"] if args[1] == "renameat2" else []
    if event == "open" and (isinstance(args[0], int) or not args[2] & _WRITES):
        return []
    paths = args[:2] if event in ("os.rename", "os.link") else args[:1]
    return [_open_path(path) if isinstance(path, int) else os.path.abspath(os.fsdecode(path)) for path in paths]


def _open_path(fd: int) -> str:
    return next(file.path for file in psutil.Process().open_files() if file.fd == fd)


def tear(path: str) -> None:
    """Leave the first bytes of a file only: it was being written."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(fd, _TORN)
    os.close(fd)
