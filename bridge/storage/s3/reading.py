"""An object as a file to read with seeks, such as a Parquet file whose footer says where its columns are."""

from __future__ import annotations

import io
from typing import BinaryIO, cast

from bridge.errors import LakeError
from bridge.storage.s3.bucket import Bucket

_BUFFER = 1024**2


def open_object(bucket: Bucket, key: str) -> BinaryIO:
    """Open an object; reading fails if it is replaced meanwhile. Raises `LakeError` when there is none."""
    seen = bucket.require(key)
    return cast("BinaryIO", io.BufferedReader(_Ranges(bucket, key, seen.size, seen.etag), _BUFFER))


class _Ranges(io.RawIOBase):
    def __init__(self, bucket: Bucket, key: str, size: int, etag: str) -> None:
        self._bucket, self._key, self._size, self._etag = bucket, key, size, etag
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

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count = min(len(buffer), self._size - self._position)
        if count <= 0:
            return 0
        last = self._position + count - 1
        part = self._bucket.get(self._key, Range=f"bytes={self._position}-{last}", IfMatch=self._etag)
        if part is None:
            hint = "read it again; if it stays away, find out who cleans up in this bucket"
            raise LakeError("an object was deleted while it was read", hint=hint, at=self._bucket.place(self._key))
        buffer[:count] = part.data
        self._position += count
        return count
