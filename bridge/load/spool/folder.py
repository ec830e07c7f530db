"""The layout of a run's spool. The driver writes it, executors read it, under the same path.

`segments/` has the lines, `batches/` lists of segments for Spark, `schemas/` what lines are decoded with, `merge/` rows
that wait for an upsert.
"""

from __future__ import annotations

import os
import shutil
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import orjson

from bridge.errors import EngineError

RULES = ".rules"
"""The end of the name under which a SCHEMA's rules are kept, if they are to be checked."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A half-open byte range of a sealed file: whole RECORD lines, or rows as Arrow, of one stream under one schema.

    `prefix` begins every line, or is empty when lines have to be parsed to find their record. Where a stream's order
    matters (`Spool.ordered`), its segments do not overlap in time: (batch, `order`) is the order of its messages.
    """

    stream: str
    schema: str
    file: str
    start: int
    end: int
    lines: int
    crc: int
    prefix: str
    order: int = 0
    """Counts the segments of the run, from 1."""
    at: int = 0
    """When the batch was sealed, in milliseconds since 1970: one time for all that is decoded together."""
    is_arrow: bool = False
    """Its bytes are rows as Arrow, not lines: see `ArrowPieces`. Then `lines` counts rows."""
    first: int = 0
    """How many of the stream's records came before it in this run; about, where its messages take turns in form."""


@dataclass(frozen=True, slots=True)
class SealedBatch:
    """The segments handed to Spark at once. `seq` starts at 1 and has no gaps; a bundle is the work of one task."""

    seq: int
    bundles: list[list[Segment]]

    @property
    def segments(self) -> list[Segment]:
        return [segment for bundle in self.bundles for segment in bundle]

    @property
    def size(self) -> int:
        """Bytes of its segments."""
        return sum(segment.end - segment.start for segment in self.segments)

    @property
    def lines(self) -> int:
        return sum(segment.lines for segment in self.segments)


class SpoolReader(Protocol):
    """The part of the spool that decoding reads."""

    def read_schema(self, name: str) -> bytes:
        """The columns of segments, by their `schema`."""

    def read_rules(self, name: str) -> bytes | None:
        """The rules that a schema's lines are checked against, if any."""

    def read_segment(self, segment: Segment) -> bytes:
        """A segment's bytes. Raises `EngineError` if they are not what was written."""


class SpoolFolder:
    """The folders and files of one spool."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.segments, self.batches, self.schemas = (self.path / name for name in ("segments", "batches", "schemas"))
        self.spills = self.path / "merge"

    def create(self) -> None:
        """Make it anew, empty."""
        shutil.rmtree(self.path, ignore_errors=True)
        for folder in (self.segments, self.batches, self.schemas):
            folder.mkdir(parents=True)

    def batch(self, seq: int) -> Path:
        """The list of a batch's segments that Spark finds."""
        return self.batches / f"{seq:012d}.json"

    def hidden(self, seq: int) -> Path:
        """The same before Spark may find it: it passes over names that begin with a dot."""
        return self.batches / f".{seq:012d}.json"

    def write_batch(self, batch: SealedBatch) -> None:
        """Write a batch's list, hidden."""
        rows = (
            orjson.dumps({"seq": batch.seq, "bundle": number, "segments": [asdict(s) for s in bundle]})
            for number, bundle in enumerate(batch.bundles)
        )
        hidden = self.hidden(batch.seq)
        hidden.write_bytes(b"\n".join(rows) + b"\n")
        # Spark's file source takes files in the order of their mtime, whatever their names and the clock say.
        os.utime(hidden, (batch.seq, batch.seq))

    def put_schema(self, name: str, data: bytes) -> None:
        """Keep columns, or rules, where executors find them, once."""
        path = self.schemas / name
        if not path.exists():
            path.write_bytes(data)

    def read_schema(self, name: str) -> bytes:
        """The columns of segments, by their `schema`."""
        return (self.schemas / name).read_bytes()

    def read_rules(self, name: str) -> bytes | None:
        """The rules that a schema's lines are checked against, if any."""
        path = self.schemas / f"{name}{RULES}"
        return path.read_bytes() if path.exists() else None

    def put_segment(
        self, stream: str, schema: str, data: bytes, *, order: int = 0, at: int = 0, prefix: str = ""
    ) -> Segment:
        """Write a segment that is a file of its own, for lines that do not come from a tap."""
        name = f"{len(os.listdir(self.segments)):09d}.jsonl"
        (self.segments / name).write_bytes(data)
        return Segment(
            stream, schema, name, 0, len(data), data.count(b"\n"), zlib.crc32(data), prefix, order=order, at=at
        )

    def read_segment(self, segment: Segment) -> bytes:
        """A segment's bytes. Raises `EngineError` if they are not what was written."""
        with open(self.segments / segment.file, "rb", buffering=0) as file:
            file.seek(segment.start)
            data = read_fully(file, segment.end - segment.start)
        return require_whole(segment, data)

    def delete_segments(self, batch: SealedBatch) -> None:
        """Delete a batch's files: all of their bytes are its own."""
        for name in {segment.file for segment in batch.segments}:
            (self.segments / name).unlink(missing_ok=True)

    def delete(self, batch: SealedBatch) -> None:
        """Delete a batch and its files."""
        self.delete_segments(batch)
        self.batch(batch.seq).unlink(missing_ok=True)


def require_whole(segment: Segment, data: bytes) -> bytes:
    """A segment's bytes as they were read. Raises `EngineError` if they are not what was written."""
    if len(data) != segment.end - segment.start or zlib.crc32(data) != segment.crc:
        raise EngineError("a segment changed on disk", hint="check the spool's disk; run again", file=segment.file)
    return data


def read_fully(file: object, size: int) -> bytes:
    """Read so many bytes, or up to the end of the file."""
    parts = []
    while size and (part := file.read(size)):  # type: ignore[attr-defined]
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
