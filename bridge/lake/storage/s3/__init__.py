"""An S3 bucket, or one of any store that speaks S3 and keeps two writers apart (conditional puts)."""

from __future__ import annotations

from bridge.lake.storage.objects import ObjectStorage
from bridge.lake.storage.s3.store import S3Store
from bridge.settings.values.stores import S3Options


def s3_storage(uri: str, options: S3Options | None = None) -> ObjectStorage:
    """The storage at `s3://bucket/folder`."""
    return ObjectStorage(uri, S3Store.of(uri, options or S3Options()))
