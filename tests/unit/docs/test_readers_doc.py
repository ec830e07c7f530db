"""docs/readers.md is true: each engine on this machine reads each table with the statement that we print for it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest

from bridge.lake.log import Log
from bridge.lake.table_columns import read_columns
from bridge.load.write.partition import Partition
from bridge.operate.readers.ddl import statement
from bridge.operate.readers.table import Table
from tests.support.engines import table_of
from tests.support.tables import ODD, Shop, filled

Rows = list[dict[str, Any]]
STREAMS = ["orders", "Orders", "wide", ODD, "none"]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> tuple[Shop, dict[str, Rows]]:
    """A bucket whose own folder has a name that globs and quotes would read otherwise."""
    root = tmp_path_factory.mktemp("a") / "la'k {e}[1] é"
    root.mkdir()
    return filled(root)


def table(shop: Shop, stream: str) -> Table:
    log = Log(shop.storage, "shop")
    live = log.snapshot(log.head()).tables[stream]
    assert live.schema
    columns = read_columns(shop.storage, "shop", live.schema)
    return Table(live.folder, columns, shop.storage.uri, shop.storage.uri)


def names_of(asked: Table) -> list[str]:
    return [entry["name"] for entry in asked.columns]


def by_first(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: next(iter(row.values())))


def plain(value: Any) -> Any:
    """A value without what engines differ in: structs and rows are dicts, times have UTC."""
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc) if value.tzinfo else value.replace(tzinfo=timezone.utc)
    return value


def run(code: str, name: str, **names: Any) -> Any:
    exec(compile(code, "code", "exec"), names)
    return names[name]


def by_duckdb(text: str, _: Table) -> tuple[list[str], Rows]:
    with duckdb.connect() as connection:
        found = connection.execute(text)
        names = [column[0] for column in found.description]
        return names, [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def by_duckdb_view(text: str, asked: Table) -> tuple[list[str], Rows]:
    return by_duckdb(f"{text}; SELECT * FROM {asked.name}", asked)


def by_polars(text: str, asked: Table) -> tuple[list[str], Rows]:
    frame: polars.DataFrame = run(text, asked.name).collect()
    return frame.columns, frame.to_dicts()


def by_pyarrow(text: str, asked: Table) -> tuple[list[str], Rows]:
    found: pa.Table = run(text, asked.name).to_table()
    return found.column_names, found.to_pylist()


READERS: list[tuple[str, Callable[[str, Table], tuple[list[str], Rows]], dict[str, bool]]] = [
    ("duckdb", by_duckdb, {}),
    ("duckdb", by_duckdb, {"manifest": True}),
    ("duckdb", by_duckdb_view, {"view": True}),
    ("duckdb", by_duckdb_view, {"view": True, "manifest": True}),
    ("polars", by_polars, {}),
    ("polars", by_polars, {"manifest": True}),
    ("pyarrow", by_pyarrow, {}),
    ("pyarrow", by_pyarrow, {"manifest": True}),
]
IDS = [f"{dialect} {' '.join(flags)}".strip() for dialect, _, flags in READERS]


@pytest.mark.parametrize("stream", STREAMS, ids=["new column", "case twin", "nested", "odd names", "empty"])
@pytest.mark.parametrize(("dialect", "read", "flags"), READERS, ids=IDS)
def test_every_row_is_read(
    lake: tuple[Shop, dict[str, Rows]],
    dialect: str,
    read: Callable[[str, Table], tuple[list[str], Rows]],
    flags: dict[str, bool],
    stream: str,
) -> None:
    """All columns in the log's order, all rows, each value as it was sent."""
    shop, rows = lake
    asked = table(shop, stream)
    names, found = read(statement(asked, dialect, **flags), asked)
    assert names == names_of(asked)
    assert by_first(plain(found)) == by_first(rows[stream])


@pytest.mark.timeout(600)
def test_spark_reads_every_row(lake: tuple[Shop, dict[str, Rows]], spark: Any) -> None:
    """Spark reads each table as a table of its catalog, as a view, and by the manifest."""
    shop, rows = lake
    for stream in STREAMS:
        asked = table(shop, stream)
        for flags in ({}, {"view": True}, {"manifest": True}):
            text = statement(asked, "spark", **flags)
            if flags == {"manifest": True}:
                found = run(text, asked.name, spark=spark)
            else:
                spark.sql(text.rstrip().removesuffix(";"))
                found = spark.table(asked.name)
            assert found.columns == names_of(asked)
            assert by_first(plain(found.collect())) == by_first(rows[stream]), (stream, flags)
            spark.catalog.dropTempView(asked.name)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_spark_reads_a_table_by_its_manifest(tmp_path: Path, spark: Any, kind: str) -> None:
    """Without a format's jar Spark has each row once, though the folder holds files that the table has given up."""
    shop, rows = filled(tmp_path, format=kind)
    number = {"id": {"type": "integer"}}
    shop.load("orders", number, [{"id": 7}], mode="overwrite", keys=("id",))
    for stream, wanted in {**rows, "orders": [{"id": 7}]}.items():
        asked = table(shop, stream)
        found = run(statement(asked, "spark", manifest=True), asked.name, spark=spark)
        assert by_first(plain(found.collect())) == by_first(wanted), stream
    assert len(list((shop.root / "shop/orders").glob("*.parquet"))) == 3


