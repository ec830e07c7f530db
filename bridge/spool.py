"""The spool: RECORD lines between the tap and Spark, in sealed segments listed by numbered manifests.

Scratch: nothing here outlives its run, a later run deletes it unread, and so nothing is fsynced. A manifest never
straddles a STATE that might be committed: it ends at the latest STATE seen, or, when none was seen since the last
manifest, wherever the byte limit struck; either way all of its lines belong to one epoch.
"""

from __future__ import annotations

import os
import shutil
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from bridge.errors import EngineError, LakeError

__all__ = ["Manifest", "Segment", "Spool", "read_segment"]

_SLICE = 4 << 20
"""Bytes decoded at once by an executor; slices end at a line end, so one long line makes a long slice."""

_BUFFER = 4 << 20
"""Bytes of small writes gathered over all streams before they go to their files."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A half-open byte range of a sealed file: whole RECORD lines of one stream under one schema.

    `prefix` begins every line, or is empty when lines have to be parsed to find their record.
    """

    stream: str
    schema: str
    file: str
    start: int
    end: int
    lines: int
    crc: int
    prefix: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What one seal handed to Spark. `seq` starts at 1 and has no gaps; a bundle is the work of one task."""

    seq: int
    bundles: list[list[Segment]]
    files: list[str]
    size: int
    lines: int


@dataclass(slots=True)
class _Open:
    """A segment that still grows. The mark is its (bytes, lines) at the latest STATE."""

    file: str
    size: int = 0
    lines: int = 0
    mark: tuple[int, int] = (0, 0)
    buffer: list[bytes] = field(default_factory=list)


_Key = tuple[str, str, bytes]


class Spool:
    """One run's spool folder. `held` is the bytes on disk that Spark has not finished with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.held = 0
        self.fresh = 0  # bytes since the last seal
        self.marked = False  # a STATE was seen since the last seal
        self._buffered = 0
        self._open: dict[_Key, _Open] = {}
        self._touched: set[_Key] = set()
        self._files = 0
        self._seq = 0
        self._lock = threading.Lock()  # `held` shrinks in the thread that handles Spark's batches
        shutil.rmtree(folder, ignore_errors=True)
        for name in ("manifests", "segments", "schemas"):
            self._explain((folder / name).mkdir, parents=True)

    def put_schema(self, name: str, data: bytes) -> None:
        """Keep a schema where executors find it, once."""
        path = self.folder / "schemas" / name
        if not path.exists():
            self._explain(lambda: path.write_bytes(data))

    def append(self, stream: str, schema: str, prefix: bytes | None, data: bytes, lines: int) -> None:
        """Add whole lines to the stream's open segment."""
        key = (stream, schema, prefix or b"")
        segment = self._open.get(key)
        if segment is None:
            segment = self._open[key] = self._new()
        segment.buffer.append(data)
        segment.size += len(data)
        segment.lines += lines
        self._touched.add(key)
        with self._lock:
            self.held += len(data)
        self.fresh += len(data)
        self._buffered += len(data)
        if self._buffered > _BUFFER:
            self._flush()

    def mark(self) -> None:
        """Note that a STATE covers all that was appended so far."""
        for key in self._touched:
            segment = self._open[key]
            segment.mark = (segment.size, segment.lines)
        self._touched.clear()
        self.marked = True

    def seal(self, *, tasks: int, all_lines: bool = False) -> Manifest | None:
        """Close what the latest STATE covers, or everything, and write a manifest of it; None if that is nothing.

        `tasks` is how many tasks can work at once. Lines after the latest STATE open the next manifest. Spark sees
        the manifest once it is released.
        """
        self._flush()
        keep_tail = self.marked and not all_lines
        files: list[str] = []
        segments: list[Segment] = []
        for key, segment in list(self._open.items()):
            size, lines = segment.mark if keep_tail else (segment.size, segment.lines)
            del self._open[key]
            if size < segment.size:
                self._open[key] = self._carry(segment, size, lines)
            if size:
                segments += self._slices(key, segment.file, size, lines)
                files.append(segment.file)
        self._touched = set(self._open)
        self.fresh = sum(segment.size for segment in self._open.values())
        self.marked = False
        return self._manifest(segments, files, tasks) if segments else None

    def retire(self, manifest: Manifest) -> None:
        """Delete a manifest and its segments: their rows are in durable pending files."""
        for name in manifest.files:
            (self.folder / "segments" / name).unlink(missing_ok=True)
        (self.folder / "manifests" / _manifest_name(manifest.seq)).unlink(missing_ok=True)
        with self._lock:
            self.held -= manifest.size

    def close(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _new(self) -> _Open:
        self._files += 1
        return _Open(f"{self._files:09d}.jsonl")

    def _flush(self) -> None:
        for segment in self._open.values():
            if segment.buffer:
                self._explain(lambda segment=segment: self._write(segment))
        self._buffered = 0

    def _write(self, segment: _Open) -> None:
        # Opened for each write: two thousand streams must not need two thousand descriptors.
        with open(self.folder / "segments" / segment.file, "ab", buffering=0) as file:
            for part in segment.buffer:
                view = memoryview(part)
                while view:
                    view = view[file.write(view) :]
        segment.buffer.clear()

    def _carry(self, segment: _Open, size: int, lines: int) -> _Open:
        """Move the lines after `size` into a new segment. Its epoch has no mark yet, so a byte moves at most once."""
        rest = self._new()
        rest.size, rest.lines = segment.size - size, segment.lines - lines
        source, target = (self.folder / "segments" / name for name in (segment.file, rest.file))

        def move() -> None:
            if not size:
                os.rename(source, target)
                return
            with source.open("r+b") as old, target.open("wb") as new:
                old.seek(size)
                shutil.copyfileobj(old, new, 1 << 20)
                old.truncate(size)

        self._explain(move)
        return rest

    def _slices(self, key: _Key, name: str, size: int, lines: int) -> Iterator[Segment]:
        stream, schema, prefix = key
        counted = 0
        with open(self.folder / "segments" / name, "rb", buffering=0) as file:
            start = 0
            while start < size:
                data, length = _whole_lines(file, min(_SLICE, size - start))
                found = data.count(b"\n", 0, length)
                counted += found
                end, crc = start + length, zlib.crc32(memoryview(data)[:length])
                yield Segment(stream, schema, name, start, end, found, crc, prefix.decode())
                start = end
        if counted != lines:
            raise EngineError(
                "the spool lost lines", hint="check the spool's disk", file=name, want=lines, have=counted
            )

    def _manifest(self, segments: list[Segment], files: list[str], tasks: int) -> Manifest:
        self._seq += 1
        size, lines = sum(s.end - s.start for s in segments), sum(s.lines for s in segments)
        manifest = Manifest(self._seq, _bundles(segments, size, tasks), files, size, lines)
        rows = (
            orjson.dumps({"seq": manifest.seq, "bundle": number, "segments": [asdict(s) for s in bundle]})
            for number, bundle in enumerate(manifest.bundles)
        )
        hidden = self._hidden(manifest)

        def write() -> None:
            hidden.write_bytes(b"\n".join(rows) + b"\n")
            # Spark's file source takes files in the order of their mtime, whatever their names and the clock say.
            os.utime(hidden, (manifest.seq, manifest.seq))

        self._explain(write)
        return manifest

    def release(self, manifest: Manifest) -> None:
        """Let Spark see a sealed manifest."""
        hidden = self._hidden(manifest)
        self._explain(lambda: os.rename(hidden, hidden.with_name(hidden.name[1:])))

    def _hidden(self, manifest: Manifest) -> Path:
        return self.folder / "manifests" / f".{_manifest_name(manifest.seq)}"

    def _explain(self, action: Callable[..., object], **arguments: Any) -> None:
        try:
            action(**arguments)
        except OSError as error:
            hint = "free some space there or set `spool.dir` to another disk; nothing that was committed is lost"
            raise LakeError(f"cannot write to the spool: {error.strerror}", hint=hint, folder=self.folder) from error


def read_segment(folder: Path, segment: Segment) -> bytes:
    """Return a segment's bytes. Raises `EngineError` if they are not what was written."""
    with open(folder / "segments" / segment.file, "rb", buffering=0) as file:
        file.seek(segment.start)
        data = _read(file, segment.end - segment.start)
    if len(data) != segment.end - segment.start or zlib.crc32(data) != segment.crc:
        raise EngineError("a segment changed on disk", hint="check the spool's disk; run again", file=segment.file)
    return data


def _read(file: object, size: int) -> bytes:
    parts = []
    while size and (part := file.read(size)):  # type: ignore[attr-defined]
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _whole_lines(file: object, size: int) -> tuple[bytes, int]:
    """Read about `size` bytes, more when a line is longer; return them and how many of them are whole lines."""
    data = _read(file, size)
    cut = data.rfind(b"\n") + 1
    while not cut:
        more = _read(file, _SLICE)
        cut = (more.find(b"\n") + 1 or -len(data)) + len(data)
        data += more
    file.seek(cut - len(data), os.SEEK_CUR)  # type: ignore[attr-defined]
    return data, cut


def _bundles(segments: list[Segment], size: int, tasks: int) -> list[list[Segment]]:
    """Share segments out in order, nearly equal in bytes: few streams a task, so few files."""
    count = max(1, min(tasks, -(-size // _SLICE)))
    bundles: list[list[Segment]] = [[] for _ in range(count)]
    before = 0
    for segment in segments:
        bundles[min(count - 1, before * count // size)].append(segment)
        before += segment.end - segment.start
    return [bundle for bundle in bundles if bundle]


def _manifest_name(seq: int) -> str:
    return f"{seq:012d}.json"
