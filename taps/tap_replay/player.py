"""Plays a recording to a file descriptor.

Where nothing has to be looked at, the kernel copies (`sendfile`) and no line passes through Python. The bytes are the
recording's own, never re-encoded: a half line in it is a half line out of it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from tap_replay.config import Settings
from tap_replay.recording import Lines, Place, open_recording


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything; a pipe may take less than it is offered."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def play(settings: Settings, place: Place, skipped: set[str], descriptor: int) -> None:
    """Play all loops; the first begins at `place`. Lines of the streams in `skipped` are left out."""
    for loop in range(settings.loops):
        start = place if loop == 0 else Place()
        if settings.lines_per_second:
            _paced(_lines(settings, start, skipped), settings.lines_per_second, descriptor)
        elif skipped:
            _batched(_lines(settings, start, skipped), settings.chunk_bytes, descriptor)
        else:
            _whole(settings, start, descriptor)
        if loop + 1 < settings.loops and _lacks_newline(settings.path):
            # the next loop must not be glued to a half line
            write_all(descriptor, b"\n")


def _lines(settings: Settings, start: Place, skipped: set[str]) -> Iterator[bytes]:
    kinds = Lines()
    with open_recording(settings.path) as file:
        file.seek(start.offset)
        for source in (start.schemas, file):
            for line in source:
                if not skipped or kinds.kind(line)[1] not in skipped:
                    yield line


def _batched(lines: Iterator[bytes], chunk_bytes: int, descriptor: int) -> None:
    batch: list[bytes] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += len(line)
        if size >= chunk_bytes:
            write_all(descriptor, b"".join(batch))
            batch, size = [], 0
    write_all(descriptor, b"".join(batch))


def _paced(lines: Iterator[bytes], per_second: int, descriptor: int) -> None:
    """Line n leaves not before n / per_second seconds; a reader that was slow gets the backlog at once."""
    started = time.monotonic()
    for number, line in enumerate(lines):
        wait = started + number / per_second - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        write_all(descriptor, line)


def _whole(settings: Settings, start: Place, descriptor: int) -> None:
    write_all(descriptor, b"".join(start.schemas))
    if settings.path.endswith(".gz") or not _by_kernel(settings, start.offset, descriptor):
        with open_recording(settings.path) as file:
            file.seek(start.offset)
            while chunk := file.read(settings.chunk_bytes):
                write_all(descriptor, chunk)


def _by_kernel(settings: Settings, offset: int, descriptor: int) -> bool:
    """Let the kernel copy; False, with nothing written, where it cannot (macOS, an append-only file)."""
    if not hasattr(os, "sendfile"):
        return False
    begun = False
    with open_recording(settings.path) as file:
        while True:
            try:
                sent = os.sendfile(descriptor, file.fileno(), offset, settings.chunk_bytes)
            except BrokenPipeError:
                raise
            except OSError:
                if begun:
                    raise
                return False
            if sent == 0:
                return True
            begun, offset = True, offset + sent


def _lacks_newline(path: str) -> bool:
    """Whether the last byte is not a newline; an empty recording lacks nothing."""
    last = b"\n"
    with open_recording(path) as file:
        if not path.endswith(".gz"):
            file.seek(max(0, os.path.getsize(path) - 1))
        while chunk := file.read(1024 * 1024):
            last = chunk[-1:]
    return last != b"\n"
