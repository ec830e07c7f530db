"""A pending file while it is written: one put if it is small, else an upload in parts."""

from __future__ import annotations

from bridge.storage.objects.store import ObjectStore, Upload

_SMALL = 8 * 1024**2
_PART = 16 * 1024**2
"""Azure takes 50,000 parts, Google any number of bytes: each is far beyond the largest file."""


class PendingObject:
    """A file for writing, start to end. Memory holds one part."""

    upload = ""

    def __init__(self, store: ObjectStore, source: str, made_of: str) -> None:
        self.closed = False
        self._store, self._source, self._made_of = store, source, made_of
        self._buffer = bytearray()
        self._written = 0
        self._sending: Upload | None = None

    def write(self, data: bytes, /) -> int:
        """Append to the file. Raises `LakeError` if a part could not be sent."""
        if self.closed:
            raise ValueError("write to a closed file")
        self._buffer += data
        count = len(memoryview(data).cast("B"))
        self._written += count
        while len(self._buffer) >= _PART:
            self._send(bytes(memoryview(self._buffer)[:_PART]))
            del self._buffer[:_PART]
        return count

    def tell(self) -> int:
        """How many bytes were written."""
        return self._written

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
