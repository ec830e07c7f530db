"""Catalogs of both styles: read, narrowed, and otherwise left as the tap wrote them."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from bridge.catalog import deselected, parse_catalog, replication_method, select, selected_streams, stream_ids
from bridge.errors import SettingsError, TapError


def stream(name: str, columns: str = "id secret_pin note", **root: Any) -> dict[str, Any]:
    """Return a stream as SDK taps describe it; `id` is automatic."""
    properties = {column: {"type": ["null", "string"]} for column in columns.split()}
    metadata = [{"breadcrumb": [], "metadata": {key.replace("_", "-"): value for key, value in root.items()}}]
    metadata += [
        {
            "breadcrumb": ["properties", column],
            "metadata": {"inclusion": "automatic" if column == "id" else "available"},
        }
        for column in properties
    ]
    return {"tap_stream_id": name, "stream": name, "schema": {"properties": properties}, "metadata": metadata}


def catalog(*streams: dict[str, Any]) -> dict[str, Any]:
    return {"streams": list(streams)}


def columns(chosen: dict[str, Any], name: str) -> set[str]:
    """Return the columns of a stream that a tap would send."""
    (entry,) = (s for s in chosen["streams"] if s["tap_stream_id"] == name)
    return {
        m["breadcrumb"][1]
        for m in entry["metadata"]
        if m["breadcrumb"] and (m["metadata"].get("inclusion") == "automatic" or m["metadata"].get("selected", True))
    }


THREE = catalog(stream("public-users"), stream("public-orders"), stream("audit-log"))


@pytest.mark.parametrize(
    ("patterns", "streams", "users"),
    [
        (["public-*"], {"public-users", "public-orders"}, {"id", "secret_pin", "note"}),
        (["*", "!audit-*"], {"public-users", "public-orders"}, {"id", "secret_pin", "note"}),
        (["public-*", "!*.secret_*"], {"public-users", "public-orders"}, {"id", "note"}),
        (["public-users.note"], {"public-users"}, {"id", "note"}),
        (["public-users.*", "!public-users.note"], {"public-users"}, {"id", "secret_pin"}),
        (["*", "!*.*", "public-users.note"], {"public-users", "public-orders", "audit-log"}, {"id", "note"}),
        (["!public-users", "*"], {"public-users", "public-orders", "audit-log"}, {"id", "secret_pin", "note"}),
        (["*", "!*.id"], {"public-users", "public-orders", "audit-log"}, {"id", "secret_pin", "note"}),
    ],
)
def test_select(patterns: list[str], streams: set[str], users: set[str]) -> None:
    """Globs choose streams and columns, the last match wins, and automatic columns stay; the original does too."""
    before = deepcopy(THREE)
    chosen = select(THREE, patterns)
    assert selected_streams(chosen) == streams
    assert columns(chosen, "public-users") == users
    assert deselected(chosen) == set(stream_ids(THREE)) - streams
    assert before == THREE


def test_select_only() -> None:
    """`--stream` narrows what is selected, and selects what was not when no pattern says otherwise."""
    assert selected_streams(select(THREE, ["public-*"], ["public-users"])) == {"public-users"}
    assert selected_streams(select(THREE, [], ["audit-log"])) == {"audit-log"}
    with pytest.raises(SettingsError, match="no such stream stream=users") as caught:
        select(THREE, [], ["users"])
    assert "public-users" in caught.value.hint


def test_nothing_selected_is_said() -> None:
    """A selection that matches nothing is an error that shows what there is."""
    for patterns, only in ((["nope-*"], []), (["public-*"], ["audit-log"])):
        with pytest.raises(SettingsError, match="no stream is selected") as caught:
            select(THREE, patterns, only)
        assert "audit-log" in caught.value.hint


@pytest.mark.parametrize(
    ("entry", "chosen"),
    [
        (stream("a", selected=True), True),
        (stream("a", selected=False, selected_by_default=True), False),
        (stream("a", selected_by_default=True), True),
        (stream("a", inclusion="automatic"), True),
        (stream("a", selected=True, inclusion="unsupported"), False),
        (stream("a"), False),
        ({"stream": "a", "schema": {"selected": True}}, True),
        ({"stream": "a", "selected": True, "schema": {}}, True),
        ({"stream": "a", "schema": {}, "metadata": []}, False),
    ],
)
def test_selected_streams(entry: dict[str, Any], chosen: bool) -> None:
    """Selection is read in the order of both styles: metadata, the stream, its schema, the defaults."""
    before = deepcopy(entry)
    assert (selected_streams(catalog(entry)) == {"a"}) is chosen
    assert (deselected(catalog(entry)) == {"a"}) is not chosen
    assert entry == before


def test_old_style_catalogs_are_narrowed_too() -> None:
    """A stream without metadata, selected by the field of its own, is deselected in both places."""
    chosen = select(catalog({"stream": "a", "selected": True, "schema": {}}, {"stream": "b", "schema": {}}), ["b"])
    assert selected_streams(chosen) == {"b"}
    assert chosen["streams"][0]["selected"] is False


def test_deselected_knows_both_names() -> None:
    """A stream is named by its id and by what its RECORDs say, unless a selected one has that name."""
    one = stream("db-a") | {"stream": "a"}
    two = stream("db2-a", selected=True) | {"stream": "a"}
    assert deselected(catalog(one)) == {"db-a", "a"}
    assert deselected(catalog(one, two)) == {"db-a"}


@pytest.mark.parametrize(
    ("entry", "method"),
    [
        (stream("a", replication_method="full_table"), "FULL_TABLE"),
        (stream("a", forced_replication_method="INCREMENTAL"), "INCREMENTAL"),
        (stream("a", forced_replication_method="INCREMENTAL", replication_method="LOG_BASED"), "LOG_BASED"),
        (stream("a") | {"replication_method": "INCREMENTAL"}, "INCREMENTAL"),
        (stream("a"), None),
        (stream("b", replication_method="FULL_TABLE"), None),
    ],
)
def test_replication_method(entry: dict[str, Any], method: str | None) -> None:
    """The chosen method comes before the forced one, in capitals; no entry, no catalog: none."""
    assert replication_method(catalog(entry), "a") == method
    assert replication_method(None, "a") is None


def test_parse_catalog() -> None:
    """A catalog may be printed in any layout; a tap that answers with a message does not discover."""
    text = json.dumps(THREE)
    assert parse_catalog(text.encode()) == THREE
    assert parse_catalog(b"\n " + json.dumps(THREE, indent=2).encode()) == THREE
    assert parse_catalog(b'{"type":"SCHEMA","stream":"a","schema":{}}\n{"type":"RECORD"}') is None
    typed = catalog(stream("a")) | {"type": "catalog"}
    assert parse_catalog(json.dumps(typed).encode()) == typed


@pytest.mark.parametrize(
    "text", [b"", b"hello", b"{}", b'{"streams": 3}', b'{"streams": ["a"]}', b"[]", b'{"streams": null}']
)
def test_what_is_no_catalog(text: bytes) -> None:
    """Anything else is an error that says what should have been there."""
    with pytest.raises(TapError, match="not a catalog") as caught:
        parse_catalog(text)
    assert "--discover" in caught.value.hint


def test_a_real_tap_obeys(tmp_path: Path) -> None:
    """What was selected is what tap-smoke then sends."""
    import subprocess
    import sys

    config = {"streams": [{"name": "a", "records": 2}, {"name": "b", "records": 2}]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "tap_smoke", "--config", str(tmp_path / "config.json")]
    found = parse_catalog(subprocess.run([*command, "--discover"], capture_output=True, check=True).stdout)
    assert found
    (tmp_path / "catalog.json").write_text(json.dumps(select(found, ["b"])))
    out = subprocess.run(
        [*command, "--catalog", str(tmp_path / "catalog.json")], capture_output=True, check=True
    ).stdout
    assert {json.loads(line).get("stream") for line in out.splitlines()} - {None} == {"b"}
