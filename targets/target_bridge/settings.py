"""The target's settings: flat, in the Singer SDK's words, and the pipeline that they describe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from singer_sdk import typing as th

from bridge.errors import SettingsError
from bridge.settings.explain import explained
from bridge.settings.options import Pipeline
from bridge.settings.receivers import secrets_of
from bridge.settings.redact import SPARK_SECRET, worth_hiding
from bridge.settings.text.tree import Key
from bridge.settings.values.checked import pipeline_name
from bridge.settings.values.stores import AWS_CREDENTIALS

ALIASES = {"destination_path": "bucket", "compression_method": "compression", "partition_cols": "partition_by"}
"""Other names of settings, by which other targets know them."""
_PLACES: dict[str, Key] = {
    "pipeline": ("name",),
    "bucket": ("destination", "bucket"),
    "path": ("destination", "path"),
    "format": ("destination", "format"),
    "catalog": ("destination", "catalog"),
    "load_method": ("destination", "load_method"),
    "hard_delete": ("destination", "hard_delete"),
    "compression": ("destination", "compression"),
    "compression_level": ("destination", "compression_level"),
    "partition_by": ("destination", "partition_by"),
    "file_size": ("destination", "file_size"),
    "column_names": ("destination", "column_names"),
    "add_record_metadata": ("destination", "add_record_metadata"),
    "shared": ("destination", "shared"),
    "aws_endpoint_url": ("destination", "s3", "endpoint_url"),
    "aws_region": ("destination", "s3", "region"),
    "aws_profile": ("destination", "s3", "profile"),
    "aws_role_arn": ("destination", "s3", "role_arn"),
    "batch_wait_limit_seconds": ("commit", "every"),
    "batch_size_rows": ("commit", "rows"),
    "on_reject": ("rejects", "on_reject"),
    "max_rejects": ("rejects", "max"),
    "validate_records": ("rejects", "validate"),
    "streams": ("streams",),
    "mask": ("mask",),
    "mask_key": ("mask_key",),
    "views": ("views",),
    "spark": ("spark",),
    "notify": ("notify",),
    "openlineage": ("openlineage",),
    "metrics": ("metrics",),
}
"""The key in bridge.yaml of each setting."""
_NOT_OURS = ("replication_method", "replication_key", "lookback")
"""Keys of `streams` that are for a tap that we start ourselves."""
_NAME = "target-bridge"

CONFIG_JSONSCHEMA: dict[str, Any] = th.PropertiesList(
    th.Property("bucket", th.StringType, title="Bucket", description="The lake: a folder, or `s3://bucket/prefix`."),
    th.Property("destination_path", th.StringType, title="Destination Path", description="Another name of `bucket`."),
    th.Property(
        "path",
        th.StringType,
        title="Path",
        description="Folder of the tables inside the bucket; `{pipeline}` is filled in, and is the default.",
    ),
    th.Property(
        "pipeline",
        th.StringType,
        title="Pipeline",
        description="Whose commit log it is: one for each tap and environment. By default what Meltano calls them.",
    ),
    th.Property(
        "format",
        th.StringType,
        allowed_values=["parquet", "delta", "iceberg"],
        title="Format",
        description="How files make a table.",
    ),
    th.Property(
        "catalog",
        th.ObjectType(additional_properties=True),
        title="Catalog",
        description="Where Iceberg tables are registered: `name`, `namespace`, `properties`; nothing secret.",
    ),
    th.Property(
        "load_method",
        th.StringType,
        default="append-only",
        allowed_values=["append-only", "upsert", "overwrite", "history", "auto"],
        title="Load Method",
        description="`append-only` adds rows, `upsert` merges them by key, `overwrite` replaces tables at the end, "
        "`history` keeps each version of a row by its key.",
    ),
    th.Property(
        "hard_delete",
        th.BooleanType,
        title="Hard Delete",
        description="Rows that the tap says are deleted go (true) or get `_sdc_deleted_at` (false).",
    ),
    th.Property(
        "compression",
        th.StringType,
        allowed_values=["zstd", "snappy", "gzip", "lz4", "none"],
        title="Compression",
        description="Of the Parquet files; zstd by default.",
    ),
    th.Property(
        "compression_method", th.StringType, title="Compression Method", description="Another name of `compression`."
    ),
    th.Property("compression_level", th.IntegerType, title="Compression Level", description="Higher is smaller."),
    th.Property(
        "partition_by",
        th.ArrayType(th.AnyType),
        title="Partition By",
        description="Columns whose values name folders, of times as `{column, granularity}`.",
    ),
    th.Property(
        "partition_cols",
        th.ArrayType(th.AnyType),
        title="Partition Columns",
        description="Another name of `partition_by`.",
    ),
    th.Property(
        "file_size", th.StringType, title="File Size", description="A file is closed at about this size: `128MiB`."
    ),
    th.Property(
        "column_names",
        th.StringType,
        allowed_values=["keep", "snake_case", "lower"],
        title="Column Names",
        description="How a table's new columns are named.",
    ),
    th.Property(
        "shared", th.BooleanType, title="Shared", description="Other pipelines that say so, too, may add to the tables."
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
    th.Property("aws_region", th.StringType, title="AWS Region", description="Of the bucket."),
    th.Property("aws_profile", th.StringType, title="AWS Profile", description="Of `~/.aws/config`."),
    th.Property(
        "aws_endpoint_url", th.StringType, title="AWS Endpoint URL", description="The server, where it is not Amazon's."
    ),
    th.Property("aws_role_arn", th.StringType, title="AWS Role ARN", description="A role to assume."),
    th.Property(
        "batch_size_rows",
        th.IntegerType,
        title="Batch Size Rows",
        description="Commit at the next STATE after so many records; by default their number does not count.",
    ),
    th.Property(
        "batch_wait_limit_seconds",
        th.IntegerType,
        title="Batch Wait Limit Seconds",
        description="Commit at the next STATE after so long; by default 300.",
    ),
    th.Property(
        "validate_records",
        th.BooleanType,
        default=False,
        title="Validate Records",
        description="Hold every record against its whole SCHEMA, formats too; without it, against its columns' types.",
    ),
    th.Property(
        "on_reject",
        th.StringType,
        default="fail",
        allowed_values=["fail", "quarantine"],
        title="On Reject",
        description="Fail at the first record that cannot be stored, or keep it among the rejects and go on.",
    ),
    th.Property(
        "max_rejects", th.IntegerType, title="Maximum of Rejects", description="More than so many fail the run."
    ),
    th.Property(
        "start_state",
        th.StringType,
        title="Start STATE",
        description="The file that the tap gets as `--state`, where it is not Meltano or a tap of the SDK that tells.",
    ),
    th.Property(
        "on_missing_rows",
        th.StringType,
        default="fail",
        allowed_values=["fail", "warn"],
        title="On Missing Rows",
        description="If the tap starts from a STATE that was taken back in the lake: fail, or leave the rows out.",
    ),
    th.Property(
        "streams",
        th.ObjectType(additional_properties=th.ObjectType(additional_properties=True)),
        title="Streams",
        description="Settings of single streams by globs of their names, as `streams` of bridge.yaml.",
    ),
    th.Property(
        "mask",
        th.ObjectType(additional_properties=th.StringType),
        title="Mask",
        description="What becomes of personal data, by globs of `STREAM.FIELD`: docs/personal-data.md.",
    ),
    th.Property("mask_key", th.StringType, secret=True, title="Mask Key", description="The key of the mask `hash`."),
    th.Property(
        "views",
        th.ObjectType(additional_properties=th.StringType),
        title="Views",
        description="Tables kept as the `GROUP BY` of a stream, a `SELECT` by name, as `views` of bridge.yaml.",
    ),
    th.Property(
        "spark",
        th.ObjectType(
            th.Property("master", th.StringType, title="Master", description="Where Spark runs."),
            th.Property(
                "conf",
                th.ObjectType(additional_properties=th.StringType),
                title="Configuration",
                description="Spark's own settings, as text.",
            ),
        ),
        title="Spark",
        description="The engine: its `master`, and Spark's own settings under `conf`.",
    ),
    th.Property(
        "notify",
        th.ArrayType(th.ObjectType(additional_properties=True)),
        secret=True,
        title="Notify",
        description="Receivers of notifications, each a `url` as apprise writes it, and `on`: docs/alerts.md.",
    ),
    th.Property(
        "openlineage",
        th.ObjectType(additional_properties=True),
        secret=True,
        title="OpenLineage",
        description="Where runs are reported as OpenLineage events: `url`, `namespace`.",
    ),
    th.Property(
        "metrics",
        th.ObjectType(additional_properties=True),
        title="Metrics",
        description="Figures for Prometheus: `textfile`, the folder of node_exporter's text files.",
    ),
    additional_properties=False,
).to_dict()


@dataclass(frozen=True)
class _Setting:
    """A setting of the target, by its place in a pipeline."""

    def error(
        self, key: Key, text: str, hint: str, kind: type[SettingsError] = SettingsError, **facts: Any
    ) -> SettingsError:
        if key == ("destination", "s3"):
            return kind(f"aws_*: {text}", hint="leave them out", **facts)
        for size in range(len(key), 0, -1):
            name = next((name for name, place in _PLACES.items() if place == key[:size]), None)
            if name:
                return kind(f"{'.'.join(map(str, (name, *key[size:])))}: {text}", hint=hint, **facts)
        return kind(f"{'.'.join(map(str, key))}: {text}", hint=hint, **facts)

    def order(self, key: Key) -> tuple[str, int]:
        return "", 0


def pipeline_of(config: Mapping[str, Any], environ: Mapping[str, str]) -> Pipeline:
    """Return the pipeline that the settings describe. Raises `SettingsError` naming the setting.

    A relative bucket is relative to the current folder; under Meltano that is the project's.
    """
    given = {name: value for name, value in config.items() if value is not None and value != ""}
    for alias, name in ALIASES.items():
        if alias in given and given.setdefault(name, given[alias]) != given[alias]:
            raise SettingsError(f"{alias} is another name of {name}", hint="keep one of them")
    if "bucket" not in given:
        raise SettingsError("bucket: missing setting", hint="give a folder, or s3://bucket/prefix")
    tap = environ.get("MELTANO_EXTRACTOR_NAME") or "tap"
    keys: dict[str, Any] = {"name": _pipeline_name(given, environ), "source": {"tap": [tap]}}
    for name, place in _PLACES.items():
        if name in given and name != "pipeline":
            section = keys
            for part in place[:-1]:
                section = section.setdefault(str(part), {})
            section[str(place[-1])] = _value(name, given[name])
    _refuse_settings_of_the_tap(given.get("streams") or {})
    if wrong := pipeline_name(keys["name"]):
        raise _Setting().error(("name",), *wrong)
    try:
        pipeline = Pipeline.model_validate(keys)
    except ValidationError as error:
        raise explained(error, _Setting())[0][1] from None
    secrets = [given[key] for key in AWS_CREDENTIALS if key in given]
    secrets += secrets_of(pipeline.notify, pipeline.openlineage)
    secrets += [pipeline.mask_key] if pipeline.mask_key else []
    secrets += [text for key, text in pipeline.spark.conf.items() if SPARK_SECRET.search(key)]
    return pipeline.model_copy(update={"secrets": worth_hiding(secrets)})


def _value(name: str, value: Any) -> Any:
    """A setting's value as bridge.yaml has it."""
    if name == "validate_records":
        return "full" if value else "types"
    return f"{value}s" if name == "batch_wait_limit_seconds" else value


def _pipeline_name(given: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    """The pipeline's name. Without an environment, Meltano's own default begins with a dot, which is removed."""
    parts = [environ.get("MELTANO_ENVIRONMENT"), environ.get("MELTANO_EXTRACTOR_NAME")]
    return str(given.get("pipeline", "")).strip(".") or ".".join(filter(None, parts)) or _NAME


def _refuse_settings_of_the_tap(streams: Mapping[str, Any]) -> None:
    for glob, keys in streams.items():
        for key in _NOT_OURS:
            if isinstance(keys, dict) and key in keys:
                hint = "set it for the tap, in its catalog or its own settings"
                raise SettingsError(f"streams.{glob}.{key}: a target does not choose what the tap sends", hint=hint)
