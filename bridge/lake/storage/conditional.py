"""A put that only one of two writers can win, even if the answer to one is lost; the same for every store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import SystemRandom
from typing import Protocol

from bridge.errors import LakeError
from bridge.lake.storage.protocol import VersionedObject

_PATIENCE = 15.0
"""Seconds for which a put is tried again."""


class Refused(Exception):
    """The store refused a request, as the object is not the one that its condition names."""


class Passing(Exception):
    """A request failed for a while, and may have had its effect all the same. Its cause is the store's own error."""


class Conditional(Protocol):
    """A store that puts under a condition."""

    def put_once(self, key: str, data: bytes, etag: str | None, /) -> str:
        """Send one put of an object that has this ETag (None: that does not exist); return its new ETag.

        Raises `Refused`, `Passing`, and `LakeError` for what no second attempt changes.
        """

    def get(self, key: str, /) -> VersionedObject | None:
        """The object as it is now; None when there is none."""

    def place(self, key: str, /) -> str:
        """The object's URI, for people."""


def put_if(store: Conditional, key: str, data: bytes, etag: str | None) -> str | None:
    """Put an object that still has this ETag (None: that does not exist).

    Returns its new ETag; None if the store then holds other bytes, or no object. A refusal does not prove that somebody
    else won: perhaps our own put had won, and its answer was lost. The bytes tell.
    Raises `LakeError` if the outcome stays unknown; the put may then land at any later time.
    """
    unknown: BaseException | None = None
    for _ in patient_attempts():
        try:
            return store.put_once(key, data, etag)
        except Refused as error:
            current = store.get(key)
            if current and current.data == data:
                return current.etag
            if current or etag is not None:
                return None
            unknown = error.__cause__
        except Passing as error:
            unknown = error.__cause__
    try:
        current = store.get(key)
    except LakeError as error:
        raise _unknown(store, key, unknown) from error
    if current and current.data == data:
        return current.etag
    if current and current.etag != etag:
        return None
    raise _unknown(store, key, unknown) from unknown


def patient_attempts() -> Iterator[None]:
    """Yield now, and then again with growing pauses, for 15 seconds."""
    until, wait = time.monotonic() + _PATIENCE, 0.2
    while True:
        yield
        pause = wait * SystemRandom().uniform(0.5, 1)  # keeps writers from coming back all at once
        if time.monotonic() + pause > until:
            return
        time.sleep(pause)
        wait = min(2 * wait, 4)


def _unknown(store: Conditional, key: str, cause: BaseException | None) -> LakeError:
    hint = "check the network and the store, then run again: the next run finds it out, and nothing is lost"
    return LakeError(f"it is not known whether an object was written: {cause}", hint=hint, at=store.place(key))
