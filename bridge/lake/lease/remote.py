"""The lease of a pipeline in a bucket: an object that its holder renews by swapping the version that it wrote last.

No clock has to be right. A waiting run takes the lease when the object's version has not changed for its whole time to
live, measured by the waiting run's *own* monotonic clock. Then the holder is dead, suspended or cut off; it learns of
its loss at its next renewal. If this machine knows that the owner is dead, nobody waits. `renewed` is wall-clock time,
and only tells whether it is worth waiting; `nonce` is present while somebody holds the lease.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from random import SystemRandom
from typing import Any

import orjson

from bridge.errors import CommitLost, LakeError
from bridge.lake.lease.flock import QUEUE
from bridge.lake.lease.process import fate, held, now, oneself
from bridge.lake.paths import pipeline_key
from bridge.lake.storage import Storage
from bridge.lake.storage.protocol import VersionedObject

TTL = timedelta(seconds=60)
"""The time to live of a lease that does not state one."""
_BEATS = 4
"""Renewals in that time, so that a few failures in a row do no harm."""
_AGAIN = 3
_LOOK_AGAIN = timedelta(milliseconds=500)
_NONCES: set[str] = set()
"""The nonces of this process's leases. A lease that names this process with any other nonce was left by a failed put.
"""


class RemoteLease:
    """A hold by an object of the bucket; see `Lease`. A thread of its own renews it from `begin` to `close`."""

    def __init__(
        self, storage: Storage, pipeline: str, run: str, seen: VersionedObject | None, *, brief: bool, ttl: timedelta
    ) -> None:
        self.last = _fields(seen)
        self._storage, self._key, self._ttl = storage, _key(pipeline), ttl.total_seconds()
        self._version = seen.etag if seen else None
        self._nonce = uuid.uuid4().hex
        self._owner = oneself(run) | ({"brief": True} if brief else {}) | {"ttl": self._ttl}
        self._beat = 0
        self._taken_by: dict[str, Any] | None = None
        self._renewed = time.monotonic()
        self._turn = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"lease of {pipeline}", daemon=True)

    def begin(self) -> bool:
        """Take the lease unless it changed since it was read; return whether it is ours."""
        taken = False
        _NONCES.add(self._nonce)
        try:
            taken = self._put()
        finally:
            if not taken:
                _NONCES.discard(self._nonce)
        if taken:
            self._thread.start()
        return taken

    def _put(self) -> bool:
        """Renew the lease once; False if it is not ours any more. Raises `LakeError` if nobody can tell."""
        for _ in range(_AGAIN):
            began = time.monotonic()
            self._beat += 1
            facts = {"renewed": now(), "beat": self._beat, "head": self.last.get("head"), "closed": None}
            if version := self._swap(facts | {"nonce": self._nonce}):
                self._version, self._renewed = version, began
                return True
            if not self._is_ours():
                return False
        raise LakeError("the lease cannot be renewed", hint="the bucket refuses each change of it", key=self._key)

    def _swap(self, facts: dict[str, Any]) -> str | None:
        return self._storage.compare_and_swap(self._key, orjson.dumps(self._owner | facts), self._version)

    def _is_ours(self) -> bool:
        """Find out why a swap was refused: an earlier swap of ours, which seemed to fail, may have succeeded late."""
        seen = self._storage.read_versioned(self._key)
        current = _fields(seen)
        if seen and current.get("nonce") == self._nonce:
            self._version = seen.etag
            return True
        self._taken_by = current
        return False

    def _keep(self) -> None:
        while not self._closed.wait(self._ttl / _BEATS):
            with suppress(LakeError):  # it may pass; `check` knows when it took too long
                self._renew(self._ttl / _BEATS / 2)

    def _renew(self, older: float) -> None:
        """Renew the lease unless it was renewed in the last `older` seconds."""
        with self._turn:
            ended = self._closed.is_set() or self._taken_by is not None
            if not ended and time.monotonic() - self._renewed >= older:
                self._put()

    def check(self) -> None:
        """Raise `CommitLost` if another run has the lease, `LakeError` if one may have it by now."""
        failed: LakeError | None = None
        if time.monotonic() - self._renewed >= self._ttl:
            try:
                self._renew(self._ttl)  # suspended, or the machine slept: perhaps nobody took it
            except LakeError as error:
                failed = error
        if self._taken_by is not None:
            raise _lost(self._taken_by)
        if failed:
            hint = f"look at the network; another run may have taken over by now. The bucket said: {failed.message}"
            raise LakeError("the lease could not be renewed in time", hint=hint, key=self._key) from failed

    def close(self, *, head: int, clean: bool) -> None:
        """Release the lease; does nothing if another run has taken it."""
        with self._turn:
            self._closed.set()
        self._thread.join()
        facts = {"released": now(), "head": head, "closed": head if clean else None}
        try:
            for _ in range(_AGAIN):
                if self._taken_by is not None or self._swap(facts) or not self._is_ours():
                    return
        finally:
            _NONCES.discard(self._nonce)


def take(
    storage: Storage,
    pipeline: str,
    run: str,
    *,
    brief: bool,
    wait: timedelta,
    pause: Callable[[timedelta], None],
    ttl: timedelta,
) -> RemoteLease:
    """Take the lease if it is free, or if its owner is dead or silent for too long; see `bridge.lake.lease.take`."""
    watch = _Watch(storage, pipeline, wait)
    while True:
        seen = watch.look()
        last = _fields(seen)
        if not _is_held(last) or _is_dead(last) or watch.unchanged >= _ttl(last):
            lease = RemoteLease(storage, pipeline, run, seen, brief=brief, ttl=ttl)
            if lease.begin():
                return lease
        elif not watch.goes_on(last):
            raise held(last)
        soon = timedelta(seconds=SystemRandom().uniform(0.02, 0.2))  # apart from each other, not secret
        pause(soon if last.get("brief") else _LOOK_AGAIN)


class _Watch:
    """A waiting run's watch. `unchanged`: the lease has had its present version for at least so many seconds."""

    def __init__(self, storage: Storage, pipeline: str, wait: timedelta) -> None:
        self._storage, self._key = storage, _key(pipeline)
        began = time.monotonic()
        self._end, self._queue = began + wait.total_seconds(), began + QUEUE.total_seconds()
        self._version: str | None = None
        self._since = 0.0
        self._changes = 0
        self.unchanged = 0.0

    def look(self) -> VersionedObject | None:
        asked = time.monotonic()
        seen = self._storage.read_versioned(self._key)
        version = seen.etag if seen else None
        if version != self._version:
            self._version, self._since = version, time.monotonic()
            self._changes += 1
        self.unchanged = asked - self._since
        return seen

    def goes_on(self, lease: dict[str, Any]) -> bool:
        """Whether to wait for this holder: within our `wait`, or because it is brief, or because it seems dead."""
        if silence(lease) and self._changes == 1:
            return True  # until its version changes, or has stayed for a whole time to live
        return time.monotonic() < max(self._end, self._queue if lease.get("brief") else 0.0)


