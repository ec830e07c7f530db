"""`views verify`: a view is held against its SELECT, and filled again by a commit if it is not that."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import bridge
from bridge.errors import LakeError, PipelineHeld
from bridge.lake.lease import take
from bridge.lake.log import Log
from bridge.lake.storage import open_storage
from bridge.load.maintain.view_check import CheckedView, Refilled, fill_again, verify_views
from bridge.load.spark.at_need import InSpark
from bridge.load.write.context import WriteContext
from bridge.settings.options import Pipeline
from tests.crash.driver import PIPELINE, Run
from tests.support.view_oracle import check_commits

SUMS = "SELECT k, count(*) AS n, sum(v) AS total, max(v) AS most FROM s GROUP BY k"
NONE = "SELECT k, count(*) AS n FROM s WHERE k < 0 GROUP BY k"
SCHEMA = {"k": {"type": ["null", "integer"]}, "v": {"type": ["null", "integer"]}}


class TwoViews:
    """A lake with a stream and two views of it, one of them without rows."""

    def __init__(self, folder: Path, spark: SparkSession, *rows: tuple[int | None, int]) -> None:
        self.root, self.spark, self.lake = folder / "lake", spark, bridge.Lake(folder / "lake")
        schema = {"type": "SCHEMA", "stream": "s", "schema": {"properties": SCHEMA}, "key_properties": []}
        messages = [{"type": "RECORD", "stream": "s", "record": {"k": k, "v": v}} for k, v in rows]
        lines = list(map(json.dumps, [schema, *messages, {"type": "STATE", "value": {"at": 1}}]))
        run = Run(lambda _: lines, views={"sums": SUMS, "none": NONE}, spark=spark)
        run.execute(str(self.root), folder / "spool")
        self.storage, self.pipeline = open_storage(str(self.root)), run._settings(open_storage(str(self.root)))
        self.log = Log(self.storage, PIPELINE)

    @contextmanager
    def opened(self, _: Pipeline, context: WriteContext) -> Iterator[InSpark]:
        """The tests' own session."""
        yield lambda work: work(self.spark, context, None)

    def verify(self) -> dict[str, CheckedView]:
        """Check both views; nothing in the bucket may change by that."""
        before = self.files()
        checked = verify_views(self.storage, self.pipeline, ["sums", "none"], self.opened)
        assert self.files() == before
        return {one.view: one for one in checked}

    def refill(self) -> Refilled:
        """Repair both views."""
        return fill_again(self.storage, self.pipeline, ["sums", "none"], self.opened)

    def files(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.root.rglob("*") if path.is_file()}

    def file_of(self, table: str) -> Path:
        (file,) = (self.root / PIPELINE / table).glob("*.parquet")
        return file

    def tamper(self, change: Callable[[pa.Table], pa.Table]) -> None:
        """Write the file of `sums` again, with other rows."""
        table = pq.read_table(self.file_of("sums"))
        pq.write_table(change(table).cast(table.schema), self.file_of("sums"))


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession) -> TwoViews:
    """Three groups, the NULL one too."""
    return TwoViews(tmp_path, spark, (1, 10), (1, 20), (2, 5), (None, 7))


def with_column(name: str, value: Any, where: pc.Expression) -> Callable[[pa.Table], pa.Table]:
    """A change that gives the rows of a condition another value."""

    def change(table: pa.Table) -> pa.Table:
        rows = [row | ({name: value} if row in table.filter(where).to_pylist() else {}) for row in table.to_pylist()]
        return pa.Table.from_pylist(rows, schema=table.schema)

    return change


def test_healthy_views(shop: TwoViews) -> None:
    """A view, and one without rows, are what their SELECTs give; a repair of them commits nothing."""
    assert {name: (one.problem, one.groups, one.commit) for name, one in shop.verify().items()} == {
        "none": ("", 0, 1),
        "sums": ("", 3, 1),
    }
    assert shop.refill().commit is None
    assert shop.log.latest() == 1


