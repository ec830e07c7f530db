"""What a STATE says of each stream, by the conventions that taps really use."""

from __future__ import annotations

from copy import deepcopy
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import DataError, SettingsError
from bridge.lake.log import Snapshot
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.storage import lake_of
from bridge.load.run.planning.run_plan import plan_run
from bridge.load.slots.guard import SlotGuard
from bridge.load.tap.stdin import Piped, Stdin
from bridge.protocol.singer.state import (
    bookmark,
    covers,
    is_empty,
    is_flat,
    moved_on,
    overlay,
    parse_state,
    resumable_versions,
    resume_point,
    resume_points,
    without,
)
from bridge.settings.values.request import Request
from tests.support.catalogs import catalog, stream
from tests.support.pipe import Pipe, wire

SORTED = {"replication_key": "id", "replication_key_value": 5}
IN_FLIGHT = SORTED | {"starting_replication_value": 1, "replication_key_signpost": "2026-01-01"}
MARKERS = {"progress_markers": {"Note": "Progress is not resumable if interrupted.", "replication_key_value": 9}}
UNSORTED = {"replication_key_signpost": "2026-01-01", "starting_replication_value": None} | MARKERS
CONTEXTS = {"partitions": [{"context": {"store": 1}}, {"context": {"store": 2}}]}


def of(value: Any, **more: Any) -> dict[str, Any]:
    return {"bookmarks": {"s": value}, **more}


@pytest.mark.parametrize(
    ("before", "after", "covered"),
    [
        pytest.param(None, of(SORTED), True, id="sorted"),
        pytest.param(None, of(IN_FLIGHT), True, id="sorted-in-flight"),
        pytest.param(of(SORTED), of(SORTED | {"replication_key_value": 6}), True, id="sorted-moved"),
        pytest.param(of(SORTED), of(SORTED), False, id="stands-still"),
        pytest.param(of(SORTED), of(IN_FLIGHT), False, id="only-notes-moved"),
        pytest.param(None, of(UNSORTED), False, id="unsorted"),
        pytest.param(of(SORTED), of({"replication_key_value": 6} | MARKERS), False, id="markers-and-a-moved-value"),
        pytest.param(of(UNSORTED), of(SORTED), True, id="unsorted-ended"),
        pytest.param(None, of({}), False, id="full-table"),
        pytest.param(None, of(None), False, id="null"),
        pytest.param(None, of({"replication_key": "id"}), False, id="key-without-value"),
        pytest.param(None, of({"since": None}), False, id="only-nulls"),
        pytest.param(None, {"bookmarks": {}}, False, id="child-without-bookmark"),
        pytest.param(None, of("2026-01-01"), True, id="bare-value"),
        pytest.param(None, of(0), True, id="bare-zero"),
        pytest.param(None, of(CONTEXTS), False, id="partitions-not-started"),
        pytest.param(
            of(CONTEXTS), of({"partitions": [{"context": {"store": 1}, **SORTED}]}), True, id="partition-moved"
        ),
        pytest.param(
            None,
            of({"partitions": [{"context": {"store": 1}, **SORTED}, {"context": {"store": 2}, **UNSORTED}]}),
            False,
            id="one-partition-with-markers",
        ),
        pytest.param(None, of({"partitions": 5}), True, id="partitions-a-number"),
        pytest.param(of({"partitions": [5, None]}), of({"partitions": [6, None]}), True, id="partitions-of-numbers"),
        pytest.param(of({"partitions": {"0": 5}}), of({"partitions": {"0": 6}}), True, id="partitions-by-name"),
        pytest.param(of({"partitions": {"0": 5}}), of({"partitions": {"0": 5}}), False, id="partitions-stand-still"),
        pytest.param(None, of({"partitions": {}}), False, id="no-partitions"),
        pytest.param(None, of({"version": 3}), False, id="version-alone"),
        pytest.param(None, of({"version": 3, "last_pk_fetched": None}), False, id="version-and-nulls"),
        pytest.param(None, of({"version": 3, "last_pk_fetched": {"id": 7}}), True, id="version-and-key"),
        pytest.param(None, {"s": 3}, True, id="flat"),
        pytest.param({"s": 3}, {"s": 3}, False, id="flat-stands-still"),
        pytest.param(None, {"other": 3}, False, id="flat-of-another"),
        pytest.param(of({}, currently_syncing="s"), of({}, currently_syncing="t"), True, id="moved-on"),
        pytest.param(of({}, currently_syncing="s"), of({}, currently_syncing=None), False, id="no-longer-syncing"),
        pytest.param(of({}, currently_syncing="s"), of({}, currently_syncing="s"), False, id="still-syncing"),
        pytest.param(None, of({}, currently_syncing="parent"), False, id="never-named"),
        pytest.param(
            of({}, currently_syncing="s"), of(UNSORTED, currently_syncing="t"), False, id="moved-on-with-markers"
        ),
        pytest.param(None, None, False, id="nothing"),
    ],
)
def test_what_covers_a_stream(before: Any, after: Any, covered: bool) -> None:
    """Rows count as covered only if a tap restarted from the STATE would not send them again."""
    assert covers(before, after, "s") is covered


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        (None, {"currently_syncing": "t"}, True),
        ({"currently_syncing": "s"}, {"currently_syncing": "t"}, True),
        ({"currently_syncing": "t"}, {"currently_syncing": "t"}, False),
        ({"currently_syncing": "t"}, {"currently_syncing": "s"}, False),
        ({"currently_syncing": "s"}, {"currently_syncing": None}, False),
        ({"currently_syncing": "s"}, {}, False),
        (3, "text", False),
    ],
)
def test_when_a_tap_moved_on(before: Any, after: Any, moved: bool) -> None:
    """A restarted tap may skip a stream once `currently_syncing` came to name another; at the end it names none."""
    assert moved_on(before, after, "s") is moved


