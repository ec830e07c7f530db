"""Lakes as sources, on stores: `tap-bridge` into a copy, and `format("singer")`, follow what commits change."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import duckdb

from bridge import Lake
from bridge.lake.storage import open_storage
from tests.interop.azurite import Azurite
from tests.interop.fakegcs import FakeGcs
from tests.support.spark_source import frame
from tests.support.tables import STRING, Shop
from tests.support.tap_bridge import last_state, load, read, records

AT = "2025-01-01T00:00:00Z"
USERS = {"id": {"type": "integer"}, "name": STRING, "_sdc_deleted_at": {**STRING, "format": "date-time"}}


def test_azure(azurite: Azurite, tmp_path: Path) -> None:
    """On Azurite."""
    follows(f"az://lake/{uuid.uuid4().hex}", tmp_path)


def test_google(gcs: FakeGcs, tmp_path: Path) -> None:
    """On fake-gcs-server."""
    follows(f"gs://{gcs.bucket(uuid.uuid4().hex)}/team", tmp_path)


def follows(uri: str, tmp_path: Path) -> None:
    """The whole table, then an update, an insert and deletions, then an overwrite: the copy is the lake each time.

    The change feed has the same; an older commit is still read out of the trash.
    """
    shop = Shop(tmp_path, open_storage(uri), keys=("id",))
    upsert(shop, [{"id": n, "name": "a"} for n in range(1, 30)])
    text = read(tmp_path, bucket=uri)
    assert len(records(text)) == 29
    state = same(tmp_path, uri, text)
    upsert(shop, [{"id": 3, "name": "b"}, {"id": 50, "name": "b"}, *({"id": n, "_sdc_deleted_at": AT} for n in (1, 2))])
    text = read(tmp_path, state, bucket=uri)
    assert sorted(record["id"] for record in records(text)) == [1, 2, 3, 50]
    state = same(tmp_path, uri, text)
    changes = frame(tmp_path, path=uri, table="users", changes="true", from_=2)
    assert sorted((row["_change"], row["id"]) for row in changes) == [
        ("delete", 1),
        ("delete", 2),
        ("insert", 50),
        ("update", 3),
    ]
    shop.layout = {}
    shop.load("users", USERS, [{"id": n, "name": "new"} for n in range(100, 130)], mode="overwrite", keys=("id",))
    same(tmp_path, uri, read(tmp_path, state, bucket=uri))
    assert [row["id"] for row in frame(tmp_path, path=uri, table="users")] == list(range(100, 130))
    assert len(frame(tmp_path, path=uri, table="users", commit=2)) == 28
    assert records(read(tmp_path, last_state(read(tmp_path, bucket=uri)), bucket=uri)) == []


def upsert(shop: Shop, rows: list[dict[str, Any]]) -> None:
    shop.load("users", USERS, rows, mode="upsert", keys=("id",), hard_delete=True)


def same(folder: Path, uri: str, text: bytes) -> Any:
    """Load what the tap sent into a copy, which then has the lake's rows as DuckDB reads both; the target's STATE."""
    state = load(folder, text)
    with duckdb.connect() as connection:
        connection.register("one", Lake(uri).table("shop", "users").to_table(columns=["id", "name"]))
        connection.register("two", Lake(folder / "lake").table("copy", "users").to_table(columns=["id", "name"]))
        for a, b in (("one", "two"), ("two", "one")):
            assert connection.execute(f"FROM {a} EXCEPT ALL FROM {b}").fetchall() == []
    return state
