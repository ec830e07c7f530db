"""Iceberg's partitions and sort order: what the metadata says is true of each file, and readers skip files by it."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table

from bridge.errors import LakeError
from bridge.lake.commit.rollback import roll_back
from bridge.lake.log import Log
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.maintain.compact import CompactOptions, compact
from bridge.load.write.partition import Partition
from bridge.operate.verify.check import verify
from bridge.operate.verify.mend import repair
from bridge.settings.options import Pipeline
from tests.support.alone import alone
from tests.support.iceberg_lake import catalog_of, polars_scan
from tests.support.tables import INTEGER, STRING, Shop

Rows = list[dict[str, Any]]
ID = {"id": {"type": "integer"}}
COLUMNS = {**ID, "name": STRING, "n": INTEGER}
OLD = Path("/tmp/singer-bridge-unpartitioned")
"""Where an older version made the lake of tests/data/golden/iceberg_without_partitions: its files are named by URIs."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # else Polars warns that it would like another package


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path, format="iceberg", partition_by=(Partition("name"),))


@pytest.fixture
def old() -> Iterator[Shop]:
    """The lake of an older version, which did not declare partitions.

    Both tables have the rows 1 to 4, with the names null, empty, x, x: the first two in one file. Then row 3 and row 4
    of `merged` changed by key, so that their file is not sorted as its footer says.
    """
    with alone(OLD):
        shutil.rmtree(OLD, ignore_errors=True)
        OLD.mkdir()
        with tarfile.open(Path(__file__).parents[3] / "data/golden/iceberg_without_partitions.tar.xz") as tar:
            tar.extractall(OLD, filter="data") if hasattr(tarfile, "data_filter") else tar.extractall(OLD)
        shop = Shop(OLD, format="iceberg", partition_by=(Partition("name"),), sort_by=("-n",))
        shop._head = Log(shop.storage, "shop").head()
        yield shop
        shutil.rmtree(OLD)


def load(shop: Shop, records: Rows, stream: str = "orders", **more: Any) -> None:
    shop.load(stream, more.pop("properties", COLUMNS), records, keys=("id",), **more)


def table(shop: Shop, stream: str = "orders") -> Table:
    with catalog_of(shop.storage) as catalog:
        return catalog.load_table(("shop", stream))


def row(number: int, name: str | None, n: int | None = None) -> dict[str, Any]:
    return {"id": number, "name": name, "n": n}


def rows(found: Table) -> Rows:
    """All rows by pyiceberg, which are those that Polars reads."""
    read: Rows = sorted(found.scan().to_arrow().to_pylist(), key=lambda one: one["id"])
    assert sorted(polars_scan(found).collect().to_dicts(), key=lambda one: one["id"]) == read
    return read


def plan(found: Table, filter_: str) -> tuple[list[int], bool]:
    """The ids in the files that a filter opens; and whether their partitions tell that all of their rows fit."""
    tasks = list(found.scan(filter_).plan_files())
    ids = [number for task in tasks for number in pq.ParquetFile(path(task)).read()["id"].to_pylist()]
    return sorted(ids), all(task.residual == AlwaysTrue() for task in tasks)


def path(task: Any) -> str:
    return str(task.file.file_path).removeprefix("file://")


def partitions(found: Table) -> list[tuple[int, list[Any]]]:
    """The spec and the values of each file."""
    files = [task.file for task in found.scan().plan_files()]
    return by_text((file.spec_id, [file.partition[at] for at in range(len(file.partition))]) for file in files)


def by_text(things: Iterable[Any]) -> list[Any]:
    return sorted(things, key=str)


def problems(shop: Shop) -> list[Any]:
    """What verify says of the tables. A `Shop` claims no folders."""
    return [one for one in verify(shop.storage, "shop").findings if one.check not in ("owner", "streams", "lake")]


def pipeline(shop: Shop) -> Pipeline:
    destination = {"bucket": str(shop.root), "format": "iceberg"}
    return Pipeline.model_validate({"name": "shop", "source": {"tap": "tap"}, "destination": destination})


