"""The pipe to the reader: lines leave in large writes, and at once where a real tap would have flushed.

Writes go to file descriptors, not through `sys.stdout`: nothing is buffered behind our back when the process kills
itself, and nothing is written twice at exit.
"""

from __future__ import annotations

import os

CHUNK_BYTES = 64 * 1024
STDOUT, STDERR = 1, 2


class Wire:
    """Collects text; holds at most one chunk and what was added last."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0

    def add(self, text: str) -> None:
        """Queue text; it is written once a chunk has come together."""
        self._parts.append(text)
        self._size += len(text)
        if self._size >= CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is queued; blocks while the pipe is full."""
        if self._parts:
            data = "".join(self._parts).encode()
            self._parts, self._size = [], 0
            write_all(STDOUT, data)


def log(text: str) -> None:
    """One line on stderr."""
    write_all(STDERR, f"tap-smoke: {text}\n".encode())


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything; a pipe may take less than it is offered."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
