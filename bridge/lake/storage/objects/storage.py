"""A bucket of an object store as a storage. Atomic by conditional puts; published by copies within the store.

Guarantee to readers that list a folder: nothing is visible before its commit. A store cannot exchange several files at
once, so for an instant an append shows 0..k of its k files, and a replaced table the new files beside the old ones.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO

from bridge.errors import LakeError
from bridge.exact_json import dumps
from bridge.lake.storage.conditional import Passing, Refused, patient_attempts, put_if
from bridge.lake.storage.objects import publish
from bridge.lake.storage.objects.pending import PendingObject
from bridge.lake.storage.objects.store import ObjectStore
from bridge.lake.storage.parallel import parallel_map
from bridge.lake.storage.protocol import Add, Change, PendingFile, Rewrite, Swap, VersionedObject, made_of
from bridge.lake.storage.reading import open_object

_LAKE = ".bridge/lake.json"
_HIDDEN = re.compile(r"(^|/)\.|/$")
"""A path with a dotted name in it, or that of a folder."""


class ObjectStorage:
    """One bucket, or a folder of it."""

    def __init__(self, uri: str, store: ObjectStore, other_etag: str) -> None:
        """`other_etag`: an ETag that no object has."""
        self.uri = uri.rstrip("/")
        self.folder: Path | None = None
        self.parallel = store.parallel
        self.store = store
        self._other_etag = other_etag
        self._prepared = False

    def for_libraries(self) -> dict[str, str]:
        return self.store.for_libraries()

    def prepare(self) -> None:
        if self._prepared:
            return
        if self.read(_LAKE) is None:
            self.put_if_absent(_LAKE, dumps({"format": 1, "id": str(uuid.uuid4()), "made_by": "singer-bridge"}))
        data = self.read(_LAKE)
        if data is None:
            raise LakeError("an object that was just written is not there", hint=_OTHER_STORE, at=self.uri)
        for etag in (None, self._other_etag):
            if not self._refuses(_LAKE, data, etag):
                raise LakeError("the bucket does not keep two writers apart", hint=_OTHER_STORE, at=self.uri)
        self._prepared = True

    def _refuses(self, key: str, data: bytes, etag: str | None) -> bool:
        """Whether the store refuses a put whose condition does not hold; the bytes are the object's own."""
        for _ in patient_attempts():
            try:
                self.store.put_once(key, data, etag)
            except Refused:
                return True
            except Passing:
                continue
            return False
        raise LakeError(
            "the store does not answer", hint="check the network and the store, then run again", at=self.uri
        )

    def read(self, key: str) -> bytes | None:
        current = self.store.get(key)
        return current.data if current else None

    def read_versioned(self, key: str) -> VersionedObject | None:
        return self.store.get(key)

    def open(self, key: str) -> BinaryIO:
        return open_object(self.store, key)

    def size(self, key: str) -> int | None:
        seen = self.store.head(key)
        return seen.size if seen else None

    def list(self, prefix: str) -> Iterator[str]:
        folder = _folder(prefix)
        names = (key.removeprefix(folder).rstrip("/") for key in self.store.list(folder, deep=False))
        yield from (name for name in names if name and not name.startswith("."))

    def walk(self, prefix: str) -> Iterator[str]:
        folder = _folder(prefix)
        paths = (key.removeprefix(folder) for key in self.store.list(folder, deep=True))
        yield from (path for path in paths if path and not _HIDDEN.search(path))

    def put_if_absent(self, key: str, data: bytes) -> bool:
        return put_if(self.store, key, data, None) is not None

    def compare_and_swap(self, key: str, data: bytes, etag: str | None) -> str | None:
        return put_if(self.store, key, data, etag)

    def swap_all(self, swaps: Sequence[Swap]) -> Sequence[str | None]:
        return parallel_map(self, lambda swap: self.compare_and_swap(swap.key, swap.data, swap.etag), swaps)

    def write(self, key: str, data: bytes) -> None:
        self.store.put(key, data)

    def write_all(self, objects: Mapping[str, bytes]) -> None:
        parallel_map(self, lambda key: self.write(key, objects[key]), list(objects))

    def delete(self, key: str) -> None:
        self.store.delete(key)

    def open_pending(self, source: str, key: str, over: bool = False, readable: bool = False) -> PendingFile:
        return PendingObject(self.store, source, made_of(source) if over else "")

    def pending(self, folder: str) -> Iterator[Add]:
        yield from (Add(key, "", 0) for key in self.store.list(_folder(folder), deep=True))

    def abort(self, pending: Add) -> None:
        publish.abort(self.store, pending)

    def missing_pending(self, adds: Sequence[Add]) -> Sequence[Add]:
        return publish.missing_pending(self.store, adds)

    def publish(self, changes: Sequence[Change]) -> None:
        publish.publish(self.store, changes)

    def settle_rewrites(self, changes: Sequence[Change]) -> Sequence[Rewrite]:
        return publish.settle_rewrites(self.store, changes)

    def tidy(self, folder: str, older: timedelta) -> int:
        return 0  # an object exists whole or not at all


def _folder(prefix: str) -> str:
    prefix = prefix.strip("/")
    return f"{prefix}/" if prefix else ""


_OTHER_STORE = (
    "the store must honour conditional puts, as Azure Blob Storage and Google Cloud Storage do: an emulator or a "
    "gateway before it may not"
)
