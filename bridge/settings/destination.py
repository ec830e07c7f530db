"""Where tables go and how they are written: `destination`, and what `streams` changes of it by glob."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from bridge.settings.text.tree import Unknown
from bridge.settings.values.buckets import (
    arn_of_role,
    blob_endpoint,
    bucket_uri,
    endpoint,
    signature,
    signing_key,
    storage_account,
    storage_class,
)
from bridge.settings.values.catalogs import NAMED, address, catalog_properties, levels
from bridge.settings.values.checked import table_path, wrong
from bridge.settings.values.guarding import Guard
from bridge.settings.values.layout import LEVELS, PartitionBy, SortBy
from bridge.settings.values.rows import Columns, Lookback, Rename, Transform
from bridge.settings.values.section import Bytes, FilePath, Name, Section
from bridge.settings.values.stores import AzureOptions, GcsOptions, S3Options, StoreOptions, section_of_bucket
from bridge.settings.values.units import MIB

LoadMethod = Literal["append-only", "overwrite", "upsert", "history"]
"""How a stream's rows reach its table: they are added to it, they replace it, or they are merged into it by key; in a
history table each of them is a version. A run loads such a one as an upsert."""
APPEND_ONLY: Final = "append-only"
OVERWRITE: Final = "overwrite"
UPSERT: Final = "upsert"
HISTORY: Final = "history"

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
    """How to reach and write an `s3://` bucket. The `AWS_*` environment says what is left out."""

    endpoint_url: Annotated[
        str | None, BeforeValidator(endpoint), WithJsonSchema({"type": ["string", "null"], "pattern": "^https?://"})
    ] = None
    """The server, if it is not Amazon's: `https://host:port`."""
    region: Name = None
    """The bucket's region."""
    profile: Name = None
    """A profile of `~/.aws/config` and `~/.aws/credentials`."""
    role_arn: Annotated[Name, BeforeValidator(arn_of_role)] = None
    """A role to assume before anything is read."""
    path_style: bool | None = None
    """Address the bucket as `host/bucket` instead of `bucket.host`. Default: `true` if there is an `endpoint_url`."""
    sse: Literal["AES256", "aws:kms", "aws:kms:dsse"] | None = None
    """How the server encrypts. Default: as the bucket is configured."""
    kms_key_id: Name = None
    """The key to encrypt with; implies `aws:kms`. Default: Amazon's own key."""
    acl: _ACL | None = None
    """A canned ACL for every object. Most buckets do not use ACLs any more."""
    storage_class: _STORAGE_CLASS | None = None
    """The storage class of the tables' files. Archive classes are refused: their files cannot be read."""

    @model_validator(mode="after")
    def _encrypted(self) -> S3:
        if self.kms_key_id and self.sse == "AES256":
            raise wrong("AES256 has no key of yours", hint="write sse: aws:kms, or remove kms_key_id", at="kms_key_id")
        return self

    @property
    def options(self) -> S3Options:
        """The section as storage takes it."""
        declared = {name: getattr(self, name) for name in type(self).model_fields}
        return S3Options(**declared | {"sse": self.sse or ("aws:kms" if self.kms_key_id else None)})


class Azure(Section):
    """How to reach an `az://` or `abfss://` bucket. The `AZURE_STORAGE_*` environment says what is left out."""

    account: Annotated[str | None, BeforeValidator(storage_account)] = None
    """The storage account. An `abfss://` address names it itself."""
    endpoint_url: Annotated[
        str | None,
        BeforeValidator(blob_endpoint),
        WithJsonSchema({"type": ["string", "null"], "pattern": "^https?://"}),
    ] = None
    """The blob endpoint, if it is not `https://ACCOUNT.blob.core.windows.net`: of another cloud, or of an emulator."""
    account_key: Annotated[Name, BeforeValidator(signing_key)] = Field(default=None, repr=False)
    """The account's key: `${SALES_KEY}`."""
    sas_token: Annotated[Name, BeforeValidator(signature)] = Field(default=None, repr=False)
    """A shared access signature with the rights to read, write, list and delete: `${AZURE_SAS}`."""
    credential: Literal["default"] | None = None
    """`default`: sign in as Azure's library does (environment, workload or managed identity, `az login`), even if there
    is a key in the environment."""

    @model_validator(mode="after")
    def _one_credential(self) -> Azure:
        given = [name for name in ("account_key", "sas_token", "credential") if getattr(self, name)]
        if len(given) > 1:
            hint = f"keep one of them; above a layer that has the other, write {given[0]}: null"
            raise wrong(f"{given[0]} is set, too", hint=hint, at=given[-1])
        return self

    @property
    def options(self) -> AzureOptions:
        """The section as storage takes it."""
        return AzureOptions(**{name: getattr(self, name) for name in type(self).model_fields})


