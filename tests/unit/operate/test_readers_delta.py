"""Statements for a Delta table: each is of its dialect, and names the store."""

from __future__ import annotations

import pytest
import sqlglot

from bridge.errors import SettingsError
from bridge.operate.readers.delta import _READERS, delta_statement
from bridge.operate.readers.table import Table
from bridge.settings.values.stores import GcsOptions, S3Options

COLUMNS = [{"name": "id", "type": "int64"}, {"name": "na'me", "type": "string"}]


@pytest.mark.parametrize("dialect", [d for d in _READERS if d not in ("polars", "pyarrow")])
@pytest.mark.parametrize("view", [False, True])
def test_statements_are_of_their_dialect(dialect: str, view: bool) -> None:
    """A parser of each dialect takes what is printed, with quotes in names and paths."""
    table = Table("shop/orders", COLUMNS, "s3://la'ke", "s3://lake", S3Options(endpoint_url="http://minio:9000"))
    if view and not _READERS[dialect].view:
        with pytest.raises(SettingsError, match="no --view here"):
            delta_statement(table, dialect, view=True)
        return
    text = delta_statement(table, dialect, view=view)
    dialects = {"spark": "databricks"}
    assert sqlglot.parse(text, dialect=dialects.get(dialect, dialect))
    assert "ke/shop/orders" in text


def test_code_names_the_server() -> None:
    """A store that is not Amazon's is named, keys are the reader's own."""
    s3 = S3Options(endpoint_url="http://minio:9000", region="eu-central-1")
    text = delta_statement(Table("shop/orders", COLUMNS, "s3://lake", "s3://lake", s3), "polars")
    assert '"aws_endpoint_url": "http://minio:9000"' in text
    assert "secret" not in text


@pytest.mark.parametrize(
    ("dialect", "told"),
    [
        ("duckdb", "CREATE SECRET (TYPE gcs,"),
        ("polars", 'storage_options={"google_base_url": "https://gcs.example.com"}'),
        ("pyarrow", 'storage_options={"google_base_url": "https://gcs.example.com"}'),
        ("bigquery", "uris = ['gs://lake/shop/orders']"),
        ("snowflake", "URL = 'gcs://lake/shop/orders/'"),
    ],
)
def test_on_google(dialect: str, told: str) -> None:
    """Each engine is told where the table is in its own words; only Athena has to have a copy."""
    there = Table(
        "shop/orders", COLUMNS, "gs://lake", "gs://lake", gcs=GcsOptions(endpoint_url="https://gcs.example.com")
    )
    assert told in delta_statement(there, dialect)
    assert "copy the bucket" not in delta_statement(there, dialect)
    assert "copy the bucket" in delta_statement(there, "athena")