TIME = {"type": ["null", "string"], "format": "date-time"}
DAY = {"type": ["null", "string"], "format": "date"}
MONEY = {"type": ["null", "string"], "format": "singer.decimal", "precision": 20, "scale": 2}
FLAG = {"type": ["null", "boolean"]}
KINDS: list[tuple[Partition, dict[str, Any], list[Any], list[Any], str]] = [
    (Partition("v"), STRING, ["a/b=%", "", None, "ü" * 40], ["a/b=%", "", None, "ü" * 40], "v = 'a/b=%'"),
    (Partition("v"), INTEGER, [-3, 2**53, None], [-3, 2**53, None], "v = -3"),
    (Partition("v"), FLAG, [True, False, None], [True, False, None], "v = true"),
    (
        Partition("v"),
        MONEY,
        ["-1.50", "12345678901234.25", None],
        [Decimal("-1.50"), Decimal("12345678901234.25"), None],
        "v < 0",
    ),
    (Partition("v"), DAY, ["1969-12-31", "2024-02-29", None], [-1, 19782, None], "v < '1970-01-01'"),
    (
        Partition("v"),
        TIME,
        ["1969-12-31T23:59:59.999999Z", "2024-02-29T00:00:00Z", None],
        [-1, 1709164800000000, None],
        "v < '1970-01-01T00:00:00+00:00'",
    ),
    (
        Partition("v", "year"),
        TIME,
        ["1969-12-31T23:59:59Z", "2024-02-29T00:00:00Z", None],
        [-1, 54, None],
        "v < '1970-01-01T00:00:00+00:00'",
    ),
    (
        Partition("v", "month"),
        TIME,
        ["1969-12-31T23:59:59Z", "2024-02-29T00:00:00Z", None],
        [-1, 649, None],
        "v < '1970-01-01T00:00:00+00:00'",
    ),
    (Partition("v", "month"), DAY, ["1969-12-31", "2024-02-29", None], [-1, 649, None], "v < '1970-01-01'"),
    (
        Partition("v", "day"),
        TIME,
        ["1969-12-31T00:00:00Z", "2024-02-29T23:00:00Z", None],
        [-1, 19782, None],
        "v < '1970-01-01T00:00:00+00:00'",
    ),
    (
        Partition("v", "hour"),
        TIME,
        ["1969-12-31T23:00:00Z", "2024-02-29T23:59:59Z", None],
        [-1, 474791, None],
        "v < '1970-01-01T00:00:00+00:00'",
    ),
]


@pytest.mark.parametrize(("by", "kind", "values", "tuples", "filter_"), KINDS, ids=lambda one: str(one)[:40])
def test_every_kind_of_partition(
    tmp_path: Path, by: Partition, kind: dict[str, Any], values: list[Any], tuples: list[Any], filter_: str
) -> None:
    """Each file has the one value of its rows, null and the empty text too; a filter opens the files that fit."""
    shop = Shop(tmp_path, format="iceberg", partition_by=(by,))
    columns = {**ID, "v": kind}
    load(shop, [{"id": at, "v": value} for at, value in enumerate(values)], properties=columns)
    found = table(shop)
    (own,) = found.spec().fields
    assert str(own.transform) == (by.granularity or "identity")
    assert partitions(found) == by_text((1, [value]) for value in tuples)
    assert plan(found, filter_) == ([0], True)
    assert plan(found, "v is null") == ([values.index(None)], True)
    assert len(rows(found)) == len(values)


def test_each_file_has_one_value(shop: Shop) -> None:
    """Null and the empty text are in one folder, as Hive has it, in two files; a compaction leaves them apart."""
    for first in (0, 4):
        load(shop, [row(first + at, name) for at, name in enumerate([None, "", "x", "a=/"])])
    assert partitions(table(shop)) == by_text([(1, [name]) for name in (None, "", "x", "a=/")] * 2)
    compacted = compact(shop.storage, pipeline(shop), CompactOptions())
    assert len(compacted.pieces) == 3
    found = table(shop)
    assert partitions(found) == by_text((1, [name]) for name in (None, "", "x", "a=/"))
    assert {Path(path(task)).parent.name for task in found.scan("name = '' or name is null").plan_files()} == {
        "name=__HIVE_DEFAULT_PARTITION__"
    }
    assert plan(found, "name = ''") == ([1, 5], True)
    assert plan(found, "name is null") == ([0, 4], True)
    assert compact(shop.storage, pipeline(shop), CompactOptions()).pieces == []


def test_two_partitions_and_odd_names(tmp_path: Path) -> None:
    """Names that Avro or a column forbids get another one in the metadata, each its own; rows and pruning stay."""
    names = ["a b.c", "1é", "a_b_c"]
    shop = Shop(tmp_path, format="iceberg", partition_by=tuple(map(Partition, names)))
    columns = {**ID, **dict.fromkeys(names, STRING)}
    records = [{"id": at, **dict.fromkeys(names, value)} for at, value in enumerate(["x", "y", "", None])]
    load(shop, records, properties=columns)
    found = table(shop)
    assert [one.name for one in found.spec().fields] == ["a_b_c_2", "_1_", "a_b_c"]
    assert rows(found) == records
    assert plan(found, "a_b_c = 'y'") == ([1], True)


