"""Keys that differ in the source never become one row: what a key's column cannot hold as it is, is a reject."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from bridge.exact_json import loads
from bridge.load.write.spill import reject_without_key
from bridge.protocol.decode.changed import LOST_DIGITS
from bridge.protocol.decode.decoder import decode
from bridge.protocol.schema.table_schema import from_singer
from tests.support.tables import STRING, Shop
from tests.unit.load.write.test_upsert import rows

NUMBER = {"type": ["null", "number"]}
AT = {"type": ["null", "string"], "format": "date-time"}
DAY = {"type": ["null", "string"], "format": "date"}


def load(shop: Shop, kind: dict[str, Any], keys: list[str], **layout: Any) -> None:
    """Load a row for each of these keys, which are JSON texts."""
    records = [{"id": loads(key.encode()), "name": str(n)} for n, key in enumerate(keys)]
    shop.load("users", {"id": kind, "name": STRING}, records, mode="upsert", max_rejects=99, **layout)


@pytest.mark.parametrize("format_", ["parquet", "delta", "iceberg"])
def test_numbers_that_a_double_makes_equal_are_rejects(tmp_path: Path, format_: str) -> None:
    """Also as text, beyond a double's range, and where the table's column is older than this rule."""
    shop = Shop(tmp_path, keys=("id",), format=format_)
    load(shop, NUMBER, ["9007199254740992", "0.1", "1e22", "-3", "0", "123456789012345680000", "null"])
    odd = [*(f"900719925474099{n}" for n in (3, 5)), "0.10000000000000001", "0.1000000000000000055", "1e-400"]
    odd += ['"9007199254740993"', "123456789012345678901234567890.5", "4503599627370496.25"]
    load(shop, NUMBER, [*odd, "9007199254740994", "-3.0"])
    assert {reject["reason"].partition(":")[0] for reject in shop.rejects} == {
        "a key has more digits than a double holds"
    }
    assert len(shop.rejects) == len(odd)
    exact = {2**53, 0.1, 1e22, -3.0, 0.0, 123456789012345680000.0, None, float(2**53 + 2)}
    assert sorted(map(str, (row["id"] for row in rows(shop)))) == sorted(map(str, map(_float, exact)))


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)


def test_an_integer_in_a_column_of_doubles_is_as_exact(tmp_path: Path) -> None:
    """A table that had numbers goes on with integers."""
    shop = Shop(tmp_path, keys=("id",))
    load(shop, NUMBER, ["1"])
    load(shop, {"type": "integer"}, ["9007199254740993", "2"])
    assert [reject["pointer"] for reject in shop.rejects] == ["/id"]
    assert sorted(row["id"] for row in rows(shop)) == [1.0, 2.0]


def test_a_declared_decimal_keeps_each_digit_of_a_key(tmp_path: Path) -> None:
    """As the reason of the rejects advises."""
    shop = Shop(tmp_path, keys=("id",))
    load(shop, NUMBER | {"multipleOf": 1e-19}, ["9007199254740993", "9007199254740992", "0.1000000000000000055", "0.1"])
    assert len({Decimal(row["id"]) for row in rows(shop)}) == 4


def test_instants_beyond_microseconds_and_infinity_are_rejects(tmp_path: Path) -> None:
    """Zeros beyond them are none; so are those of other columns."""
    shop = Shop(tmp_path, keys=("id",))
    keys = [f"2024-01-01T00:00:00.123456{end}" for end in ("000Z", "300Z", "600+00:00", "0000001Z")]
    keys += ["2024-01-01 00:00:00,1234569 UTC", "2024-01-01 00:53:28.123456+00:53:28"]
    keys += ["9999-12-31T23:59:59.999999Z", "infinity", "-infinity"]
    load(shop, AT, [f'"{key}"' for key in keys])
    assert [reject["reason"].partition(",")[0] for reject in shop.rejects] == [
        *["a key has digits beyond microseconds"] * 4,
        *["a key is infinite"] * 2,
    ]
    utc = timezone.utc
    assert {row["id"].astimezone(utc) for row in rows(shop)} == {
        datetime(2024, 1, 1, 0, 0, 0, 123456, utc),
        datetime.max.replace(tzinfo=utc),
    }


def test_an_infinite_day_is_no_key(tmp_path: Path) -> None:
    """It would be the last day of 9999."""
    shop = Shop(tmp_path, keys=("id",))
    load(shop, DAY, ['"9999-12-31"', '"infinity"', '"2024-02-29"'])
    assert [(reject["pointer"], "infinity" in reject["raw"]) for reject in shop.rejects] == [("/id", True)]
    assert len(rows(shop)) == 2


OLD = {"id": {"type": "integer"}, "name": STRING}
NEW = {"id": NUMBER, "uid": STRING, "name": STRING}


@pytest.mark.parametrize("format_", ["parquet", "delta", "iceberg"])
@pytest.mark.parametrize("keys", [("uid",), ("id", "uid")])
def test_a_row_older_than_its_keys_column_has_no_key(tmp_path: Path, keys: tuple[str, ...], format_: str) -> None:
    """Also after its file was written again: a null in the key of one record is not its key."""
    shop = Shop(tmp_path, format=format_, hard_delete=False)
    old = [{"id": n, "name": "old"} for n in range(5)]
    first = shop.load("users", OLD, old, version=1)
    assert first.tables[0].merged == {}
    layout: dict[str, Any] = {"mode": "upsert", "version": 2}
    shop.layout["keys"] = keys
    record = shop.load("users", NEW, [{"id": 0, "uid": None, "name": "a"}], **layout)
    assert record.tables[0].merged == {"rows": 1, "inserted": 1, "updated": 0, "superseded": 0, "deleted": 0}
    again = shop.load("users", NEW, [{"id": 0, "uid": None, "name": "b"}], activate=2, **layout)
    assert again.tables[0].merged["updated"] == 1
    last = shop.load("users", NEW, [{"id": 0, "uid": None, "name": "c"}, {"id": 1, "uid": "x"}], **layout)
    assert (last.tables[0].merged["updated"], "dropped" in last.tables[0].merged) == (1, False)
    assert sorted(str(row["name"]) for row in rows(shop)) == ["None", "c", *["old"] * 5]


def test_rows_that_a_merge_drops_are_counted(tmp_path: Path) -> None:
    """Rows with one key, as they were only added before; and those whose key is null for themselves."""
    shop = Shop(tmp_path)
    shop.load("users", NEW, [{"id": n % 2, "uid": None if n < 6 else "x"} for n in range(10)])
    shop.layout["keys"] = ("uid",)
    record = shop.load("users", NEW, [{"id": 7, "uid": None}, {"id": 8, "uid": "x"}], mode="upsert")
    merged = record.tables[0].merged
    assert (merged["updated"], merged["dropped"], merged["dropped_nulls"]) == (2, 8, 5)
    assert sorted(row["id"] for row in rows(shop)) == [7, 8]


def test_values_of_a_row_that_is_a_reject_are_not_counted_as_changed() -> None:
    """Only rows of the lake differ from what the tap sent."""
    record = '{{"type":"RECORD","stream":"s","record":{{"id":{},"v":{}}}}}\n'
    data = "".join(
        record.format(*each) for each in (("9007199254740993", "0.10000000000000001"), ("1", "1e-400"))
    ).encode()
    decoded = decode(data, from_singer({"properties": {"id": NUMBER, "v": NUMBER}}, []), None)
    assert dict(decoded.changed) == {(LOST_DIGITS, "id"): 1, (LOST_DIGITS, "v"): 2}
    left = reject_without_key(decoded, data, ["id"])
    assert ([reject.pointer for reject in left.rejects], dict(left.changed)) == (["/id"], {(LOST_DIGITS, "v"): 1})