class Gcs(Section):
    """How to reach a `gs://` bucket. `GOOGLE_*` variables and Google's own library say what is left out."""

    project: Name = None
    """The project that pays for requests, if the credentials name none."""
    endpoint_url: Annotated[
        str | None, BeforeValidator(endpoint), WithJsonSchema({"type": ["string", "null"], "pattern": "^https?://"})
    ] = None
    """The server, if it is not Google's: a private endpoint or an emulator."""
    credentials_file: FilePath = None
    """A service account's key, or another file of credentials; on a cluster each machine needs it at this path."""

    @property
    def options(self) -> GcsOptions:
        """The section as storage takes it."""
        file = self.credentials_file
        return GcsOptions(self.project, self.endpoint_url, str(file) if file else None)


class Catalog(Section):
    """Where Iceberg tables are registered. The bucket keeps these settings: nothing secret belongs here."""

    name: Annotated[str, Field(pattern="^[A-Za-z][A-Za-z0-9-]*$")] = "lake"
    """The catalog's name in pyiceberg's own configuration: in `PYICEBERG_CATALOG__<NAME>__*`, where `-` is `_`, and in
    `.pyiceberg.yaml`. Letters, digits and `-`."""
    namespace: Annotated[str, BeforeValidator(levels)] = "{pipeline}"
    """The namespace of the tables; dots separate levels; `{pipeline}` is filled in."""
    properties: Annotated[dict[str, str], BeforeValidator(catalog_properties)] = Field(default_factory=dict)
    """Properties for pyiceberg: `type`, `uri`, `warehouse` and others; nothing secret."""

    @model_validator(mode="after")
    def _is_named(self) -> Catalog:
        NAMED[self.name, address(self.properties)] = self.properties
        return self


class Destination(Section):
    """Where tables go and how they are written."""

    bucket: Annotated[str, BeforeValidator(bucket_uri)]
    """The lake: a folder, `file:///...`, `s3://bucket/prefix`, `az://container/prefix`,
    `abfss://container@account.dfs.core.windows.net/prefix` or `gs://bucket/prefix`."""
    path: Annotated[str, BeforeValidator(table_path)] = "{pipeline}"
    """Folder of the tables inside the bucket; `{pipeline}` and `{tap}` are filled in. The first commit fixes it."""
    format: Literal["parquet", "delta", "iceberg"] = "parquet"
    """The table format. `delta` and `iceberg` tables have a log of their own, so that readers see each commit whole or
    not at all."""
    catalog: Catalog | None = None
    """Where Iceberg tables are registered. Default: a SQLite file in the bucket, if that is a folder."""
    load_method: Literal["auto", LoadMethod] = "auto"
    """How a run changes tables; `auto`: as the catalog says."""
    hard_delete: bool | None = None
    """Whether a row that the tap deletes is removed (`true`) or gets `_sdc_deleted_at`. Default: depends on the load
    method; no effect on a history table."""
    compression: Literal["zstd", "snappy", "gzip", "lz4", "none"] = "zstd"
    """Compression of the Parquet files."""
    compression_level: Annotated[int, Field(ge=1)] | None = None
    """1 to 22 for `zstd`, 1 to 9 for `gzip`: higher is smaller and slower. Default: a fast one."""
    partition_by: PartitionBy = Field(default_factory=list)
    """Columns, or `{column, granularity}`, whose values name folders. The first commit of a table fixes it."""
    file_size: Annotated[Bytes, Field(ge=MIB)] = 128 * MIB
    """A file is closed at about this size, and the next one begins. At least 1MiB."""
    column_names: Literal["keep", "snake_case", "lower"] = "keep"
    """How new columns are named; existing columns keep their names."""
    add_record_metadata: bool = False
    """Add the Singer SDK's metadata columns, `_sdc_extracted_at` and others."""
    shared: bool = False
    """Let other pipelines with this setting append to the same tables."""
    s3: S3 | None = None
    """How to reach and write an `s3://` bucket. The `AWS_*` environment says what is left out."""

    azure: Azure | None = None
    """How to reach an `az://` or `abfss://` bucket. The `AZURE_STORAGE_*` environment says what is left out."""
    gcs: Gcs | None = None
    """How to reach a `gs://` bucket. Google's own environment says what is left out."""

    @model_validator(mode="after")
    def _of_the_store(self) -> Destination:
        for section, scheme in (("s3", "an s3://"), ("azure", "an az:// or abfss://"), ("gcs", "a gs://")):
            is_read = not isinstance(self.bucket, Unknown)
            if is_read and getattr(self, section) and section_of_bucket(self.bucket) != section:
                hint = f"remove it, or in an environment whose bucket is elsewhere write {section}: null"
                raise wrong(f"these keys are for {scheme} bucket", hint=hint, at=section)
        return self

    @model_validator(mode="after")
    def _registered(self) -> Destination:
        if self.catalog and self.format != "iceberg":
            raise wrong("only Iceberg tables have one", hint="remove it, or write format: iceberg", at="catalog")
        if self.format == "iceberg" and self.bucket.startswith("az://"):
            hint = "write abfss://container@account.dfs.core.windows.net/prefix: it is the same place"
            raise wrong("Iceberg's engines do not know az://", hint=hint, at="bucket")
        if self.format == "iceberg" and not self.catalog and section_of_bucket(self.bucket):
            hint = (
                'set destination.catalog, such as {properties: {type: rest, uri: "https://..."}}: docs/table-formats.md'
            )
            raise wrong("Iceberg tables in a bucket of a store need a catalog", hint=hint, at="format")
        return self

    @model_validator(mode="after")
    def _not_merged(self) -> Destination:
        if self.shared and self.load_method in (UPSERT, HISTORY):
            hint = "give the pipeline a table of its own, or write load_method: append-only"
            raise wrong("a shared table can only be appended to", hint=hint, at="shared")
        return self

    @model_validator(mode="after")
    def _one_writer(self) -> Destination:
        if self.shared and self.format != "parquet":
            hint = "remove it, and give each pipeline a table of its own; or leave out format"
            raise wrong("only plain Parquet tables can be shared", hint=hint, at="shared")
        return self

    @model_validator(mode="after")
    def _level(self) -> Destination:
        highest = LEVELS.get(self.compression, 0)
        if self.compression_level is None or self.compression_level <= highest:
            return self
        hint = f"write 1 to {highest}" if highest else "remove it, or write compression: zstd"
        raise wrong(f"{self.compression} has no such level", hint=hint, at="compression_level")

    @property
    def store_options(self) -> StoreOptions | None:
        """The options with which the bucket is opened; None where nothing is said or the bucket is a folder."""
        section = self.s3 or self.azure or self.gcs
        return section.options if section else None

    @property
    def place(self) -> tuple[str, str, str]:
        """Equal for two pipelines in one bucket: servers and accounts may each have a bucket of the same name."""
        account = self.azure.account if self.azure else None
        store = self.store_options
        return (store.endpoint_url if store else None) or "", account or "", self.bucket


