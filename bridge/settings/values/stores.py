"""The options with which a bucket is opened, as plain values that may travel to the executors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

AWS_CREDENTIALS = {
    "aws_access_key_id": "AWS_ACCESS_KEY_ID",
    "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "aws_session_token": "AWS_SESSION_TOKEN",
}
"""The names of boto3's variables in the settings of Singer plug-ins."""


def aws_credentials(config: Mapping[str, Any]) -> dict[str, str]:
    """The credentials among a plug-in's settings, as boto3 looks for them in the environment."""
    return {name: config[key] for key, name in AWS_CREDENTIALS.items() if config.get(key)}


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


@dataclass(frozen=True, slots=True)
class AzureOptions:
    """How to reach a container of Azure Blob Storage; None: as the bucket's URI or the environment says.

    Without a key or a SAS token, credentials come from the `AZURE_STORAGE_*` environment, else from where Azure's
    library looks.
    """

    account: str | None = None
    endpoint_url: str | None = None
    sas_token: str | None = field(default=None, repr=False)
    credential: str | None = None
    """`default`: never take a key from the environment, but what Azure's library finds: login, identity, workload."""
    account_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class GcsOptions:
    """How to reach a bucket of Google Cloud Storage; None: as the environment says.

    There are no keys here: `credentials_file` is the path of one, on each machine of a cluster.
    """

    project: str | None = None
    endpoint_url: str | None = None
    credentials_file: str | None = None


StoreOptions = S3Options | AzureOptions | GcsOptions
"""The options that `open_storage` takes beside a bucket's URI."""

SCHEMES: dict[str, str] = {"s3": "s3", "az": "azure", "abfss": "azure", "gs": "gcs"}
"""The scheme of a bucket's URI, and the section of `destination` that says how to reach it."""


def section_of_bucket(bucket: str) -> str:
    """The section for a bucket's URI: `s3`, `azure`, `gcs`; empty for a folder."""
    return SCHEMES.get(bucket.partition("://")[0], "") if "://" in bucket else ""
