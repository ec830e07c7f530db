"""Delta tables: each commit of ours is one of Delta's, and whoever reads the table has the rows that our log has."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from bridge.errors import LakeError
from bridge.lake.log import Log
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.write.partition import Partition
from bridge.operate.verify.check import verify
from tests.support.delta_lake import DeltaLake
from tests.support.lake import FIRST, closed
from tests.support.tables import ODD, STRING, Shop, filled

ID = {"id": {"type": "integer"}}
Rows = list[dict[str, Any]]


def by_deltalake(folder: str) -> Rows:
    return DeltaTable(folder).to_pyarrow_table().to_pylist()


def by_polars(folder: str) -> Rows:
    return pl.scan_delta(folder).collect().to_dicts()


def by_datafusion(folder: str) -> Rows:
    return pa.table(DeltaTable(folder).scan().read_all()).to_pylist()


READERS = [by_deltalake, by_polars, *([by_datafusion] if hasattr(DeltaTable, "scan") else [])]  # deltalake before 1.5


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path, format="delta")


def load(shop: Shop, records: Rows, stream: str = "orders", **more: Any) -> dict[str, Any]:
    properties = more.pop("properties", {**ID, "name": STRING})
    return shop.load(stream, properties, records, keys=("id",) if "id" in properties else (), **more)


def folder(shop: Shop, stream: str = "orders") -> str:
    log = Log(shop.storage, "shop")
    return f"{shop.root}/{log.snapshot(log.head()).tables[stream].folder}"


def ids(shop: Shop, read: Callable[[str], Rows] = by_deltalake, stream: str = "orders") -> list[int]:
    return sorted(row["id"] for row in read(folder(shop, stream)))


def entries(shop: Shop, version: int, stream: str = "orders") -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for line in Path(f"{folder(shop, stream)}/_delta_log/{version:020d}.json").read_text().splitlines():
        for kind, facts in json.loads(line).items():
            found.setdefault(kind, []).append(facts)
    return found


@pytest.mark.parametrize("read", READERS)
def test_appends_are_read(shop: Shop, read: Callable[[str], Rows]) -> None:
    """Each commit is one version, with the app transaction that names it."""
    load(shop, [{"id": 1, "name": "a"}, {"id": 2}])
    load(shop, [{"id": 3, "name": "c"}])
    assert sorted(read(folder(shop)), key=lambda row: row["id"]) == [
        {"id": 1, "name": "a"},
        {"id": 2, "name": None},
        {"id": 3, "name": "c"},
    ]
    table = DeltaTable(folder(shop))
    assert table.version() == 1
    assert table.transaction_version("shop/orders") == 2
    assert [entries(shop, at)["commitInfo"][0]["commit"] for at in (0, 1)] == [1, 2]


def test_an_overwrite_is_one_version_and_the_past_stays(shop: Shop) -> None:
    """Readers see the old table or the new one, and time travel reads the files that the new one gave up."""
    load(shop, [{"id": 1}, {"id": 2}])
    load(shop, [{"id": 7}], mode="overwrite")
    assert ids(shop) == ids(shop, by_polars) == [7]
    before = DeltaTable(folder(shop), version=0)
    assert sorted(before.to_pyarrow_table()["id"].to_pylist()) == [1, 2]
    assert [row["id"] for row in pl.scan_delta(folder(shop), version=0).collect().to_dicts()] == [1, 2]
    removed = entries(shop, 1)["remove"]
    assert len(removed) == 1 and removed[0]["dataChange"]
    assert (Path(folder(shop)) / removed[0]["path"]).exists()


@pytest.mark.parametrize("read", READERS)
def test_every_type_and_name(tmp_path: Path, read: Callable[[str], Rows]) -> None:
    """New columns, new fields of structs and lists, odd names, no rows: each reader has all rows of all tables."""
    shop, tables = filled(tmp_path, format="delta")
    if read is by_polars:  # it does not find a local folder whose name a URI has to encode
        del tables[ODD]
    for stream, rows in tables.items():
        assert plain(read(folder(shop, stream))) == plain(rows), stream


def plain(rows: Rows) -> list[str]:
    """Rows as text, whatever the order of rows and of fields."""
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in rows)


@pytest.mark.parametrize("read", READERS)
def test_partitions_are_folders(shop: Shop, read: Callable[[str], Rows]) -> None:
    """Files lie in Hive's folders, and their columns are read from the files: an empty text stays one."""
    layout = (Partition("name"), Partition("at", "day"))
    records = [
        {"id": n, "name": name, "at": f"2024-01-0{n}T00:00:00Z"} for n, name in enumerate(["a/b", "", None, "ü %"], 1)
    ]
    properties = {**ID, "name": STRING, "at": {"type": "string", "format": "date-time"}}
    load(shop, records, properties=properties, partition_by=layout)
    found = read(folder(shop))
    assert {row["id"]: row["name"] for row in found} == {row["id"]: row["name"] for row in records}
    assert set(found[0]) == {"id", "name", "at"}
    paths = [add["path"] for add in entries(shop, 0)["add"]]
    assert any(path.startswith("name%3Da%252Fb/at_day%3D2024-01-01/") for path in paths), paths
    table = DeltaTable(folder(shop))
    assert table.to_pyarrow_table(filters=[("name", "=", "a/b")])["id"].to_pylist() == [1]
    day = pa.compute.field("at") >= pa.scalar(datetime(2024, 1, 4, tzinfo=timezone.utc))
    assert len(list(table.to_pyarrow_dataset().get_fragments(filter=day))) == 1


