"""Where tables go and how they are written: `destination`, and what `streams` changes of it by glob."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, WithJsonSchema, model_validator

from bridge.settings.s3options import S3Options
from bridge.settings.section import Name, Section
from bridge.settings.values import arn_of_role, bucket_uri, endpoint, storage_class, table_path, unless, wrong

__all__ = ["S3", "Destination", "StreamKeys"]

_ACL = Literal[
    "private",
    "public-read",
    "public-read-write",
    "authenticated-read",
    "aws-exec-read",
    "bucket-owner-read",
    "bucket-owner-full-control",
]
_STORAGE_CLASS = Annotated[
    Literal[
        "STANDARD",
        "STANDARD_IA",
        "ONEZONE_IA",
        "INTELLIGENT_TIERING",
        "GLACIER_IR",
        "REDUCED_REDUNDANCY",
    ],
    BeforeValidator(storage_class),
]


class S3(Section):
    """How an `s3://` bucket is reached and written; what is left out is as the AWS_* environment says."""

    endpoint_url: Annotated[
        str | None, BeforeValidator(endpoint), WithJsonSchema({"type": ["string", "null"], "pattern": "^https?://"})
    ] = None
    """The server, where it is not Amazon's: `https://host:port`."""
    region: Name = None
    """Of the bucket."""
    profile: Name = None
    """Of `~/.aws/config` and `~/.aws/credentials`."""
    role_arn: Annotated[Name, BeforeValidator(arn_of_role)] = None
    """A role to assume before anything is read."""
    path_style: bool | None = None
    """`host/bucket` instead of `bucket.host`; true by itself where there is an `endpoint_url`."""
    sse: Literal["AES256", "aws:kms", "aws:kms:dsse"] | None = None
    """How the server is to encrypt; by itself as the bucket is set."""
    kms_key_id: Name = None
    """The key of `aws:kms`, which it implies; by itself Amazon's own."""
    acl: _ACL | None = None
    """A canned ACL for every object; most buckets have none any more."""
    storage_class: _STORAGE_CLASS | None = None
    """Of the tables' files; the archives are refused, as they could not be read."""

    @model_validator(mode="after")
    def _encrypted(self) -> S3:
        if self.kms_key_id and self.sse == "AES256":
            raise wrong("AES256 has no key of yours", hint="write sse: aws:kms, or remove kms_key_id", at="kms_key_id")
        return self

    @property
    def options(self) -> S3Options:
        """Return the section as storage takes it."""
        said = {name: getattr(self, name) for name in type(self).model_fields}
        return S3Options(**said | {"sse": self.sse or ("aws:kms" if self.kms_key_id else None)})


class Destination(Section):
    """Where tables go and how they are written."""

    later = frozenset({"partition_by", "file_size", "column_names"})

    bucket: Annotated[str, BeforeValidator(bucket_uri)]
    """The lake: a folder, `file:///...`, or `s3://bucket/prefix`. A folder is absolute, once it is read."""
    path: Annotated[str, BeforeValidator(table_path)] = "{pipeline}"
    """Folder of the tables inside the bucket; `{pipeline}` and `{tap}` are filled in."""
    format: Annotated[Literal["parquet"], unless("delta", "iceberg")] = "parquet"
    """How files make a table."""
    load_method: Annotated[Literal["auto", "append-only", "overwrite"], unless("upsert")] = "auto"
    """How a run changes tables; `auto`: as the catalog says, and never a deletion on a guess."""
    compression: Literal["zstd", "snappy", "gzip", "lz4", "none"] = "zstd"
    """Of the Parquet files."""
    shared: bool = False
    """Other pipelines that say so, too, may append to the same tables."""
    s3: S3 | None = None
    """How an `s3://` bucket is reached and written; what is left out is as the AWS_* environment says."""

    @model_validator(mode="after")
    def _on_s3(self) -> Destination:
        if self.s3 and not self.bucket.startswith("s3://"):
            hint = "remove it, or in an environment whose bucket is a folder write s3: null"
            raise wrong("these keys are for an s3:// bucket", hint=hint, at="s3")
        return self

    @property
    def s3_options(self) -> S3Options | None:
        """Return what an S3 bucket is opened with, None where nothing is said or the bucket is a folder."""
        return self.s3.options if self.s3 else None


class StreamKeys(Section):
    """What is different for the streams that a glob under `streams` names; None: as everywhere."""

    later = frozenset(
        {"columns", "rename", "transform", "partition_by", "sort_by", "lookback", "schema_policy", "on_type_change"}
    )

    load_method: Annotated[Literal["auto", "append-only", "overwrite"] | None, unless("upsert")] = None
    """Instead of `destination.load_method`."""
    key_properties: list[str] | None = None
    """The table's keys, instead of those that the tap declares."""
    replication_method: Literal["FULL_TABLE", "INCREMENTAL", "LOG_BASED"] | None = None
    """What the catalog tells the tap, instead of what was discovered."""
    replication_key: str | None = None
    """The column of the bookmark, likewise."""