def holder(storage: Storage, pipeline: str) -> dict[str, Any] | None:
    """Who holds the pipeline; None if nobody does, or if the holder is known to be dead."""
    lease = look(storage, pipeline)
    return lease if _is_held(lease) and not _is_dead(lease) else None


def look(storage: Storage, pipeline: str) -> dict[str, Any]:
    """The fields that the present or last holder wrote; empty if there was none."""
    return _fields(storage.read_versioned(_key(pipeline)))


def release(storage: Storage, pipeline: str, owner: dict[str, Any]) -> dict[str, Any] | None:
    """Take the lease away from this owner and leave it free; the next run fences and recovers.

    Return None, or the holder if it is another one by now.
    """
    while True:
        seen = storage.read_versioned(_key(pipeline))
        lease = _fields(seen)
        if seen is None or lease.get("nonce") != owner["nonce"]:
            return lease if _is_held(lease) else None
        del lease["nonce"]
        freed = lease | {"released": now(), "closed": None}
        if storage.compare_and_swap(_key(pipeline), orjson.dumps(freed), seen.etag):  # else it was renewed just now
            return None


def silence(lease: dict[str, Any]) -> timedelta | None:
    """How long a holder has not renewed, by the wall clock; None if it is on time or there is none."""
    if "nonce" not in lease:
        return None
    try:
        passed = abs(datetime.now(timezone.utc) - datetime.fromisoformat(lease["renewed"]))
    except (KeyError, TypeError, ValueError):
        passed = timedelta(days=1)  # it was written by hand
    return passed if passed.total_seconds() >= _ttl(lease) else None


def _lost(by: dict[str, Any]) -> CommitLost:
    if not _is_held(by):
        return CommitLost("this run's lease was taken away", hint=_UNLOCKED)
    return CommitLost("another run took over", hint=_TAKEN, **{key: by.get(key) for key in ("run", "pid", "host")})


_TAKEN = "this one had stood still, or had no network, for too long; what it committed stays, the other goes on from it"
_UNLOCKED = "`unlock`, or a run since, did that; what was committed stays, run again to go on from there"


def _key(pipeline: str) -> str:
    return pipeline_key(pipeline, "lease.json")


def _fields(seen: VersionedObject | None) -> dict[str, Any]:
    """The fields of a lease; empty if it is no JSON object, as after an edit by hand."""
    try:
        value = orjson.loads(seen.data) if seen else None
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _is_held(lease: dict[str, Any]) -> bool:
    return "nonce" in lease


def _is_dead(lease: dict[str, Any]) -> bool:
    status = fate(lease)
    return status == "gone" or (status == "alive" and lease["pid"] == os.getpid() and lease["nonce"] not in _NONCES)


def _ttl(lease: dict[str, Any]) -> float:
    """A lease's time to live in seconds."""
    ttl = lease.get("ttl")
    return float(ttl) if isinstance(ttl, (int, float)) and ttl > 0 else TTL.total_seconds()
