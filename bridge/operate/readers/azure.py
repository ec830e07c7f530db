"""How engines name a container of Azure, and what they need to read there. Keys are the reader's own matter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import urlsplit

from bridge.operate.readers.table import Table, inside
from bridge.settings.values.stores import AzureOptions

FILE_SYSTEM = "AzureFileSystem"
"""pyarrow's class."""
_HADOOP = ("spark", "trino")


def as_engine_names(table: Table, dialect: str) -> Table:
    """The table with its bucket as an engine knows it: Hadoop's know `abfss://` only, DuckDB takes `az://`."""
    scheme = table.bucket.partition("://")[0]
    if scheme == "az" and dialect in _HADOOP and table.azure.account:
        container, _, path = inside(table.bucket).partition("/")
        return replace(table, bucket=f"abfss://{container}@{_host(table.azure)}/{path}".rstrip("/"))
    if scheme == "abfss" and dialect == "duckdb":
        return replace(table, bucket=f"az://{inside(table.bucket)}".rstrip("/"))
    return table


def _host(azure: AzureOptions) -> str:
    named = urlsplit(azure.endpoint_url or "").hostname or ""
    return named.replace(".blob.", ".dfs.", 1) if ".blob." in named else f"{azure.account}.dfs.core.windows.net"


def notes(table: Table, dialect: str) -> Iterator[str]:
    """Notes on what an engine needs once to read from Azure."""
    account, server = table.azure.account or "...", table.azure.endpoint_url
    if dialect == "duckdb":
        yield f"first: {_duckdb_secret(table)};"
    elif dialect == "spark":
        yield f"needs hadoop-azure, and spark.hadoop.fs.azure.account.key.{_host(table.azure)}=..., or an identity"
    elif dialect == "snowflake":
        host = urlsplit(server).netloc if server else f"{account}.blob.core.windows.net"
        yield f"write azure://{host}/ and the container for {table.bucket.partition('://')[0]}:// into the stage"
    elif dialect == "athena":
        yield "athena reads Amazon's S3 only: copy the bucket, and give --location s3://..."
    elif dialect == "bigquery":
        yield "bigquery reads Azure by a connection of BigQuery Omni only; else copy the bucket, and give --location gs://..."


def _duckdb_secret(table: Table) -> str:
    """The statement that lets DuckDB read the account: by a login, or on another server by its connection string."""
    account, server = table.azure.account or "...", table.azure.endpoint_url
    if server:
        protocol = f"DefaultEndpointsProtocol={server.partition('://')[0]}"
        connection = f"{protocol};AccountName={account};AccountKey=...;BlobEndpoint={server}"
        return f"CREATE SECRET (TYPE azure, CONNECTION_STRING '{connection}')"
    return f"CREATE SECRET (TYPE azure, PROVIDER credential_chain, ACCOUNT_NAME '{account}')"


def storage_options(table: Table) -> dict[str, str]:
    """The options of Polars and delta-rs that say where the container is."""
    account, server = table.azure.account, table.azure.endpoint_url
    options = {"azure_storage_account_name": account, "azure_storage_endpoint": server}
    if server and server.startswith("http:"):
        options["azure_allow_http"] = "true"
    return {key: value for key, value in options.items() if value}


def filesystem_arguments(table: Table) -> dict[str, str]:
    """The arguments of pyarrow's `AzureFileSystem`."""
    arguments = {"account_name": table.azure.account or "..."}
    if server := table.azure.endpoint_url:
        scheme, host = server.partition("://")[0], urlsplit(server).netloc
        arguments |= {"blob_storage_authority": host, "blob_storage_scheme": scheme}
        arguments |= {"dfs_storage_authority": host, "dfs_storage_scheme": scheme}
    return arguments


def catalog_properties(table: Table) -> dict[str, str]:
    """The properties of pyiceberg."""
    return {"adls.account-name": table.azure.account} if table.azure.account else {}
