"""Catalogs of both styles: read alike, and told things where their taps look."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import TapError
from bridge.protocol.singer.catalog import (
    column_facts,
    columns,
    deselected,
    entries_by_name,
    key_properties,
    parse_catalog,
    replication_key,
    replication_method,
    selected_streams,
    stream_entry,
    write,
)
from tests.support.catalogs import catalog, old_stream, stream

THREE = catalog(stream("public-users"), stream("public-orders"), stream("audit-log"))


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


@pytest.mark.parametrize("odd", ["null", '"a"', "5"])
def test_a_stream_that_is_none_is_named(odd: str) -> None:
    """By its place in the file, with what stands there."""
    with pytest.raises(TapError, match=rf"streams\[1\]={odd}"):
        parse_catalog(f'{{"streams": [{{"stream": "a"}}, {odd}]}}'.encode())


@pytest.mark.parametrize("name", ["key_properties", "table-key-properties", "view-key-properties"])
def test_a_key_that_is_a_text_is_one_column(name: str) -> None:
    """Not one for each of its letters."""
    entry = {"stream": "a", "key_properties": "order_id"}
    if "-" in name:
        entry = {"stream": "a", "metadata": [{"breadcrumb": [], "metadata": {name: "order_id"}}]}
    assert key_properties(entry) == ["order_id"]


def test_parse_catalog_keeps_every_digit() -> None:
    """What a catalog says of bounds is passed back to the tap as it came."""
    text = b'{"streams": [{"stream": "a", "schema": {"maximum": 99999999999999999999999, "multipleOf": 0.10}}]}'
    found = parse_catalog(text)
    assert found
    schema = found["streams"][0]["schema"]
    assert (schema["maximum"], str(schema["multipleOf"])) == (99999999999999999999999, "0.10")


def test_what_columns_are_there() -> None:
    """Columns of columns are found, and what is said of each comes from metadata before the schema."""
    inner = {"city": {"type": "string"}, "zip": {"type": "string", "inclusion": "unsupported"}}
    entry = stream("a", "id")
    entry["schema"]["properties"] |= {"address": {"type": "object", "properties": inner}, "odd": True}
    crumb = ["properties", "address", "properties", "city"]
    entry["metadata"] += [
        {"breadcrumb": crumb, "metadata": {"selected": False}},
        {"breadcrumb": ["properties", "tags", "items"], "metadata": {"selected": False}},
    ]
    assert list(columns(entry)) == [("id",), ("address",), ("address", "city"), ("address", "zip")]
    assert column_facts(entry) == {
        ("id",): {"inclusion": "automatic"},
        ("address",): {},
        ("address", "city"): {"selected": False},
        ("address", "zip"): {"inclusion": "unsupported"},
    }


def test_write_metadata() -> None:
    """A stream with metadata is told things there, in new entries where needed, and nowhere else."""
    entry = stream("a", "id note")
    entry["schema"]["properties"]["extra"] = {"type": "string"}
    schema = deepcopy(entry["schema"])
    write(entry, {(): {"selected": True}, ("note",): {"selected": False}, ("extra",): {"selected": True}})
    said = {tuple(m["breadcrumb"]): m["metadata"] for m in entry["metadata"]}
    assert said[()] == {"selected": True}
    assert said["properties", "note"] == {"inclusion": "available", "selected": False}
    assert said["properties", "extra"] == {"selected": True}
    assert entry["schema"] == schema
    assert "selected" not in entry


def test_write_older() -> None:
    """A stream without metadata is told things beside and inside of its schema."""
    entry = old_stream("a")
    write(entry, {(): {"selected": True}, ("note",): {"selected": True}})
    assert entry["selected"] is True
    assert entry["schema"]["selected"] is True
    assert entry["schema"]["properties"]["note"]["selected"] is True
    assert "metadata" not in entry


@pytest.mark.parametrize(
    ("entry", "key", "keys"),
    [
        (stream("a", replication_key="at", table_key_properties=["id"]), "at", ["id"]),
        (stream("a", view_key_properties=["n"], table_key_properties=["id"]), None, ["n"]),
        (old_stream("a", replication_key="at", key_properties=["id"]), "at", ["id"]),
        (stream("a"), None, []),
    ],
)
def test_keys(entry: dict[str, Any], key: str | None, keys: list[str]) -> None:
    """Replication key and keys are read from metadata, else from beside the schema; a view's chosen ones come first."""
    assert replication_key(catalog(entry), "a") == key
    assert key_properties(entry) == keys


_NAMES = st.sampled_from("abcd")


@given(st.lists(st.tuples(_NAMES, st.none() | _NAMES, st.none() | st.booleans()), max_size=6))
def test_all_entries_at_once(entries: list[tuple[str, str | None, bool | None]]) -> None:
    """However ids, names and selections clash, each name leads to the entry that a look-up of it alone results in."""
    streams = []
    for id_, name, selected in entries:
        entry = {**stream(id_, **({} if selected is None else {"selected": selected})), "stream": name}
        streams.append({key: value for key, value in entry.items() if value is not None})
    by_name = entries_by_name(catalog(*streams))
    for name in "abcd":
        assert by_name.get(name) is stream_entry(catalog(*streams), name)
