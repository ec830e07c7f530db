"""A pending file while it is written: one put if it is small, else an upload in parts."""

from __future__ import annotations

from bridge.lake.storage.objects.store import ObjectStore, Upload
from bridge.lake.storage.parts import PartWriter

_SMALL = 8 * 1024**2


class PendingObject(PartWriter):
    """A file for writing, start to end. Memory holds one part."""

    upload = ""

    def __init__(self, store: ObjectStore, source: str, made_of: str) -> None:
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
