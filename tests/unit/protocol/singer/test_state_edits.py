"""What an operator's change does to a STATE, and what it never does."""

from __future__ import annotations

from copy import deepcopy
from decimal import Decimal
from typing import Any

import pytest

from bridge.errors import SettingsError
from bridge.protocol.singer.state_edits import (
    StateDifference,
    differences,
    merged,
    parsed,
    plain,
    same,
    with_bookmarks,
    without_bookmarks,
)

STATE = {"bookmarks": {"a": {"id": 1, "at": {"x": 1}}, "b": 2}, "currently_syncing": "a"}
FLAT = {"users": 2, "locations": 1}
EMPTY = [None, {}, {"bookmarks": {}}, {"currently_syncing": None}]


def test_bookmarks_are_set_beside_the_others() -> None:
    """Setting a bookmark keeps every other one, and whatever else the STATE says; the old one is not touched."""
    before = deepcopy(STATE)
    after = with_bookmarks(STATE, {"b": 3, "c": None})
    assert after == {"bookmarks": {"a": {"id": 1, "at": {"x": 1}}, "b": 3, "c": None}, "currently_syncing": "a"}
    assert before == STATE


@pytest.mark.parametrize("state", EMPTY)
def test_the_first_bookmark(state: Any) -> None:
    """Where there is no STATE, or an empty one, the first bookmark makes one by the convention."""
    assert with_bookmarks(state, {"a": 1})["bookmarks"] == {"a": 1}


def test_bookmarks_are_cleared_one_by_one() -> None:
    """Clearing a stream forgets its bookmark only; one that has none is refused, as it is more often misspelt."""
    assert without_bookmarks(STATE, ["a"]) == {"bookmarks": {"b": 2}, "currently_syncing": "a"}
    with pytest.raises(SettingsError, match="stream=aa") as caught:
        without_bookmarks(STATE, ["a", "aa"])
    assert "a, b" in caught.value.hint


@pytest.mark.parametrize(
    "change", [lambda s: with_bookmarks(s, {"users": 5}), lambda s: without_bookmarks(s, ["users"])]
)
def test_a_flat_state_is_not_taken_apart(change: Any) -> None:
    """In a flat STATE nothing tells which keys are streams: changes of one stream are refused, with the way out."""
    with pytest.raises(SettingsError, match="cannot be changed per stream") as caught:
        change(FLAT)
    assert "state set" in caught.value.hint


@pytest.mark.parametrize(
    ("given", "bookmarks", "syncing"),
    [
        ({"bookmarks": {"a": {"id": 9}}}, {"a": {"id": 9, "at": {"x": 1}}, "b": 2}, "a"),
        ({"bookmarks": {"a": {"at": {"y": 2}}}}, {"a": {"id": 1, "at": {"x": 1, "y": 2}}, "b": 2}, "a"),
        ({"bookmarks": {"b": [1]}}, {"a": {"id": 1, "at": {"x": 1}}, "b": [1]}, "a"),
        ({"bookmarks": {}, "currently_syncing": None}, STATE["bookmarks"], None),
    ],
)
def test_merge_is_deep(given: Any, bookmarks: Any, syncing: Any) -> None:
    """A merge goes down objects; lists and values are replaced whole."""
    before = deepcopy(STATE)
    assert merged(STATE, given) == {"bookmarks": bookmarks, "currently_syncing": syncing}
    assert before == STATE


@pytest.mark.parametrize("state", EMPTY)
def test_merge_over_nothing(state: Any) -> None:
    """What is merged into an empty STATE is the STATE then, flat or not."""
    assert merged(state, FLAT) == FLAT


@pytest.mark.parametrize(("state", "given"), [(STATE, FLAT), (FLAT, STATE), (FLAT, {"users": 3}), ("text", STATE)])
def test_a_flat_state_is_not_merged(state: Any, given: Any) -> None:
    """Two STATEs are not merged where either is flat."""
    with pytest.raises(SettingsError):
        merged(state, given)


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (STATE, deepcopy(STATE), []),
        (STATE, with_bookmarks(STATE, {"b": 3}), [StateDifference("b", "b", 2, 3)]),
        (STATE, without_bookmarks(STATE, ["b"]), [StateDifference("b", "b", 2, None)]),
        (STATE, STATE | {"currently_syncing": None}, [StateDifference(None, "currently_syncing", "a", None)]),
        (None, {"bookmarks": {"a": 1}}, [StateDifference("a", "a", None, 1)]),
        (FLAT, {"users": 3, "locations": 1}, [StateDifference(None, "users", 2, 3)]),
        (FLAT, STATE, [StateDifference(None, "STATE", FLAT, STATE)]),
        ({"bookmarks": {"a": 1}}, {}, [StateDifference("a", "a", 1, None)]),
        (None, {}, [StateDifference(None, "STATE", None, {})]),
        ("x", "y", [StateDifference(None, "STATE", "x", "y")]),
        ({"bookmarks": {"a": 1}}, {"bookmarks": {"a": True}}, [StateDifference("a", "a", 1, True)]),
    ],
)
def test_what_changed(before: Any, after: Any, found: list[StateDifference]) -> None:
    """A change is told stream by stream; of a flat STATE, of which nobody knows its streams, key by key."""
    assert differences(before, after) == found


def test_same_means_the_same_json() -> None:
    """The order of keys does not count, the kind of a value does."""
    assert same({"a": [1, {"b": None}], "c": Decimal("1.50")}, {"c": Decimal("1.50"), "a": [1, {"b": None}]})
    for one, other in ((1, True), (1, Decimal("1.0")), (None, False), ({}, []), ({"a": None}, {}), ([1], [1, 2])):
        assert not same(one, other)


def test_values_are_what_will_be_read_back() -> None:
    """A value from Python is taken as JSON has it, digit by digit; what JSON cannot hold is refused."""
    assert plain({1: (1, 2), "f": 0.1, "big": 2**70}) == {"1": [1, 2], "f": Decimal("0.1"), "big": 2**70}
    circle: list[Any] = []
    circle.append(circle)
    for value in ({"at": object()}, {"at": {1, 2}}, circle):
        with pytest.raises(SettingsError, match="JSON cannot hold") as caught:
            plain(value)
        assert caught.value.hint


def test_broken_json_says_where() -> None:
    """The error of a text that is no JSON names line and column; a byte order mark is none."""
    with pytest.raises(SettingsError, match=r"the file is not JSON: .* line=2 column=6"):
        parsed('{\n "a" 1}', "the file")
    with pytest.raises(SettingsError, match="the file is not JSON"):
        parsed(b"", "the file")
    assert parsed(b"\xef\xbb\xbf{}", "the file") == {}
