"""The writer of the spool: RECORD lines between the tap and Spark, in segments listed by numbered batches.

Scratch: nothing here outlives its run, a later run deletes it unread, and so nothing is fsynced. A batch never
straddles a STATE that might be committed: it ends at the latest STATE seen, or, when none was seen since the last
batch, wherever the byte limit struck; either way all of its lines belong to one epoch.
"""

from __future__ import annotations

import os
import shutil
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bridge.errors import EngineError, LakeError
from bridge.load.spool.folder import SealedBatch, Segment, SpoolFolder, read_fully

_SLICE = 4 << 20
"""Bytes decoded at once by an executor, and a chunk more; slices end at a line end, so a long line makes a long one."""

_FEW_ROWS = 256
"""Pieces of Arrow with at most so many rows share a slice."""

_BUFFER = 4 << 20
"""Bytes of small writes gathered over all streams before they go to their files."""

_LARGE = 128 << 10
"""Bytes that are written as they come: to gather them would cost a copy."""


_Slice = tuple[int, int, int, int, int]
"""Start, end, lines and checksum of whole lines in a file, and when it was begun among all slices."""


@dataclass(slots=True)
class _Open:
    """A file that still grows, slice by slice. The mark is its (slices, last slice) at the latest STATE."""

    file: str
    size: int = 0
    slices: list[_Slice] = field(default_factory=list)
    mark: tuple[int, _Slice] | None = None
    buffer: list[bytes | memoryview] = field(default_factory=list)
    closed: bool = False  # the next lines begin a slice of their own

    def add(self, data: bytes | memoryview, lines: int, order: int) -> int:
        """Note lines at the end of the file; return `order`, or the next one if they begin a slice, which takes it."""
        if grows := self._grows():
            start, _, counted, crc, begun = self.slices.pop()
        else:
            start, counted, crc, begun = self.size, 0, 0, order
        self.size += len(data)
        self.closed = False
        self.slices.append((start, self.size, counted + lines, zlib.crc32(data, crc), begun))
        return order if grows else order + 1

    def _grows(self) -> bool:
        return bool(self.slices) and not self.closed and self.size - self.slices[-1][0] < _SLICE

    def rest(self) -> list[_Slice]:
        """The slices after the mark, the first of them without its part before."""
        if not self.mark:
            return self.slices
        count, (_, size, lines, *_) = self.mark
        _, end, counted, crc, order = self.slices[count - 1]
        part = [(size, end, counted - lines, crc, order)] if end > size else []
        return [*part, *self.slices[count:]]

    def marked(self) -> list[_Slice]:
        """The slices up to the mark."""
        return [*self.slices[: self.mark[0] - 1], self.mark[1]] if self.mark else []


_Key = tuple[str, str, bytes, bool]
"""A file's stream, schema and prefix, and whether it has rows as Arrow."""


@dataclass(slots=True)
class _Folder:
    """The counts that all writers into one folder share."""

    held: int = 0
    files: int = 0
    seq: int = 0
    writers: list[Spool] = field(default_factory=list)


