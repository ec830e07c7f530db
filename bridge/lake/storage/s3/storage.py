"""A bucket of an S3 store. Atomic by conditional puts; published by completing uploads and by copies.

Guarantee to readers that list a folder: nothing is visible before its commit. A store cannot exchange several files at
once, so for an instant an append shows 0..k of its k files, and a replaced table the new files beside the old ones.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO

from bridge.exact_json import dumps
from bridge.lake.storage.conditional import put_if
from bridge.lake.storage.parallel import parallel_map
from bridge.lake.storage.protocol import Add, Change, PendingFile, Rewrite, Swap, VersionedObject
from bridge.lake.storage.reading import open_object
from bridge.lake.storage.s3 import publish
from bridge.lake.storage.s3.bucket import Bucket
from bridge.lake.storage.s3.conditional import check_conditions
from bridge.lake.storage.s3.errors import FAILURES
from bridge.lake.storage.s3.foreign import object_store_options
from bridge.lake.storage.s3.pending import PendingObject
from bridge.settings.values.stores import S3Options

_LAKE = ".bridge/lake.json"
_HIDDEN = re.compile(r"(^|/)\.|/$")
"""A path with a dotted name in it, or that of a folder."""


class S3Storage:
    """One bucket, or a folder of it: `s3://bucket/folder`."""

    def __init__(self, uri: str, options: S3Options | None = None) -> None:
        self.uri = uri.rstrip("/")
        self.folder: Path | None = None
        self._bucket = Bucket.of(uri, options or S3Options())
        self.parallel = self._bucket.parallel
        self._prepared = False

    def for_libraries(self) -> dict[str, str]:
        return object_store_options(self._bucket)

    def prepare(self) -> None:
        if self._prepared:
            return
        if self.read_versioned(_LAKE) is None:  # not by HEAD, whose answer has no reason
            lake = {"format": 1, "id": str(uuid.uuid4()), "made_by": "singer-bridge"}
            self.put_if_absent(_LAKE, dumps(lake))
        check_conditions(self._bucket, _LAKE)
        self._prepared = True

    def read(self, key: str) -> bytes | None:
        current = self.read_versioned(key)
        return current.data if current else None

    def read_versioned(self, key: str) -> VersionedObject | None:
        return self._bucket.get(key)

    def open(self, key: str) -> BinaryIO:
        return open_object(self._bucket, key)

    def size(self, key: str) -> int | None:
        return self._bucket.size(key)

    def list(self, prefix: str) -> Iterator[str]:
        folder = self._below(prefix)
        with self._bucket.explained("list", prefix):
            for page in self._pages("list_objects_v2", folder, Delimiter="/"):
                keys = [item["Key"] for item in page.get("Contents", [])]
                keys += [item["Prefix"] for item in page.get("CommonPrefixes", [])]
                names = (key.removeprefix(folder).rstrip("/") for key in keys)
                yield from (name for name in names if name and not name.startswith("."))

    def walk(self, prefix: str) -> Iterator[str]:
        folder = self._below(prefix)
        with self._bucket.explained("list", prefix):
            for page in self._pages("list_objects_v2", folder):
                paths = (item["Key"].removeprefix(folder) for item in page.get("Contents", []))
                yield from (path for path in paths if path and not _HIDDEN.search(path))

    def put_if_absent(self, key: str, data: bytes) -> bool:
        return put_if(self._bucket, key, data, None) is not None

    def compare_and_swap(self, key: str, data: bytes, etag: str | None) -> str | None:
        return put_if(self._bucket, key, data, etag)

    def swap_all(self, swaps: Sequence[Swap]) -> Sequence[str | None]:
        return parallel_map(self, lambda swap: self.compare_and_swap(swap.key, swap.data, swap.etag), swaps)

    def write(self, key: str, data: bytes) -> None:
        self._bucket.put(key, data)

    def write_all(self, objects: Mapping[str, bytes]) -> None:
        parallel_map(self, lambda key: self.write(key, objects[key]), list(objects))

    def delete(self, key: str) -> None:
        self._bucket.delete(key)

    def open_pending(self, source: str, key: str, over: bool = False, readable: bool = False) -> PendingFile:
        return PendingObject(self._bucket, source, key, over=over, readable=readable)

    def pending(self, folder: str) -> Iterator[Add]:
        try:
            for page in self._pages("list_objects_v2", self._below(folder)):
                for item in page.get("Contents", []):
                    yield Add(item["Key"].removeprefix(self._bucket.prefix), "", 0)
            for page in self._pages("list_multipart_uploads", self._bucket.prefix):
                for item in page.get("Uploads", []):
                    yield Add("", item["Key"].removeprefix(self._bucket.prefix), 0, item["UploadId"])
        except FAILURES:  # it needs rights of its own, and some stores cannot list uploads; nothing depends on it
            return

    def abort(self, pending: Add) -> None:
        publish.abort(self._bucket, pending)

    def missing_pending(self, adds: Sequence[Add]) -> Sequence[Add]:
        return publish.missing_pending(self._bucket, adds)

    def publish(self, changes: Sequence[Change]) -> None:
        publish.publish(self._bucket, changes)

    def settle_rewrites(self, changes: Sequence[Change]) -> Sequence[Rewrite]:
        return publish.settle_rewrites(self._bucket, changes)

    def tidy(self, folder: str, older: timedelta) -> int:
        return 0  # an object exists whole or not at all

    def _pages(self, operation: str, prefix: str, **how: str) -> Iterator[dict[str, Any]]:
        yield from self._bucket.patient.get_paginator(operation).paginate(
            Bucket=self._bucket.name, Prefix=prefix, **how
        )

    def _below(self, folder: str) -> str:
        folder = folder.strip("/")
        return self._bucket.prefix + (f"{folder}/" if folder else "")
