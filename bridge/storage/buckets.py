"""From a bucket's URI to its backend."""

from __future__ import annotations

from pathlib import Path

from bridge.errors import NotAvailable
from bridge.storage.local import LocalStorage
from bridge.storage.protocol import Storage

__all__ = ["open_storage"]


def open_storage(uri: str) -> Storage:
    """Return the backend for a bucket URI: a folder or `file://` for now."""
    if "://" in uri and not uri.startswith("file://"):
        hint = "use a local folder as the bucket"
        raise NotAvailable("this kind of bucket is not available yet", hint=hint, bucket=uri)
    return LocalStorage(Path(uri.removeprefix("file://")))