class StreamKeys(Section):
    """The settings of the streams that match a glob. A key that is left out is as everywhere."""

    load_method: Literal["auto", LoadMethod] | None = None
    """Instead of `destination.load_method`."""
    hard_delete: bool | None = None
    """Instead of `destination.hard_delete`."""
    partition_by: PartitionBy | None = None
    """Instead of `destination.partition_by`; `[]`: no folders."""
    sort_by: SortBy | None = None
    """Columns by which rows are sorted inside a file; `-updated_at` sorts descending."""
    file_size: Annotated[Bytes, Field(ge=MIB)] | None = None
    """Instead of `destination.file_size`."""
    key_properties: list[str] | None = None
    """The table's keys, instead of those that the tap declares."""
    sequence: Name = None
    """For `load_method: history`: the column that orders the versions of a row. Its value is the version's start.
    Default: the time of the commit."""
    track: Columns | None = None
    """For `load_method: history`: globs of the columns whose changes make a version; `!` leaves out, the last match
    wins. A change of others updates the current version in place."""
    ignore: Columns | None = None
    """For `load_method: history`: globs of the columns whose changes make no version. It wins over `track`."""
    replication_method: Literal["FULL_TABLE", "INCREMENTAL", "LOG_BASED"] | None = None
    """The replication method that the catalog gives to the tap. Needs a catalog."""
    replication_key: str | None = None
    """The column of the bookmark. Needs a catalog."""
    columns: Columns | None = None
    """Globs of the columns to store; `!` leaves out, the last match wins. Keys always stay."""
    rename: Rename | None = None
    """Names for new columns, by the tap's names; existing columns keep their names."""
    transform: Transform | None = None
    """A `SELECT ... FROM stream` in Spark SQL that each row goes through before it is stored."""
    parent: Name = None
    """The stream without which the tap does not read this one; with `source.parallelism`, one process reads both."""
    lookback: Lookback | None = None
    """How far before its bookmark the tap starts: a duration for times, a number for numbers."""
    add_record_metadata: bool | None = None
    """Instead of `destination.add_record_metadata`."""
    schema_policy: Literal["evolve", "freeze", "discard"] | None = None
    """A new column is added (`evolve`, the default), it is an error (`freeze`), or it is left out (`discard`)."""
    new_columns: Literal["add", "warn", "ignore"] | None = None
    """Instead of the pipeline's `new_columns`."""
    on_null_key: Literal["warn", "fail"] | None = None
    """Instead of the pipeline's `on_null_key`."""
    on_bad_time: Annotated[
        Literal["reject", "null"],
        BeforeValidator(lambda value: "null" if value is None else value),  # as YAML reads a bare `null`
        WithJsonSchema({"enum": ["reject", "null", None]}),
    ] = "reject"
    """A text that is no time in a `date` or `date-time` column, such as an empty one, makes the record a reject
    (`reject`), or becomes null (`null`), which the run counts and says. It is never null in a key or a replication
    key."""
    on_type_change: Literal["rewrite", "variant", "fail"] | None = None
    """A column that needs a wider type has its older files rewritten (`rewrite`, the default), gets a second column
    beside it (`variant`), or is an error (`fail`)."""
    guard: Guard | None = None
    """Instead of the pipeline's `guard`, key by key."""
    on_error: Literal["fail", "hold"] | None = None
    """If the stream cannot be stored, the run fails (`fail`), or the stream is held back (`hold`): its
    table and its bookmark stay as they are, the other streams are committed, and the exit code is 5. Default: `fail`;
    `hold` if a guard refuses the stream, as far as the STATE allows that."""