def test_a_value_that_was_changed(shop: TwoViews) -> None:
    """Its key is named with both rows; a repair is one commit with the same STATE, after which the view is right."""
    shop.tamper(with_column("n", 9, pc.field("k") == 1))
    wrong = shop.verify()
    assert not wrong["none"].problem
    assert (wrong["sums"].differing, wrong["sums"].repairable) == (1, True)
    (difference,) = wrong["sums"].differences
    assert difference.key == {"k": 1}
    visible = [{name: row[name] for name in ("n", "total", "most")} for row in difference.stored + difference.selected]
    assert visible == [{"n": 9, "total": 30, "most": 20}, {"n": 2, "total": 30, "most": 20}]
    repaired = shop.refill()
    assert (repaired.commit, [one.problem for one in repaired.views]) == (2, ["", ""])
    record = shop.log.record(2)
    assert record and record.state == {"at": 1}
    assert [change.stream for change in record.tables] == ["sums"]
    assert check_commits(str(shop.root), PIPELINE, 2) == {"sums": 1, "none": 1}
    assert not any(one.problem for one in shop.verify().values())


def test_rows_that_are_missing_and_rows_too_many(shop: TwoViews) -> None:
    """A row that the view lacks, one of no group, and one that is there twice."""
    shop.tamper(lambda table: table.filter(pc.field("k") == 1))
    assert [(one.key, one.stored, one.selected[0]["n"]) for one in shop.verify()["sums"].differences] == [
        ({"k": 2}, [], 1),
        ({"k": None}, [], 1),
    ]
    shop.refill()
    assert not shop.verify()["sums"].problem
    shop.tamper(lambda table: pa.concat_tables([table, table.filter(pc.field("k") == 2)]))
    (difference,) = shop.verify()["sums"].differences
    assert (difference.key, len(difference.stored), difference.selected) == ({"k": 2}, 1, [])
    shop.tamper(lambda table: table.slice(0, 0))
    assert shop.verify()["sums"].differing == 3


def test_a_hidden_column_counts(shop: TwoViews) -> None:
    """What a run needs to change the view later is compared, too."""
    shop.tamper(with_column("_view_count_total", 5, pc.field("k") == 2))
    (difference,) = shop.verify()["sums"].differences
    assert (difference.stored[0]["_view_count_total"], difference.selected[0]["_view_count_total"]) == (5, 1)


def test_many_keys(tmp_path: Path, spark: SparkSession) -> None:
    """Ten keys are named, all are counted."""
    shop = TwoViews(tmp_path, spark, *((number, number) for number in range(25)))
    shop.tamper(lambda table: table.set_column(1, "n", pa.array([7] * 25, pa.int64())))
    wrong = shop.verify()["sums"]
    assert (wrong.differing, len(wrong.differences)) == (25, 10)


def test_files_that_cannot_be_read(shop: TwoViews) -> None:
    """A view's file is no loss: the view is filled again. A file of the stream's table is not repaired here."""
    file = shop.file_of("sums")
    file.unlink()
    wrong = shop.verify()["sums"]
    assert (file.name in wrong.problem, wrong.repairable) == (True, True)
    assert [one.problem for one in shop.refill().views] == ["", ""]
    file = shop.file_of("s")
    file.write_bytes(file.read_bytes()[:40])
    repaired = shop.refill()
    assert repaired.commit is None
    assert all(file.name in one.problem and not one.repairable for one in repaired.views)


def test_a_dead_run_and_a_live_one(shop: TwoViews) -> None:
    """After a run that died a wrong view asks for `recover`, which a repair does itself; beside a run there is none."""
    shop.tamper(with_column("n", 9, pc.field("k") == 1))
    lease = take(shop.storage, PIPELINE, "other")
    assert shop.verify()["sums"].differing == 1
    with pytest.raises(PipelineHeld):
        shop.refill()
    lease.close(head=1, clean=False)
    with pytest.raises(LakeError, match="died") as raised:
        shop.verify()
    assert "recover" in raised.value.hint
    assert shop.refill().commit == 3, "after the fence"
    assert not any(one.problem for one in shop.verify().values())


def test_a_select_that_somebody_put_into_the_bucket(tmp_path: Path, spark: SparkSession) -> None:
    """It brings nothing of this machine's environment to light, not even in an error."""
    shop = TwoViews(tmp_path, spark, (1, 2))
    for path in (shop.root / f".bridge/{PIPELINE}/commits").iterdir():
        path.write_text(path.read_text().replace("max(v) AS most", "max(CAST('${env:PATH}' AS bigint)) AS most"))
    checked = shop.verify()["sums"]
    assert checked.problem
    assert os.environ["PATH"] not in f"{checked}"
    assert "${env:PATH}" in f"{checked}"
