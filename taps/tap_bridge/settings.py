"""The tap's settings, and the log of the pipeline that they name."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import Any

from singer_sdk import typing as th

from bridge.lake.log import Log
from bridge.lake.storage import lake_of
from bridge.read.query.pipelines import destination_of
from bridge.read.query.pipelines import log_of as pipeline_log
from bridge.settings.values.stores import aws_credentials

_STORES = ("s3", "azure", "gcs")
_MOST_THREADS = 4

CONFIG_JSONSCHEMA: dict[str, Any] = th.PropertiesList(
    th.Property(
        "bucket",
        th.StringType,
        required=True,
        title="Bucket",
        description="The lake: a folder, or `s3://`, `az://`, `abfss://`, `gs://`, as in bridge.yaml.",
    ),
    th.Property(
        "pipeline",
        th.StringType,
        title="Pipeline",
        description="Whose tables are read, by its full name; without one the only pipeline of the bucket.",
    ),
    th.Property(
        "streams",
        th.ObjectType(
            additional_properties=th.ObjectType(
                th.Property("key_properties", th.ArrayType(th.StringType)), additional_properties=False
            )
        ),
        title="Streams",
        description="By globs of tables: `key_properties`, where they are others than those that the lake tells.",
    ),
    th.Property(
        "threads",
        th.IntegerType(minimum=1),
        title="Threads",
        description="Files that are read at once; by default one a core, and at most four.",
    ),
    th.Property(
        "state_every",
        th.IntegerType(minimum=1),
        default=65_536,
        title="State Every",
        description="A STATE is written after so many rows, and at the end of each table.",
    ),
    th.Property(
        "batch_config",
        th.ObjectType(
            th.Property(
                "encoding",
                th.ObjectType(
                    th.Property(
                        "format",
                        th.StringType,
                        required=True,
                        allowed_values=["arrow"],
                        title="Batch Format",
                        description="`arrow` sends rows as files of Arrow instead of RECORDs.",
                    ),
                    th.Property(
                        "compression",
                        th.StringType,
                        allowed_values=["none", "lz4", "zstd"],
                        title="Batch Compression",
                        description="Inside the files.",
                    ),
                ),
                required=True,
            ),
            th.Property(
                "storage",
                th.ObjectType(
                    th.Property(
                        "root",
                        th.StringType,
                        required=True,
                        title="Batch Folder",
                        description="A folder that the target can read, such as `file:///var/tmp/batches`.",
                    ),
                    th.Property(
                        "prefix", th.StringType, title="Batch Prefix", description="What names of files begin with."
                    ),
                ),
                required=True,
            ),
            th.Property(
                "batch_size",
                th.IntegerType(minimum=1),
                title="Batch Size",
                description="Rows of a file; by default `state_every`.",
            ),
        ),
        title="Batch Config",
        description="Send rows as files of Arrow in the folder `storage.root`, of `batch_size` rows or `state_every`.",
    ),
    th.Property(
        "s3",
        th.ObjectType(additional_properties=True),
        title="S3",
        description="How to reach an `s3://` bucket, as `destination.s3` of bridge.yaml.",
    ),
    th.Property(
        "azure",
        th.ObjectType(additional_properties=True),
        secret=True,
        title="Azure",
        description="How to reach an `az://` or `abfss://` bucket, as `destination.azure` of bridge.yaml.",
    ),
    th.Property(
        "gcs",
        th.ObjectType(additional_properties=True),
        title="GCS",
        description="How to reach a `gs://` bucket, as `destination.gcs` of bridge.yaml.",
    ),
    th.Property(
        "aws_access_key_id",
        th.StringType,
        secret=True,
        title="AWS Access Key ID",
        description="Else as boto3 finds it.",
    ),
    th.Property(
        "aws_secret_access_key",
        th.StringType,
        secret=True,
        title="AWS Secret Access Key",
        description="Else as boto3 finds it.",
    ),
    th.Property(
        "aws_session_token", th.StringType, secret=True, title="AWS Session Token", description="Of a temporary key."
    ),
    additional_properties=False,
).to_dict()


def log_of(config: Mapping[str, Any]) -> Log:
    """The log of the pipeline that is read. Raises `SettingsError` that names the setting."""
    os.environ.update(aws_credentials(config))
    stores = {name: config[name] for name in _STORES if config.get(name)}
    return pipeline_log(lake_of(destination_of(config["bucket"], stores)), config.get("pipeline"))


def keys_of(config: Mapping[str, Any], stream: str) -> list[str] | None:
    """The key that the settings give a stream: that of the last glob that matches; None if they give none."""
    keys = None
    for glob, values in (config.get("streams") or {}).items():
        if fnmatchcase(stream, glob) and values.get("key_properties") is not None:
            keys = list(values["key_properties"])
    return keys


def unmatched_glob(config: Mapping[str, Any], tables: Collection[str]) -> str:
    """A glob under `streams` that matches no table; empty if each does. `*` may match none."""
    globs = (glob for glob in config.get("streams") or {} if glob != "*")
    return next((glob for glob in globs if not any(fnmatchcase(table, glob) for table in tables)), "")


def threads_of(config: Mapping[str, Any]) -> int:
    """How many files are read at once."""
    return int(config.get("threads") or min(_MOST_THREADS, os.cpu_count() or 1))
