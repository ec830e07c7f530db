"""From a bucket's URI to its backend."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bridge.errors import SettingsError
from bridge.storage.local.storage import LocalStorage
from bridge.storage.protocol import Storage

if TYPE_CHECKING:
    from bridge.settings.destination import Destination
    from bridge.settings.values.s3options import S3Options


def open_storage(uri: str, s3: S3Options | None = None) -> Storage:
    """The backend for a bucket's URI: a folder, `file://...`, or `s3://bucket/prefix`. Nothing is read yet."""
    if uri.startswith("s3://"):
        from bridge.storage.s3 import S3Storage  # here: boto3 takes a while to load, and a folder needs none

        return S3Storage(uri, s3)
    if "://" in uri and not uri.startswith("file://"):
        raise SettingsError("this kind of bucket is not supported", hint="use a folder or s3://", bucket=uri)
    return LocalStorage(Path(uri.removeprefix("file://")))


def lake_of(destination: Destination) -> Storage:
    """The backend of a pipeline's bucket, with the settings' options."""
    return open_storage(destination.bucket, destination.s3_options)
