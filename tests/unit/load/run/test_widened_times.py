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

from .test_held_back import Lake, lake, outcome, state  # noqa: F401

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


def read(lake: Lake, format_: str) -> list[list[dict[str, Any]]]:  # noqa: F811
    """The rows, as each of several readers has them."""
    table = lake.view.tables["a"]
    files = [f"{lake.uri}/{table.folder}/{name}" for name in table.files]
    found = [duckdb.sql(f"from read_parquet({files}, union_by_name=true)").to_arrow_table()]
    found += [bridge.Lake(lake.uri).table("p", "a").to_table(), bridge.Lake(lake.uri).sql("from p.a")]
    if format_ == "delta":
        found.append(DeltaTable(f"{lake.uri}/{table.folder}").to_pyarrow_table())
    elif format_ == "iceberg":
        with catalog_of(LocalStorage(Path(lake.uri))) as catalog:
            found.append(catalog.load_table("p.a").scan().to_arrow())
    return [sorted(each.select(COLUMNS).to_pylist(), key=lambda one: one["id"]) for each in found]


@pytest.mark.parametrize(
    "method", [{"load_method": "append-only"}, {"load_method": "upsert", "key_properties": ["at"]}]
)
@pytest.mark.parametrize("format_", ["parquet", "delta", "iceberg"])
def test_older_rows_read_as_the_tap_wrote_them(lake: Lake, format_: str, method: dict[str, Any]) -> None:  # noqa: F811
    """Of an earlier commit, and of the same one; as a key, in lists, and as JSON. Equal times are equal texts."""
    keys: dict[str, Any] = {"destination": {"bucket": lake.uri, "format": format_}, "streams": {"a": method}}
    assert outcome(lake.run(schema(AT, DAY), row(1), state(a=1), **keys)) == ("success", 0)
    result = lake.run(schema(AT, DAY), row(2), row(3), schema(TEXT, TEXT), row(4), state(a=4), **keys)
    assert outcome(result) == ("success", 0)
    numbers = [2, 3, 4] if method["load_method"] == "upsert" else [1, 2, 3, 4]
    expected = [row(number)["record"] for number in numbers]
    expected = [each | {"any": f'"{each["any"]}"'} for each in expected]
    for rows in read(lake, format_):
        assert rows == expected
