"""A bucket of an object store as a storage. Atomic by conditional puts; published by copies or by completing uploads.

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
from bridge.lake.storage.conditional import put_if
from bridge.lake.storage.objects import publish
from bridge.lake.storage.objects.store import ObjectStore
from bridge.lake.storage.parallel import parallel_map
from bridge.lake.storage.protocol import Add, Change, PendingFile, Rewrite, Swap, VersionedObject
from bridge.lake.storage.reading import open_object

_LAKE = ".bridge/lake.json"
_HIDDEN = re.compile(r"(^|/)\.|/$")
"""A path with a dotted name in it, or that of a folder."""


class ObjectStorage:
    """One bucket, or a folder of it."""

    def __init__(self, uri: str, store: ObjectStore) -> None:
        self.uri = uri.rstrip("/")
        self.folder: Path | None = None
        self.parallel = store.parallel
        self.store = store
        self._prepared = False

    def for_libraries(self) -> dict[str, str]:
        return self.store.for_libraries()

    def prepare(self) -> None:
        if self._prepared:
            return
        data, store = self.read(_LAKE), self.store
        if data is None:
            self.put_if_absent(_LAKE, dumps({"format": 1, "id": str(uuid.uuid4()), "made_by": "singer-bridge"}))
            data = self.read(_LAKE)
        if data is None:
            reason = "an object that was just written is not there"
            raise LakeError(reason, hint=store.conditions_hint, at=store.place(_LAKE))
        for etag in (None, store.other_etag):
            if not store.refuses(_LAKE, data, etag):
                reason = "the bucket does not keep two writers apart"
                raise LakeError(reason, hint=store.conditions_hint, at=store.place(""))
        self._prepared = True

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
        return self.store.open_pending(source, key, over=over, readable=readable)

    def pending(self, folder: str) -> Iterator[Add]:
        return self.store.pending(_folder(folder))

    def abort(self, pending: Add) -> None:
        self.store.abort(pending)

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
