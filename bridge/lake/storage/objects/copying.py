"""Stores that copy an object under a condition: Azure's and Google's.

A pending file is an object at its source, which no reader of tables lists; to publish it the store copies it to its
key. So the lake needs no unfinished uploads, and whoever deletes the pending object ends its publication for good.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Protocol

from bridge.lake.storage.objects.store import Headers, ObjectStore, Parts
from bridge.lake.storage.parallel import parallel_map
from bridge.lake.storage.parts import PartWriter
from bridge.lake.storage.protocol import Add, PendingFile, made_of

_SMALL = 8 * 1024**2


class Upload(Protocol):
    """An object that is being written. Nobody sees it before `finish`; a crash leaves nothing that counts."""

    def add(self, part: bytes, /) -> None:
        """Append these bytes. All parts but the last have the same size, a multiple of 256 KiB."""

    def finish(self) -> None:
        """Make the object visible and durable, whole."""

    def discard(self) -> None:
        """Give it up; does not raise."""


class CopyingStore(ObjectStore):
    """Three calls more, and how files are published by them."""

    conditions_hint = (
        "the store must honour conditional puts, as Azure Blob Storage and Google Cloud Storage do: an emulator or a "
        "gateway before it may not"
    )

    @abstractmethod
    def put(self, key: str, data: bytes, made_of: str = "", /) -> None:
        """Create or replace an object."""

    @abstractmethod
    def upload(self, key: str, made_of: str = "", /) -> Upload:
        """Begin a new object of many bytes."""

    @abstractmethod
    def copy(self, source: str, key: str, /, *, source_etag: str = "", etag: str | None = None) -> None:
        """Copy an object with its `made_of`, atomically, over one that has this ETag (None: that does not exist).

        Raises `Absent` if there is no source, and `Refused` if it has another ETag than `source_etag` (empty: any), or
        the object at `key` another than `etag`. After any other error it may have had its effect.
        """

    def delete_all(self, keys: Sequence[str]) -> None:
        parallel_map(self, self.delete, keys)

    def open_pending(self, source: str, key: str, *, over: bool, readable: bool) -> PendingFile:
        return PendingObject(self, source, made_of(source) if over else "")

    def pending(self, folder: str) -> Iterator[Add]:
        return (Add(key, "", 0) for key in self.list(folder, deep=True))

    def pending_parts(self, add: Add) -> Parts | None:
        seen = self.head(add.source)
        return [] if seen is not None and seen.size == add.size else None

    def show(self, add: Add, parts: Parts, old: Headers | None) -> None:
        self.copy(add.source, add.key, etag=old.etag if old else None)

    def abort(self, add: Add) -> None:
        self.delete(add.source)


class PendingObject(PartWriter):
    """A file for writing, start to end: one put if it is small, else an upload in parts. Memory holds one part."""

    upload = ""

    def __init__(self, store: CopyingStore, source: str, made_of: str) -> None:
        super().__init__()
        self._store, self._source, self._made_of = store, source, made_of
        self._sending: Upload | None = None

    def close(self) -> None:
        """Make the file durable."""
        if self.closed:
            return
        self.closed = True
        try:
            if self._sending is None and self._written <= _SMALL:
                self._store.put(self._source, bytes(self._buffer), self._made_of)
                return
            if self._buffer:
                self._send(bytes(self._buffer))
            assert self._sending is not None
            self._sending.finish()
        except BaseException:
            self.discard()
            raise
        finally:
            self._buffer.clear()

    def discard(self) -> None:
        """Give the file up."""
        self.closed = True
        if self._sending:
            self._sending.discard()

    def _send(self, part: bytes) -> None:
        if self._sending is None:
            self._sending = self._store.upload(self._source, self._made_of)
        self._sending.add(part)
