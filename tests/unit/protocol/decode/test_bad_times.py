"""`on_bad_time: null`: a text that is no time becomes null, is counted, and keeps nothing else of its row back."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from typing import Any

import pyarrow as pa
import pytest

from bridge.protocol.decode import native
from bridge.protocol.decode.changed import BAD_TIME
from bridge.protocol.decode.decoder import Decoded, decode
from bridge.protocol.schema.json_schema import NULL_TIMES
from bridge.protocol.schema.table_schema import TableSchema, from_singer

PREFIX = b'{"type":"RECORD","stream":"s","record":'
AT, DAY = {"type": ["null", "string"], "format": "date-time"}, {"type": ["null", "string"], "format": "date"}
DEEP = {"type": "array", "items": {"type": "object", "properties": {"at": AT, "id": {"type": "integer"}}}}
COLUMNS = {"id": {"type": "integer"}, "at": AT, "day": DAY, "deep": DEEP, "key": AT, "_sdc_deleted_at": AT}
BAD = ["", " ", "0000-00-00 00:00:00", "soon", "2024-02-30T00:00:00Z", "\ud800", "2024-01-01T24:00:00.1234567Z"]
NOON = datetime(2024, 1, 1, 12, tzinfo=timezone.utc)


def schema() -> TableSchema:
    """As `ColumnPlan` marks it: all columns but the key."""
    columns = from_singer({"properties": COLUMNS}, ["id"])
    marked = [
        each if each.name in ("id", "key", "_sdc_deleted_at") else each.with_metadata(NULL_TIMES)
        for each in columns.arrow
    ]
    return TableSchema(columns.arrow, pa.schema(marked))


def read(*records: dict[str, Any], times: int = 1) -> Decoded:
    """Read with the compiled reader, with Arrow's, and with neither: all agree."""
    data = b"".join(PREFIX + json.dumps(record).encode() + b"}\n" for record in records * times)
    results = []
    with pytest.MonkeyPatch.context() as patch:
        for available, prefix in ((native.AVAILABLE, PREFIX), (False, PREFIX), (False, None)):
            patch.setattr(native, "AVAILABLE", available)
            results.append(decode(data, from_json(), prefix))
    first = results[0]
    for other in results[1:]:
        assert (other.rejects, other.changed) == (first.rejects, first.changed)
        tables = (each.table.drop_columns("_sdc_deleted_at") for each in (other, first))  # perhaps the time of now
        assert next(tables) == next(tables)
    return first


def from_json() -> TableSchema:
    """The schema as the spool keeps it for a worker."""
    return TableSchema.from_json(schema().to_json())


@pytest.mark.parametrize("text", BAD, ids=ascii)
def test_a_text_that_is_no_time_is_null(text: str) -> None:
    """In columns of times and of days, in objects and lists; the row has all of its other values."""
    good = {"id": 1, "at": "2024-01-01 12:00:00 +00:00", "day": "2024-01-01", "deep": [{"at": "2024-01-01T12:00:00"}]}
    decoded = read(good, {"id": 2, "at": text, "day": text, "deep": [{"at": text, "id": 7}, None]}, {"id": 3})
    assert not decoded.rejects
    first, second, third = decoded.table.select(["id", "at", "day", "deep"]).to_pylist()
    assert first == {"id": 1, "at": NOON, "day": date(2024, 1, 1), "deep": [{"at": NOON, "id": None}]}
    assert second == {"id": 2, "at": None, "day": None, "deep": [{"at": None, "id": 7}, None]}
    assert third == {"id": 3, "at": None, "day": None, "deep": None}
    assert decoded.changed == {(BAD_TIME, name): 1 for name in ("at", "day", "deep[].at")}


@pytest.mark.parametrize("value", [1704067200, 1.5, True, [], {}])
def test_what_is_no_text_stays_a_reject(value: Any) -> None:
    """A number may be a time that is counted in seconds: nobody is to lose it."""
    assert [each.reason for each in read({"id": 1, "at": value}).rejects] == ["not a date-time"]


def test_unmarked_columns_and_other_rejects() -> None:
    """Keys stay rejects, a bad mark of deletion still deletes; values of rejects are not counted."""
    decoded = read({"id": 1, "key": ""}, {"id": "x", "at": ""}, {"id": 2, "_sdc_deleted_at": "yes", "at": "no"})
    assert [(each.line, each.pointer) for each in decoded.rejects] == [(0, "/key"), (1, "/id")]
    assert [row["id"] for row in decoded.table.to_pylist()] == [2]
    assert decoded.table.column("_sdc_deleted_at").null_count == 0
    assert decoded.changed[BAD_TIME, "at"] == 1
    assert (BAD_TIME, "_sdc_deleted_at") not in decoded.changed


def test_many_of_them() -> None:
    """Whole blocks of bad and of good lines: each row in its place."""
    decoded = read(*({"id": n, "at": "" if n % 50 == 0 else "2024-01-01T12:00:00Z"} for n in range(5000)))
    assert decoded.table.column("id").to_pylist() == list(range(5000))
    assert decoded.changed == {(BAD_TIME, "at"): 100}
    assert decoded.table.column("at").null_count == 100
