"""What an S3 bucket is opened with, as plain values that may travel to the executors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class S3Options:
    """How to reach a bucket and how objects are written; None: as the environment, or the bucket itself, says.

    There are no keys here: credentials are boto3's own matter (environment, profile, role).
    """

    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    role_arn: str | None = None
    path_style: bool | None = None
    sse: str | None = None
    kms_key_id: str | None = None
    acl: str | None = None
    storage_class: str | None = None
