"""The keys that a table remembers: what `tap-bridge` tells the rows of a lake apart by, and its copy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bridge.lake.commit.rollback import roll_back
from bridge.lake.file_records import LiveFile
from bridge.lake.log import Log
from bridge.lake.records import TableState
from bridge.load.run.tables.table_key import key_after
from bridge.read.query.changes.diff import Rows, changed
from bridge.read.query.changes.feed import ChangeFeed
from tests.support.tables import STRING, Shop
from tests.support.tap_bridge import activated, difference, last_state, load, messages, read

INT = {"type": "integer"}
NULL_INT = {"type": ["null", "integer"]}
LINES = {"order_id": INT, "line": NULL_INT, "n": NULL_INT}


def put(shop: Shop, properties: dict[str, Any], rows: list[dict[str, Any]], *keys: str, **facts: Any) -> None:
    """Merge rows by these keys; the columns that may be null are nullable, as a run makes them."""
    required = tuple(key for key in keys if "null" not in str(properties[key]["type"]))
    before, shop.layout = shop.layout, shop.layout | {"keys": keys}
    shop.load("t", properties, rows, **{"mode": "upsert", "keys": required, "hard_delete": True} | facts)
    shop.layout = before


def key(shop: Shop) -> list[str] | None:
    """The key that readers are told."""
    return ChangeFeed(Log(shop.storage, "shop")).keys("t")


def copied(tmp_path: Path, state: Any = None) -> tuple[bytes, Any]:
    """Send what is due into the copy, which then equals the lake; return what was sent, and the last STATE."""
    (tmp_path / "copy").mkdir(exist_ok=True)
    text = read(tmp_path, state=state)
    load(tmp_path / "copy", text)
    assert difference(tmp_path, tmp_path / "copy", "t") == []
    return text, last_state(text)


@pytest.mark.parametrize("format_", ["parquet", "delta"])
def test_a_key_with_a_nullable_column(format_: str, tmp_path: Path) -> None:
    """The copy has each row of the key, and its deletions come."""
    shop = Shop(tmp_path, format=format_)
    rows = [{"order_id": o, "line": n, "n": 0} for o in (1, 2) for n in (1, 2)]
    put(shop, LINES, rows, "order_id", "line")
    text, state = copied(tmp_path)
    assert messages(text, "SCHEMA")[0]["key_properties"] == ["order_id", "line"]
    deleted = {**LINES, "_sdc_deleted_at": {**STRING, "format": "date-time"}}
    put(shop, deleted, [{**rows[0], "_sdc_deleted_at": "2025-01-01T00:00:00Z"}], "order_id", "line")
    text, _ = copied(tmp_path, state)
    assert activated(text) == []


def test_a_key_that_is_widened_between_two_runs(tmp_path: Path) -> None:
    """[a], then [a, b]: the whole table is sent by the new key."""
    shop, columns = Shop(tmp_path), {"a": INT, "b": NULL_INT}
    put(shop, columns, [{"a": 1, "b": 1}], "a")
    _, state = copied(tmp_path)
    put(shop, columns, [{"a": 1, "b": 2}, {"a": 1, "b": 3}], "a", "b")
    assert key(shop) == ["a", "b"]
    text, _ = copied(tmp_path, state)
    assert activated(text) == ["t"]


def test_a_key_that_is_narrowed_is_none_if_rows_share_it(tmp_path: Path) -> None:
    """Two rows of before have the same value of the new key: by it one of them would be lost."""
    shop, columns = Shop(tmp_path), {"a": INT, "b": NULL_INT}
    put(shop, columns, [{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 1}], "a", "b")
    put(shop, columns, [{"a": 3, "b": 1}], "a")
    assert key(shop) == []
    put(shop, columns, [{"a": 4, "b": 1}], "a")
    assert key(shop) == []
    put(shop, columns, [{"a": 3, "b": 1}, {"a": 4, "b": 2}], "a", mode="overwrite")
    assert key(shop) == ["a"]


@pytest.mark.parametrize(("ids", "expected"), [((1, 2), ["a"]), ((1, 1), [])])
def test_rows_that_were_added_before_a_key(ids: tuple[int, ...], expected: list[str], tmp_path: Path) -> None:
    """An append-only table that is merged from now on has the key if its rows show that each is there once."""
    shop = Shop(tmp_path)
    shop.load("t", {"a": INT, "b": NULL_INT}, [{"a": n, "b": 0} for n in ids], keys=("a",))
    assert key(shop) == []
    put(shop, {"a": INT, "b": NULL_INT}, [{"a": 9, "b": 0}], "a")
    assert key(shop) == expected


def test_a_table_that_is_loaded_anew_keeps_its_key(tmp_path: Path) -> None:
    """`run --full` of an upsert table: the key is told, and a rollback brings back the one of before."""
    shop, columns = Shop(tmp_path), {"a": INT, "b": NULL_INT}
    put(shop, columns, [{"a": n, "b": 0} for n in range(20)], "a")
    put(shop, columns, [{"a": n, "b": 1} for n in range(20)], "a", mode="overwrite")
    assert key(shop) == ["a"]
    shop.load("t", columns, [{"a": 1, "b": 2}])
    assert key(shop) == []
    log = Log(shop.storage, "shop")
    assert (log.snapshot(2).tables["t"].key, log.snapshot(2).tables["t"].upserts) == (("a",), True)
    roll_back(shop.storage, "shop", 2)
    assert key(shop) == ["a"]


def test_a_lost_commit_takes_its_key_back(tmp_path: Path) -> None:
    """Recovery voids the commit that widened the key."""
    shop, columns = Shop(tmp_path), {"a": INT, "b": NULL_INT}
    put(shop, columns, [{"a": 1, "b": 1}], "a")
    shop.layout = {"keys": ("a", "b"), "hard_delete": True}
    shop.lose("t", columns, [{"a": 1, "b": 2}], mode="upsert", keys=("a",))
    assert key(shop) == ["a"]


def test_an_older_version_noted_no_key(tmp_path: Path) -> None:
    """Nothing is certain then: the reader's own key stays, and the next merge looks whether each row is there once."""
    shop, columns = Shop(tmp_path), {"a": INT, "b": NULL_INT}
    put(shop, columns, [{"a": 1, "b": 1}, {"a": 2, "b": 1}], "a")
    _, state = copied(tmp_path)
    for path in sorted((shop.root / ".bridge/shop/commits").iterdir()):
        text = path.read_text()
        path.write_text(text.replace('"upserts": true,', "").replace('"key": [\n    "a"\n   ],', ""))
    forgotten = "\n".join(path.read_text() for path in (shop.root / ".bridge/shop/commits").iterdir())
    if '"upserts"' in forgotten:
        pytest.fail(forgotten)
    assert key(shop) is None
    put(shop, columns, [{"a": 2, "b": 2}], "a")
    assert key(shop) == ["a"]
    copied(tmp_path, state)


