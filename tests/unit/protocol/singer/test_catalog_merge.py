"""A new discovery: what it found is said, and what the user edited stays."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.protocol.singer.catalog import column_facts, selected_streams, stream_ids
from bridge.protocol.singer.catalog_merge import compare, merge
from tests.support.catalogs import catalog, old_stream, stream


def root(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the stream's own metadata, to be edited."""
    found: dict[str, Any] = entry["metadata"][0]["metadata"]
    return found


def typed(entry: dict[str, Any], **types: Any) -> dict[str, Any]:
    """Return the stream with these columns, of these types."""
    changed = deepcopy(entry)
    for column, kind in types.items():
        changed["schema"]["properties"][column] = kind if isinstance(kind, dict) else {"type": kind}
    return changed


def test_edits_survive_and_the_tap_is_believed_elsewhere() -> None:
    """What the user said of a stream and a column stands; a new column, a new type and a new stream come in."""
    before = catalog(stream("users", replication_method="FULL_TABLE"), stream("orders", selected=True))
    edited = deepcopy(before)
    root(edited["streams"][0]).update({"selected": True, "replication-method": "INCREMENTAL", "replication-key": "at"})
    edited["streams"][0]["metadata"][2]["metadata"]["selected"] = False
    now = catalog(
        stream("items"),
        typed(stream("users", "id secret_pin note at", replication_method="FULL_TABLE"), note="integer"),
        stream("orders", selected=True),
    )
    merged = merge(before, edited, now)
    assert stream_ids(merged.catalog) == ["items", "users", "orders"]
    users = merged.catalog["streams"][1]
    assert root(users)["replication-method"] == "INCREMENTAL"
    assert root(users)["replication-key"] == "at"
    assert column_facts(users)["secret_pin",]["selected"] is False
    assert users["schema"]["properties"]["note"] == {"type": "integer"}
    assert ("at",) in column_facts(users)
    assert selected_streams(merged.catalog) == {"users", "orders"}
    assert merged.overruled == []


_MARKS = st.fixed_dictionaries(
    {}, optional={"selected": st.booleans(), "replication-method": st.sampled_from(["FULL_TABLE", "INCREMENTAL"])}
)
_ENTRIES = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.tuples(_MARKS, st.sets(st.sampled_from("xyz"))))


def made(entries: dict[str, Any]) -> dict[str, Any]:
    """Return a catalog of streams with these marks and columns."""
    result = catalog(*(stream(name, " ".join(["id", *sorted(columns)])) for name, (_, columns) in entries.items()))
    for entry, (marks, _) in zip(result["streams"], entries.values(), strict=True):
        root(entry).update(marks)
    return result


@given(_ENTRIES, _ENTRIES)
def test_who_changed_nothing_overrules_nobody(one: dict[str, Any], two: dict[str, Any]) -> None:
    """Without edits the tap's new word is taken whole; where the tap says the same again, the edits are."""
    before, other = made(one), made(two)
    assert merge(before, before, other).catalog == other
    edited = made({name: (two.get(name, facts)[0], facts[1]) for name, facts in one.items()})
    merged = merge(before, edited, before)
    assert merged.catalog == edited
    assert not merged.overruled
    assert not merged.removed


def test_a_conflict_is_the_users_and_is_said() -> None:
    """Where both changed the same thing the user's word stands, and the place is named."""
    before = catalog(typed(stream("users", replication_key="id"), note="string"))
    edited, now = deepcopy(before), deepcopy(before)
    root(edited["streams"][0])["replication-key"] = "at"
    edited["streams"][0]["schema"]["properties"]["note"]["type"] = "number"
    root(now["streams"][0])["replication-key"] = "seq"
    now["streams"][0]["schema"]["properties"]["note"]["type"] = "integer"
    merged = merge(before, edited, now)
    assert merged.overruled == ["users.note.type", "users.replication-key"]
    assert merged.catalog == edited


def test_both_changed_alike_is_no_conflict() -> None:
    """The tap came to say what the user had said already."""
    before = catalog(stream("users"))
    edited = catalog(stream("users", selected=True))
    assert merge(before, edited, edited).overruled == []
    assert merge(before, edited, edited).catalog == edited


