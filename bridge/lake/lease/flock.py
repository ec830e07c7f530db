"""The lease of a pipeline in a folder: `flock` on its file. It ends with its owner's process, and never expires."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from datetime import timedelta
from pathlib import Path
from random import SystemRandom
from typing import Any

import orjson

from bridge.errors import LakeError
from bridge.lake.lease.process import held, oneself

_PATIENCE = timedelta(milliseconds=200)
"""A lock that is refused for this long is held. A shorter refusal may come from `holder`, which locks for an instant to
look.
"""
QUEUE = timedelta(seconds=30)
"""The longest wait for holders that announced to be brief, one after the other."""


class FlockLease:
    """A hold by a lock on the file at `path`; see `Lease`. Raises `PipelineHeld` when another process has it."""

    def __init__(self, path: Path, run: str, *, brief: bool = False) -> None:
        self._owner = oneself(run) | ({"brief": True} if brief else {})
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # A link could make us overwrite a file elsewhere that the maker of the link may not write.
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            hint = "check the rights on the bucket folder"
            if error.errno == errno.ELOOP:
                hint = "it is a link, which singer-bridge never makes: see who may write there, and delete it"
            raise LakeError(f"cannot open the lease: {error.strerror}", hint=hint, path=path) from error
        try:
            _lock(self._fd, path)
        except BlockingIOError as error:
            os.close(self._fd)
            raise held(read(path)) from error
        except OSError as error:
            os.close(self._fd)
            hint = "the bucket's filesystem has no file locks; use a local disk, or NFS 4"
            raise LakeError(f"cannot lock the lease: {error.strerror}", hint=hint, path=path) from error
        self.last = read(path)
        try:
            self._write({"head": self.last.get("head"), "closed": None})
        except LakeError:
            os.close(self._fd)  # otherwise this process would block its own next attempt
            raise

    def _write(self, facts: dict[str, Any]) -> None:
        # In place, as the lock belongs to the inode. A torn write reads as "not closed", which costs one fence. Padded
        # first, then cut: readers see whole JSON at every moment, and on a busy disk there can be seconds between the
        # two calls.
        data = orjson.dumps(self._owner | facts)
        try:
            os.pwrite(self._fd, data.ljust(os.fstat(self._fd).st_size), 0)
            os.ftruncate(self._fd, len(data))
            os.fsync(self._fd)
        except OSError as error:
            hint = "the disk may be full; nothing that was committed is lost"
            raise LakeError(f"cannot write the lease: {error.strerror}", hint=hint, path=self._path) from error

    def check(self) -> None:
        """Nothing to check: nobody can take this lock from its owner."""

    def close(self, *, head: int, clean: bool) -> None:
        try:
            self._write({"head": head, "closed": head if clean else None})
        finally:
            os.close(self._fd)


def _lock(fd: int, path: Path) -> None:
    """Lock until `close`. Raises `BlockingIOError` if somebody else holds the lock."""
    now = time.monotonic()
    end, last = now + _PATIENCE.total_seconds(), now + QUEUE.total_seconds()
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            now, owner = time.monotonic(), read(path)
            # The holder is brief, has not written its lease yet, or only looks and waits for the CPU.
            if owner.get("brief") or owner.get("closed") is not None or not owner:
                end = min(now + _PATIENCE.total_seconds(), last)
            if now >= end:
                raise
        time.sleep(SystemRandom().uniform(0.002, 0.018))  # apart from each other, not secret


def holder(path: Path) -> dict[str, Any] | None:
    """Who holds the pipeline now, or None. Raises `LakeError` where that cannot be seen."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        hint = "check the rights on the bucket folder"
        raise LakeError(f"cannot look at the lease: {error.strerror}", hint=hint, path=path) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return read(path)
    except OSError as error:
        hint = "the bucket's filesystem has no file locks; use a local disk, or NFS 4"
        raise LakeError(f"cannot look at the lease: {error.strerror}", hint=hint, path=path) from error
    finally:
        os.close(fd)
    return None


def read(path: Path) -> dict[str, Any]:
    """The fields that the present or last holder wrote; empty if they cannot be read."""
    try:
        value = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return value if isinstance(value, dict) else {}
