"""Which counts of a source are a difference, and which are rows that come or go during a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bridge.lake.file_records import LiveFile
from bridge.lake.log import Snapshot
from bridge.lake.records import TableState
from bridge.lake.schemas import keep_schema
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.run.checks.row_counts import Stream, comparable, judge, live_rows, mark_of
from bridge.load.run.streams import Streams
from bridge.load.slots.row_counts import Mark, RowCount
from bridge.protocol.schema.table_schema import TableSchema
from bridge.settings.destination import StreamKeys
from tests.unit.load.run.test_table_plan import pipeline

BY_KEY = Stream("s", "INCREMENTAL", "upsert", "at")
APPENDED = Stream("s", "INCREMENTAL", "append-only", "at")
LOOKS_BACK = Stream("s", "INCREMENTAL", "upsert", "at", expects_all=False)
COPIED = Stream("s", "FULL_TABLE", "overwrite")


@pytest.mark.parametrize(
    ("stream", "lake", "after", "words"),
    [
        (BY_KEY, 10, RowCount(10, False, 9, 1, 0), ""),
        (BY_KEY, 10, RowCount(13, False, 9, 1, 3), ""),  # rows came during the run
        (BY_KEY, 10, RowCount(13, False, 9, 4, 0), ""),  # so they did, with the bookmark's own value
        (BY_KEY, 10, RowCount(10, False, 7, 0, 3), ""),  # rows were updated during the run
        (BY_KEY, 12, RowCount(10, False, 7, 1, 0), "it has 12 rows, and its source 10: rows were deleted"),
        (BY_KEY, 3, RowCount(2, False, 1, 1, 0), "it has 3 rows, and its source 2"),
        (BY_KEY, 10, RowCount(11, False, 10, 1, 0), "its source 11 up to the bookmark of at: rows came with an older"),
        (BY_KEY, 10, RowCount(10, False, 10, 0, 0), "the greatest at of its source is before the bookmark"),
        (APPENDED, 30, RowCount(10, False, 9, 1, 0), ""),  # a row is there once for each of its versions
        (APPENDED, 10, RowCount(9, False, 9, 0, 0), ""),
        (APPENDED, 10, RowCount(11, False, 10, 1, 0), "its source 11 up to the bookmark"),
        (LOOKS_BACK, 10, RowCount(11, False, 10, 1, 0), ""),
        (BY_KEY, 2_900_000, RowCount(2_000_000, True), ""),
        (BY_KEY, 3_100_000, RowCount(2_000_000, True), "its source about 2,000,000"),
        (BY_KEY, 1_000_000, RowCount(2_000_000, True), ""),
    ],
)
def test_a_table_with_a_bookmark(tmp_path: Path, stream: Stream, lake: int, after: RowCount, words: str) -> None:
    """More rows than the source, fewer than up to the bookmark, or a bookmark behind the last row."""
    difference = judge(pipeline(tmp_path), stream, lake, None, after)
    if not words:
        assert difference is None
        return
    assert difference
    assert words in difference.text
    assert difference.text.endswith("singer-bridge run p --full -s s")
    assert difference.kind == "row_count"


def test_a_table_that_lost_most_rows(tmp_path: Path) -> None:
    """The guard would refuse what the hint says, so the hint has its flag; an emptied table, too."""
    for rows in (0, 9):
        difference = judge(pipeline(tmp_path), BY_KEY, 100, None, RowCount(rows, False, rows))
        assert difference and difference.text.endswith("singer-bridge run p --full -s s --no-guard")


@pytest.mark.parametrize(
    ("lake", "before", "after", "rows"),
    [(5, 5, 5, None), (7, 5, 5, 2), (3, 5, 5, 2), (7, 7, 5, None), (6, 7, 5, None), (7, 5, 6, None)],
)
def test_a_table_without_one(tmp_path: Path, lake: int, before: int, after: int, rows: int | None) -> None:
    """It differs only if the source had as many rows before the run as after it."""
    difference = judge(pipeline(tmp_path), COPIED, lake, RowCount(before), RowCount(after))
    assert (difference and difference.rows) == rows


def entry(**facts: Any) -> dict[str, Any]:
    metadata = {"selected": True, "replication-method": "INCREMENTAL", "replication-key": "at", "schema-name": "public"}
    root = {"breadcrumb": [], "metadata": metadata | {"table-key-properties": ["id"]} | facts}
    return {"tap_stream_id": "public-s", "stream": "s", "schema": {"properties": {}}, "metadata": [root]}


@pytest.mark.parametrize(
    ("keys", "facts", "config", "is_compared"),
    [
        ({"load_method": "upsert"}, {}, {}, True),
        ({}, {"replication-method": "FULL_TABLE"}, {}, True),
        ({}, {"database-name": "shop"}, {"dbname": "shop"}, True),
        ({}, {"database-name": "other"}, {"dbname": "shop"}, False),
        ({"transform": "SELECT * FROM stream WHERE n > 1"}, {}, {}, False),
        ({"load_method": "overwrite"}, {}, {}, False),
        ({"load_method": "append-only"}, {"replication-method": "FULL_TABLE"}, {}, False),
        ({}, {"selected": False}, {}, False),
        ({}, {}, {"stream_maps": {"s": {"__filter__": "n > 1"}}}, False),
    ],
)
def test_what_is_compared(
    tmp_path: Path, keys: dict[str, Any], facts: dict[str, Any], config: dict[str, Any], is_compared: bool
) -> None:
    """Not a stream that loads fewer rows on purpose, nor one whose table holds rows several times."""
    settings = pipeline(tmp_path).model_copy(update={"streams": {"*": StreamKeys(**keys)}})
    one = entry(**facts)
    plan = Streams(settings, {"streams": [one]}, Snapshot())["public-s"]
    assert bool(comparable(settings, config, one, plan)) == is_compared


def test_a_bookmark_of_another_form_is_none() -> None:
    """A fraction, which servers round, partitions, another column than the replication key, a position in a log."""
    good = {"replication_key": "at", "replication_key_value": 5}
    marks = [
        good,
        good | {"replication_key_value": 0.7},
        good | {"partitions": [{}]},
        good | {"replication_key": "id"},
        {"lsn": 7},
        None,
    ]
    states = [{"bookmarks": {"s": mark}} for mark in marks]
    assert [mark_of(state, ("s",), "at") for state in states] == [Mark("at", 5), None, None, None, None, None]


def test_rows_that_are_marked_as_deleted_do_not_count(tmp_path: Path) -> None:
    """Files say in their footers how many are."""
    storage = LocalStorage(tmp_path)
    fields = [pa.field("id", pa.int64()), pa.field("_sdc_deleted_at", pa.timestamp("us", tz="UTC"))]
    rows = pa.table({"id": [1, 2, 3], "_sdc_deleted_at": [None, 5, None]}, schema=pa.schema(fields))
    (tmp_path / "p" / "s").mkdir(parents=True)
    pq.write_table(rows, tmp_path / "p" / "s" / "a.parquet")
    pq.write_table(rows.select(["id"]), tmp_path / "p" / "s" / "b.parquet")
    schema = keep_schema(storage, "p", TableSchema(pa.schema(fields)))
    files = {"a.parquet": LiveFile(1, 3), "b.parquet": LiveFile(1, 3), "c.parquet": LiveFile(1, 3, deleted=1)}
    assert live_rows(storage, "p", TableState("p/s", schema, files)) == 5
