"""What `tables ...` says of an Iceberg table: the code that it prints reads the table, and nothing that it gave up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlglot

from bridge.errors import SettingsError
from bridge.lake.formats.iceberg.catalog import CatalogFacts
from bridge.operate.readers.iceberg import iceberg_statement
from bridge.operate.readers.table import Table
from bridge.settings.values.stores import S3Options
from tests.support.tables import STRING, Shop, typing

PROPERTIES = {"id": {"type": "integer"}, "name": STRING}
COLUMNS = [{"name": "id", "type": "int64"}]
REST = CatalogFacts("lake", "raw.shop", {"type": "rest", "uri": "https://catalog.example.com"})


@pytest.fixture
def tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    shop = Shop(tmp_path, format="iceberg")
    shop.load("orders", PROPERTIES, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}], keys=("id",))
    shop.load("orders", PROPERTIES, [{"id": 7, "name": "c"}], keys=("id",), mode="overwrite")
    return typing(tmp_path, capsys)


def test_the_verbs_know_the_table(tables: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """List and head are about the rows that count, and the code that is printed runs as it stands."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    (listed,) = json.loads(tables("list", "--json"))
    assert (listed["format"], listed["rows"], listed["files"]) == ("iceberg", 1, 1)
    assert json.loads(tables("head", "--json")) == {"id": 7, "name": "c"}
    for dialect in ("polars", "pyarrow"):
        names: dict[str, Any] = {}
        exec(compile(tables("ddl", "--dialect", dialect), "code", "exec"), names)
        found = names["orders"]
        rows = found.collect().to_dicts() if dialect == "polars" else found.to_pylist()
        assert rows == [{"id": 7, "name": "c"}]


def test_duckdb_by_the_manifest(tables: Any) -> None:
    """DuckDB reads no catalog in a database: the folder would give it removed rows, the manifest does not."""
    assert "--manifest" in tables("ddl", "--dialect", "duckdb", code=2)
    assert "itself" in tables("ddl", "--dialect", "polars", "--location", "s3://elsewhere", code=2)
    assert duckdb.sql(tables("ddl", "--dialect", "duckdb", "--manifest")).fetchall() == [(7, "c")]


@pytest.mark.parametrize("dialect", ["duckdb", "spark", "trino"])
def test_statements_are_those_of_the_dialect(dialect: str) -> None:
    """Each parses, and names the table in the catalog, quoted."""
    table = Table("shop/a b.c", COLUMNS, "/lake", "/lake", S3Options(), partitioned=False)
    for view in (False, True) if dialect == "spark" else (False,):
        said = iceberg_statement(table, REST, dialect, view=view)
        (parsed,) = sqlglot.parse(said, read=dialect)
        assert parsed is not None
        found = next(parsed.find_all(sqlglot.exp.Table)) if not view else list(parsed.find_all(sqlglot.exp.Table))[-1]
        assert [part.name for part in found.parts] == ["lake", "raw", "shop", "a b.c"]


@pytest.mark.parametrize("dialect", ["athena", "bigquery", "snowflake"])
def test_where_there_is_no_statement(dialect: str) -> None:
    """The error says what to do, with the name of the table."""
    table = Table("shop/orders", COLUMNS, "/lake", "/lake", S3Options(), partitioned=False)
    with pytest.raises(SettingsError, match="no statement for Iceberg") as caught:
        iceberg_statement(table, REST, dialect)
    assert "raw.shop.orders" in caught.value.hint
