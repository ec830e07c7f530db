"""How rows lie in files: partitions, order, sizes, and that every engine reads them back all the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from bridge.lake.file_records import PendingFile
from bridge.lake.log import Log
from bridge.lake.ownership import Owner, claim
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.write.context import WriteContext
from bridge.load.write.file import File
from bridge.load.write.layout import TableLayout
from bridge.load.write.partition import Partition
from bridge.load.write.writer import ROW_GROUP, Writer
from bridge.operate.verify.check import verify
from tests.support.engines import IN_PROCESS, shown, table_of
from tests.support.tables import INTEGER, STRING, Shop

SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("text", pa.string())])
MIB = 1 << 20
NASTY = ["01", "a b/c=%?*", "é日", None, "2025-01-01", "x:y'\"#[]{}^\\", "\n\t", "a%41", "NaN", " lead trail ", ""]
TYPES = {
    "_id": INTEGER,
    "name": STRING,
    "price": {"type": ["null", "number"], "multipleOf": 0.01},
    "open": {"type": ["null", "boolean"]},
    "day": {"type": ["null", "string"], "format": "date"},
    "at": {"type": ["null", "string"], "format": "date-time"},
}
MIXED = [
    {"_id": 1, "name": "01", "price": 1.5, "open": True, "day": "2025-01-01", "at": "2025-01-01T23:59:59.123456Z"},
    {"_id": 2, "name": None, "price": None, "open": None, "day": None, "at": None},
    {"_id": -3, "name": "a/b=%", "price": -0.01, "open": False, "day": "0001-01-01", "at": "1969-12-31T00:00:00Z"},
]


class Desk:
    """Writes tables by the real writer, and reads the pending files."""

    def __init__(self, root: Path, **layout: Any) -> None:
        self.root = root
        self.storage = LocalStorage(root)
        self.job = WriteContext(str(root), "p", "run", 1, "", "zstd", {"s": TableLayout("p/s", **layout)}, level=1)
        self.files: list[PendingFile] = []
        self.most_open = 0
        self._writer = Writer(self.storage, self.job, 1, "s", SCHEMA, self._done)

    def _done(self, file: File) -> None:
        self.most_open = max(self.most_open, len(self._writer._files) + 1)
        file.finish()
        self.files.append(file.close())

    def write(self, *tables: pa.Table) -> None:
        for table in tables:
            self._writer.add(table)
        self._writer.finish()

    def parquet(self) -> Iterator[pq.ParquetFile]:
        for file in self.files:
            with pq.ParquetFile(self.root / file.source) as parquet:
                yield parquet


def table(rows: int, *, text: int = 20, ks: int = 1, seed: int = 1) -> pa.Table:
    """Rows in a random order whose texts hardly compress."""
    rand = random.Random(seed)
    ids = rand.sample(range(rows), rows)
    texts = [rand.randbytes(text // 2).hex() for _ in range(rows)]
    return pa.table([ids, [number % ks for number in ids], texts], schema=SCHEMA)


def errors(shop: Shop) -> list[str]:
    claim(shop.storage, "shop/orders", Owner("shop", "orders"), shared=False)  # as a run does
    return [one.text for one in verify(shop.storage, "shop").findings if one.status == "error"]


def test_sizes(tmp_path: Path) -> None:
    """Files are closed at about `file_size` compressed bytes, and a row group is never beyond its memory."""
    desk = Desk(tmp_path, file_size=MIB)
    desk.write(*(table(4000, text=1000, seed=seed) for seed in range(4)), table(10_000, text=1000))
    sizes = [file.size for file in desk.files]
    assert len(sizes) > 8
    assert all(abs(size - MIB) < 0.2 * MIB for size in sizes[:-1]), sizes
    assert sizes[-1] < 1.2 * MIB
    for parquet in desk.parquet():
        for number in range(parquet.metadata.num_row_groups):
            assert parquet.read_row_group(number).nbytes <= ROW_GROUP
    assert sum(file.rows for file in desk.files) == 26_000


def test_large_tables_are_cut(tmp_path: Path) -> None:
    """A row group is at most 64 MiB in memory, also where one segment decodes to more."""
    desk = Desk(tmp_path)
    rows = table(1000, text=1600)
    desk.write(pa.concat_tables([rows] * 50))
    for parquet in desk.parquet():
        groups = [parquet.read_row_group(number).nbytes for number in range(parquet.metadata.num_row_groups)]
        assert len(groups) == 2
        assert max(groups) <= 1.01 * ROW_GROUP
    assert len(desk.files) == 1


def test_no_slivers(tmp_path: Path) -> None:
    """Segments of any size become row groups of about 64 MiB: none holds the little that was left of another."""
    desk = Desk(tmp_path)
    rows = table(1000, text=1600)
    desk.write(*[pa.concat_tables([rows] * 9)] * 12)
    (parquet,) = desk.parquet()
    groups = [parquet.metadata.row_group(number).num_rows for number in range(parquet.metadata.num_row_groups)]
    assert groups == [36_000, 36_000, 36_000]


def test_sorted(tmp_path: Path) -> None:
    """Rows come sorted, and the footer says by what."""
    desk = Desk(tmp_path, sort_by=("-k", "id"))
    desk.write(table(1000, ks=7), table(1000, ks=7, seed=2))
    rows, said = next((parquet.read(), parquet.metadata.row_group(0).sorting_columns) for parquet in desk.parquet())
    order = [(-row["k"], row["id"]) for row in rows.to_pylist()]
    assert order == sorted(order)
    assert len(order) == 2000
    assert [(one.column_index, one.descending, one.nulls_first) for one in said] == [
        (1, True, False),
        (0, False, False),
    ]


def test_few_files_are_open(tmp_path: Path) -> None:
    """However many partitions there are, few files are open at once, and each row is in its folder's."""
    desk = Desk(tmp_path, partition_by=(Partition("k"),), sort_by=("id",))
    parts = [table(600, ks=300, seed=seed) for seed in range(4)]
    desk.write(*parts)
    assert len(desk.files) == 300
    assert desk.most_open <= 17
    seen: list[int] = []
    for file, parquet in zip(desk.files, desk.parquet(), strict=True):
        rows = parquet.read()
        assert file.name.startswith(f"k={rows['k'][0].as_py()}/part-")
        assert len(set(rows["k"].to_pylist())) == 1
        assert rows["id"].to_pylist() == sorted(rows["id"].to_pylist())
        seen += rows["id"].to_pylist()
    assert sorted(seen) == sorted(number for part in parts for number in part["id"].to_pylist())


