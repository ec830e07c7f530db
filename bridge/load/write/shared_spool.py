"""The part of the spool that driver and executors share: files of its folder, or objects of the bucket.

In the bucket each lies among the pending files, under a name with the run's generation: no reader looks there, and what
a dead run leaves goes with its pending files. A bundle is one object: its segments, compressed one by one, and an index
with where they are and what they are decoded with. Names are never used again; an object is whole or not there.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import pyarrow as pa

from bridge.errors import EngineError, LakeError
from bridge.lake.paths import pipeline_key, spool_name
from bridge.lake.storage import Storage
from bridge.lake.storage.parallel import parallel_map
from bridge.load.spool.folder import SealedBatch, Segment, SpoolFolder, SpoolReader, read_fully, require_whole
from bridge.load.write.context import WriteContext

_CODEC = "lz4"
"""Lines of JSON shrink to a quarter or less, in less time than it takes to send that."""
_LENGTH = 8
_TAIL = 256 << 10
"""Bytes read at once of an object's end, where its index is."""
_AT_ONCE = 3
"""Objects that are uploaded at once; memory holds some parts of each."""
_SHARE_FOLDER = (
    "the bucket is a folder: let the driver and all executors share it under the same path, or use a bucket of a store"
)
_REACH_BUCKET = "let every executor reach the bucket, with keys of its own: docs/cluster.md"
_NO_SPACE = "free some space there or set `spool.dir` to another disk; nothing that was committed is lost"


def new_file(context: WriteContext) -> str:
    """The name of a new file, which its writer must pass on: nobody lists them."""
    return spool_name(context.generation) if context.in_bucket else f"{uuid.uuid4().hex}.parquet"


def create_file(context: WriteContext, name: str) -> Any:
    """Open a new file for writing. It can be read once it is closed. Raises `LakeError`."""
    if context.in_bucket:
        key = _key(context, name)
        return context.storage().open_pending(key, key, readable=True)
    path = _path(context, name)
    try:
        path.parent.mkdir(exist_ok=True)
        return path.open("wb")
    except OSError as error:
        raise cannot_write(context, error) from error


def cannot_write(context: WriteContext, error: OSError) -> LakeError:
    """The error of a spool's disk."""
    folder = SpoolFolder(context.spool).spills
    return LakeError(f"cannot write to the spool: {error.strerror}", hint=_NO_SPACE, folder=folder)


def open_file(context: WriteContext, name: str) -> BinaryIO:
    """Open a file for reading with seeks. Raises `LakeError` or `OSError` where it cannot be read."""
    return context.storage().open(_key(context, name)) if context.in_bucket else _path(context, name).open("rb")


def delete_files(context: WriteContext, names: Sequence[str]) -> None:
    """Delete files, best effort: the next run looks for them again."""
    with suppress(LakeError, OSError):
        if context.in_bucket:
            storage = context.storage()
            parallel_map(storage, lambda name: storage.delete(_key(context, name)), names)
            return
        for name in names:
            _path(context, name).unlink(missing_ok=True)


def _key(context: WriteContext, name: str) -> str:
    return pipeline_key(context.pipeline, "pending", name)


def _path(context: WriteContext, name: str) -> Path:
    return SpoolFolder(context.spool).spills / name


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """A sealed batch for the bucket, in which each segment's `file` is its bundle's object."""

    batch: SealedBatch
    sealed: SealedBatch
    """The same as it lies in the spool's folder."""

    @property
    def names(self) -> list[str]:
        return [bundle[0].file for bundle in self.batch.bundles]


def pack(context: WriteContext, sealed: SealedBatch) -> PackedBatch:
    """Decide what a batch will be in the bucket. Nothing is written yet."""
    bundles = [_moved(bundle, new_file(context)) for bundle in sealed.bundles]
    return PackedBatch(SealedBatch(sealed.seq, bundles), sealed)


def _moved(bundle: Sequence[Segment], name: str) -> list[Segment]:
    """The segments one behind the other in the file of this name."""
    moved, start = [], 0
    for segment in bundle:
        end = start + segment.end - segment.start
        moved.append(replace(segment, file=name, start=start, end=end))
        start = end
    return moved


