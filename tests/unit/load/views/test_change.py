"""A view's files, changed step by step by real Spark, are what its SELECT gives, however many rows a step changes."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import bridge.load.spark.views
import bridge.load.write.groups
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.spark.view_types import analysed
from bridge.load.spark.views import ViewWork, change_view, compare_view
from bridge.load.spool.folder import SpoolFolder
from bridge.load.write.context import WriteContext
from bridge.load.write.layout import TableLayout
from bridge.load.write.signed_file import SignedFile
from bridge.load.write.spill import CHANGE
from bridge.settings.sql.view import read_view

COLUMNS = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.int64()), ("unread", pa.int64())])
VIEW = "SELECT k, v % 2 AS odd, count(*) AS n, sum(v) AS total, max(v) AS most, min_by(v, at) AS first FROM s"


class Kept:
    """The files of a stream's table, and those of a view over it."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.storage = spark, LocalStorage(root)
        layouts = {"v": TableLayout("shop/v", sort_by=("k", "odd"), file_size=1500)}
        self.context = WriteContext(str(root), "shop", "run", 1, str(root / "spool"), "zstd", layouts)
        SpoolFolder(self.context.spool).spills.mkdir(parents=True)
        self.typed = analysed(spark, read_view("v", VIEW + " GROUP BY 1, 2"), COLUMNS)
        self.files: dict[SignedFile, pa.Table] = {}
        self.state: list[SignedFile] = []

    def file(self, rows: pa.Table) -> SignedFile:
        """Write rows as a file of the table."""
        path = self.storage.root / f"shop/s/{random.getrandbits(64):x}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, path, row_group_size=7)
        return SignedFile(f"shop/s/{path.name}", path.stat().st_size, len(rows))

    def change(self, added: list[pa.Table], removed: list[SignedFile], noted: pa.Table | None = None) -> None:
        """One commit: files come and go; `noted` are rows with their signs, of a file that is written again."""
        for file in removed:
            del self.files[file]
        new = {self.file(rows): rows for rows in added}
        self.files |= new
        changed = [*new, *(SignedFile(file.key, file.size, file.rows, -1) for file in removed)]
        if noted is not None:
            path = SpoolFolder(self.context.spool).spills / "noted.parquet"
            pq.write_table(noted, path)
            changed.append(SignedFile(path.name, path.stat().st_size, len(noted), 0))
        work = ViewWork(self.typed, COLUMNS, changed, self.state, [*self.files], 1)
        files, replaced = change_view(self.spark, self.context, None, work)
        self.state = [file for file in self.state if file not in replaced]
        self.state += [SignedFile(file.source, file.size, file.rows) for file in files]

    def check(self) -> None:
        work = ViewWork(self.typed, COLUMNS, [*self.files], self.state, (), 0)
        assert compare_view(self.spark, self.context, None, work, 3) == (0, [])


def some(dice: random.Random, count: int) -> pa.Table:
    keys = ["a", "B", "é", "", None, *map(str, range(30))]
    rows = [(dice.choice(keys), *(dice.randrange(9) for _ in range(3))) for _ in range(count)]
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=COLUMNS)


@pytest.mark.parametrize("few", [0, 1 << 18])
def test_files_come_and_go(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """Few rows and many are two ways; extremes are lost in both, and a view has several files and row groups."""
    monkeypatch.setattr(bridge.load.spark.views, "_FEW", few)
    monkeypatch.setattr(bridge.load.write.groups, "GROUP_ROWS", 9)
    dice, kept = random.Random(3), Kept(spark, tmp_path)
    kept.change([some(dice, 60), some(dice, 60)], [])
    kept.check()
    kept.change([some(dice, 5)], [next(iter(kept.files))])
    kept.check()
    old, rows = next(iter(kept.files.items()))
    new = pa.concat_tables([rows.slice(0, 10), some(dice, 3)])
    signs = pa.array([-1] * (len(rows) - 10) + [1] * (len(new) - 10), pa.int64())
    noted = pa.concat_tables([rows.slice(10), new.slice(10)]).append_column(CHANGE, signs)
    del kept.files[old]
    kept.files[kept.file(new)] = new
    kept.change([], [], noted)
    kept.check()
    kept.change([], list(kept.files))
    assert sum(file.rows or 0 for file in kept.state) == 0
