"""An S3 bucket, or one of any store that speaks S3 and keeps two writers apart (conditional puts)."""

from bridge.lake.storage.s3.storage import S3Storage

__all__ = ["S3Storage"]
