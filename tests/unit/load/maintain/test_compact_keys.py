"""`compact` of tables that are merged by key: rows that are older than a column of the key stay without a key."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from bridge.lake.storage import open_storage
from bridge.load.maintain.compact import CompactOptions, compact
from bridge.settings.options import Pipeline
from tests.support.tap_runs import ResumingRuns, outcome, state

NULLABLE = {"type": ["null", "integer"]}


def schema(*columns: str) -> dict[str, Any]:
    properties = {"id": {"type": "integer"}} | dict.fromkeys(columns, NULLABLE)
    return {"type": "SCHEMA", "stream": "a", "schema": {"properties": properties}, "key_properties": ["id"]}


def row(number: int, **facts: Any) -> dict[str, Any]:
    return {"type": "RECORD", "stream": "a", "record": {"id": number, **facts}}


def rows_of(runs: ResumingRuns) -> list[tuple[Any, ...]]:
    table = runs.view.tables["a"]
    files = [f"{runs.uri}/{table.folder}/{name}" for name in table.files]
    query = f"SELECT id, uid FROM read_parquet({files}, union_by_name=true) ORDER BY id"
    return duckdb.sql(query).fetchall()


def joined(runs: ResumingRuns) -> int:
    """Compact the table; how many files it has then."""
    streams = {"a": {"sort_by": ["uid"]}}
    settings = {"source": {"tap": "tap"}, "destination": {"bucket": runs.uri}, "streams": streams}
    pipeline = Pipeline.model_validate({"name": "p"} | settings)
    compact(open_storage(runs.uri), pipeline, CompactOptions())
    return len(runs.view.tables["a"].files)


@pytest.mark.parametrize("older", [[1], [1, 2, 3]])
def test_rows_older_than_a_column_of_the_key(runs: ResumingRuns, older: list[int]) -> None:
    """One record whose key is null matches none of them, before they were compacted and after."""
    by_id, by_uid = ({"a": {"load_method": "upsert", "key_properties": [key]}} for key in ("id", "uid"))
    for number in older:
        runs.run(schema(), row(number), state(a=number), streams=by_id)
    for number in (5, 6):
        done = runs.run(schema("uid"), row(number, uid=number), state(a=number), streams=by_uid)
        assert outcome(done) == ("success", 0)
    assert joined(runs) == 2
    assert joined(runs) == 2  # nothing is left to join
    before = [(number, None) for number in older]
    for number in (7, 8):  # the second one replaces the first: null equals null
        done = runs.run(schema("uid"), row(number, uid=None), state(a=number), streams=by_uid)
        assert (outcome(done), done.differences) == (("success", 0), [])
        assert rows_of(runs) == [*before, (5, 5), (6, 6), (number, None)]
        assert joined(runs) == 2
