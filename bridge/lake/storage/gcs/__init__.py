"""A bucket of Google Cloud Storage. A generation is its ETag: it changes with each write of an object."""

from bridge.lake.storage.gcs.storage import gcs_storage

__all__ = ["gcs_storage"]