@pytest.mark.timeout(600)
def test_spark_reads_partitions(tmp_path: Path, spark: Any) -> None:
    """As a table, as a view and by the manifest, Spark has each column of a table with partitions with its own type."""
    shop = Shop(tmp_path)
    at = {"type": ["null", "string"], "format": "date-time"}
    columns = {"_id": {"type": "integer"}, "code": {"type": ["null", "string"]}, "at": at}
    records = [{"_id": 1, "code": "01", "at": "2025-01-01T23:59:59Z"}, {"_id": 2, "code": None, "at": None}]
    by = (Partition("_id"), Partition("code"), Partition("at", "day"))
    shop.load("visits", columns, [*records, {"_id": 3, "code": "a/b=%", "at": "1969-12-31T00:00:00Z"}], partition_by=by)
    asked = table_of(shop, "visits")
    for flags in ({}, {"view": True}, {"manifest": True}):
        text = statement(asked, "spark", **flags)
        if flags == {"manifest": True}:
            found = run(text, asked.name, spark=spark)
        else:
            spark.sql(text.rstrip().removesuffix(";"))
            found = spark.table(asked.name)
        assert found.columns == ["_id", "code", "at"], flags
        rows = [(row["_id"], row["code"], row["at"] and row["at"].year) for row in found.orderBy("_id").collect()]
        assert rows == [(1, "01", 2025), (2, None, None), (3, "a/b=%", 1969)], flags
        spark.catalog.dropTempView(asked.name)
    plain_read = spark.read.parquet(f"{shop.root}/shop/visits").where("at_day = '2025-01-01'")
    assert [row["_id"] for row in plain_read.collect()] == [1]


def test_new_files_are_read(lake: tuple[Shop, dict[str, Rows]], tmp_path: Path) -> None:
    """A view that was made once shows what later commits add, by folder and by manifest."""
    shop = Shop(tmp_path)
    number = {"id": {"type": "integer"}}
    shop.load("orders", number, [{"id": 1}])
    asked = table(shop, "orders")
    with duckdb.connect() as connection:
        connection.execute(statement(asked, "duckdb", view=True))
        shop.load("orders", {**number, "note": {"type": "string"}}, [{"id": 2, "note": "n"}])
        assert connection.execute("SELECT id FROM orders ORDER BY id").fetchall() == [(1,), (2,)]
        shop.load("orders", number, [{"id": 3}], mode="overwrite")
        assert connection.execute("SELECT id FROM orders").fetchall() == [(3,)]
        connection.execute(statement(asked, "duckdb", view=True, manifest=True))
        assert connection.execute("SELECT id FROM orders").fetchall() == [(3,)]


def listed(shop: Shop, stream: str) -> list[str]:
    """The manifest's lines; its twin, alone in a folder as Hive wants it, has the same."""
    text = (shop.root / f".bridge/tables/shop/{stream}.manifest").read_text()
    twin = shop.root / f".bridge/tables/shop/{stream}.symlinks"
    assert [(file.name, file.read_text()) for file in twin.iterdir()] == [("manifest", text)]
    return text.splitlines()


def ids(shop: Shop, stream: str) -> list[int]:
    """What DuckDB and pyarrow read through the manifest, which is the same."""
    asked = table(shop, stream)
    _, rows = by_duckdb(statement(asked, "duckdb", manifest=True), asked)
    found = sorted(row["id"] for row in rows)
    _, rows = by_pyarrow(statement(asked, "pyarrow", manifest=True), asked)
    assert found == sorted(row["id"] for row in rows)
    return found


def test_the_manifest_is_the_table(tmp_path: Path) -> None:
    """After an append, an overwrite, a commit that was taken back and one of another table it lists what counts."""
    shop = Shop(tmp_path)
    number = {"id": {"type": "integer"}}
    shop.load("orders", number, [{"id": 1}])
    shop.load("orders", number, [{"id": 2}])
    shop.load("others", number, [{"id": 7}])
    assert (ids(shop, "orders"), ids(shop, "others")) == ([1, 2], [7])
    shop.load("orders", number, [{"id": 3}], mode="overwrite")
    assert ids(shop, "orders") == [3]
    shop.lose("orders", number, [{"id": 4}])
    assert ids(shop, "orders") == [3]
    shop.lose("orders", number, [{"id": 5}], mode="overwrite")
    shop.load("orders", number, [{"id": 6}])
    assert ids(shop, "orders") == [3, 6]
    assert {Path(line).name for line in listed(shop, "orders")} == {
        file.name for file in (shop.root / "shop/orders").iterdir()
    }


def test_a_table_that_was_taken_back(tmp_path: Path) -> None:
    """If the first commit of a table was taken back, its manifest is there and lists nothing."""
    shop = Shop(tmp_path)
    shop.lose("orders", {"id": {"type": "integer"}}, [{"id": 1}])
    assert listed(shop, "orders") == []
