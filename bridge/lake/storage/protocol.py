"""The promises of every backend.

A key is a `/`-separated path below the bucket's URI. A *pending* file is durable and not visible to any reader of the
tables. Only `publish` makes files visible or takes them away. It can be repeated after a crash at any point, and never
runs for a commit that is not on record.

A file's key is its table's folder, Hive folders (`day=2025-01-01/`) if the table has some, and its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import quote

from bridge.errors import CorruptLake

_OUT = re.compile(r"\A/|(?:\A|/)\.\.(?:/|\Z)|\0")


def refuse_outside(key: str) -> None:
    """Raise `CorruptLake` for a key that, as a path, leads out of the bucket. Somebody else may have written one."""
    if _OUT.search(key):
        hint = "somebody else wrote it into the bucket: see who may write there; nothing was changed"
        raise CorruptLake("a file's name leads out of the bucket", hint=hint, key=key)


@dataclass(frozen=True, slots=True)
class Add:
    """A file to make visible: from `source` (pending, or trash when a commit is taken back) to `key`."""

    source: str
    key: str
    size: int
    """Bytes."""
    upload: str = ""
    """The unfinished upload to `key` that holds the bytes; empty: the file at `source` holds them."""


@dataclass(frozen=True, slots=True)
class Remove:
    """A visible file to take away: from `key` to `trash`, where retention deletes it later."""

    key: str
    trash: str


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A visible file whose bytes are replaced, atomically and under its name."""

    add: Add
    """Written by `open_pending(..., over=True)`; its `source` is a name that is never used again."""
    trash: str
    """Where the old bytes go."""


def made_of(source: str) -> str:
    """The name of a pending file in the metadata of the object that it became. Metadata holds only ASCII."""
    return quote(source)


@dataclass(frozen=True, slots=True)
class Change:
    """One commit's change to one table folder. A file is in one of `adds`, `removes` and `rewrites` only."""

    folder: str
    adds: tuple[Add, ...] = ()
    removes: tuple[Remove, ...] = ()
    replace: bool = False
    """Afterwards the folder holds exactly `adds`. A backend may exchange the folder whole. Never with `rewrites`."""
    trash: str = ""
    """Where a folder that is exchanged goes."""
    aborts: tuple[Add, ...] = ()
    """Pending files of a commit that is taken back: a writer that is only slow must not publish them any more."""
    rewrites: tuple[Rewrite, ...] = ()

    def gathered(self, key: str) -> str:
        """Where a file of the folder waits while others are gathered, if the folder is exchanged whole."""
        return f"{self.trash}.new{key.removeprefix(self.folder)}"

    def touches(self) -> Iterator[str]:
        """Every key that publishing it writes, moves or deletes."""
        yield from (self.folder, self.trash)
        for add in (*self.adds, *self.aborts, *(one.add for one in self.rewrites)):
            yield from (add.source, add.key)
        for remove in self.removes:
            yield from (remove.key, remove.trash)
        yield from (one.trash for one in self.rewrites)


class Missing(Exception):
    """Files to publish that are neither pending nor visible: their `keys`."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = list(keys)
        super().__init__(", ".join(self.keys))


@dataclass(frozen=True, slots=True)
class VersionedObject:
    """An object as it was read. Its `etag` changes with its bytes."""

    data: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class Swap:
    """An object to replace if it is still the version that was read: a call of `compare_and_swap`."""

    key: str
    data: bytes
    etag: str | None
    """That of the version; None: the object must not exist."""


class PendingFile(Protocol):
    """A pending file that is being written. Bytes are durable once `close` has returned; `upload` is set then."""

    upload: str

    def write(self, data: bytes, /) -> int:
        """Append to the file."""

    def tell(self) -> int:
        """How many bytes were written."""

    def close(self) -> None:
        """Make the file durable; the second call does nothing."""


class Storage(Protocol):
    """One bucket. Every method raises `LakeError` (exit 3) with a hint when the backend refuses."""

    uri: str
    folder: Path | None
    """The bucket, if it is a folder of this machine."""
    parallel: int
    """How many calls to make at once; 1 where no network is waited for."""

    def for_libraries(self) -> dict[str, str]:
        """The `storage_options` for delta-rs and Polars. Keys in it may expire: ask before each use."""

    def prepare(self) -> None:
        """Make the bucket a lake, once. Raises `LakeError` if it cannot keep two writers apart."""

    def read(self, key: str) -> bytes | None:
        """The whole object; None when there is none."""

    def read_versioned(self, key: str) -> VersionedObject | None:
        """The whole object and its ETag, for `compare_and_swap`; None when there is none."""

    def open(self, key: str) -> BinaryIO:
        """Open an object for reading with seeks. Raises `LakeError` when there is none."""

    def size(self, key: str) -> int | None:
        """The object's size in bytes; None when there is none."""

    def list(self, prefix: str) -> Iterator[str]:
        """The names directly below the folder `prefix`, unordered; none when it does not exist."""

    def walk(self, prefix: str) -> Iterator[str]:
        """The paths of all files below the folder `prefix`, relative to it, unordered; no dotted names."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Create `key` durably and return True; if it exists, change nothing and return False.

        Atomic: of two writers with different bytes exactly one gets True. Nobody ever reads a part of it.
        """

    def compare_and_swap(self, key: str, data: bytes, etag: str | None) -> str | None:
        """Replace `key` durably if its ETag is still this one (None: it must not exist); return the new ETag.

        Otherwise change nothing and return None, unless the object has just these bytes already. Atomic among all
        that call it; `write` does not take part.
        """

    def swap_all(self, swaps: Sequence[Swap]) -> Sequence[str | None]:
        """`compare_and_swap` for each, in no order; far faster than one after the other. No key is there twice."""

    def write(self, key: str, data: bytes) -> None:
        """Create or replace `key` durably; a reader sees the old bytes or the new, never a part."""

    def write_all(self, objects: Mapping[str, bytes]) -> None:
        """`write` for each key, in no order; far faster than one after the other."""

    def delete(self, key: str) -> None:
        """Delete `key`; no error if it does not exist."""

    def open_pending(self, source: str, key: str, over: bool = False, readable: bool = False) -> PendingFile:
        """Open a new pending file that will become `key`. A crash before it is closed leaves only garbage.

        `over`: it replaces the file at `key` (a `Rewrite`), once. Publishing it again, however late, changes nothing.
        `readable`: once it is closed, its bytes can be read at `source`.
        """

    def pending(self, folder: str) -> Iterator[Add]:
        """Pending files below `folder`, and unfinished uploads to any key; best effort."""

    def abort(self, pending: Add) -> None:
        """Delete a pending file for good, whatever its size; no error if it does not exist."""

    def missing_pending(self, adds: Sequence[Add]) -> Sequence[Add]:
        """Those of these pending files that do not exist, or are not whole."""

    def publish(self, changes: Sequence[Change]) -> None:
        """Make adds visible and removes invisible; repeatable.

        Raises `Missing`, before it touches anything, if an add is neither pending nor visible. Nothing is taken away,
        or copied to the trash, before all adds are visible: so if one is missing, the commit can safely be taken back,
        even if a slow writer is still running. The old bytes of a rewritten file are in the trash before the new ones
        are visible, and no others.
        """

    def settle_rewrites(self, changes: Sequence[Change]) -> Sequence[Rewrite]:
        """Delete the pending files of rewrites that are taken back; return those that are visible already.

        The trash has the old bytes of the latter. The other files were not touched, and none will be.
        """

    def tidy(self, folder: str, older: timedelta) -> int:
        """Delete hidden files that interrupted writes left below `folder` before that time; return how many."""
