"""Globs on streams and columns: what they choose, what stays whatever they say, and what they do not mean."""

from __future__ import annotations

import json
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import SettingsError
from bridge.protocol.singer.catalog import deselected, parse_catalog, selected_streams, stream_ids
from bridge.protocol.singer.selection import Choice, choices, reselected, select, unmatched
from tests.support.catalogs import catalog, columns, old_stream, stream

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


def test_old_style_streams_are_narrowed_too() -> None:
    """A stream without metadata, selected by the field of its own, is deselected in both places."""
    chosen = select(catalog({"stream": "a", "selected": True, "schema": {}}, {"stream": "b", "schema": {}}), ["b"])
    assert selected_streams(chosen) == {"b"}
    assert chosen["streams"][0]["selected"] is False


def test_a_real_tap_obeys(tmp_path: Path) -> None:
    """What was selected is what tap-smoke then sends."""
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


def found(given: dict[str, Any], patterns: list[str], name: str) -> dict[str, Choice]:
    """What is decided on a stream's columns, and on itself under an empty name."""
    return {choice.column: choice for choice in choices(given, patterns) if choice.stream == name}


@pytest.mark.parametrize(
    ("patterns", "streams"),
    [
        (["public.users.note"], {"public.users"}),
        (["public.users"], {"public.users"}),
        (["public"], {"public"}),
        (["public.*"], {"public.users", "public"}),
        (["public.*", "!public.users"], {"public"}),
        (["*.users"], {"public.users", "public"}),
    ],
)
def test_dots_in_stream_names(patterns: list[str], streams: set[str]) -> None:
    """A pattern means the longest stream that is known; with wildcards all that it can mean."""
    given = catalog(stream("public", "id users"), stream("public.users", "id note"))
    assert selected_streams(select(given, patterns)) == streams


def test_an_excluding_glob_leaves_no_reading_out() -> None:
    """A secret column is excluded although a stream with a dot in its name matches the same pattern."""
    given = catalog(stream("a", "id secret_pin"), stream("b.secret_things", "id secret_pin"), stream("c.d"))
    chosen = select(given, ["*", "!*.secret_*"])
    assert selected_streams(chosen) == {"a", "c.d"}
    assert columns(chosen, "a") == {"id"}
    assert columns(chosen, "c.d") == {"id", "note"}


def test_only_exclusions_leave_the_rest_in() -> None:
    """Without a pattern that includes, the catalog's own selection stands, or all of it where it selects nothing."""
    assert selected_streams(select(THREE, ["!audit-*"])) == {"public-users", "public-orders"}
    own = catalog(stream("a", selected=True), stream("b", selected=False), stream("c", selected=True))
    assert selected_streams(select(own, ["!c"])) == {"a"}
    assert columns(select(THREE, ["!*.secret_*"]), "audit-log") == {"id", "note"}


def test_columns_keep_what_the_catalog_says_unless_a_pattern_speaks() -> None:
    """A column deselected by hand stays so under a pattern for its stream, and comes with one for itself."""
    given = catalog(stream("a", "id note pin"))
    given["streams"][0]["metadata"][3]["metadata"]["selected"] = False
    assert columns(select(given, ["a"]), "a") == {"id", "note"}
    assert columns(select(given, ["a.*"]), "a") == {"id", "note", "pin"}
    assert columns(select(given, ["a.pin"]), "a") == {"id", "pin"}


def test_keys_and_unsupported_columns() -> None:
    """No pattern takes a key from a stream, or gives it a column that the tap cannot extract."""
    given = catalog(stream("a", "n at note blob", table_key_properties=["n"], replication_key="at"))
    given["streams"][0]["metadata"][4]["metadata"]["inclusion"] = "unsupported"
    assert columns(select(given, ["a.note", "a.blob", "!a.at"]), "a") == {"n", "at", "note"}
    said = {name: (choice.status, choice.why) for name, choice in found(given, ["a.note", "!a.at"], "a").items()}
    assert said == {
        "": ("selected", "a.note"),
        "n": ("automatic", "a key column"),
        "at": ("automatic", "the replication key, in spite of !a.at"),
        "note": ("selected", "a.note"),
        "blob": ("unsupported", "the tap cannot extract it"),
    }


def test_why() -> None:
    """Each choice names the pattern behind it, or what decided in its place."""
    said = found(THREE, ["*", "!audit-*", "public-users.note"], "public-users")
    assert (said["note"].status, said["note"].why) == ("selected", "public-users.note")
    assert (said["secret_pin"].status, said["secret_pin"].why) == ("excluded", "public-users.note names others")
    assert found(THREE, ["*", "!audit-*"], "audit-log")[""].why == "!audit-*"
    assert found(THREE, ["*", "!audit-*"], "audit-log")["note"].why == "its stream"
    assert found(THREE, ["public-*"], "audit-log")[""].why == "no pattern names it"
    assert found(THREE, [], "audit-log")[""].why == "the tap's default"


@pytest.mark.parametrize(
    ("patterns", "chosen"),
    [
        (["a.address.city"], {"id", "address", "address.city"}),
        (["a.address"], {"id", "address", "address.city", "address.zip"}),
        (["a.*", "!a.address.zip"], {"id", "note", "address", "address.city"}),
        (["a", "!a.address"], {"id", "note"}),
        (["a.*.city"], {"id", "address", "address.city"}),
    ],
)
def test_columns_of_columns(patterns: list[str], chosen: set[str]) -> None:
    """A column inside of an object is chosen with what is around it; its siblings stay out where it alone is named."""
    given = catalog(stream("a", "id note"))
    inner = {"city": {"type": "string"}, "zip": {"type": "string"}}
    given["streams"][0]["schema"]["properties"]["address"] = {"type": "object", "properties": inner}
    assert {name for name, choice in found(given, patterns, "a").items() if choice.loaded and name} == chosen
    said = {tuple(m["breadcrumb"][1::2]): m["metadata"] for m in select(given, patterns)["streams"][0]["metadata"]}
    assert {".".join(path) for path, mark in said.items() if mark.get("selected") is False}.isdisjoint(chosen)


def test_columns_of_older_streams() -> None:
    """Without metadata a column is selected inside of the schema, where such taps look."""
    chosen = select(catalog(old_stream("a", "id note pin"), old_stream("b")), ["a", "!a.pin"])
    assert selected_streams(chosen) == {"a"}
    assert columns(chosen, "a") == {"id", "note"}
    assert chosen["streams"][0]["schema"]["properties"]["note"]["selected"] is True
    assert all("metadata" not in entry for entry in chosen["streams"])


def test_unmatched() -> None:
    """A pattern that means nothing is named with what may have been meant."""
    strange = unmatched(THREE, ["public-*", "public-usrs", "!*.secret_*", "public-users.nte", "nope-*", "!*.nope"])
    assert [text for text, _ in strange] == ["public-usrs", "public-users.nte", "nope-*", "!*.nope"]
    assert [guess for _, guess in strange[:2]] == ['did you mean "public-users"?', 'did you mean "public-users.note"?']


def test_reselected() -> None:
    """What is added wins: it goes to the end, once, and takes its opposite away. What is removed is gone."""
    assert reselected(["a", "b"], ["c", "c"]) == ["a", "b", "c"]
    assert reselected(["a", "!b", "c"], ["a", "b"]) == ["c", "a", "b"]
    assert reselected(["a", "b"], ["!b"]) == ["a", "!b"]
    assert reselected(["a", "!b"], ["!b"], remove=True) == ["a"]
