"""`lookback`: the tap starts earlier, the bookmark in the lake never goes back."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from bridge.errors import SettingsError
from bridge.lake.state.lookback import Length, Lookback
from bridge.load.run.barriers import BarrierPolicy


def bookmarks(**values: Any) -> dict[str, Any]:
    return {"bookmarks": {name: {"replication_key": "k", "replication_key_value": v} for name, v in values.items()}}


def started(value: Any, length: Length) -> Any:
    given = Lookback(lambda _: length).start(bookmarks(a=value))
    return given["bookmarks"]["a"]["replication_key_value"]


@pytest.mark.parametrize(
    ("value", "length", "expected"),
    [
        (100, 10, 90),
        (2.5, 1, 1.5),
        ("2024-03-01", timedelta(days=3), "2024-02-27"),
        ("2024-03-01", timedelta(hours=1), "2024-02-29"),
        ("2024-03-01T00:00:00Z", timedelta(hours=1), "2024-02-29T23:00:00Z"),
        ("2024-03-01T00:00:00.120000+02:00", timedelta(days=1), "2024-02-29T00:00:00.120000+02:00"),
        ("2024-03-01 10:00:00", timedelta(seconds=1), "2024-03-01 09:59:59"),
        ("0001-01-02T00:00:00Z", timedelta(days=90), "0001-01-01T00:00:00Z"),
    ],
)
def test_the_tap_starts_earlier_in_the_form_of_its_bookmark(value: Any, length: Length, expected: Any) -> None:
    """A date stays a date, a fraction and an offset stay; nothing comes before the year 1."""
    assert started(value, length) == expected


@pytest.mark.parametrize(
    ("value", "length"),
    [("x", timedelta(days=1)), (5, timedelta(days=1)), ("2024-03-01", 5), (True, 5), ("2024-02-31", timedelta(days=1))],
)
def test_what_cannot_be_shifted_is_refused(value: Any, length: Length) -> None:
    """A number does not shift a time, nor a duration a number, nor anything a word."""
    with pytest.raises(SettingsError, match="does not fit the bookmark"):
        started(value, length)


def test_a_flat_state_is_refused() -> None:
    """Nobody knows what to shift in it; no STATE at all is as ever."""
    lookback = Lookback(lambda _: 1)
    with pytest.raises(SettingsError, match="no place for a lookback"):
        lookback.start({"users": 2})
    assert lookback.start(None) is None


def test_a_bookmark_of_another_form_is_told() -> None:
    """Taps of the older kind name the column itself; an empty bookmark is no bookmark yet."""
    lookback = Lookback(lambda _: 5)
    state = {"bookmarks": {"old": {"updated_at": "2024-03-01"}, "new": {}, "good": {"replication_key_value": 9}}}
    assert lookback.start(state)["bookmarks"]["old"] == {"updated_at": "2024-03-01"}
    assert (lookback.unshifted, lookback.streams) == ({"old"}, ["good"])


def test_only_the_streams_that_say_so_and_their_partitions_are_shifted() -> None:
    """Each partition has a bookmark of its own; the STATE in the lake is another object, and stays."""
    parts = [{"context": {"org": 1}, "replication_key_value": 50}, {"context": {"org": 2}}]
    state = bookmarks(a=100, b=100)
    state["bookmarks"]["c"] = {"partitions": parts}
    lookback = Lookback({"a": 10, "c": 20}.get)
    given = lookback.start(state)["bookmarks"]
    assert given["a"]["replication_key_value"] == 90
    assert given["b"]["replication_key_value"] == 100
    assert given["c"]["partitions"] == [{"context": {"org": 1}, "replication_key_value": 30}, {"context": {"org": 2}}]
    assert state["bookmarks"]["a"]["replication_key_value"] == 100
    assert lookback.streams == ["a", "c"]


def test_a_bookmark_on_its_way_back_is_not_stored() -> None:
    """Else a run that fails, or finds nothing, would begin the next one another lookback earlier, for ever."""
    state = bookmarks(a="2024-03-10T00:00:00Z", b=7)
    lookback = Lookback({"a": timedelta(days=3)}.get)
    given = lookback.start(state)
    assert lookback.stored(given) == state
    assert lookback.stored(bookmarks(a="2024-03-09T00:00:00Z", b=8)) == bookmarks(a="2024-03-10T00:00:00Z", b=8)
    assert lookback.stored(bookmarks(a="2024-03-10T01:00:00+01:00", b=8)) == bookmarks(a="2024-03-10T00:00:00Z", b=8)


@pytest.mark.parametrize("value", ["2024-03-10T00:00:00.000001Z", "2024-03-11", "2020-01-01", "x", None, 5])
def test_all_else_is_stored_as_the_tap_says_it(value: Any) -> None:
    """What is past the old bookmark, and what a tap says that begins its stream anew."""
    lookback = Lookback(lambda _: timedelta(days=3))
    lookback.start(bookmarks(a="2024-03-10T00:00:00Z"))
    said = bookmarks(a=value)
    assert lookback.stored(said) is said


def test_rows_of_the_lookback_wait_until_the_bookmark_has_moved() -> None:
    """The STATE of a commit is the tap's own, but for the bookmark, which stands until the tap has caught up."""
    from bridge.protocol.singer.messages import Schema
    from tests.unit.load.run.test_dispatcher import opened  # the simplest stream there is

    lookback = Lookback({"a": 10}.get)
    start = bookmarks(a=100)
    lookback.start(start)
    epochs = BarrierPolicy(start, staged={}, lookback=lookback)
    stream, _ = opened(Schema("a", {"type": "object", "properties": {"id": {"type": "integer"}}}, [], None))
    epochs.open(stream)
    epochs.rows(stream, 5)
    epochs.state(b'{"type":"STATE","value":{"bookmarks":{"a":{"replication_key":"k","replication_key_value":95}}}}')
    assert epochs.barrier(end=False) is None
    epochs.rows(stream, 5)
    epochs.state(b'{"type":"STATE","value":{"bookmarks":{"a":{"replication_key":"k","replication_key_value":105}}}}')
    barrier = epochs.barrier(end=False)
    assert barrier is not None
    assert (barrier.state, barrier.publish, barrier.merged) == (bookmarks(a=105), {"a": "append-only"}, False)