class Spool:
    """The writer of a run's spool. With `beside`: a second writer into that one's folder, whose lines are sealed apart.

    `held` is the bytes on disk that Spark has not finished with, of all writers.
    """

    def __init__(self, folder: Path, beside: Spool | None = None) -> None:
        self.folder = SpoolFolder(folder)
        self._shared: _Folder = beside._shared if beside else _Folder()
        self._shared.writers.append(self)
        self.fresh = 0  # bytes since the last seal
        self.marked = False  # a STATE was seen since the last seal
        self.ordered: set[str] = set()  # streams of which the order of messages matters
        self._order = 1
        self._counted: dict[str, int] = {}  # sealed records by stream
        self._last: dict[str, _Key] = {}  # where the lines of an ordered stream went
        self._buffered = 0
        self._open: dict[_Key, _Open] = {}
        self._touched: set[_Key] = set()
        if not beside:
            self._explain(self.folder.create)

    @property
    def held(self) -> int:
        return self._shared.held

    @property
    def unsealed(self) -> int:
        """Bytes that no batch has yet, of all writers."""
        return sum(writer.fresh for writer in self._shared.writers)

    def put_schema(self, name: str, data: bytes) -> None:
        """Keep a schema where executors find it, once."""
        self._explain(self.folder.put_schema, name, data)

    def append(
        self,
        stream: str,
        schema: str,
        prefix: bytes | None,
        data: bytes | memoryview,
        lines: int,
        *,
        is_arrow: bool = False,
    ) -> None:
        """Add whole lines, or whole pieces of Arrow, to the stream's open file."""
        key = (stream, schema, prefix or b"", is_arrow)
        if stream in self.ordered:
            key = self._in_order(key)
        segment = self._open.get(key)
        if segment is None:
            segment = self._open[key] = self._new()
        segment.buffer.append(data)
        self._order = segment.add(data, lines, self._order)
        segment.closed = is_arrow and lines > _FEW_ROWS  # as text a piece may be large by itself
        self._touched.add(key)
        self._shared.held += len(data)
        self.fresh += len(data)
        self._buffered += len(data)
        if len(data) >= _LARGE:
            self._buffered -= sum(len(part) for part in segment.buffer)
            self._explain(self._write, segment)
        elif self._buffered > _BUFFER:
            self._flush()

    def _in_order(self, key: _Key) -> _Key:
        """Where the next lines of an ordered stream go; the slice that they do not go on with is closed.

        A stream that has several prefixes is from then on one without: to change between them would make many slices.
        """
        stream, schema, prefix, is_arrow = key
        last = self._last.get(stream)
        if last and last[2] != prefix:
            key = (stream, schema, b"", is_arrow)
        if last and last != key and last in self._open:
            self._open[last].closed = True
        self._last[stream] = key
        return key

    def mark(self) -> None:
        """Note that a STATE covers all that was appended so far."""
        for key in self._touched:
            segment = self._open[key]
            segment.mark = (len(segment.slices), segment.slices[-1])
        self._touched.clear()
        self.marked = True

    def seal(self, *, tasks: int, all_lines: bool = False) -> SealedBatch | None:
        """Close what the latest STATE covers, or everything, and list it as a batch; None if that is nothing.

        `tasks` is how many tasks can work at once. Lines after the latest STATE open the next batch. Spark sees the
        batch once it is released.
        """
        self._flush()
        keep_tail = self.marked and not all_lines
        segments: list[Segment] = []
        at = int(time.time() * 1000)
        for key, segment in list(self._open.items()):
            slices = segment.marked() if keep_tail else segment.slices
            del self._open[key]
            size = slices[-1][1] if slices else 0
            if size < segment.size:
                self._open[key] = self._carry(segment, size)
            if size:
                segments += self._segments(key, segment.file, slices, at)
        self._touched = set(self._open)
        self.fresh = sum(segment.size for segment in self._open.values())
        self.marked = False
        return self._batch(self._numbered(segments), tasks) if segments else None

    def _numbered(self, segments: list[Segment]) -> list[Segment]:
        first: dict[int, int] = {}
        for segment in sorted(segments, key=lambda segment: segment.order):
            first[segment.order] = self._counted.get(segment.stream, 0)
            self._counted[segment.stream] = first[segment.order] + segment.lines
        return [replace(segment, first=first[segment.order]) for segment in segments]

    def retire(self, batch: SealedBatch) -> None:
        """Delete a batch and its segments: their rows are in durable pending files."""
        self.folder.delete(batch)
        self._shared.held -= batch.size

    def close(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.folder.path, ignore_errors=True)

    def _new(self) -> _Open:
        self._shared.files += 1
        return _Open(f"{self._shared.files:09d}.jsonl")

    def _flush(self) -> None:
        for segment in self._open.values():
            if segment.buffer:
                self._explain(self._write, segment)
        self._buffered = 0

    def _write(self, segment: _Open) -> None:
        # Opened for each write: two thousand streams must not need two thousand descriptors.
        with open(self.folder.segments / segment.file, "ab", buffering=0) as file:
            for part in segment.buffer:
                view = memoryview(part)
                while view:
                    view = view[file.write(view) :]
        segment.buffer.clear()

    def _carry(self, segment: _Open, size: int) -> _Open:
        """Move the lines after `size` into a new file. Its epoch has no mark yet, so a byte moves at most once."""
        rest = self._new()
        source, target = (self.folder.segments / name for name in (segment.file, rest.file))

        def move() -> None:
            if not size:
                os.rename(source, target)
                rest.size, rest.slices, rest.closed = segment.size, segment.slices, segment.closed
                return
            with source.open("r+b") as old, target.open("wb") as new:
                old.seek(size)
                for start, end, lines, _, order in segment.rest():
                    data = read_fully(old, end - start)
                    new.write(data)
                    rest.closed = True  # slices stay what they are: others of the stream may lie between them
                    rest.add(data, lines, order)
                old.truncate(size)
            rest.closed = segment.closed

        self._explain(move)
        if size + rest.size != segment.size:
            raise EngineError("the spool lost lines", hint="check the spool's disk", file=segment.file)
        return rest

    @staticmethod
    def _segments(key: _Key, name: str, slices: list[_Slice], at: int) -> Iterator[Segment]:
        stream, schema, prefix, is_arrow = key
        for start, end, lines, crc, order in slices:
            yield Segment(stream, schema, name, start, end, lines, crc, prefix.decode(), order, at, is_arrow)

    def _batch(self, segments: list[Segment], tasks: int) -> SealedBatch:
        self._shared.seq += 1
        batch = SealedBatch(self._shared.seq, _bundles(segments, tasks))
        self._explain(self.folder.write_batch, batch)
        return batch

    def release(self, batch: SealedBatch) -> None:
        """Let Spark see a sealed batch."""
        self._explain(os.rename, self.folder.hidden(batch.seq), self.folder.batch(batch.seq))

    def _explain(self, action: Callable[..., object], *arguments: Any) -> None:
        try:
            action(*arguments)
        except OSError as error:
            hint = "free some space there or set `spool.dir` to another disk; nothing that was committed is lost"
            what = f"cannot write to the spool: {error.strerror}"
            raise LakeError(what, hint=hint, folder=self.folder.path) from error


def _bundles(segments: list[Segment], tasks: int) -> list[list[Segment]]:
    """Share segments out in order, nearly equal in bytes: few streams a task, so few files."""
    size = sum(segment.end - segment.start for segment in segments)
    count = max(1, min(tasks, -(-size // _SLICE)))
    bundles: list[list[Segment]] = [[] for _ in range(count)]
    before = 0
    for segment in segments:
        bundles[min(count - 1, before * count // size)].append(segment)
        before += segment.end - segment.start
    return [bundle for bundle in bundles if bundle]