@pytest.mark.parametrize(
    ("state", "empty", "flat"),
    [
        (None, True, True),
        ({}, True, True),
        ({"bookmarks": {}}, True, False),
        ({"bookmarks": {}, "currently_syncing": None}, True, False),
        ({"currently_syncing": None}, True, True),
        ({"bookmarks": {"s": {}}}, False, False),
        ({"users": 2}, False, True),
        ({"bookmarks": None, "users": 2}, False, True),
        ("2026-01-01", False, True),
        ([], True, True),
    ],
)
def test_empty_and_flat(state: Any, empty: bool, flat: bool) -> None:
    """A STATE is empty when every stream would start again, flat when it does not follow the convention."""
    assert (is_empty(state), is_flat(state)) == (empty, flat)


def test_bookmarks() -> None:
    """A stream's bookmark stands under `bookmarks`, or in a flat STATE at its name."""
    assert bookmark(of(SORTED), "s") == SORTED
    assert bookmark({"s": 2}, "s") == 2
    assert bookmark({"bookmarks": {"s": 1}, "t": 2}, "t") is None
    assert bookmark(None, "s") is None
    assert bookmark("text", "s") is None


@pytest.mark.parametrize(
    ("value", "point"),
    [
        (SORTED, SORTED),
        (IN_FLIGHT, SORTED),
        (UNSORTED, None),
        (SORTED | MARKERS, SORTED),
        (CONTEXTS, None),
        (
            {"partitions": [{"context": {"a": 1}, **IN_FLIGHT}, {"context": {"a": 2}}]},
            {"partitions": [{"context": {"a": 1}, **SORTED}]},
        ),
        ({}, None),
        (7, 7),
    ],
)
def test_resume_points(value: Any, point: Any) -> None:
    """A resume point is the bookmark without the notes that a tap keeps in flight."""
    assert resume_point(of(value), "s") == point


