"""What the tap says in each run of the golden lakes, and the rows that a lake has then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_INTEGER, _TEXT = {"type": ["null", "integer"]}, {"type": ["null", "string"]}


def _schema(stream: str, *, bookmark: bool = True, keys: tuple[str, ...] = (), **columns: Any) -> dict[str, Any]:
    message = {"type": "SCHEMA", "stream": stream, "schema": {"properties": {"id": _INTEGER} | columns}}
    more = {"bookmark_properties": ["id"]} if bookmark else {}
    return message | {"key_properties": list(keys)} | more


def _records(stream: str, *records: dict[str, Any], **top: Any) -> Iterator[dict[str, Any]]:
    return ({"type": "RECORD", "stream": stream, "record": record} | top for record in records)


def _at(value: int) -> dict[str, Any]:
    return {"replication_key": "id", "replication_key_value": value}


def _state(**bookmarks: Any) -> dict[str, Any]:
    marks = {stream: _at(mark) if isinstance(mark, int) else mark for stream, mark in bookmarks.items()}
    return {"type": "STATE", "value": {"bookmarks": marks}}


def _orders(first: int, last: int, **columns: Any) -> list[dict[str, Any]]:
    shown = _schema("orders", **dict.fromkeys(columns, _TEXT))
    return [shown, *_records("orders", *({"id": number} | columns for number in range(first, last + 1)))]


def _people(**names: str) -> list[dict[str, Any]]:
    rows = ({"id": int(key[1:]), "name": name} for key, name in names.items())
    return [_schema("people", keys=("id",), name=_TEXT), *_records("people", *rows)]


def _full(*numbers: int) -> list[dict[str, Any]]:
    return [_schema("full", bookmark=False), *_records("full", *({"id": number} for number in numbers))]


def _big(first: int, last: int, **before: Any) -> Iterator[dict[str, Any]]:
    """Rows of a full table that its tap can go on with, as MySQL's does."""
    yield _schema("big", bookmark=False)
    for number in range(first, last + 1):
        yield from _records("big", {"id": number}, version=100)
        yield _state(**before, big={"version": 100, "last_pk_fetched": number, "max_pk_values": 6})


_MARKERS = {"progress_markers": {"replication_key": "id", "replication_key_value": 2}}
_ACTIVE = {"type": "ACTIVATE_VERSION", "stream": "big", "version": 100}
_STAGED = {"version": 100, "last_pk_fetched": 3, "max_pk_values": 6}

RUNS: dict[str, list[dict[str, Any]]] = {
    "first": [
        *_orders(1, 5),
        *_records("orders", {"id": "six"}),
        *_people(p1="Ann", p2="Bob", p3="Cid"),
        *_full(1, 2, 3),
        _state(orders=5, people=3, full={}),
    ],
    "second": [
        *_orders(6, 8, note="new"),
        *_people(p2="Bea", p4="Dan"),
        *_full(3, 4),
        _state(orders=8, people=4, full={}),
    ],
    "lost": [*_orders(9, 10, note="lost"), _state(orders=10, people=4, full={})],
    "staged": [*_big(1, 3, orders=8, people=4, full={}), {"exit": 1}],
    "killed": [
        _schema("late"),
        *_records("late", {"id": 1}, {"id": 2}),
        *_orders(9, 10, note="again"),
        _state(orders=10, people=4, full={}, big=_STAGED, late=_MARKERS),
        {"wait": True},
    ],
}
"""In this order. `lost` dies right after its commit, and the commit's files are deleted, so that the next run takes it
back; `staged` fails and leaves half a table; `killed` is killed while it holds rows that its STATE does not cover.
"""

LAST: list[dict[str, Any]] = [
    _schema("late"),
    *_records("late", {"id": 1}, {"id": 2}, {"id": 3}),
    *_orders(11, 12, note="after"),
    *_people(p1="Amy"),
    *_big(4, 6, orders=12, people=4, full={}, late=3),
    _ACTIVE,
    _state(orders=12, people=4, full={}, late=3, big={"done": True}),
]
"""What the run says that goes on from a golden lake."""

END_STATE = LAST[-1]["value"]

AFTER_SECOND: dict[str, list[tuple[Any, ...]]] = {
    "orders": [(n, None) for n in range(1, 6)] + [(n, "new") for n in range(6, 9)],
    "people": [(1, "Ann"), (2, "Bea"), (3, "Cid"), (4, "Dan")],
    "full": [(3,), (4,)],
}
"""The rows by stream, `id` and the stream's other column, when the second run was done; and until the last one."""

AT_THE_END: dict[str, list[tuple[Any, ...]]] = {
    "orders": [*AFTER_SECOND["orders"], (9, "again"), (10, "again"), (11, "after"), (12, "after")],
    "people": [(1, "Amy"), *AFTER_SECOND["people"][1:]],
    "full": AFTER_SECOND["full"],
    "big": [(n,) for n in range(1, 7)],
    "late": [(1,), (2,), (3,)],
}


def text(messages: list[dict[str, Any]]) -> str:
    """Return the file that the tap reads."""
    return "".join(json.dumps(message) + "\n" for message in messages)
