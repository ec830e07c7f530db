"""`Lake.sql`: tables and system tables by any name that SQL has for them, in every layout and format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge import Lake
from bridge.errors import LakeError, SettingsError
from bridge.load.write.partition import Partition
from bridge.read.query.system import COLUMNS
from tests.golden.make import unpack_to
from tests.support.tables import INTEGER, STRING, Shop

ID = {"id": INTEGER}
SYSTEM = {f"bridge.{name}" for name in COLUMNS}


def test_names_however_they_are_quoted(tmp_path: Path) -> None:
    """Quoted as BI tools do, with blanks around the dot, in capitals, with quotes inside, and as a query's text."""
    shop = Shop(tmp_path)
    shop.load('my"s', ID, [{"id": 1}])
    shop.load("orders", ID, [{"id": 2}])
    lake = Lake(shop.root)
    for name in (
        '"bridge"."streams"',
        "bridge . streams",
        "BRIDGE.Streams",
        'memory."bridge".streams',
        '"bridge.streams"',
    ):
        assert lake.sql(f"SELECT count(*) AS n FROM {name}").to_pylist() == [{"n": 2}], name
    for name in ('"my""s"', 'shop."my""s"', '"SHOP" . "MY""S"'):
        assert lake.sql(f"SELECT id FROM {name}").to_pylist() == [{"id": 1}], name
    for query in (
        "TABLE orders",
        "SELECT * FROM query('SELECT id FROM shop.orders')",
        "FROM (PIVOT orders ON id IN (2) USING count(*))",
    ):
        assert lake.sql(query).num_rows == 1, query


def test_lists_have_every_table(tmp_path: Path) -> None:
    """What a BI tool lists: tables, views and system tables, whichever the statement names beside them."""
    shop = Shop(tmp_path)
    shop.load("orders", ID, [{"id": 1}])
    shop.load("users", {**ID, "name": STRING}, [{"id": 2, "name": "x"}])
    lake = Lake(shop.root)
    for query in ("SHOW TABLES", "SELECT name FROM (SHOW TABLES), orders"):
        assert {row["name"] for row in lake.sql(query).to_pylist()} == {"orders", "users"} | SYSTEM
    listed = lake.sql(
        "SELECT table_schema || '.' || table_name AS name FROM information_schema.tables, orders "
        "WHERE table_schema != 'main'"
    )
    assert {row["name"] for row in listed.to_pylist()} == {"shop.orders", "shop.users"} | SYSTEM
    columns = "SELECT column_name FROM information_schema.columns WHERE table_schema = '{}' AND table_name = '{}'"
    assert lake.sql(columns.format("shop", "users"))["column_name"].to_pylist() == ["id", "name"]
    assert lake.sql(columns.format("bridge", "runs"))["column_name"].to_pylist() == COLUMNS["runs"].names
    assert lake.sql("DESCRIBE bridge.files")["column_name"].to_pylist() == COLUMNS["files"].names


def test_lists_of_several_pipelines(tmp_path: Path) -> None:
    """Each table is listed once by the name that is typed."""
    names = Lake(unpack_to("parquet", tmp_path)).sql("SHOW TABLES")["name"].to_pylist()
    assert sorted(names) == sorted({"p.full", "p.orders", "p.people", "par.a", "par.b"} | SYSTEM)


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    """The error names those that are, and a file is none of them."""
    shop = Shop(tmp_path)
    shop.load("orders", ID, [{"id": 1}])
    with pytest.raises(SettingsError, match=r'Did you mean "(shop\.)?orders"'):
        Lake(shop.root).sql("SELECT * FROM ordrs")
    with pytest.raises(SettingsError, match="disabled"):
        Lake(shop.root).sql("SELECT * FROM read_csv('/etc/hosts')")


def test_a_system_table_that_cannot_be_read(tmp_path: Path) -> None:
    """Its rows are read when the statement runs: the error is the lake's, and other tables can still be asked."""
    shop = Shop(tmp_path)
    shop.load("orders", ID, [{"id": 1}])
    lake = Lake(shop.root)
    (schema,) = shop.root.glob(".bridge/shop/schemas/*.json")
    schema.rename(tmp_path / "away")
    with pytest.raises(LakeError, match="a table's schema is unreadable"):
        lake.sql("SELECT * FROM bridge.streams")
    assert lake.sql("SELECT count(*) AS n FROM bridge.files").to_pylist() == [{"n": 1}]


DAYS = [{"id": 1, "day": "a"}, {"id": 2, "day": "b"}, {"id": 3, "day": "b"}, {"id": 4, "day": None}]


@pytest.mark.parametrize("layout", [{"partition_by": (Partition("day"),)}, {"format": "delta"}, {"format": "iceberg"}])
def test_every_kind_of_table(layout: dict[str, Any], tmp_path: Path) -> None:
    """Partitioned, Delta and Iceberg tables: the rows of a commit, with columns that came later, and nothing else."""
    shop = Shop(tmp_path, **layout)
    shop.load("orders", {"id": INTEGER, "day": STRING}, DAYS)
    shop.load("orders", {"id": INTEGER, "day": STRING, "note": STRING}, [{"id": 5, "day": "b", "note": "new"}])
    shop.load("replaced", {"id": INTEGER, "day": STRING}, [{"id": 1}])
    shop.load("replaced", {"id": INTEGER, "day": STRING}, [{"id": 2}], mode="overwrite")
    by_day = "SELECT day, count(*) AS n, max(note) AS note FROM orders GROUP BY day ORDER BY day"
    assert Lake(shop.root).sql(by_day).to_pylist() == [
        {"day": "a", "n": 1, "note": None},
        {"day": "b", "n": 3, "note": "new"},
        {"day": None, "n": 1, "note": None},
    ]
    assert Lake(shop.root).sql("SELECT id FROM orders WHERE day = 'b' AND id > 2 ORDER BY id").to_pylist() == [
        {"id": 3},
        {"id": 5},
    ]
    assert Lake(shop.root, at=1).sql("SELECT sum(id) AS total, count(*) AS n FROM orders").to_pylist() == [
        {"total": 10, "n": 4}
    ]
    assert [Lake(shop.root, at=n).sql("SELECT id FROM replaced").to_pylist() for n in (3, 4)] == [
        [{"id": 1}],
        [{"id": 2}],
    ]