def test_what_is_little_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While more may come, a partition with few rows gets no row group whenever memory is full of the others'."""
    monkeypatch.setattr("bridge.load.write.writer.ROW_GROUP", MIB)
    monkeypatch.setattr("bridge.load.write.writer._WORTH", MIB // 16)
    desk = Desk(tmp_path, partition_by=(Partition("k"),))
    large = [table(1000, text=1000, seed=seed) for seed in range(10)]
    rare = [pa.table([[-seed], [seed % 3 + 1], ["x"]], schema=SCHEMA) for seed in range(1, 11)]
    desk.write(*(part for pair in zip(large, rare, strict=True) for part in pair))
    assert sorted(file.name.partition("/")[0] for file in desk.files) == ["k=0", "k=1", "k=2", "k=3"]
    assert sum(file.rows for file in desk.files) == 10_010
    for file, parquet in zip(desk.files, desk.parquet(), strict=True):
        assert file.name.startswith("k=0") or parquet.metadata.num_row_groups == 1


@pytest.mark.parametrize(
    "partition_by",
    [[Partition(name)] for name in TYPES if name != "at"]
    + [[Partition("at", "hour"), Partition("name")], [Partition("at", "year")], [Partition("at")]],
    ids=lambda one: "-".join(p.name for p in one),
)
def test_engines_read_all_types(partition_by: list[Partition], tmp_path: Path) -> None:
    """The statement that we print reads every column as if there were no partitions, with its type."""
    plain, parted = Shop(tmp_path / "a"), Shop(tmp_path / "b")
    for shop, layout in ((plain, {}), (parted, {"partition_by": tuple(partition_by)})):
        shop.load("orders", TYPES, MIXED[:2], **layout)
        shop.load("orders", TYPES | {"new": STRING}, [MIXED[2] | {"new": "n"}], **layout)
    for engine, read in IN_PROCESS.items():
        wanted = shown(read(table_of(plain, "orders")).sort_by("_id"))
        assert shown(read(table_of(parted, "orders")).sort_by("_id")) == wanted, engine
    assert len({file.parent for file in (parted.root / "shop/orders").rglob("*.parquet")}) == 3
    assert errors(parted) == []


def test_engines_read_nasty_texts(tmp_path: Path) -> None:
    """Whatever a text holds, each engine has it back: by our statements, and as it finds the folder by itself."""
    shop = Shop(tmp_path)
    rows = [{"id": number, "name": text} for number, text in enumerate(NASTY)]
    shop.load("orders", {"id": INTEGER, "name": STRING}, rows, partition_by=(Partition("name"),))
    asked = table_of(shop, "orders")
    for engine, read in IN_PROCESS.items():
        assert read(asked).select(["id", "name"]).sort_by("id").to_pylist() == rows, engine
    folder = f"{shop.root}/shop/orders"
    by_folders = [row | {"name": row["name"] or None} for row in rows]  # an empty text is null to Hive
    found = duckdb.sql(f"SELECT id, name FROM '{folder}/**/*.parquet' ORDER BY id").to_arrow_table()
    assert found.to_pylist() == by_folders
    assert pl.scan_parquet(folder).select("id", "name").sort("id").collect().to_dicts() == by_folders
    assert ds.dataset(folder).to_table(["id", "name"]).sort_by("id").to_pylist() == rows
    lines = (shop.root / ".bridge/tables/shop/orders.manifest").read_text().splitlines()
    assert sorted(Path(line) for line in lines) == sorted(Path(folder).rglob("*.parquet"))


def test_pruned_by_folder(tmp_path: Path) -> None:
    """An engine that is told the folders' types reads only those that a query asks for."""
    shop = Shop(tmp_path)
    shop.load("orders", TYPES, MIXED, partition_by=(Partition("at", "day"),))
    read = f"read_parquet('{shop.root}/shop/orders/**/*.parquet', hive_partitioning = true)"
    query = f"SELECT _id FROM {read} WHERE at_day = DATE '2025-01-01'"
    assert duckdb.sql(query).fetchall() == [(1,)]
    assert "Scanning Files: 1/3" in duckdb.sql(f"EXPLAIN {query}").fetchall()[0][1]


def test_overwritten_and_emptied(tmp_path: Path) -> None:
    """An overwrite replaces every partition, may name the folders anew, and an empty table has a file to read."""
    shop = Shop(tmp_path)
    shop.load("orders", TYPES, MIXED, partition_by=(Partition("_id"),))
    shop.load("orders", TYPES, MIXED[:1], mode="overwrite", partition_by=(Partition("name"),))
    folders = [file.parent.name for file in (shop.root / "shop/orders").rglob("*.parquet")]
    assert folders == ["name=01"]
    log = Log(shop.storage, "shop")
    assert log.snapshot(log.head()).tables["orders"].partition_by == ("name",)
    shop.load("orders", TYPES, [], mode="overwrite", partition_by=(Partition("name"),))
    for engine, read in IN_PROCESS.items():
        assert read(table_of(shop, "orders")).num_rows == 0, engine
    assert errors(shop) == []
