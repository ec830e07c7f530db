"""Fields outside the SCHEMA in a stream of changes: each keeps its value until a change says another one."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bridge.load.write.spill import absent_columns
from bridge.protocol.decode.decoder import decode
from bridge.protocol.schema.table_schema import TableSchema
from tests.unit.load.write.test_merge import AT, Table

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("o", pa.struct([pa.field("a", pa.int64())])),
        pa.field("_sdc_deleted_at", pa.timestamp("us", "UTC")),
        pa.field("_sdc_extra", pa.string()),
    ]
)


def change(key: int, extra: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A change as it is decoded: what lacks a column does not name it."""
    text = None if extra is None else json.dumps(extra, separators=(",", ":"))
    return {"k": key, "_sdc_deleted_at": None, "_sdc_extra": text, **more}


def extras(table: Table) -> dict[int, Any]:
    return {row["k"]: json.loads(row["_sdc_extra"] or "null") for row in table.rows()}


@pytest.mark.parametrize("commits", [1, 2, 3], ids=["one commit", "two", "each its own"])
def test_a_change_without_a_field_keeps_it(tmp_path: Path, commits: int) -> None:
    """Wherever a commit ends, and whether the change has other such fields or none."""
    table = Table(tmp_path, SCHEMA, ["k"], changes=True)
    rows = [change(1, {"x": "long"}), change(1), change(1, {"z": 5}), change(2, {"y": 1.5}), change(2, {"y": None})]
    parts = {1: [rows], 2: [rows[:2], rows[2:]], 3: [[row] for row in rows]}[commits]
    for part in parts:
        table.merge([table.spill(part)])
    assert extras(table) == {1: {"x": "long", "z": 5}, 2: {"y": None}}


def test_digits_of_a_field_that_is_kept_stay(tmp_path: Path) -> None:
    """The text is merged as it is written, not through a double."""
    table = Table(tmp_path, SCHEMA, ["k"], changes=True)
    table.merge([table.spill([{"k": 1, "_sdc_deleted_at": None, "_sdc_extra": '{"n":0.12345678901234567890}'}])])
    table.merge([table.spill([change(1, {"z": 5})])])
    assert table.rows()[0]["_sdc_extra"] == '{"n":0.12345678901234567890,"z":5}'


def test_the_part_of_an_object_without_columns_goes_with_the_object(tmp_path: Path) -> None:
    """A change that has the object says all of it; one that lacks it leaves both parts."""
    table = Table(tmp_path, SCHEMA, ["k"], changes=True)
    table.merge([table.spill([change(n, {"o": {"a": 1, "b": 2}}, o={"a": 1}) for n in (1, 2)])])
    table.merge([table.spill([change(1, o={"a": 3}), change(2)])])
    assert extras(table) == {1: None, 2: {"o": {"a": 1, "b": 2}}}
    assert sorted(row["o"]["a"] for row in table.rows()) == [1, 3]


@pytest.mark.parametrize("hard", [False, True])
def test_it_is_what_a_dict_does(tmp_path: Path, hard: bool) -> None:
    """Random changes and deletions, in batches of any size."""
    chance = random.Random(34)
    table, lake = Table(tmp_path, SCHEMA, ["k"], changes=True, hard_delete=hard), dict[int, dict[str, Any]]()
    for _ in range(12):
        rows = []
        for _ in range(chance.randint(1, 12)):
            fields = {name: chance.randint(0, 9) for name in "xyz" if chance.random() < 0.4}
            key, is_deletion = chance.randint(0, 3), chance.random() < 0.2
            rows.append(change(key, fields or None, **({"_sdc_deleted_at": AT, "o": None} if is_deletion else {})))
            if is_deletion and hard:
                lake.pop(key, None)
            else:
                lake[key] = lake.get(key, {}) | fields
        at = chance.randint(0, len(rows))
        table.merge([table.spill(part) for part in (rows[:at], rows[at:]) if part])
        assert extras(table) == {key: fields or None for key, fields in lake.items()}


def test_a_column_of_the_tap_is_lacking_whatever_its_name() -> None:
    """`_sdc_foo` of the tap is of the row; the key and the mark of a deletion are not."""
    names = ["id", "_sdc_foo", "_sdc_deleted_at"]
    schema = TableSchema(pa.schema([pa.field(name, pa.int64()) for name in names]))
    line = b'{"type":"RECORD","stream":"t","record":{"id":1}}\n'
    decoded = decode(line, schema, None)
    assert absent_columns(decoded, line, ["id", "_sdc_deleted_at"]).to_pylist() == [["_sdc_foo"]]
