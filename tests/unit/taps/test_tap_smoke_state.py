"""STATE comes when it was asked for, and a run that resumes from one continues exactly there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Tap = Callable[..., Any]


def _config(state: dict[str, Any], records: int = 10, **stream: Any) -> dict[str, Any]:
    return {"streams": [{"name": "s", "records": records, **stream}], "state": state}


def _at(number: int) -> dict[str, Any]:
    return {"bookmarks": {"s": {"replication_key": "id", "replication_key_value": number}}}


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"every": 4}, [4, 8, 10]),
        ({"every": 1, "at_end": False}, list(range(1, 11))),
        ({}, [10]),
        ({"every": 4, "at_end": False}, [4, 8]),
        ({"never": True, "every": 1}, []),
    ],
)
def test_cadences(smoke: Tap, state: dict[str, Any], expected: list[int]) -> None:
    """Each record, every n, only at the end, suppressed at the end, never."""
    run = smoke(_config(state))
    assert run.states == [_at(number) for number in expected]
    assert run.ids() == list(range(1, 11))


def test_a_state_says_what_stands_before_it(smoke: Tap) -> None:
    """The bookmark of a STATE is the number of the last record before it, also when streams alternate."""
    streams = [{"name": "a", "records": 7}, {"name": "b", "records": 11}]
    run = smoke({"streams": streams, "interleave": True, "state": {"every": 3}})
    last: dict[str, int] = {}
    for message in run.messages:
        if message["type"] == "RECORD":
            last[message["stream"]] = message["record"]["id"]
        if message["type"] == "STATE":
            said = message["value"]["bookmarks"]
            assert {name: mark["replication_key_value"] for name, mark in said.items()} == last
    assert last == {"a": 7, "b": 11}


@pytest.mark.parametrize("how", ["exit", "signal", "half_line", "half_line_ok"])
@pytest.mark.parametrize("interleave", [False, True])
def test_a_cut_run_and_its_resumption_give_each_record_once(smoke: Tap, how: str, interleave: bool) -> None:
    """The lines before the last STATE of a cut run plus the next run are all records exactly once."""
    streams = [{"name": "a", "records": 20}, {"name": "b", "records": 20}]
    whole = {"streams": streams, "interleave": interleave, "state": {"every": 4}}
    cut = smoke({**whole, "fail": {"at": 23, "how": how}}).committed
    rest = smoke(whole, state=cut.states[-1])
    for name in ("a", "b"):
        assert 0 < len(cut.ids("a")) < 21
        assert cut.ids(name) + rest.ids(name) == list(range(1, 21))


def test_inclusive_repeats_the_record_at_the_bookmark(smoke: Tap) -> None:
    """>= sends the edge again, also when there is nothing new; > does not."""
    for done, first in ((4, 4), (10, 10)):
        assert smoke(_config({}, inclusive=True), state=_at(done)).ids()[0] == first
        assert smoke(_config({}), state=_at(done)).ids() == list(range(first + 1, 11))


def test_a_run_without_news_keeps_the_bookmark(smoke: Tap) -> None:
    """SCHEMA and the same STATE, no record; streams that are not ours stay in it."""
    given = {"bookmarks": {**_at(10)["bookmarks"], "other": {"x": 1}}, "more": True}
    run = smoke(_config({}), state=given)
    assert [m["type"] for m in run.messages] == ["SCHEMA", "STATE"]
    assert run.states == [given]


def test_a_larger_table_gives_only_the_new_records(smoke: Tap) -> None:
    """Raising `records` is how new rows arrive; the old ones keep their bytes."""
    assert smoke(_config({}, records=13), state=_at(10)).ids() == [11, 12, 13]


def test_flat_state(smoke: Tap) -> None:
    """A flat STATE has one number a stream and is resumed from."""
    run = smoke(_config({"flat": True, "every": 5}))
    assert run.states == [{"s": 5}, {"s": 10}, {"s": 10}]
    assert smoke(_config({"flat": True}), state={"s": 7, "t": 1}).ids() == [8, 9, 10]
    assert smoke(_config({"flat": True}), state={"s": 7, "t": 1}).states == [{"s": 10, "t": 1}]


def test_echo_comes_first(smoke: Tap) -> None:
    """The passed STATE is the very first message; without one there is nothing to echo."""
    run = smoke(_config({"echo": True}), state=_at(3))
    assert run.messages[0] == {"type": "STATE", "value": _at(3)}
    assert smoke(_config({"echo": True})).messages[0]["type"] == "SCHEMA"


def test_currently_syncing_names_the_stream_under_way(smoke: Tap) -> None:
    """A STATE opens each stream; at the end nothing is under way."""
    streams = [{"name": "a", "records": 1}, {"name": "b", "records": 1}]
    run = smoke({"streams": streams, "state": {"currently_syncing": True}})
    assert [m["type"] for m in run.messages[:2]] == ["STATE", "SCHEMA"]
    assert [state["currently_syncing"] for state in run.states] == ["a", "a", "b", "b", None]


def test_full_table_starts_over(smoke: Tap) -> None:
    """Its bookmark is empty in the middle and at the end, and no bookmark_properties are announced."""
    run = smoke(_config({"every": 5}, replication_method="FULL_TABLE"))
    assert run.states == [{"bookmarks": {"s": {}}}] * 3
    assert "bookmark_properties" not in run.of("SCHEMA")[0]
    config = _config({}, replication_method="FULL_TABLE")
    assert smoke(config, state=run.states[-1]).ids() == list(range(1, 11))


def test_announce_bookmark(smoke: Tap) -> None:
    """An INCREMENTAL stream announces its replication key unless a setting forbids it."""
    assert smoke(_config({})).of("SCHEMA")[0]["bookmark_properties"] == ["id"]
    assert "bookmark_properties" not in smoke(_config({}, announce_bookmark=False)).of("SCHEMA")[0]


def test_version_is_in_records_and_activated_after_them(smoke: Tap) -> None:
    """ACTIVATE_VERSION follows the records, and on demand also precedes the SCHEMA."""
    kinds = [m["type"] for m in smoke(_config({}, records=2, version=7)).messages]
    assert kinds == ["SCHEMA", "RECORD", "RECORD", "ACTIVATE_VERSION", "STATE"]
    run = smoke(_config({}, records=2, version=7, activate_first=True))
    assert [m["type"] for m in run.messages[:2]] == ["ACTIVATE_VERSION", "SCHEMA"]
    assert {m["version"] for m in run.messages if "version" in m} == {7}


def test_a_resumable_full_table_continues_under_its_version(smoke: Tap) -> None:
    """A cut run is continued after its last key; a whole one is followed by the next version from the start."""
    config = _config({"every": 4}, replication_method="FULL_TABLE", version=5, resumable=True)
    cut = smoke({**config, "fail": {"at": 6}})
    assert cut.states == [{"bookmarks": {"s": {"version": 5, "last_pk_fetched": 4}}}]
    rest = smoke(config, state=cut.states[-1])
    assert cut.committed.ids() + rest.ids() == list(range(1, 11))
    assert {m["version"] for m in rest.messages if "version" in m} == {5}
    assert rest.states[-1] == {"bookmarks": {"s": {"version": 5}}}
    following = smoke(config, state=rest.states[-1])
    assert following.ids() == list(range(1, 11))
    assert {m["version"] for m in following.messages if "version" in m} == {6}


def test_progress_markers_are_not_resumed_from(smoke: Tap) -> None:
    """In the middle the old bookmark stands beside the markers; the next run wipes them; the end promotes them."""
    config = _config({"every": 4}, progress_markers=True)
    markers = {"Note": "Progress is not resumable if interrupted.", "replication_key": "id", "replication_key_value": 4}
    first = smoke({**config, "fail": {"at": 5}}).states[-1]["bookmarks"]["s"]
    assert first["progress_markers"] == markers
    assert first["starting_replication_value"] is None and "replication_key_value" not in first
    run = smoke(config, state={"bookmarks": {"s": first}})
    assert run.ids() == list(range(1, 11))
    assert run.states[-1] == _at(10)


def test_progress_markers_keep_the_earlier_value(smoke: Tap) -> None:
    """A cut second run resumes from the value of the first, not from its own progress."""
    config = _config({"every": 4}, records=20, progress_markers=True)
    cut = smoke({**config, "fail": {"at": 5}}, state=_at(10)).states[-1]["bookmarks"]["s"]
    assert (cut["replication_key_value"], cut["starting_replication_value"]) == (10, 10)
    assert cut["progress_markers"]["replication_key_value"] == 14
    assert smoke(config, state={"bookmarks": {"s": cut}}).ids() == list(range(11, 21))


@pytest.mark.parametrize(
    "state", [[], {"bookmarks": []}, {"bookmarks": {"s": 3}}, {"bookmarks": {"s": {"replication_key_value": "x"}}}]
)
def test_a_state_that_is_none_is_refused(smoke: Tap, state: Any) -> None:
    """A state the tap could not have written ends the run before any output; nothing is guessed."""
    run = smoke(_config({}), state=state)
    assert (run.code, run.stdout) == (1, b"")
    assert "state" in run.stderr


def test_a_resumed_run_sends_the_records_the_first_would_have_sent(smoke: Tap) -> None:
    """A record's bytes do not depend on where the run began."""
    whole, tail = smoke(_config({})), smoke(_config({}), state=_at(6))
    assert whole.of("RECORD")[6:] == tail.of("RECORD")