@pytest.mark.parametrize(
    ("stored", "bound", "given"),
    [
        ("2024-03-01T00:00:00Z", datetime(1, 1, 1, tzinfo=timezone.utc), "0001-01-01T00:00:00Z"),
        ("2024-03-01", datetime(1, 1, 1, tzinfo=timezone.utc), "0001-01-01"),
        ("30", Decimal(10), "9"),
        (30, Decimal("10.5"), 9),
        ("000030", Decimal(10), None),
        (True, Decimal(10), None),
    ],
)
def test_a_tap_starts_a_little_before_a_value(stored: Any, bound: Any, given: Any) -> None:
    """In the form of its bookmark, and never after the value; None: refused."""
    state = bookmarks(a=stored)
    if given is None:
        with pytest.raises(SettingsError, match="nobody knows"):
            Lookback.at(state, ("a",), None, bound)
    else:
        assert Lookback.at(state, ("a",), None, bound)["bookmarks"]["a"]["replication_key_value"] == given


def test_the_time_of_a_file_is_shifted() -> None:
    """Taps of files keep the time of the last one: those of the same second come again, and the bookmark stays."""
    stored: Any = {"bookmarks": {"a": {"modified_since": "2024-03-01T00:00:00+00:00"}}}
    lookback = Lookback(lambda _: timedelta(seconds=1))
    given = lookback.start(stored)
    assert given == {"bookmarks": {"a": {"modified_since": "2024-02-29T23:59:59+00:00"}}}
    assert (lookback.unshifted, lookback.stored(given)) == (set(), stored)
    later = {"bookmarks": {"a": {"modified_since": "2024-03-02T00:00:00+00:00"}}}
    assert lookback.stored(later) == later
