"""A write to the STATE, killed at every single change that it makes to the bucket."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from bridge.lake.log import Log
from bridge.lake.state.store import StateStore
from bridge.lake.storage import open_storage

from .faults import Fault
from .places import Place
from .process import Ending


def n_of(state: Any) -> int:
    return int((state or {"bookmarks": {"n": 0}})["bookmarks"]["n"])


def increment(store: StateStore) -> None:
    store.update(lambda state: {"bookmarks": {"n": n_of(state) + 1}})


def never_written(store: StateStore) -> int:
    return 0


def written(store: StateStore) -> int:
    increment(store)
    return 1


def edited(store: StateStore) -> int:
    increment(store)
    store._storage.write(".bridge/p/state.json", json.dumps({"bookmarks": {"n": 50}}).encode())
    return 50


def put_there_first(store: StateStore) -> int:
    store._storage.write(".bridge/p/state.json", b'{"bookmarks": {"n": 70}}')
    return 70


@pytest.mark.parametrize("before", [never_written, written, edited, put_there_first])
def test_an_increment_that_died_is_there_or_not(before: Any, place_of: Callable[[str], Place]) -> None:
    """Wherever a write dies, the STATE is the old one or the new one, and further writes add up from there."""
    place = place_of("local")
    with place.thawed():
        start = before(StateStore(place.uri, "p"))
        fresh = place.freeze()

    def die(at: int | None) -> Ending:
        return place.child(lambda watcher: increment(StateStore(place.uri, "p")), Fault(at)).wait()

    with place.thawed(fresh):
        ending = die(None)
    assert ending.error is None, ending.text
    steps = ending.steps
    assert len(steps) > 8
    outcomes = set()
    for at, step in enumerate(steps):
        with place.thawed(fresh):
            assert die(at).killed
            store = StateStore(place.uri, "p")
            found = n_of(store.get())
            assert found in (start, start + 1), step
            outcomes.add(found)
            for more in (1, 2):
                increment(StateStore(place.uri, "p"))
                assert n_of(store.get()) == found + more, step
            assert json.loads(place.lake.read(".bridge/p/state.json") or b"") == store.get()
            log = Log(open_storage(place.uri), "p")
            states = [n_of(record.state) for record in log.history(log.head(), fences=False)]
            assert states == sorted(set(states), reverse=True), step
            assert not store.read().edited
    assert outcomes == {start, start + 1}
