"""Settings that engines need to read from Google Cloud Storage. Credentials are the reader's own matter."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.operate.readers.table import Table

FILE_SYSTEM = "GcsFileSystem"
"""pyarrow's class."""


def notes(table: Table, dialect: str) -> Iterator[str]:
    """Notes on what an engine needs once to read from Google Cloud Storage."""
    if dialect == "duckdb":
        yield "first: CREATE SECRET (TYPE gcs, KEY_ID '...', SECRET '...'); with an HMAC key, as DuckDB takes no other"
    elif dialect == "spark":
        yield "needs Google's gcs-connector, which Dataproc has; on Google's machines nothing else"
        if server := table.gcs.endpoint_url:
            yield f"and spark.hadoop.fs.gs.storage.root.url={server}"
    elif dialect == "athena":
        yield "athena reads Amazon's own S3 only: copy the bucket, and give --location s3://..."


def storage_options(table: Table) -> dict[str, str]:
    """The options of Polars and delta-rs that say where the bucket is."""
    return {"google_base_url": table.gcs.endpoint_url} if table.gcs.endpoint_url else {}


def filesystem_arguments(table: Table) -> dict[str, str]:
    """The arguments of pyarrow's file system."""
    scheme, _, host = (table.gcs.endpoint_url or "").partition("://")
    return {"endpoint_override": host, "scheme": scheme} if host else {}


def catalog_properties(table: Table) -> dict[str, str]:
    """The properties of pyiceberg."""
    return {"gcs.service.host": table.gcs.endpoint_url} if table.gcs.endpoint_url else {}
