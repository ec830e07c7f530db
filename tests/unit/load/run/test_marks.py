"""A run that ends well and looks wrong beside those before it is marked, and warned of once."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from bridge.lake.file_records import LiveFile
from bridge.lake.log import Snapshot
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.records import TableState
from bridge.lake.runs import RunFile, read_runs
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.run.checks.marks import Judgement, LoadedRun
from bridge.load.run.result import Counts
from bridge.load.run.streams import StreamPlan, Streams
from bridge.settings.destination import StreamKeys
from tests.unit.load.run.test_table_plan import pipeline


def plan(**facts: Any) -> StreamPlan:
    return StreamPlan("s", ("s",), **facts)


BY_AT = plan(usual="upsert", is_known=True, keys=("id",), bookmark="at")


def at(value: Any) -> dict[str, Any]:
    return {"bookmarks": {"s": {"replication_key": "at", "replication_key_value": value}}}


class Runs:
    """A pipeline's runs, one after the other, each loading one stream."""

    def __init__(self, root: Path) -> None:
        self.storage, self.root, self.count = LocalStorage(root), root, 0
        self.state: Any = None
        self.streams: dict[str, StreamKeys] = {}
        self.table, self.load_method = 0, "upsert"

    def run(self, rows: int, state: Any, stream: StreamPlan = BY_AT, **given: Any) -> Judgement:
        """Judge a run, and keep its record."""
        settings = pipeline(self.root).model_copy(update={"streams": self.streams})
        before, self.state = self.state, state
        streams = Streams(settings, None, Snapshot())
        streams.opened["s"] = replace(stream, settings=streams["s"].settings, setting=streams["s"].setting)
        counts = {"s": Counts(self.load_method, "", records=rows, committed=rows)} if rows >= 0 else {}
        judged = LoadedRun(
            streams=streams,
            before=Snapshot(1, PipelineState(before)),
            after=Snapshot(2, PipelineState(state), self._tables()),
            counts=counts,
            **given,
        ).judge(self.storage)
        self.count += 1
        RunFile(self.storage, "p", f"20260101T{self.count:06}Z-aaaa").finish(
            status="success",
            streams={name: count.to_json() for name, count in counts.items()},
            state_before=before,
            state=state,
            marks=judged.marks,
        )
        return judged

    def _tables(self) -> dict[str, TableState]:
        files = {"a.parquet": LiveFile(1, self.table)}
        return {"s": TableState("p/s", None, files=files)} if self.table else {}


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def test_a_bookmark_that_stands_still(runs: Runs) -> None:
    """Marked in the third run that brought rows and did not move it; warned of once; gone when it moves."""
    runs.run(50, at(7))
    assert [runs.run(20, at(7)).marks for _ in range(2)] == [{}, {}]
    third = runs.run(20, at(7))
    assert third.marks == {"standstill": ["s"]}
    [warning] = third.warnings
    assert "has not moved in 3 runs, though rows came in each: s (at 7)" in warning
    assert "choose a replication key" in warning
    fourth = runs.run(20, at(7))
    assert (fourth.marks, fourth.warnings) == ({"standstill": ["s"]}, [])
    assert next(read_runs(runs.storage, "p", 1)).marks == {"standstill": ("s",)}
    assert runs.run(20, at(8)).marks == {}


@pytest.mark.parametrize(
    ("rows", "state", "stream"),
    [
        (0, at(7), BY_AT),  # nothing new
        (1, at(7), BY_AT),  # the row at the bookmark
        (20, {"bookmarks": {"s": {"version": 1, "full": True}}}, plan(usual="overwrite", is_known=True)),
        (20, {"bookmarks": {"s": {"full": True}}}, plan(usual="upsert", keys=("id",))),  # nobody says incremental
        (20, {"bookmarks": {"s": {}}}, BY_AT),
        (20, at(f"{datetime.now(timezone.utc) - timedelta(hours=1):%Y-%m-%d}"), BY_AT),  # the day is not over
    ],
)
def test_what_stands_still_rightly(runs: Runs, rows: int, state: Any, stream: StreamPlan) -> None:
    """A quiet source, a tap that repeats the row at the bookmark, a full table, a bookmark of today's date."""
    assert [runs.run(rows, state, stream).marks for _ in range(5)] == [{}] * 5


@pytest.mark.parametrize(
    ("rows", "table", "load_method", "marked"),
    [
        ([50, 50, 50], 1000, "upsert", False),  # one UPDATE gave them one time
        ([50, 50, 50], 400, "upsert", True),  # half of a table: it may be extracted whole
        ([50, 51, 52], 1000, "upsert", True),  # new rows come, and it stays
        ([50, 50, 50], 1000, "append-only", True),  # the table would have to grow to a multiple first
    ],
)
def test_rows_that_share_the_bookmarks_value(
    runs: Runs, rows: list[int], table: int, load_method: str, marked: bool
) -> None:
    """A tap that asks with `>=` sends all of them again in each run; that is no standstill."""
    runs.table, runs.load_method = table, load_method
    runs.run(50, at(7))
    assert [bool(runs.run(count, at(7)).marks) for count in rows] == [False, False, marked]


def test_a_lookback_repeats_rows(runs: Runs) -> None:
    """The settings ask for it."""
    runs.streams = {"s": StreamKeys(lookback="1d")}
    assert [runs.run(20, at(7)).marks for _ in range(5)] == [{}] * 5


def test_far_fewer_rows_than_usual(runs: Runs) -> None:
    """Less than a tenth of the median is marked, warned of once, and new after a run that was as usual."""
    for n, rows in enumerate([1_000_000, 1000, 1200, 900, 1100]):
        assert runs.run(rows, at(n)).marks == {}
    low = runs.run(109, at(10))
    assert low.marks == {"volume": ["s"]}
    assert "far fewer rows than usual: s (109, usually 1,100)" in low.warnings[0]
    assert runs.run(-1, at(10)).warnings == []  # its stream did not come at all: the same event
    assert runs.run(1000, at(11)).marks == {}
    assert len(runs.run(3, at(12)).warnings) == 1


@pytest.mark.parametrize("given", [{"is_narrowed": True}, {"deselected": frozenset({"s"})}])
def test_fewer_rows_that_somebody_asked_for(runs: Runs, given: Any) -> None:
    """`--max-records`, `--stream`, a stream that is not selected any more."""
    for n in range(6):
        runs.run(1000, at(n))
    assert runs.run(0, at(9), **given).marks == {}


def test_few_rows_are_not_judged(runs: Runs) -> None:
    """Below a hundred, and while there are fewer than five runs to compare with."""
    assert [runs.run(rows, at(n)).marks for n, rows in enumerate([1000, 1000, 1000, 1000, 0])] == [{}] * 5
    quiet = Runs(runs.root / "quiet")
    assert [quiet.run(rows, at(n)).marks for n, rows in enumerate([99] * 6 + [0])] == [{}] * 7


def test_rows_without_a_state(runs: Runs) -> None:
    """Marked, and warned of once where rows are merged: of appended ones another warning tells."""
    first = runs.run(20, None, without_state=["s"])
    assert first.marks == {"no_state": ["s"]}
    assert "on_no_state: fail" in first.warnings[0]
    assert runs.run(20, None, without_state=["s"]).warnings == []
    appended, unknown = plan(is_known=True), plan(usual="upsert", keys=("id",))
    other = Runs(runs.root / "b").run(20, None, appended, without_state=["s"])
    assert (other.marks, other.warnings) == ({"no_state": ["s"]}, [])
    assert Runs(runs.root / "c").run(20, None, unknown, without_state=["s"]).marks == {}