def test_a_table_keeps_its_rows_when_taken_back(shop: Shop) -> None:
    """A commit that lost its files is taken back in the Delta table as well."""
    load(shop, [{"id": 1}])
    shop.lose("orders", ID, [{"id": 2}])
    assert ids(shop) == [1]
    load(shop, [{"id": 3}])
    assert ids(shop) == ids(shop, by_polars) == [1, 3]


def test_the_manifest_is_the_table(shop: Shop) -> None:
    """Who cannot read Delta reads the manifest: the same files, though others are in the folder."""
    load(shop, [{"id": 1}])
    load(shop, [{"id": 2}], mode="overwrite")
    lines = (shop.root / ".bridge/tables/shop/orders.manifest").read_text().splitlines()
    assert [pq.read_table(line)["id"].to_pylist() for line in lines] == [[2]]
    assert len(list(Path(folder(shop)).glob("*.parquet"))) == 2


def test_a_schema_change_is_in_the_same_version(shop: Shop) -> None:
    """New columns and the rows that have them come in one entry; comments of people on the table stay."""
    load(shop, [{"id": 1}], properties=ID)
    DeltaTable(folder(shop)).alter.set_table_description("of the shop")
    load(shop, [{"id": 2, "name": "b"}])
    entry = entries(shop, 2)
    assert len(entry["metaData"]) == 1
    # The older file says that it has only nulls in the new column; to who follows the table that is no change.
    assert [one["dataChange"] for one in entry["add"]] == [True, False]
    table = DeltaTable(folder(shop))
    assert table.metadata().description == "of the shop"
    assert [field.name for field in table.schema().fields] == ["id", "name"]
    load(shop, [{"id": 3, "name": "c"}])
    assert "metaData" not in entries(shop, 3)


