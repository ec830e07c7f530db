"""Statements for an Iceberg table name it in its catalog, where an engine has one."""

from __future__ import annotations

import pytest
import sqlglot

from bridge.errors import SettingsError
from bridge.lake.formats.iceberg.catalog import CatalogFacts
from bridge.operate.readers.iceberg import iceberg_statement
from bridge.operate.readers.table import Table
from bridge.settings.values.stores import S3Options

COLUMNS = [{"name": "id", "type": "int64"}]
REST = CatalogFacts("lake", "raw.shop", {"type": "rest", "uri": "https://catalog.example.com"})


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
