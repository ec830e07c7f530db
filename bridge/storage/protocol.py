"""What every backend promises.

A key is a `/`-separated path below the bucket's URI. A *pending* file is durable and not visible to any reader
of the tables; `publish` is the only operation that makes files visible or takes them away, it can be repeated
after a crash at any point, and it never runs for a commit that is not on record.

A file's key is its table's folder, Hive folders (`day=2025-01-01/`) if the table has some, and its last name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO, Protocol

_OUT = re.compile(r"\A/|(?:\A|/)\.\.(?:/|\Z)|\0")


def leads_out(key: str) -> bool:
    """Return whether a key that somebody else wrote would, as a path, lead out of the bucket; no key of ours does."""
    return _OUT.search(key) is not None


@dataclass(frozen=True, slots=True)
class Add:
    """A file to make visible: from `source` (pending, or trash when a commit is taken back) to `key`.

    `upload` is the unfinished upload to `key` that holds the bytes, where a backend has such a thing; the file at
    `source` does otherwise.
    """

    source: str
    key: str
    size: int
    upload: str = ""


@dataclass(frozen=True, slots=True)
class Remove:
    """A visible file to take away: from `key` to `trash`, where it is kept for the retention."""

    key: str
    trash: str


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A visible file whose bytes are replaced, atomically and under its name; `trash` keeps those that it had.

    `add` is written by `open_pending(..., over=True)`, and its `source` is a name that is never used again.
    """

    add: Add
    trash: str


@dataclass(frozen=True, slots=True)
class Change:
    """What one commit does to one table folder. A file is in one of `adds`, `removes` and `rewrites` only.

    `replace` says that afterwards the folder holds exactly `adds`; a backend may then swap the folder whole,
    keeping the old one under `trash`; it never has `rewrites`. `aborts` are pending files of a commit that is taken
    back: a writer that is only slow must never be able to publish them any more.
    """

    folder: str
    adds: tuple[Add, ...] = ()
    removes: tuple[Remove, ...] = ()
    replace: bool = False
    trash: str = field(default="")
    aborts: tuple[Add, ...] = ()
    rewrites: tuple[Rewrite, ...] = ()

    def touches(self) -> Iterator[str]:
        """Yield all that publishing it writes, moves or deletes."""
        yield from (self.folder, self.trash)
        for add in (*self.adds, *self.aborts, *(one.add for one in self.rewrites)):
            yield from (add.source, add.key)
        for remove in self.removes:
            yield from (remove.key, remove.trash)
        yield from (one.trash for one in self.rewrites)


class Missing(Exception):
    """A file to publish is neither pending nor visible; `keys` names each one."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = list(keys)
        super().__init__(", ".join(self.keys))


@dataclass(frozen=True, slots=True)
class VersionedObject:
    """An object as it was read. `etag` changes with the bytes."""

    data: bytes
    etag: str


class PendingFile(Protocol):
    """A pending file that is being written. Bytes are durable once `close` returned; `upload` is known then."""

    upload: str

    def write(self, data: bytes, /) -> int:
        """Append to the file."""

    def tell(self) -> int:
        """Return how many bytes were written."""

    def close(self) -> None:
        """Make the file durable; the second call does nothing."""


class Storage(Protocol):
    """One bucket. Every method raises `LakeError` (exit 3) with a hint when the backend refuses."""

    uri: str
    folder: Path | None
    """The bucket as a folder of this machine, None where it is none."""
    parallel: int
    """How many calls at once make it faster; 1 where the next call need not wait for a network."""

    def for_libraries(self) -> dict[str, str]:
        """Return what delta-rs and Polars need to reach the bucket by themselves (`storage_options`), as of now."""

    def prepare(self) -> None:
        """Make the bucket a lake, once. Raises `LakeError` if it cannot keep two writers apart."""

    def read(self, key: str) -> bytes | None:
        """Return the whole object, or None when there is none."""

    def read_versioned(self, key: str) -> VersionedObject | None:
        """Return the whole object and its version for `compare_and_swap`, or None when there is none."""

    def open(self, key: str) -> BinaryIO:
        """Open an object for reading here and there. Raises `LakeError` when there is none."""

    def size(self, key: str) -> int | None:
        """Return the object's size in bytes, or None when there is none."""

    def list(self, prefix: str) -> Iterator[str]:
        """Yield the names directly below the folder `prefix`, unordered; nothing when it does not exist."""

    def walk(self, prefix: str) -> Iterator[str]:
        """Yield the paths of all files below the folder `prefix`, relative to it, unordered; no dotted names."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Create `key` durably with `data` and return True, or return False and change nothing if it exists.

        Atomic among all writers of different bytes: of two, exactly one gets True. Nobody ever reads a part of it.
        """

    def compare_and_swap(self, key: str, data: bytes, etag: str | None) -> str | None:
        """Replace `key` durably if its version is still this one (None: it must not exist); return the new version.

        None and nothing changed otherwise, unless just these bytes are there already. Atomic among all that swap;
        `write` knows no such care.
        """

    def write(self, key: str, data: bytes) -> None:
        """Create or replace `key` durably; a reader sees the old bytes or the new, never a part."""

    def delete(self, key: str) -> None:
        """Delete `key`; no error if it is gone already."""

    def open_pending(self, source: str, key: str, over: bool = False) -> PendingFile:
        """Open a new pending file that is to become `key`; a crash before it is closed leaves garbage only.

        `over`: it is to replace the file that is at `key` (a `Rewrite`), once: whoever publishes it again, however
        late, changes nothing.
        """

    def pending(self, folder: str) -> Iterator[Add]:
        """Yield what is pending, best effort: the files below `folder`, and the uploads to whatever key."""

    def abort(self, pending: Add) -> None:
        """Have a pending file be gone for good; no error if it is already. Its size plays no part."""

    def missing_pending(self, adds: Sequence[Add]) -> Sequence[Add]:
        """Return those of these pending files that are not there, whole."""

    def publish(self, changes: Sequence[Change]) -> None:
        """Make adds visible and removes invisible; repeatable.

        Raises `Missing`, before it touches anything, if an add is neither pending nor visible. Nothing is taken away,
        or copied to the trash, before all adds are visible: whoever finds one missing may take the commit back,
        whatever a slow writer does. The old bytes of a rewritten file are in the trash before the new ones are
        visible, and only those that this change replaces.
        """

    def settle_rewrites(self, changes: Sequence[Change]) -> Sequence[Rewrite]:
        """Have the pending files of rewrites that are to be taken back be gone; return those that are visible already.

        The old bytes of the latter are in the trash. No file of the others was touched, and none will be.
        """

    def tidy(self, folder: str, older: timedelta) -> int:
        """Delete what writes that died left below `folder` long ago, which nobody lists; return how many files."""