def upload(context: WriteContext, storage: Storage, packed: PackedBatch) -> None:
    """Write a batch's objects, and delete its files in the spool's folder. Raises `LakeError`."""
    folder = SpoolFolder(context.spool)

    def write(sealed: Sequence[Segment], moved: Sequence[Segment]) -> None:
        key = _key(context, moved[0].file)
        target = storage.open_pending(key, key, readable=True)
        blocks = {}
        for segment, to in zip(sealed, moved, strict=True):
            data = pa.compress(folder.read_segment(segment), codec=_CODEC, asbytes=True)
            blocks[str(to.start)] = target.tell(), len(data)
            target.write(data)
        texts = {name: _decoding(folder, name) for name in dict.fromkeys(segment.schema for segment in sealed)}
        index = orjson.dumps({"blocks": blocks, "decoding": texts})
        target.write(index + len(index).to_bytes(_LENGTH, "big"))
        target.close()

    if storage.parallel == 1:
        list(map(write, packed.sealed.bundles, packed.batch.bundles))
    else:
        with ThreadPoolExecutor(_AT_ONCE, "upload") as pool:
            list(pool.map(write, packed.sealed.bundles, packed.batch.bundles))
    folder.delete_segments(packed.sealed)


def _decoding(folder: SpoolFolder, name: str) -> tuple[str, str | None]:
    rules = folder.read_rules(name)
    return folder.read_schema(name).decode(), None if rules is None else rules.decode()


class SpoolObject:
    """A bundle in the bucket. Raises `EngineError`, with this host's name, where it cannot be read."""

    def __init__(self, context: WriteContext, name: str) -> None:
        self.name, self._storage, self._at = name, context.storage(), _key(context, name)
        try:
            self._file = self._storage.open(self._at)
            index = orjson.loads(self._read_index())
        except LakeError as error:
            raise self._unreadable(error) from error
        self._blocks: dict[str, tuple[int, int]] = index["blocks"]
        self._decoding: dict[str, tuple[str, str | None]] = index["decoding"]

    def _read_index(self) -> bytes:
        """Its last bytes say how long the index before them is. Of a small object this reads all, once."""
        size = self._file.seek(0, os.SEEK_END)
        start = self._file.seek(max(0, size - _TAIL))
        tail = read_fully(self._file, size - start)
        length = int.from_bytes(tail[-_LENGTH:], "big")
        if length + _LENGTH <= len(tail):
            return tail[-_LENGTH - length : -_LENGTH]
        self._file.seek(size - _LENGTH - length)
        return read_fully(self._file, length)

    def read_schema(self, name: str) -> bytes:
        return self._decoding[name][0].encode()

    def read_rules(self, name: str) -> bytes | None:
        rules = self._decoding[name][1]
        return rules.encode() if rules is not None else None

    def read_segment(self, segment: Segment) -> bytes:
        start, size = self._blocks[str(segment.start)]
        try:
            self._file.seek(start)
            block = read_fully(self._file, size)
            data = pa.decompress(block, segment.end - segment.start, codec=_CODEC, asbytes=True)
        except LakeError as error:
            raise self._unreadable(error) from error
        except (pa.ArrowInvalid, OSError):
            data = b""  # which it was not
        return require_whole(segment, data)

    def close(self) -> None:
        self._file.close()

    def _unreadable(self, error: LakeError) -> EngineError:
        hint = _SHARE_FOLDER if self._storage.folder else f"{_REACH_BUCKET}; {error.hint}"
        host = socket.gethostname()
        return EngineError("an executor cannot read the spool", hint=hint, host=host, cause=error.message)


class SegmentSource:
    """Where a task reads segments, with what they are decoded with."""

    def __init__(self, context: WriteContext) -> None:
        self._context, self._folder = context, SpoolFolder(context.spool)
        self._object: SpoolObject | None = None

    def of(self, segment: Segment) -> SpoolReader:
        """The reader of a segment: the spool's folder, or its bundle's object, one of which is open."""
        if not self._context.in_bucket:
            return self._folder
        if self._object is None or self._object.name != segment.file:
            self.close()
            self._object = SpoolObject(self._context, segment.file)
        return self._object

    def close(self) -> None:
        if self._object:
            self._object.close()
            self._object = None


def require_folder(context: WriteContext, hint: str) -> None:
    """Raise `EngineError` on a host that does not see the spool's folder."""
    if not context.in_bucket and not os.access(SpoolFolder(context.spool).segments, os.R_OK | os.X_OK):
        host = socket.gethostname()
        raise EngineError("an executor cannot read the spool", hint=hint, host=host, folder=context.spool)