def test_a_merge_by_key(tmp_path: Path) -> None:
    """Rows move to the partition that their new value has; a file that gets two values is listed without one."""
    shop = Shop(tmp_path, format="iceberg", partition_by=(Partition("name"),), keys=("id",), hard_delete=True)
    columns = {**COLUMNS, "_sdc_deleted_at": TIME}
    load(shop, [row(1, "a"), row(2, "a"), row(3, None), row(4, None), row(5, "gone")], properties=columns)
    load(
        shop,
        [row(1, "b"), row(3, ""), row(5, "gone") | {"_sdc_deleted_at": "2024-01-01T00:00:00Z"}],
        properties=columns,
    )
    found = table(shop)
    assert [(one["id"], one["name"]) for one in rows(found)] == [(1, "b"), (2, "a"), (3, ""), (4, None)]
    assert partitions(found) == [(0, []), (1, ["a"]), (1, ["b"])]
    assert plan(found, "name = 'a'") == ([2], True)
    for filter_, number in (("name = ''", 3), ("name is null", 4)):
        assert plan(found, filter_) == ([3, 4], False)
        assert found.scan(filter_).to_arrow()["id"].to_pylist() == [number]
    assert problems(shop) == []


def test_other_partitions_come_with_a_new_table(shop: Shop) -> None:
    """An overwrite may partition by other columns, or drop them: the spec follows, and the past can be read."""
    load(shop, [row(1, "a", 7)])
    load(shop, [row(2, "b", 8)], mode="overwrite", partition_by=(Partition("n"),))
    assert partitions(table(shop)) == [(2, [8])]
    load(shop, [{"id": 3}], mode="overwrite", properties=ID, partition_by=())
    found = table(shop)
    past = [found.scan(snapshot_id=one.snapshot_id).to_arrow()["id"].to_pylist() for one in found.history()]
    assert past == [[1], [2], [3]]
    load(shop, [row(4, "a", 9)], mode="overwrite", partition_by=(Partition("name"), Partition("n")))
    found = table(shop)
    assert rows(found) == [row(4, "a", 9)]
    names = [one.name for spec in found.metadata.partition_specs for one in spec.fields]
    assert names == ["name", "n", "name_2", "n_2"]
    roll_back(shop.storage, "shop", 2)
    found = table(shop)
    assert rows(found) == [row(2, "b", 8)]
    assert [(spec, values) for spec, values in partitions(found)] == [(found.spec().spec_id, [8])]
    roll_back(shop.storage, "shop", 3)
    assert not table(shop).spec().fields
    assert problems(shop) == []


def test_a_partition_column_of_another_type(shop: Shop) -> None:
    """A full load may change the type: the column is another one, and so is its partition."""
    load(shop, [row(1, "7")])
    load(shop, [{"id": 2, "name": 7}], mode="overwrite", properties={**ID, "name": INTEGER})
    load(shop, [{"id": 3, "name": None}], properties={**ID, "name": INTEGER})
    found = table(shop)
    assert rows(found) == [{"id": 2, "name": 7}, {"id": 3, "name": None}]
    assert plan(found, "name = 7") == ([2], True)


def test_a_commit_that_is_taken_back(shop: Shop) -> None:
    """A first commit whose files are lost leaves the table with its partitions; the next one fills it."""
    shop.lose("orders", COLUMNS, [row(1, "a")])
    assert rows(table(shop)) == []
    load(shop, [row(2, "b")])
    assert partitions(table(shop)) == [(1, ["b"])]


def test_partitions_of_others(shop: Shop) -> None:
    """Somebody else's partition beside ours stops the next commit."""
    load(shop, [row(1, "a", 1)])
    with table(shop).update_spec() as spec:
        spec.add_identity("n")
    with pytest.raises(LakeError, match="features that are not ours"):
        load(shop, [row(2, "b", 2)])


