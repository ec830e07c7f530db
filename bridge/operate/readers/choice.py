"""Which statement reads a table in an engine: by its table format, its bucket and its server."""

from __future__ import annotations

import os
from dataclasses import replace

from bridge.errors import SettingsError
from bridge.lake.formats.iceberg.catalog import read_catalog
from bridge.lake.log import Log
from bridge.lake.records import TableState
from bridge.lake.storage import Storage
from bridge.lake.storage.objects import ObjectStorage
from bridge.lake.table_columns import visible_columns
from bridge.operate.readers.azure import as_engine_names
from bridge.operate.readers.current import with_current
from bridge.operate.readers.ddl import statement
from bridge.operate.readers.delta import delta_statement
from bridge.operate.readers.iceberg import iceberg_statement
from bridge.operate.readers.table import Table
from bridge.settings.values.stores import AzureOptions, GcsOptions, S3Options, StoreOptions, section_of_bucket


def reading_statement(
    log: Log,
    stream: str,
    live: TableState,
    dialect: str,
    server: StoreOptions | None,
    view: bool = False,
    manifest: bool = False,
    location: str | None = None,
) -> str:
    """The text by which an engine reads a table. `location`: the bucket as that engine sees it.

    Raises `SettingsError` for a table that a rollback took back, and where the engine has no such thing.
    """
    table = table_of(log, stream, live, dialect, server, location)
    # The folder of a Delta or Iceberg table also holds files that are no longer part of the table.
    if live.format == "delta" and not manifest:
        return with_current(table, dialect, delta_statement(table, dialect, view=view))
    if live.format == "iceberg" and not manifest:
        if location:
            raise SettingsError("--location is of no use here", hint="an Iceberg table says itself where its files are")
        text = iceberg_statement(table, read_catalog(log.storage, log.pipeline), dialect, view=view)
        return with_current(table, dialect, text)
    return with_current(table, dialect, statement(table, dialect, view=view, manifest=manifest))


def table_of(
    log: Log, stream: str, live: TableState, dialect: str, server: StoreOptions | None, location: str | None = None
) -> Table:
    """The table as an engine sees it. Raises `SettingsError` for one that a rollback took back."""
    if not live.schema:
        raise SettingsError("the table was taken back", hint="run the pipeline again", stream=stream)
    storage = log.storage
    table = Table(
        live.folder,
        visible_columns(storage, log.pipeline, live),
        (location or storage.uri).rstrip("/"),
        storage.uri,
        partitioned=bool(live.partition_by),
        s3=_s3_server(storage.uri, server),
        azure=_account(storage),
        gcs=server if isinstance(server, GcsOptions) else GcsOptions(),
    )
    return as_engine_names(table, dialect)


def _account(storage: Storage) -> AzureOptions:
    """The storage account of a lake on Azure, and its endpoint if that is not the usual one."""
    if section_of_bucket(storage.uri) != "azure" or not isinstance(storage, ObjectStorage):
        return AzureOptions()
    from bridge.lake.storage.azure.store import AzureStore  # Azure's library takes a while to load

    assert isinstance(storage.store, AzureStore)
    access = storage.store.clients.access
    usual = access.endpoint == f"https://{access.account}.blob.core.windows.net"
    return AzureOptions(access.account, None if usual else access.endpoint)


def _s3_server(bucket: str, options: StoreOptions | None) -> S3Options:
    """Where the S3 server is: in the settings, else in the environment, which some engines do not read."""
    options = options if isinstance(options, S3Options) else S3Options()
    if options.endpoint_url or not bucket.startswith("s3://"):
        return options
    server = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return replace(options, endpoint_url=server or None)
