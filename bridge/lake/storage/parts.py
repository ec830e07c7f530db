"""The part of a pending object that is the same for each store: bytes are gathered, and sent in parts of one size."""

from __future__ import annotations

_PART = 16 * 1024**2
"""Some stores want all parts but the last to be of one size. S3 takes 10,000 of them: 156 GiB, the largest file."""


class PartWriter:
    """A file for writing, start to end. Memory holds one part, and what `_send` still sends."""

    def __init__(self) -> None:
        self.closed = False
        self._buffer = bytearray()
        self._written = 0

    def write(self, data: bytes, /) -> int:
        """Append to the file. Raises `LakeError`, also if a part of an earlier call could not be sent."""
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

    def _send(self, part: bytes) -> None:
        raise NotImplementedError