@pytest.mark.parametrize("read", READERS)
def test_a_merge_by_key_is_one_version(tmp_path: Path, read: Callable[[str], Rows]) -> None:
    """Changed rows are in new files, and the old ones are there for whoever reads the table as it was."""
    shop = Shop(tmp_path, format="delta", keys=("id",))
    load(shop, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    load(shop, [{"id": 2, "name": "B"}, {"id": 3, "name": "c"}])
    rows = [{"id": 1, "name": "a"}, {"id": 2, "name": "B"}, {"id": 3, "name": "c"}]
    assert plain(read(folder(shop))) == plain(rows)
    assert DeltaTable(folder(shop)).version() == 1
    assert plain(DeltaTable(folder(shop), version=0).to_pyarrow_table().to_pylist()) == plain(
        [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    )


def test_rows_that_are_deleted_go(tmp_path: Path) -> None:
    """What the tap says is deleted is gone from the newest version, and in the one before."""
    shop = Shop(tmp_path, format="delta", keys=("id",), hard_delete=True)
    properties = {**ID, "_sdc_deleted_at": {"type": ["null", "string"], "format": "date-time"}}
    load(shop, [{"id": 1}, {"id": 2}], properties=properties)
    load(shop, [{"id": 1, "_sdc_deleted_at": "2024-01-01T00:00:00Z"}], properties=properties)
    assert ids(shop) == ids(shop, by_polars) == [2]
    assert DeltaTable(folder(shop), version=0).to_pyarrow_table().num_rows == 2


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        ({"type": "string"}, "x", ["1", "x"]),
        ({"type": "integer", "maximum": 10**30}, 10**25, [Decimal(1), Decimal(10**25)]),
    ],
    ids=["text", "wider integer"],
)
def test_a_type_changes_in_one_version(
    shop: Shop, read: Callable[[str], Rows], kind: dict[str, Any], value: Any, found: list[Any]
) -> None:
    """The older files are written anew in the version that changes the type, so that no reader meets both."""
    load(shop, [{"id": 1, "n": 1}], properties={**ID, "n": {"type": "integer"}})
    load(shop, [{"id": 2, "n": value}], properties={**ID, "n": kind})
    assert [row["n"] for row in sorted(read(folder(shop)), key=lambda row: row["id"])] == found
    assert DeltaTable(folder(shop)).version() == 1
    assert DeltaTable(folder(shop), version=0).to_pyarrow_table()["n"].to_pylist() == [1]


PLACES = ["a b", "é日本😀", "a#b", "a?b", "a{b}`c", "a%b", "a[b];c+d&e=f^g|h<i>\"j'"]
"""Names that a URI, or delta-rs' reading of one, has in another form."""


@pytest.mark.parametrize("name", PLACES)
def test_odd_names_of_paths_streams_and_partitions(tmp_path: Path, name: str) -> None:
    """Run after run goes on, past a checkpoint as well, and `verify` finds nothing wrong."""
    shop = Shop(tmp_path / name, format="delta")
    properties = {**ID, "city": STRING}
    for number in range(12):
        load(shop, [{"id": number, "city": name}], name, properties=properties, partition_by=(Partition("city"),))
    assert Path(f"{folder(shop, name)}/_delta_log/{10:020d}.checkpoint.parquet").exists()
    uri = f"file://{quote(folder(shop, name))}"
    assert ids(shop, lambda _: by_deltalake(uri), name) == list(range(12))
    assert [one for one in verify(shop.storage, "shop").findings if one.check == "table log"] == []
    load(shop, [{"id": 99, "city": name}], name, properties=properties, mode="overwrite")
    assert ids(shop, lambda _: by_deltalake(uri), name) == [99]


@pytest.mark.parametrize("name", PLACES)
def test_tables_in_folders_that_were_named_before(tmp_path: Path, name: str) -> None:
    """A table keeps its folder, whatever a new stream's would be called today."""
    lake = DeltaLake(LocalStorage(tmp_path / "lake"))
    lake.folder = f"p/{name}"
    for number in range(3):
        lake.append(lake.open(closed(number) if number else FIRST), [number])
    table = DeltaTable(f"file://{quote(str(tmp_path / 'lake/p' / name))}")
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [0, 1, 2]


@pytest.mark.parametrize("name", ["a%20b", "a%2Fb", "a\\b"])
def test_paths_that_no_reader_of_delta_opens(tmp_path: Path, name: str) -> None:
    """Refused before a row is stored, with what to do: delta-rs decodes such a path once more than it should."""
    shop = Shop(tmp_path / name, format="delta")
    with pytest.raises(LakeError, match="cannot be opened by readers of Delta") as refused:
        load(shop, [{"id": 1}])
    assert "destination" in refused.value.hint
    assert not list(shop.root.glob("shop/**/*.parquet"))