def test_keys_of_files_that_lack_the_column(tmp_path: Path) -> None:
    """Rows of before the column are null in it; several of them are no key."""
    shop = Shop(tmp_path)
    (shop.root / "f").mkdir(parents=True)
    pq.write_table(pa.table({"x": [1, 2]}), shop.root / "f/one.parquet")
    table = TableState("f", "h", {"one.parquet": LiveFile(1, 2)})
    columns = pa.schema([("x", pa.int64()), ("y", pa.int64())])
    assert key_after(shop.storage, table, columns, ["y"], anew=False) == ()
    assert key_after(shop.storage, table, columns, ["x", "y"], anew=False) == ("x", "y")


@pytest.mark.parametrize("nested", [False, True])
def test_nan_and_infinity_differ_from_null(nested: bool, tmp_path: Path) -> None:
    """And from one another, alone and inside of objects and lists; equal ones are equal."""
    values = [None, math.nan, math.inf, -math.inf, 0.0, -0.0]
    schema = pa.schema([("id", pa.int64())])
    made = [{"v": [value]} for value in values] if nested else values
    for one in range(len(values)):
        for other in range(len(values)):
            old, new = (
                Rows.of_slice(pa.table({"id": [1], "x": pa.array([made[n]], pa.array(made).type)}), schema)
                for n in (one, other)
            )
            assert changed(old, new).to_pylist() == [one != other]


def test_a_key_of_minus_zero_is_one_of_zero() -> None:
    """A merge takes them for one key, so the feed must not say that one of them went."""
    schema = pa.schema([("id", pa.float64())])
    zero, minus = (Rows.of_slice(pa.table({"id": [value]}), schema) for value in (0.0, -0.0))
    assert len(zero.missing_in(minus.texts).texts) == 0
    assert zero.texts.equals(minus.texts)


def test_a_key_of_minus_zero_stays_in_a_copy(tmp_path: Path) -> None:
    """The row is updated from 0.0 to -0.0: the copy has it still."""
    shop, columns = Shop(tmp_path), {"id": {"type": "number"}, "n": NULL_INT}
    put(shop, columns, [{"id": 0.0, "n": 1}], "id")
    _, state = copied(tmp_path)
    put(shop, columns, [{"id": -0.0, "n": 2}], "id")
    copied(tmp_path, state)
