"""From a `gs://` URI to a storage. Google's library is loaded here, when the first such bucket is opened."""

from __future__ import annotations

from bridge.errors import SettingsError
from bridge.lake.storage.objects import ObjectStorage
from bridge.settings.values.stores import GcsOptions


def gcs_storage(uri: str, options: GcsOptions | None = None) -> ObjectStorage:
    """The bucket of `gs://name/folder`. Nothing is read yet. Raises `SettingsError` without Google's library."""
    try:
        from bridge.lake.storage.gcs.store import GcsStore
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("google"):
            raise
        hint = 'pip install "singer-bridge[gcs]"'
        raise SettingsError("gs:// needs a package that is not installed", hint=hint, bucket=uri) from error
    return ObjectStorage(uri, GcsStore.of(uri, options or GcsOptions()))
