"""What `tables ...` says of a Delta or Iceberg table: the printed code reads the table, and nothing that it gave up."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.support.iceberg_lake import POLARS_READS
from tests.support.tables import STRING, Shop, typing

PROPERTIES = {"id": {"type": "integer"}, "name": STRING}
Tables = Callable[..., str]


NEW_POLARS = pytest.mark.skipif(not POLARS_READS, reason="Iceberg needs Polars 2.1, so Python 3.11")


@pytest.fixture(params=["delta", "iceberg"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def tables(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Tables:
    shop = Shop(tmp_path, format=form)
    shop.load("orders", PROPERTIES, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}], keys=("id",))
    shop.load("orders", PROPERTIES, [{"id": 7, "name": "c"}], keys=("id",), mode="overwrite")
    return typing(tmp_path, capsys)


def test_verbs_know_the_table(form: str, tables: Tables) -> None:
    """List, show, head and history are about the rows that count."""
    (listed,) = json.loads(tables("list", "--json"))
    assert (listed["format"], listed["rows"], listed["files"]) == (form, 1, 1)
    assert json.loads(tables("show", "--json"))["format"] == form
    assert json.loads(tables("head", "--json")) == {"id": 7, "name": "c"}
    assert "first schema" in tables("history")


@pytest.mark.parametrize(
    ("form", "dialect", "flags"),
    [
        ("delta", "polars", []),
        ("delta", "polars", ["--manifest"]),
        ("delta", "pyarrow", []),
        ("delta", "pyarrow", ["--manifest"]),
        pytest.param("iceberg", "polars", [], marks=NEW_POLARS),
        ("iceberg", "pyarrow", []),
    ],
    indirect=["form"],
)
def test_the_code_reads_the_table(
    tables: Tables, dialect: str, flags: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is printed runs as it stands, by the format's own log and by the manifest."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    names: dict[str, Any] = {}
    exec(compile(tables("ddl", "--dialect", dialect, *flags), "code", "exec"), names)
    found = names["orders"]
    if dialect == "polars":
        assert found.collect().to_dicts() == [{"id": 7, "name": "c"}]
    else:
        rows = found.to_table() if hasattr(found, "to_table") else found
        assert rows.to_pylist() == [{"id": 7, "name": "c"}]


def test_duckdb_by_the_manifest(form: str, tables: Tables) -> None:
    """DuckDB reads the manifest without an extension or a catalog; the folder would give it rows that were removed."""
    with duckdb.connect() as connection:
        assert connection.execute(tables("ddl", "--dialect", "duckdb", "--manifest")).fetchall() == [(7, "c")]
    if form == "delta":
        assert "delta_scan('file:///" in tables("ddl", "--dialect", "duckdb")
    else:
        assert "--manifest" in tables("ddl", "--dialect", "duckdb", code=2)
        assert "itself" in tables("ddl", "--dialect", "polars", "--location", "s3://elsewhere", code=2)
