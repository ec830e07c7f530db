"""What every backend promises.

A key is a `/`-separated path below the bucket's URI. A *pending* file is durable and not visible to any reader
of the tables; `publish` is the only operation that makes files visible or takes them away, it can be repeated
after a crash at any point, and it never runs for a commit that is not on record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

__all__ = ["Add", "Change", "Missing", "Remove", "Storage"]


@dataclass(frozen=True, slots=True)
class Add:
    """A file to make visible: from `source` (pending, or trash when a commit is taken back) to `key`."""

    source: str
    key: str
    size: int


@dataclass(frozen=True, slots=True)
class Remove:
    """A visible file to take away: from `key` to `trash`, where it is kept for the retention."""

    key: str
    trash: str


@dataclass(frozen=True, slots=True)
class Change:
    """What one commit does to one table folder.

    `replace` says that afterwards the folder holds exactly `adds`; a backend may then swap the folder whole,
    keeping the old one under `trash`.
    """

    folder: str
    adds: tuple[Add, ...] = ()
    removes: tuple[Remove, ...] = ()
    replace: bool = False
    trash: str = field(default="")


class Missing(Exception):
    """A file to publish is neither pending nor visible; `keys` names each one."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = list(keys)
        super().__init__(", ".join(self.keys))


class Storage(Protocol):
    """One bucket. Every method raises `LakeError` (exit 3) with a hint when the backend refuses."""

    uri: str

    def read(self, key: str) -> bytes | None:
        """Return the whole object, or None when there is none."""

    def size(self, key: str) -> int | None:
        """Return the object's size in bytes, or None when there is none."""

    def list(self, prefix: str) -> Iterator[str]:
        """Yield the names directly below the folder `prefix`, unordered; nothing when it does not exist."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Create `key` durably with `data` and return True, or return False and change nothing if it exists.

        Atomic among all writers: of two, exactly one gets True. Nobody ever reads a part of it.
        """

    def write(self, key: str, data: bytes) -> None:
        """Create or replace `key` durably; a reader sees the old bytes or the new, never a part."""

    def delete(self, key: str) -> None:
        """Delete `key`; no error if it is gone already."""

    def open_pending(self, key: str) -> BinaryIO:
        """Open a new pending file for writing; `close` makes it durable, a crash before leaves garbage only."""

    def publish(self, changes: Sequence[Change]) -> None:
        """Make adds visible and removes invisible; repeatable. Raises `Missing` before it touches that folder."""
