"""Settings that engines need to read from S3, and its server if it is not Amazon's. Keys are the reader's matter."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from bridge.operate.readers.table import Table

FILE_SYSTEM = "S3FileSystem"
"""pyarrow's class."""


def notes(table: Table, dialect: str) -> Iterator[str]:
    """Notes on what an engine needs once to read from S3."""
    server, region = table.s3.endpoint_url, table.s3.region
    host = urlsplit(server).netloc if server else ""
    if dialect == "duckdb":
        options = ["TYPE s3", "PROVIDER credential_chain", *([f"REGION '{region}'"] if region else [])]
        options += [f"ENDPOINT '{host}'", "URL_STYLE 'path'"] if host else []
        options += ["USE_SSL false"] if server and server.startswith("http:") else []
        yield f"first: CREATE SECRET ({', '.join(options)});"
    elif dialect == "spark":
        yield "needs hadoop-aws and, except on EMR, spark.hadoop.fs.s3.impl=org.apache.hadoop.fs.s3a.S3AFileSystem"
        if server:
            yield f"and spark.hadoop.fs.s3a.endpoint={server}, spark.hadoop.fs.s3a.path.style.access=true"
    elif dialect == "athena" and host:
        yield f"athena reads Amazon's own S3 only, not {host}"
    elif dialect == "snowflake" and host:
        yield f"write s3compat:// for s3://, and ENDPOINT = '{host}' into the stage"
    elif dialect == "bigquery":
        yield "bigquery reads S3 by a connection of BigQuery Omni only; else copy the bucket, and give --location gs://..."


def storage_options(table: Table) -> dict[str, str]:
    """The options of Polars and delta-rs that say where the bucket is."""
    server = table.s3.endpoint_url
    options = {"aws_endpoint_url": server, "aws_region": table.s3.region}
    if server and server.startswith("http:"):
        options["aws_allow_http"] = "true"
    return {key: value for key, value in options.items() if value}


def filesystem_arguments(table: Table) -> dict[str, str]:
    """The arguments of pyarrow's file system."""
    arguments = {"endpoint_override": table.s3.endpoint_url, "region": table.s3.region}
    return {key: value for key, value in arguments.items() if value}


def catalog_properties(table: Table) -> dict[str, str]:
    """The properties of pyiceberg."""
    properties = {"s3.endpoint": table.s3.endpoint_url, "s3.region": table.s3.region}
    return {key: value for key, value in properties.items() if value}