def test_what_the_user_deleted_stays_deleted() -> None:
    """A stream and a key that were taken out by hand do not come back with the next discovery."""
    before = catalog(stream("users", selected_by_default=True), stream("audit"))
    edited = catalog(stream("users"))
    merged = merge(before, edited, deepcopy(before))
    assert stream_ids(merged.catalog) == ["users"]
    assert root(merged.catalog["streams"][0]) == {}


def test_a_stream_that_comes_back_finds_its_edits() -> None:
    """A table that was away for one discovery, for lack of rights perhaps, is selected as before."""
    before = catalog(stream("users"), stream("orders"))
    edited = deepcopy(before)
    root(edited["streams"][1])["selected"] = True
    away = merge(before, edited, catalog(stream("users")))
    assert stream_ids(away.catalog) == ["users"]
    back = merge(catalog(stream("users")), away.catalog, before, away.removed)
    assert selected_streams(back.catalog) == {"orders"}
    assert back.removed == []


def test_an_edit_of_a_column_that_is_gone_goes_too() -> None:
    """Nothing is said of columns that the tap does not have."""
    before = catalog(stream("users", "id note"))
    edited = deepcopy(before)
    edited["streams"][0]["metadata"][2]["metadata"]["selected"] = False
    now = catalog(stream("users", "id"))
    assert merge(before, edited, now).catalog == now


@pytest.mark.parametrize("make", [stream, old_stream])
def test_a_foreign_catalog_gives_what_is_the_users_to_give(make: Any) -> None:
    """Without the tap's earlier words selections and replication are kept, and unknown streams stay out."""
    edited = catalog(make("users", "id note"))
    edited["streams"][0] |= {"replication_method": "INCREMENTAL", "replication_key": "id", "selected": True}
    if make is stream:
        root(edited["streams"][0]).update({"selected": True, "replication-key": "id", "row-count": 3})
        edited["streams"][0]["metadata"][2]["metadata"]["selected"] = False
    else:
        edited["streams"][0]["schema"]["properties"]["note"]["selected"] = False
    now = catalog(make("users", "id note more"), make("orders", selected=True))
    merged = merge(None, edited, now).catalog
    assert selected_streams(merged) == {"users"}
    users = merged["streams"][0]
    assert (users["replication_method"], users["replication_key"]) == ("INCREMENTAL", "id")
    assert column_facts(users)["note",]["selected"] is False
    assert ("more",) in column_facts(users)
    assert make is old_stream or "row-count" not in root(users)


def test_the_order_of_metadata_means_nothing() -> None:
    """A tap that shuffles its metadata has changed nothing."""
    before = catalog(stream("users", selected=True))
    shuffled = deepcopy(before)
    shuffled["streams"][0]["metadata"].reverse()
    assert merge(before, before, shuffled).overruled == []
    assert not compare(before, shuffled)


def test_compare() -> None:
    """New, gone and changed streams; of a changed one its columns, types and how it is replicated."""
    before = catalog(
        typed(stream("users", "id note old", replication_method="FULL_TABLE"), note=["null", "string"]),
        stream("orders"),
        stream("same"),
    )
    now = catalog(
        typed(stream("users", "id note new", replication_method="INCREMENTAL", replication_key="id"), note="integer"),
        stream("same"),
        stream("items"),
    )
    changes = compare(before, now)
    assert (changes.new, changes.removed, list(changes.changed)) == (["items"], ["orders"], ["users"])
    assert changes.lines() == [
        "new stream: items",
        "gone stream: orders",
        "users: new column new",
        "users: gone column old",
        "users: type of note was string or null, is integer",
        "users: replication method was FULL_TABLE, is INCREMENTAL",
        "users: replication key was none, is id",
    ]
    said = changes.to_json()
    assert said["changed"]["users"]["types"] == {"note": {"from": "string or null", "to": "integer"}}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": ["null", "string"], "format": "date-time"}, "string (date-time) or null"),
        (
            {"anyOf": [{"type": "string", "format": "date-time"}, {"type": ["string", "null"]}]},
            "string (date-time) or string or null",
        ),
        ({"type": "array", "items": {"type": "integer"}}, "array of integer"),
        ({}, "any"),
    ],
)
def test_types_are_told_to_a_reader(schema: dict[str, Any], text: str) -> None:
    """A type is told in words, the null that may stand anywhere last."""
    now = catalog(typed(stream("a"), note=schema))
    ((_, told),) = compare(catalog(typed(stream("a"), note="boolean")), now).changed["a"].types.values()
    assert told == text
