"""What `tables ...` says of a Delta table: the code that it prints reads the table, and nothing that it gave up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlglot

from bridge.errors import SettingsError
from bridge.operate.readers.delta import _READERS, delta_statement
from bridge.operate.readers.table import Table
from bridge.settings.values.stores import GcsOptions, S3Options
from tests.support.tables import STRING, Shop, typing

PROPERTIES = {"id": {"type": "integer"}, "name": STRING}
COLUMNS = [{"name": "id", "type": "int64"}, {"name": "na'me", "type": "string"}]


@pytest.fixture
def tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    shop = Shop(tmp_path, format="delta")
    shop.load("orders", PROPERTIES, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}], keys=("id",))
    shop.load("orders", PROPERTIES, [{"id": 7, "name": "c"}], keys=("id",), mode="overwrite")

    return typing(tmp_path, capsys)


def test_verbs_know_the_table(tables: Any) -> None:
    """List, show, head and history are about the rows that count."""
    (listed,) = json.loads(tables("list", "--json"))
    assert (listed["format"], listed["rows"], listed["files"]) == ("delta", 1, 1)
    assert json.loads(tables("show", "--json"))["format"] == "delta"
    assert json.loads(tables("head", "--json")) == {"id": 7, "name": "c"}
    assert "first schema" in tables("history")


@pytest.mark.parametrize("dialect", ["polars", "pyarrow"])
def test_the_code_reads_the_table(tables: Any, dialect: str) -> None:
    """What is printed runs as it stands, by Delta's log and by the manifest."""
    for flags in ((), ("--manifest",)):
        names: dict[str, Any] = {}
        exec(compile(tables("ddl", "--dialect", dialect, *flags), "code", "exec"), names)
        found = names["orders"]
        rows = found.collect().to_dicts() if dialect == "polars" else found.to_table().to_pylist()
        assert rows == [{"id": 7, "name": "c"}]


def test_duckdb_by_the_manifest(tables: Any) -> None:
    """DuckDB without its extension reads the manifest; the folder would give it rows that were removed."""
    import duckdb

    with duckdb.connect() as connection:
        assert connection.execute(tables("ddl", "--dialect", "duckdb", "--manifest")).fetchall() == [(7, "c")]
    assert "delta_scan('file:///" in tables("ddl", "--dialect", "duckdb")


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
