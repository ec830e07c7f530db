"""From a bucket's URI to its backend."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bridge.errors import SettingsError
from bridge.lake.storage.local.storage import LocalStorage
from bridge.lake.storage.protocol import Storage
from bridge.settings.values.stores import AzureOptions, GcsOptions, S3Options, StoreOptions, section_of_bucket

if TYPE_CHECKING:
    from bridge.settings.destination import Destination


def open_storage(uri: str, options: StoreOptions | None = None) -> Storage:
    """The backend for a bucket's URI: a folder, `file://...`, `s3://`, `az://`, `abfss://` or `gs://`.

    Nothing is read yet. The libraries of stores take a while to load, so each is imported when it is needed.
    """
    section = section_of_bucket(uri)
    if section == "s3":
        from bridge.lake.storage.s3 import s3_storage

        return s3_storage(uri, options if isinstance(options, S3Options) else None)
    if section == "azure":
        from bridge.lake.storage.azure import azure_storage

        return azure_storage(uri, options if isinstance(options, AzureOptions) else None)
    if section == "gcs":
        from bridge.lake.storage.gcs import gcs_storage

        return gcs_storage(uri, options if isinstance(options, GcsOptions) else None)
    if "://" in uri and not uri.startswith("file://"):
        hint = "use a folder, s3://, az://, abfss:// or gs://"
        raise SettingsError("this kind of bucket is not supported", hint=hint, bucket=uri)
    return LocalStorage(Path(uri.removeprefix("file://")))


def lake_of(destination: Destination) -> Storage:
    """The backend of a pipeline's bucket, with the settings' options."""
    return open_storage(destination.bucket, destination.store_options)