def test_manifests_are_joined_by_spec(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest has files of one spec, also where many are brought together."""
    from bridge.lake.formats.iceberg import manifests

    monkeypatch.setattr(manifests, "_MOST_MANIFESTS", 3)
    load(shop, [], properties=COLUMNS)
    for number in range(6):
        load(shop, [row(number, "ab"[number % 2])])
    assert [one["id"] for one in rows(table(shop))] == list(range(6))
    assert {spec for spec, _ in partitions(table(shop))} == {1}


def test_the_order_of_files(tmp_path: Path) -> None:
    """The table has the order of its newest files, with null at the end; files of before keep theirs."""
    shop = Shop(tmp_path, format="iceberg")
    load(shop, [row(1, "a")])
    load(shop, [row(2, "a", 1), row(3, "b", None), row(4, "c", 9)], sort_by=("-n", "id"))
    found = table(shop)
    assert [(str(one.direction), str(one.null_order)) for one in found.sort_order().fields] == [
        ("DESC", "NULLS LAST"),
        ("ASC", "NULLS LAST"),
    ]
    assert [found.schema().find_column_name(one.source_id) for one in found.sort_order().fields] == ["n", "id"]
    by_order = {task.file.sort_order_id: path(task) for task in found.scan().plan_files()}
    assert by_order.keys() == {None, 1}
    assert pq.read_table(by_order[1], partitioning=None)["id"].to_pylist() == [4, 2, 3]
    load(shop, [row(5, "d")])
    assert not table(shop).sort_order().fields
    load(shop, [row(6, "d")], sort_by=("-n", "id"))
    assert table(shop).sort_order().order_id == 1
    load(shop, [{"id": 7}], mode="overwrite", properties=ID)
    assert not table(shop).sort_order().fields
    assert [one["id"] for one in rows(table(shop))] == [7]


def test_an_order_by_numbers_with_nan(tmp_path: Path) -> None:
    """Iceberg has another place for NaN than our files: the table is sorted by the column, no file claims to be."""
    shop = Shop(tmp_path, format="iceberg", sort_by=("-f",))
    load(shop, [{"id": 1, "f": 1.5}, {"id": 2, "f": 2.5}], properties={**ID, "f": {"type": ["null", "number"]}})
    found = table(shop)
    assert len(found.sort_order().fields) == 1
    assert [task.file.sort_order_id for task in found.scan().plan_files()] == [None]


def test_an_upsert_stays_sorted(tmp_path: Path) -> None:
    """A row that changes goes to its place in the order."""
    shop = Shop(tmp_path, format="iceberg", keys=("id",), sort_by=("n",))
    load(shop, [row(1, "a", 1), row(2, "b", 2), row(3, "c", 3)])
    load(shop, [row(1, "a", 9)])
    (task,) = table(shop).scan().plan_files()
    assert pq.read_table(path(task), partitioning=None)["n"].to_pylist() == [2, 3, 9]
    assert task.file.sort_order_id == 1


def test_a_table_of_an_older_version(old: Shop) -> None:
    """Its files stay without partitions, also the one with null and the empty text, and new ones have theirs."""
    load(old, [row(5, None, 5), row(6, "", 6), row(7, "x", 7)], "added")
    found = table(old, "added")
    assert rows(found) == [
        row(1, None, 1),
        row(2, "", 2),
        *(row(n, "x", n) for n in (3, 4)),
        row(5, None, 5),
        row(6, "", 6),
        row(7, "x", 7),
    ]
    assert partitions(found) == by_text([(0, [])] * 2 + [(1, [name]) for name in (None, "", "x")])
    for filter_, ids in {"name is null": [1, 5], "name = ''": [2, 6], "name = 'x'": [3, 4, 7]}.items():
        assert sorted(found.scan(filter_).to_arrow()["id"].to_pylist()) == ids
    compact(old.storage, pipeline(old), CompactOptions())
    found = table(old, "added")
    assert partitions(found) == by_text((1, [name]) for name in (None, "", "x"))
    assert plan(found, "name = ''") == ([2, 6], True)
    roll_back(old.storage, "shop", 5)
    assert len(rows(table(old, "added"))) == 7
    assert problems(old) == []


def test_an_order_of_an_older_version(old: Shop) -> None:
    """Its merges wrote rows out of order, and the footers say otherwise: such a file never claims an order."""
    assert [one["id"] for one in rows(table(old, "merged"))] == [1, 2, 3, 4]
    roll_back(old.storage, "shop", 3)
    found = table(old, "merged")
    assert {task.file.sort_order_id for task in found.scan().plan_files()} == {None}
    assert dict(partitions(found)) == {0: [], 1: ["x"]}
    assert not found.sort_order().fields


def test_a_lost_catalog(old: Shop) -> None:
    """A table that is registered anew has its partitions, where its files prove them."""
    (OLD / "lake/.bridge/catalog.db").unlink()
    repair(LocalStorage(old.root), "shop")
    found = table(old, "added")
    assert [one["id"] for one in rows(found)] == [1, 2, 3, 4]
    assert partitions(found) == [(0, []), (1, ["x"])]
    assert plan(found, "name = 'x'") == ([3, 4], True)
