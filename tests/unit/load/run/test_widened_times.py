"""A column of times that becomes text: older rows have the form in which taps write times, whoever reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

import bridge
from bridge.lake.storage.local.storage import LocalStorage
from tests.support.iceberg_lake import catalog_of
from tests.support.tap_runs import ResumingRuns, outcome, state

AT, DAY, TEXT = ({"type": ["null", "string"], **more} for more in ({"format": "date-time"}, {"format": "date"}, {}))
TIMES = ["2024-01-01T00:00:00Z", "1850-01-01T12:30:00.000001Z", "9999-12-31T23:59:59.999999Z", "2024-01-01T00:00:00Z"]
COLUMNS = ("id", "at", "day", "deep", "any")


def schema(time: dict[str, Any], day: dict[str, Any]) -> dict[str, Any]:
    """`any` takes times first, then anything."""
    deep = {"type": "array", "items": {"type": "object", "properties": {"at": time}}}
    others = {"at": time, "day": day, "deep": deep, "any": time if time is AT else {}}
    properties = {"id": {"type": "integer"}, **others}
    return {"type": "SCHEMA", "stream": "a", "schema": {"properties": properties}, "key_properties": []}


def row(number: int) -> dict[str, Any]:
    time = TIMES[number - 1]
    record = {"id": number, "at": time, "day": time[:10], "deep": [{"at": time}], "any": time}
    return {"type": "RECORD", "stream": "a", "record": record}


def read(runs: ResumingRuns, format_: str) -> list[list[dict[str, Any]]]:
    """The rows, as each of several readers has them."""
    table = runs.view.tables["a"]
    files = [f"{runs.uri}/{table.folder}/{name}" for name in table.files]
    found = [duckdb.sql(f"from read_parquet({files}, union_by_name=true)").to_arrow_table()]
    found += [bridge.Lake(runs.uri).table("p", "a").to_table(), bridge.Lake(runs.uri).sql("from p.a")]
    if format_ == "delta":
        found.append(DeltaTable(f"{runs.uri}/{table.folder}").to_pyarrow_table())
    elif format_ == "iceberg":
        with catalog_of(LocalStorage(Path(runs.uri))) as catalog:
            found.append(catalog.load_table("p.a").scan().to_arrow())
    return [sorted(each.select(COLUMNS).to_pylist(), key=lambda one: one["id"]) for each in found]


@pytest.mark.parametrize(
    "method", [{"load_method": "append-only"}, {"load_method": "upsert", "key_properties": ["at"]}]
)
@pytest.mark.parametrize("format_", ["parquet", "delta", "iceberg"])
def test_older_rows_read_as_the_tap_wrote_them(runs: ResumingRuns, format_: str, method: dict[str, Any]) -> None:
    """Of an earlier commit, and of the same one; as a key, in lists, and as JSON. Equal times are equal texts."""
    keys: dict[str, Any] = {"destination": {"bucket": runs.uri, "format": format_}, "streams": {"a": method}}
    assert outcome(runs.run(schema(AT, DAY), row(1), state(a=1), **keys)) == ("success", 0)
    result = runs.run(schema(AT, DAY), row(2), row(3), schema(TEXT, TEXT), row(4), state(a=4), **keys)
    assert outcome(result) == ("success", 0)
    numbers = [2, 3, 4] if method["load_method"] == "upsert" else [1, 2, 3, 4]
    expected = [row(number)["record"] for number in numbers]
    expected = [each | {"any": f'"{each["any"]}"'} for each in expected]
    for rows in read(runs, format_):
        assert rows == expected
