"""`tap-bridge` in this process over a lake of the tests, and the way of its messages into another lake."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import duckdb
from tap_bridge import TapBridge

from bridge import Lake
from tests.support.tables import STRING, Shop
from tests.support.targets import target

COPY = {"load_method": "auto", "hard_delete": True, "pipeline": "copy", "path": "copy"}
"""The settings of a target whose tables are to be those of the source."""

AT = "2025-01-01T00:00:00Z"
USERS = {"id": {"type": "integer"}, "name": STRING, "_sdc_deleted_at": {**STRING, "format": "date-time"}}


def read(root: Path, state: Any = None, catalog: Any = None, **config: Any) -> bytes:
    """What the tap writes for the lake in a folder."""
    out = io.StringIO()
    with redirect_stdout(out):
        tap = TapBridge(config={"bucket": str(root / "lake"), "threads": 1} | config, state=state, catalog=catalog)
        tap.sync_all()
    return out.getvalue().encode()


def messages(text: bytes, kind: str) -> list[dict[str, Any]]:
    """The messages of one type, in their order."""
    return [message for message in map(json.loads, text.splitlines()) if message["type"] == kind]


def records(text: bytes) -> list[dict[str, Any]]:
    """The records that were sent."""
    return [message["record"] for message in messages(text, "RECORD")]


def sent(text: bytes) -> list[int]:
    """The ids that were sent, in their order."""
    return [record["id"] for record in records(text)]


def activated(text: bytes) -> list[str]:
    """The streams that were sent as a whole."""
    return [message["stream"] for message in messages(text, "ACTIVATE_VERSION")]


def states(text: bytes) -> list[Any]:
    """The values of the STATEs."""
    return [message["value"] for message in messages(text, "STATE")]


def discovered(root: Path) -> Any:
    """The catalog of the lake in a folder."""
    return TapBridge(config={"bucket": str(root / "lake")}).catalog_dict


def last_state(text: bytes) -> Any:
    """The last STATE of a tap."""
    return messages(text, "STATE")[-1]["value"]


def rows(*values: int, **more: Any) -> list[dict[str, Any]]:
    """Users with these ids."""
    return [{"id": value, "name": f"n{value}"} | more for value in values]


def upsert(shop: Shop, records: list[dict[str, Any]], **facts: Any) -> None:
    """Merge records into the table `users` by its key; deletions remove rows unless told otherwise."""
    before, shop.layout = shop.layout, shop.layout | {"keys": ("id",)}
    shop.load("users", USERS, records, mode="upsert", **{"keys": ("id",), "hard_delete": True} | facts)
    shop.layout = before


def load(folder: Path, text: bytes, **config: Any) -> Any:
    """Load messages with `target-bridge`; return the last STATE that it printed, None without one."""
    typed = target(folder, text, **COPY | config)
    assert typed.code == 0, typed.out
    return typed.states[-1] if typed.states else None


def difference(source: Path, copy: Path, stream: str) -> list[tuple[Any, ...]]:
    """The rows, in the source's columns, that one of two lakes has and the other has not, or not as often."""
    one, other = Lake(source / "lake").table("shop", stream), Lake(copy / "lake").table("copy", stream)
    columns = ", ".join('"{}"'.format(name.replace('"', '""')) for name in one.schema.names)
    assert {str(field.type) for field in one.schema if field.type != other.schema.field(field.name).type} == set()
    with duckdb.connect() as connection:
        connection.register("one", one.to_table())
        connection.register("other", other.to_table())
        both = [
            f"(FROM {a} SELECT {columns} EXCEPT ALL FROM {b} SELECT {columns})"
            for a, b in (["one", "other"], ["other", "one"])
        ]
        return [row for query in both for row in connection.execute(query).fetchall()]
