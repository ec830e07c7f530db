"""The lease of a pipeline, of either kind: a file lock if the bucket is a folder, otherwise an object of the bucket."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from bridge.errors import PipelineHeld
from bridge.lake.lease import flock, process, remote
from bridge.lake.paths import pipeline_key
from bridge.lake.storage import Storage
from bridge.lake.storage.local.folders import require_inside

_LOOK_AGAIN = timedelta(milliseconds=500)
"""The pause before a held lock is tried again."""


class Lease(Protocol):
    """An exclusive hold on one pipeline of one bucket.

    `last` is what the previous holder left: `closed` is the number of its last commit, if it ended cleanly.
    """

    last: dict[str, Any]

    def check(self) -> None:
        """Raise `CommitLost` when somebody else took it, and `LakeError` when that cannot be ruled out any more."""

    def close(self, *, head: int, clean: bool) -> None:
        """Release it. `clean` promises that nothing of this run is pending or half published."""


def _sleep(duration: timedelta) -> None:
    time.sleep(duration.total_seconds())


def take(
    storage: Storage,
    pipeline: str,
    run: str,
    *,
    brief: bool = False,
    wait: timedelta = timedelta(),
    pause: Callable[[timedelta], None] = _sleep,
    ttl: timedelta = remote.TTL,
) -> Lease:
    """Take the lease; the bucket is made a lake first, if it is none.

    Raises `PipelineHeld` (exit 4) when another run has it for longer than `wait`. `brief` announces that it is held for
    one commit only, so others wait instead of being refused. `pause` is called to wait, and may raise to end the wait.
    An object that is not renewed for `ttl` may be taken by others; a lock needs none.
    """
    storage.prepare()
    if storage.folder is None:
        return remote.take(storage, pipeline, run, brief=brief, wait=wait, pause=pause, ttl=ttl)
    require_inside(storage.folder, [pipeline_key(pipeline, "lease.json")])
    end = time.monotonic() + wait.total_seconds()
    while True:
        try:
            return flock.FlockLease(_path(storage.folder, pipeline), run, brief=brief)
        except PipelineHeld:
            if time.monotonic() >= end:
                raise
        pause(_LOOK_AGAIN)


def holder(storage: Storage, pipeline: str) -> dict[str, Any] | None:
    """Who holds the pipeline now, or None. Raises `LakeError` where that cannot be seen.

    A dead holder on another machine counts until somebody takes over; `silence` tells how long it has given no sign of
    life.
    """
    if storage.folder is None:
        return remote.holder(storage, pipeline)
    return flock.holder(_path(storage.folder, pipeline))


def require_free(storage: Storage, pipeline: str) -> None:
    """Raise `PipelineHeld` where `take` would now. Nothing is taken."""
    owner = holder(storage, pipeline)
    if owner and not owner.get("brief") and not remote.silence(owner):
        raise process.held(owner)


def holds(storage: Storage, pipeline: str, run: str) -> bool:
    """Whether this run holds the pipeline and gives signs of life."""
    held = holder(storage, pipeline)
    return bool(held and held.get("run") == run and not remote.silence(held))


def last_lease(storage: Storage, pipeline: str) -> dict[str, Any]:
    """The fields that the present or last holder wrote about itself; empty if there was none."""
    if storage.folder is None:
        return remote.look(storage, pipeline)
    return flock.read(_path(storage.folder, pipeline))


def lease_of(storage: Storage, pipeline: str) -> tuple[dict[str, Any], str]:
    """The fields that the last holder wrote, and the run that holds the pipeline now."""
    held = holder(storage, pipeline)
    return last_lease(storage, pipeline), str(held.get("run", "unknown")) if held else ""


def _path(folder: Path, pipeline: str) -> Path:
    return folder / pipeline_key(pipeline, "lease.json")