def test_resume_points_of_a_whole_state() -> None:
    """Streams that would start again are left out, as is `currently_syncing`; whatever else is there may count."""
    state = {"bookmarks": {"a": IN_FLIGHT, "b": {}, "c": {"x": 1}}, "currently_syncing": "b", "cursor": 4}
    assert resume_points(state) == {"bookmarks": {"a": SORTED, "c": {"x": 1}}, "cursor": 4}
    assert resume_points(state, ignoring={"c"}) == {"bookmarks": {"a": SORTED}, "cursor": 4}
    assert resume_points({"a": 1, "b": 2, "currently_syncing": "a"}, ignoring={"b"}) == {"a": 1}
    assert resume_points("text") == "text"


@pytest.mark.parametrize("state", [None, {}, {"bookmarks": {}}, of({}), of(UNSORTED), {"currently_syncing": "s"}])
def test_no_resume_point_at_all(state: Any) -> None:
    """A first run's missing STATE and one of empty bookmarks start a tap at the same place."""
    assert resume_points(state) is None


def test_overlay_keeps_what_did_not_speak() -> None:
    """What the tap forgot of `kept` comes back, `muted` streams have no new words, and nothing is mutated."""
    old = {"bookmarks": {"a": 1, "b": 2}, "currently_syncing": "a"}
    new = {"bookmarks": {"b": 9, "c": 3}, "cursor": 4}
    before = deepcopy((old, new))
    assert overlay(old, new, {"a", "c"}) == {"bookmarks": {"b": 9, "c": 3, "a": 1}, "cursor": 4}
    assert overlay(old, new, (), {"b", "c"}) == {"bookmarks": {"b": 2}, "cursor": 4}
    assert overlay(old, new, ()) is new
    assert overlay(None, new, {"c"}) is new
    assert overlay(old, {}, {"a"}) == {"bookmarks": {"a": 1}}
    assert (old, new) == before


@pytest.mark.parametrize(("old", "new"), [({"users": 1}, of(1)), (of(1), {"users": 1}), ({"users": 1}, "text")])
def test_a_flat_state_is_not_taken_apart(old: Any, new: Any) -> None:
    """Where nothing tells whose words are whose, keeping a stream apart is refused with the reason."""
    with pytest.raises(SettingsError, match="cannot be kept per stream") as caught:
        overlay(old, new, {"s", "users"})
    assert "--stream" in caught.value.hint
    assert overlay(old, new, ()) == new


def test_without() -> None:
    """Streams that shall start again lose their bookmark, and only they."""
    assert without({"bookmarks": {"a": 1, "b": 2}, "x": 3}, {"a"}) == {"bookmarks": {"b": 2}, "x": 3}
    assert without(None, {"a"}) is None
    with pytest.raises(SettingsError):
        without({"users": 1}, {"users"})


@pytest.mark.parametrize(
    ("state", "overwritten", "expected"),
    [
        ({"bookmarks": {"a": 1, "b": 2}, "x": 3}, "", {"bookmarks": {"a": 1, "b": 2}, "x": 3}),
        ({"bookmarks": {"a": 1, "b": 2}, "x": 3}, "a", {"bookmarks": {"b": 2}, "x": 3}),
        ({"bookmarks": {"a": {"version": 5}, "b": {"version": None}}}, "ab", {"bookmarks": {"a": {"version": 5}}}),
        ({"bookmarks": {"a": {"version": 4}, "b": {"version": 5}}}, "ab", None),
        ({"bookmarks": {"a": 1, "b": 2}, "x": 3}, "ab", None),
        ({"a": 1, "b": 2}, "", {"a": 1, "b": 2}),
        ({"a": 1, "b": 2}, "ab", None),
        ({"bookmarks": {}}, "ab", {"bookmarks": {}}),
        ("a flat text", "", "a flat text"),
        (None, "", None),
    ],
)
def test_what_an_overwrite_starts_from(state: Any, overwritten: str, expected: Any) -> None:
    """A stream whose table is replaced whole starts again, unless its rows are of its bookmark's version."""
    versions = {"a": 5}
    assert resumable_versions(state, lambda stream: stream in overwritten and stream != "", versions.get) == expected


def test_a_flat_state_has_no_streams_that_are_overwritten_alone() -> None:
    """Where nothing tells whose bookmark is whose, all streams are overwritten or none."""
    with pytest.raises(SettingsError, match="cannot be kept per stream") as caught:
        resumable_versions({"a": 1, "b": 2}, lambda stream: stream == "a", lambda _: None)
    assert "all of its streams" in caught.value.hint
    assert resumable_versions("text", lambda stream: True, lambda _: None) is None


