"""Iceberg tables: each commit of ours is one snapshot, and whoever reads the table has the rows that our log has."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import sqlalchemy
from pyiceberg.table import Table

from bridge.errors import DataError, SettingsError
from bridge.lake.commit.committer import Committer
from bridge.lake.formats.iceberg.catalog import sqlite_uri
from bridge.lake.formats.iceberg.table import IcebergLog
from bridge.lake.log import Log
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.write.partition import Partition
from tests.support.iceberg_lake import IcebergLake, catalog_of, polars_scan
from tests.support.lake import FIRST, closed
from tests.support.pipe import Pipe, wire
from tests.support.tables import ODD, STRING, Shop, filled

NO_QUESTION_MARK = pytest.mark.skipif(sqlalchemy.__version__ < "2.1", reason="2.0 ends a path at ?: the run is refused")
ID = {"id": {"type": "integer"}}
Rows = list[dict[str, Any]]


def by_pyiceberg(table: Table) -> Rows:
    rows: Rows = table.scan().to_arrow().to_pylist()
    return rows


def by_polars(table: Table) -> Rows:
    return polars_scan(table, reader_override="native").collect().to_dicts()


READERS = [by_pyiceberg, by_polars]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # else Polars warns that it would like another package


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path, format="iceberg")


def load(shop: Shop, records: Rows, stream: str = "orders", **more: Any) -> dict[str, Any]:
    properties = more.pop("properties", {**ID, "name": STRING})
    return shop.load(stream, properties, records, keys=("id",) if "id" in properties else (), **more)


def table(shop: Shop, stream: str = "orders") -> Table:
    log = Log(shop.storage, "shop")
    name = log.snapshot(log.head()).tables[stream].folder.rpartition("/")[2]
    with catalog_of(shop.storage) as catalog:
        return catalog.load_table(("shop", name))


def at(shop: Shop, number: int) -> Rows:
    """The rows at a snapshot, counted from 0."""
    found = table(shop)
    rows: Rows = found.scan(snapshot_id=found.history()[number].snapshot_id).to_arrow().to_pylist()
    return rows


def plain(rows: Rows) -> list[str]:
    """Rows as text, whatever the order of rows and of fields."""
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in rows)


def test_appends_are_read(shop: Shop) -> None:
    """Each commit is one snapshot, which says of which commit it is."""
    load(shop, [{"id": 1, "name": "a"}, {"id": 2}])
    load(shop, [{"id": 3, "name": "c"}])
    rows = [{"id": 1, "name": "a"}, {"id": 2, "name": None}, {"id": 3, "name": "c"}]
    for read in READERS:
        assert plain(read(table(shop))) == plain(rows)
    found = table(shop)
    assert [one.summary["singer-bridge.commit"] for one in found.snapshots() if one.summary] == ["1", "2"]
    assert [str(one.summary.operation) for one in found.snapshots() if one.summary] == ["Operation.APPEND"] * 2
    assert found.metadata.properties["singer-bridge.app"] == "shop/orders"
    assert found.inspect.files().num_rows == 2


def test_an_overwrite_is_one_snapshot_and_the_past_stays(shop: Shop) -> None:
    """Readers see the old table or the new one, and time travel reads the files that the new one gave up."""
    load(shop, [{"id": 1}, {"id": 2}])
    load(shop, [{"id": 7}], mode="overwrite")
    for read in READERS:
        assert [row["id"] for row in read(table(shop))] == [7]
    assert [row["id"] for row in at(shop, 0)] == [1, 2]
    first = table(shop).history()[0].snapshot_id
    assert polars_scan(table(shop), first).collect()["id"].to_list() == [1, 2]
    lines = (shop.root / ".bridge/tables/shop/orders.manifest").read_text().splitlines()
    assert [pq.read_table(line)["id"].to_pylist() for line in lines] == [[7]]


@pytest.mark.parametrize("read", READERS)
def test_every_type_and_name(tmp_path: Path, read: Callable[[Table], Rows]) -> None:
    """New columns, new fields of structs and lists, odd names, no rows: each reader has all rows of all tables."""
    shop, tables = filled(tmp_path, format="iceberg")
    if read is by_polars:
        del tables[ODD]
    for stream, rows in tables.items():
        assert plain(read(table(shop, stream))) == plain(rows), stream


def test_partitions_are_folders(shop: Shop) -> None:
    """Files lie in Hive's folders, which are Iceberg's partitions; a reader leaves out those in which nothing fits."""
    layout = (Partition("name"),)
    records = [{"id": n, "name": name} for n, name in enumerate(["a/b", "", None, "ü %"], 1)]
    load(shop, records, partition_by=layout)
    found = table(shop)
    assert {row["id"]: row["name"] for row in by_pyiceberg(found)} == {row["id"]: row["name"] for row in records}
    assert {row["id"]: row["name"] for row in by_polars(found)} == {row["id"]: row["name"] for row in records}
    assert len(list(found.scan("name = 'a/b'").plan_files())) == 1
    assert found.scan("name = 'a/b'").to_arrow()["id"].to_pylist() == [1]
    assert [str(one.transform) for one in found.spec().fields] == ["identity"]


def test_a_table_keeps_its_rows_when_taken_back(shop: Shop) -> None:
    """A commit that lost its files is taken back in the Iceberg table as well."""
    load(shop, [{"id": 1}])
    shop.lose("orders", ID, [{"id": 2}])
    assert [row["id"] for row in by_pyiceberg(table(shop))] == [1]
    load(shop, [{"id": 3}])
    for read in READERS:
        assert sorted(row["id"] for row in read(table(shop))) == [1, 3]


def test_a_schema_change_is_in_the_same_snapshot(shop: Shop) -> None:
    """New columns and the rows that have them come together; properties and comments of people stay."""
    load(shop, [{"id": 1}], properties=ID)
    with catalog_of(shop.storage) as catalog:
        mine = catalog.load_table(("shop", "orders"))
        with mine.transaction() as change:
            change.set_properties(owner="me")
            with change.update_schema() as schema:
                schema.update_column("id", doc="a number")
    load(shop, [{"id": 2, "name": "b"}])
    found = table(shop)
    assert len(found.history()) == 2
    assert found.metadata.properties["owner"] == "me"
    assert [(field.field_id, field.name, field.doc) for field in found.schema().fields] == [
        (1, "id", "a number"),
        (2, "name", None),
    ]
    assert plain(at(shop, 0)) == plain([{"id": 1}])
    load(shop, [{"id": 3, "name": "c"}])
    assert table(shop).metadata.current_schema_id == found.metadata.current_schema_id


def test_a_merge_by_key_is_one_snapshot(tmp_path: Path) -> None:
    """Changed rows are in new files, and the old ones are there for whoever reads the table as it was."""
    shop = Shop(tmp_path, format="iceberg", keys=("id",))
    load(shop, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    load(shop, [{"id": 2, "name": "B"}, {"id": 3, "name": "c"}])
    for read in READERS:
        assert [row["name"] for row in sorted(read(table(shop)), key=lambda row: row["id"])] == ["a", "B", "c"]
    assert len(table(shop).history()) == 2
    assert plain(at(shop, 0)) == plain([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])


def test_rows_that_are_deleted_go(tmp_path: Path) -> None:
    """What the tap says is deleted is gone from the newest snapshot, and in the one before."""
    shop = Shop(tmp_path, format="iceberg", keys=("id",), hard_delete=True)
    properties = {**ID, "_sdc_deleted_at": {"type": ["null", "string"], "format": "date-time"}}
    load(shop, [{"id": 1}, {"id": 2}], properties=properties)
    load(shop, [{"id": 1, "_sdc_deleted_at": "2024-01-01T00:00:00Z"}], properties=properties)
    assert [row["id"] for row in by_pyiceberg(table(shop))] == [2]
    assert [row["id"] for row in at(shop, 0)] == [1, 2]


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        ({"type": "string"}, "x", ["1", "x"]),
        ({"type": "integer", "maximum": 10**30}, 10**25, [Decimal(1), Decimal(10**25)]),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": 2}, None),
    ],
    ids=["text", "wider integer", "struct"],
)
def test_a_type_changes_in_one_snapshot(shop: Shop, kind: dict[str, Any], value: Any, found: list[Any] | None) -> None:
    """The older files are written anew in the snapshot that changes the type, and the column is another one.

    Whoever would look it up in the files of before by its name would not find it: those snapshots are given up.
    """
    load(shop, [{"id": 1, "n": 1}], properties={**ID, "n": {"type": "integer"}})
    load(shop, [{"id": 2, "n": value}], properties={**ID, "n": kind})
    for read in READERS:
        rows = [row["n"] for row in sorted(read(table(shop)), key=lambda row: row["id"])]
        assert rows == found if found else len(rows) == 2
    now = table(shop)
    assert now.schema().find_field("n").field_id == 3
    assert [one.snapshot_id for one in now.snapshots()] == [now.metadata.current_snapshot_id]
    load(shop, [{"id": 3, "n": value}], properties={**ID, "n": kind})
    assert len(table(shop).snapshots()) == 2
    assert len(at(shop, 1)) == 3


def test_a_decimal_that_gets_digits_is_the_same_column(shop: Shop) -> None:
    """What Iceberg can promote keeps its number, and with it the past."""

    def digits(n: int) -> dict[str, Any]:
        return {**ID, "d": {"type": ["null", "string"], "format": "singer.decimal", "precision": n, "scale": 2}}

    load(shop, [{"id": 1, "d": "1.25"}], properties=digits(10))
    load(shop, [{"id": 2, "d": "123456789012.25"}], properties=digits(20))
    now = table(shop)
    assert now.schema().find_field("d").field_id == 2
    assert [row["d"] for row in at(shop, 0)] == [Decimal("1.25")]
    for read in READERS:
        assert sorted(row["d"] for row in read(now)) == [Decimal("1.25"), Decimal("123456789012.25")]


def test_a_column_that_leaves_can_be_read_in_the_past(shop: Shop) -> None:
    """An overwrite may drop a column; the snapshots that have it are read as before."""
    load(shop, [{"id": 1, "name": "a"}])
    load(shop, [{"id": 2}], properties=ID, mode="overwrite")
    assert [field.name for field in table(shop).schema().fields] == ["id"]
    assert at(shop, 0) == [{"id": 1, "name": "a"}]


def test_columns_that_iceberg_cannot_have(shop: Shop) -> None:
    """Two columns that Iceberg calls the same are refused before anything is on record."""
    properties = {**ID, "a.b": STRING, "a": {"type": ["null", "object"], "properties": {"b": STRING}}}
    with pytest.raises(DataError, match="Iceberg has no such columns"):
        load(shop, [{"id": 1}], properties=properties)
    assert Log(shop.storage, "shop").head() == 0


def test_whole_loads(tmp_path: Path) -> None:
    """What a tap says comes, by each load method, to one snapshot a run, with the type that changed within it."""
    pipe = Pipe(tmp_path)

    def run(*records: dict[str, Any], kind: str = "integer", **more: Any) -> Any:
        said: list[dict[str, Any]] = []
        for stream in ("a", "u", "o"):
            columns = {"id": {"type": "integer"}, "n": {"type": ["null", kind]}}
            said.append(
                {"type": "SCHEMA", "stream": stream, "schema": {"properties": columns}, "key_properties": ["id"]}
            )
            said += [{"type": "RECORD", "stream": stream, "record": record} for record in records]
        methods = {
            stream: {"load_method": m} for stream, m in {"a": "append-only", "u": "upsert", "o": "overwrite"}.items()
        }
        return pipe.load(wire(*said, {"type": "STATE", "value": {"n": len(records)}}), streams=methods, **more)

    run({"id": 1, "n": 1}, {"id": 2, "n": 2}, format="iceberg")
    done = run({"id": 2, "n": "x"}, {"id": 3, "n": "y"}, kind="string", format="iceberg")
    assert done.error is None
    wanted = {
        "a": [(1, "1"), (2, "2"), (2, "x"), (3, "y")],
        "u": [(1, "1"), (2, "x"), (3, "y")],
        "o": [(2, "x"), (3, "y")],
    }
    with catalog_of(LocalStorage(pipe.lake)) as catalog:
        for stream, rows in wanted.items():
            found = catalog.load_table(("p", stream))
            assert sorted((row["id"], row["n"]) for row in by_pyiceberg(found)) == rows
            assert found.metadata.properties["singer-bridge.commit"] == str(done.view.n)
    refused = run({"id": 4}, format="parquet").error
    assert isinstance(refused, SettingsError)
    assert refused.message.startswith("a table keeps its format")


@pytest.mark.parametrize("name", ["a#b", pytest.param("a?b", marks=NO_QUESTION_MARK), "a b%é;c{d}"])
def test_odd_names_of_paths_and_streams(tmp_path: Path, name: str) -> None:
    """What a URI would read otherwise is read by pyiceberg as it is, run after run."""
    shop = Shop(tmp_path / name, format="iceberg")
    for number in range(3):
        load(shop, [{"id": number}], name)
    entry = Log(shop.storage, "shop").snapshot(3).tables[name]
    with catalog_of(shop.storage, sqlite_uri(shop.storage)) as catalog:
        found = by_pyiceberg(catalog.load_table(("shop", entry.folder.rpartition("/")[2])))
    assert sorted(row["id"] for row in found) == [0, 1, 2]


def test_a_table_whose_files_had_uris_that_pyiceberg_misreads(tmp_path: Path) -> None:
    """It was begun by an older version, and goes on as it is."""
    lake = IcebergLake(LocalStorage(tmp_path / "a#b"))
    committer = lake.open(FIRST)
    begun = log_of(committer)
    begun.root = f"file://{begun.root}"
    lake.append(committer, [1])
    lake.append(lake.open(closed(1)), [2])
    there = log_of(lake.open(closed(2))).look()
    assert there.table is not None and there.table.metadata.location == f"file://{tmp_path}/a#b/p/s"
    assert (there.commit, len(there.files)) == (2, 2)


def log_of(committer: Committer) -> IcebergLog:
    own = committer.table_logs.of("p/s", "s", "iceberg")
    assert isinstance(own, IcebergLog)
    return own
