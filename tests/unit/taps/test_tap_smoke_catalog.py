"""The tap offers a Singer catalog, and a passed one decides what is sent."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

Tap = Callable[..., Any]
CONFIG = {
    "streams": [
        {"name": "a", "records": 3},
        {"name": "b", "records": 3, "replication_method": "FULL_TABLE", "key_properties": ["id", "n"]},
    ]
}


@pytest.fixture
def catalog(smoke: Tap) -> dict[str, Any]:
    """What --discover prints."""
    run = smoke(CONFIG, "--discover")
    assert run.code == 0
    value: dict[str, Any] = json.loads(run.stdout)
    return value


def _root(entry: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(item["metadata"] for item in entry["metadata"] if item["breadcrumb"] == [])
    return found


def test_the_discovered_catalog_is_complete(catalog: dict[str, Any]) -> None:
    """Streams, keys, methods and each column's inclusion are there."""
    first, second = catalog["streams"]
    assert _root(first) == {
        "inclusion": "available",
        "selected": True,
        "table-key-properties": ["id"],
        "replication-method": "INCREMENTAL",
        "valid-replication-keys": ["id"],
        "replication-key": "id",
    }
    assert _root(second)["replication-method"] == "FULL_TABLE"
    inclusions = {item["breadcrumb"][1]: item["metadata"]["inclusion"] for item in second["metadata"][1:]}
    assert inclusions == dict.fromkeys(["name", "amount", "active", "at"], "available") | dict.fromkeys(
        ["id", "n"], "automatic"
    )
    assert list(first["schema"]["properties"]) == ["id", "n", "name", "amount", "active", "at"]


def test_the_discovered_catalog_selects_everything(smoke: Tap, catalog: dict[str, Any]) -> None:
    """Passing it back unchanged gives the bytes of a run without one."""
    assert smoke(CONFIG, catalog=catalog).stdout == smoke(CONFIG).stdout


def test_only_selected_streams_are_sent(smoke: Tap, catalog: dict[str, Any]) -> None:
    """`selected` must be true; false and absent both mean no."""
    _root(catalog["streams"][0])["selected"] = False
    assert {m["stream"] for m in smoke(CONFIG, catalog=catalog).of("SCHEMA")} == {"b"}
    del _root(catalog["streams"][0])["selected"]
    assert {m["stream"] for m in smoke(CONFIG, catalog=catalog).of("SCHEMA")} == {"b"}


def test_legacy_selected_keys(smoke: Tap) -> None:
    """Without metadata the `selected` beside or inside the schema counts."""
    streams = [{"tap_stream_id": "a", "schema": {"selected": True}}, {"stream": "b", "selected": False, "schema": {}}]
    assert {m["stream"] for m in smoke(CONFIG, catalog={"streams": streams}).of("SCHEMA")} == {"a"}


def test_deselected_columns_are_left_out(smoke: Tap, catalog: dict[str, Any]) -> None:
    """They are neither in SCHEMA nor in RECORD; keys cannot be deselected; the other values stay the same."""
    whole = smoke(CONFIG, catalog=copy.deepcopy(catalog)).of("RECORD", "a")
    for item in catalog["streams"][0]["metadata"]:
        if item["breadcrumb"] in (["properties", "name"], ["properties", "at"], ["properties", "id"]):
            item["metadata"]["selected"] = False
    run = smoke(CONFIG, catalog=catalog)
    kept = ["id", "n", "amount", "active"]
    assert list(run.of("SCHEMA", "a")[0]["schema"]["properties"]) == kept
    rows = [m["record"] for m in run.of("RECORD", "a")]
    assert rows == [{key: m["record"][key] for key in kept} for m in whole]
    assert len(run.of("RECORD", "b")[0]["record"]) == 6


def test_the_catalog_overrides_the_replication_method(smoke: Tap, catalog: dict[str, Any]) -> None:
    """A stream that the catalog calls FULL_TABLE starts over and has an empty bookmark."""
    _root(catalog["streams"][0])["replication-method"] = "FULL_TABLE"
    state = {"bookmarks": {"a": {"replication_key": "id", "replication_key_value": 3}}}
    run = smoke(CONFIG, catalog=catalog, state=state)
    assert run.ids("a") == [1, 2, 3]
    assert run.states[-1]["bookmarks"]["a"] == {}
    assert "bookmark_properties" not in run.of("SCHEMA", "a")[0]


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ([], "not a Singer catalog"),
        ({"streams": [{"schema": {}}]}, "not a Singer catalog"),
        ({"streams": [{"stream": "zz", "selected": True}]}, "does not have: zz"),
        ({"streams": [{"stream": "a", "selected": True, "replication_method": "LOG_BASED"}]}, "LOG_BASED"),
    ],
)
def test_a_catalog_that_cannot_be_honoured_is_refused(smoke: Tap, value: Any, complaint: str) -> None:
    """Nothing is sent, and the message says what is wrong."""
    run = smoke(CONFIG, catalog=value)
    assert (run.code, run.stdout) == (1, b"")
    assert complaint in run.stderr
