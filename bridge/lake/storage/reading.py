"""An object as a file to read with seeks, such as a Parquet file whose footer says where its columns are."""

from __future__ import annotations

import io
from typing import BinaryIO, Protocol, cast

from bridge.errors import LakeError
from bridge.lake.storage.protocol import VersionedObject

_BUFFER = 1024**2


class Seen(Protocol):
    """An object as a request for its headers saw it."""

    @property
    def size(self) -> int: ...
    @property
    def etag(self) -> str: ...


class Ranged(Protocol):
    """A store that answers with ranges of an object."""

    def head(self, key: str, /) -> Seen | None:
        """The object's headers; None when there is none."""

    def get_range(self, key: str, start: int, count: int, etag: str, /) -> VersionedObject | None:
        """These bytes of the object; None when there is none. Raises `LakeError` if it has another ETag."""

    def place(self, key: str, /) -> str:
        """The object's URI, for people."""


def open_object(store: Ranged, key: str) -> BinaryIO:
    """Open an object; reading fails if it is replaced meanwhile. Raises `LakeError` when there is none."""
    seen = require(store, key)
    return cast("BinaryIO", io.BufferedReader(_Ranges(store, key, seen.size, seen.etag), _BUFFER))


def require(store: Ranged, key: str) -> Seen:
    """The object's headers. Raises `LakeError` when there is none."""
    seen = store.head(key)
    if seen is None:
        hint = "find out who cleans up in this bucket (a lifecycle rule, another tool)"
        raise LakeError("cannot read: there is no such object", hint=hint, at=store.place(key))
    return seen


class _Ranges(io.RawIOBase):
    def __init__(self, store: Ranged, key: str, size: int, etag: str) -> None:
        self._store, self._key, self._size, self._etag = store, key, size, etag
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError("seek before the file's start")
        self._position = start + offset
        return self._position

    def readall(self) -> bytes:
        """The rest by one request; Python would ask for 8 KiB again and again."""
        return self.read(max(self._size - self._position, 0)) or b""

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count = min(len(buffer), self._size - self._position)
        if count <= 0:
            return 0
        part = self._store.get_range(self._key, self._position, count, self._etag)
        if part is None:
            hint = "read it again; if it stays away, find out who cleans up in this bucket"
            raise LakeError("an object was deleted while it was read", hint=hint, at=self._store.place(self._key))
        buffer[:count] = part.data
        self._position += count
        return count