def test_a_flat_state_that_is_one_position_for_all() -> None:
    """A cursor that is no stream's name goes on where all tables are appended; a mixture is refused."""
    cursor, tables = {"cursor": 5}, ("a", "b")
    assert resumable_versions(cursor, lambda stream: False, lambda _: None, tables) == cursor
    assert resumable_versions({"a": 5}, lambda stream: stream == "b", lambda _: None, tables) == {"a": 5}
    with pytest.raises(SettingsError, match="cannot be kept per stream"):
        resumable_versions(cursor, lambda stream: stream == "a", lambda _: None, tables)


@pytest.mark.parametrize("said", [None, {}, {"bookmarks": {}}], ids=["none", "empty", "no-bookmarks"])
def test_a_tap_without_a_state_of_which_some_tables_are_overwritten(tmp_path: Path, said: Any) -> None:
    """Its second run starts like its first one: there is nothing to keep apart in a STATE that says nothing."""
    pipe = Pipe(tmp_path)
    how = {"load_method": "append-only", "streams": {"a": {"load_method": "overwrite"}}}
    schema = {"type": "SCHEMA", "schema": {"properties": {"id": {"type": "integer"}}}, "key_properties": ["id"]}
    tap = wire(
        *(schema | {"stream": stream} for stream in "ab"),
        *({"type": "RECORD", "stream": stream, "record": {"id": 1}} for stream in "ab"),
        *([] if said is None else [{"type": "STATE", "value": said}]),
    )
    for n in (1, 2, 3):
        found = pipe.load(tap, **how)
        assert {stream: len(found.rows(stream)) for stream in "ab"} == {"a": 1, "b": n}
        source, pipeline = Piped("tap", Stdin(BytesIO()), print), pipe.pipeline(**how)
        plan = plan_run(Request(), pipeline, source, (None, set()), lake_of(pipeline.destination), found.view)
        assert plan.start(found.state, None, SlotGuard())[0] is None


def test_a_table_that_the_catalog_calls_whole_starts_again(tmp_path: Path) -> None:
    """A tap of files keeps the time of the last one, and would send the newer ones alone: they would be the table."""
    pipe = Pipe(tmp_path)
    state = {"bookmarks": {"a": {"modified_since": "2024-01-01T00:00:00Z"}, "b": {"replication_key_value": 5}}}
    pipeline, facts = pipe.pipeline(), [("a", "FULL_TABLE"), ("b", "INCREMENTAL")]
    chosen = catalog(*(stream(name, replication_method=method, selected=True) for name, method in facts))
    source, view = Piped("tap", Stdin(BytesIO()), print), Snapshot(1, PipelineState(state), {})
    plan = plan_run(Request(), pipeline, source, (chosen, set()), lake_of(pipeline.destination), view)
    assert plan.start(state, None, SlotGuard())[0] == {"bookmarks": {"b": {"replication_key_value": 5}}}


@pytest.mark.parametrize("said", [None, {}, {"bookmarks": None}, {"currently_syncing": "b"}])
def test_a_flat_state_without_a_position_is_not_taken_apart(said: Any) -> None:
    """It is handed on as it is, unless all tables are overwritten."""
    assert resumable_versions(said, lambda stream: stream == "a", lambda _: None, "ab") == said
    assert resumable_versions(said, lambda stream: True, lambda _: None, "ab") is None


def test_parse_state() -> None:
    """The value is the tap's, whatever its shape; a broken line is an error that shows it."""
    assert parse_state(b'{"type":"STATE","value":{"a":[1,null]}}\r') == {"a": [1, None]}
    assert parse_state(b'{"value":null,"type":"STATE"}') is None
    for broken in (b'{"type":"STATE","va', b'{"type":"STATE"}', b"[]"):
        with pytest.raises(DataError, match="broken STATE"):
            parse_state(broken)
