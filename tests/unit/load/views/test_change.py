"""A view's files, changed step by step by real Spark, are what its SELECT gives, however many rows a step changes."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import bridge.load.spark.views
import bridge.load.write.groups
from bridge.lake.records import Watermark
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
WINDOWS = "k, window(timestamp_seconds(at), '10 seconds', '5 seconds').start AS w, count(*) AS n, max(v) AS most"


class Kept:
    """The files of a stream's table, and those of a view over it."""

    def __init__(self, spark: SparkSession, root: Path, text: str = VIEW + " GROUP BY 1, 2") -> None:
        self.spark, self.storage = spark, LocalStorage(root)
        view = read_view("v", text)
        names = ("v", "v_closed")
        layouts = {name: TableLayout(f"shop/{name}", sort_by=view.keys, file_size=1500) for name in names}
        self.context = WriteContext(str(root), "shop", "run", 1, str(root / "spool"), "zstd", layouts)
        SpoolFolder(self.context.spool).spills.mkdir(parents=True)
        self.typed = analysed(spark, view, COLUMNS)
        self.files: dict[SignedFile, pa.Table] = {}
        self.state: list[SignedFile] = []
        self.closed: list[SignedFile] = []
        self.watermark: Watermark | None = None
        self.late = 0

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
        anew = not self.state
        work = ViewWork(self.typed, COLUMNS, changed, self.state, [*self.files], 1, self.watermark, anew)
        done = change_view(self.spark, self.context, None, work)
        self.state = [file for file in self.state if file not in done.replaced]
        self.state += [SignedFile(file.source, file.size, file.rows) for file in done.files]
        self.closed += [SignedFile(file.source, file.size, file.rows) for file in done.closed]
        self.watermark, self.late = done.watermark, self.late + done.late

    def check(self) -> None:
        work = ViewWork(self.typed, COLUMNS, [*self.files], self.state, (), 0, self.watermark)
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


def groups(rows: Iterable[tuple[str | None, int, int]]) -> dict[tuple[str | None, int], tuple[int, int]]:
    """By key and start of its window, how many rows a group has, and their greatest value; rows are `k, v, at`."""
    values = defaultdict[tuple[str | None, int], list[int]](list)
    for k, v, at in rows:
        for start in (at // 5 * 5 - 5, at // 5 * 5):
            values[k, start].append(v)
    return {key: (len(each), max(each)) for key, each in values.items()}


def read(kept: Kept, files: list[SignedFile]) -> dict[tuple[str | None, int], tuple[int, int]]:
    """The groups in files of the view, or of its closed windows; none is there twice."""
    rows = [row for file in files for row in pq.read_table(kept.storage.root / file.key).to_pylist()]
    result = {(row["k"], int(row["w"].timestamp())): (row["n"], row["most"]) for row in rows}
    assert len(result) == len(rows)
    return result


@pytest.mark.parametrize(
    ("few", "first"),
    [
        *((0, ""), (1 << 18, ""), (100, "count(DISTINCT v) AS o, ")),
        (1 << 18, "max_by(named_struct('p', at, 'q', v), at) AS o, "),
    ],
)
def test_windows_close_and_go(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int, first: str
) -> None:
    """In files in which they lie among others, with rows that are late, and rows that are deleted after all."""
    monkeypatch.setattr(bridge.load.spark.views, "_FEW", few)
    monkeypatch.setattr(bridge.load.write.groups, "GROUP_ROWS", 9)
    dice = random.Random(7)
    kept = Kept(
        spark,
        tmp_path,
        f"SELECT {first}{WINDOWS} FROM s WHERE v > 0 GROUP BY k, w\n-- singer-bridge: keep: 60s, lateness: 10s",
    )
    closed, table, late, latest, until = dict[Any, Any](), dict[SignedFile, list[Any]](), 0, -(10**9), -(10**9)
    for step in range(7):
        times = [step * 25 + dice.randrange(-40 if step % 3 else -90, 25) for _ in range(40)]
        rows = [(dice.choice(["a", "B", None, *map(str, range(9))]), dice.randrange(4), at, 0) for at in times]
        counted = [row[:3] for row in rows if row[1] > 0]
        late += sum(n for (_, start), (n, _) in groups(counted).items() if start + 10 <= until) if step else 0
        new = pa.table([list(column) for column in zip(*rows, strict=True)], schema=COLUMNS)
        gone = [file for file in kept.files if step and dice.random() < 0.2]
        kept.change([new], gone)
        table = {file: part for file, part in table.items() if file not in gone}
        table[next(file for file in kept.files if file not in table)] = counted
        latest = max([latest, *(at for _, _, at in counted)])
        every = groups(row for part in table.values() for row in part)
        closed |= {key: group for key, group in every.items() if until < key[1] + 10 <= latest - 10}
        until = max(until, latest - 10)
        assert kept.watermark == Watermark(latest * 10**6, until * 10**6)
        assert read(kept, kept.state) == {key: one for key, one in every.items() if key[1] + 10 > latest - 60}
        assert read(kept, kept.closed) == closed
        assert kept.late == late
        kept.check()
    assert late > 20 and len(closed) > 50
