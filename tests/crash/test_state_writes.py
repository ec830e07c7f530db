"""A write to the STATE, killed at every single change that it makes to the bucket."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.log import Log
from bridge.storage.local import LocalStorage
from bridge.store import StateStore

from .faults import Faults, crashing


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory where there is one."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory, ignore_cleanup_errors=True) as name:
        yield Path(name)


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
    storage = LocalStorage(Path(store._storage.uri))
    storage.write(".bridge/p/state.json", json.dumps({"bookmarks": {"n": 50}}).encode())
    return 50


def put_there_first(store: StateStore) -> int:
    LocalStorage(Path(store._storage.uri)).write(".bridge/p/state.json", b'{"bookmarks": {"n": 70}}')
    return 70


@pytest.mark.parametrize("before", [never_written, written, edited, put_there_first])
def test_an_increment_that_died_is_there_or_not(folder: Path, before: Any) -> None:
    """Wherever a write dies, the STATE is the old one or the new one, and further writes add up from there."""
    lake, fresh = folder / "lake", folder / "fresh"
    lake.mkdir()
    start = before(StateStore(lake, "p"))
    lake.rename(fresh)

    def die(at: int | None) -> Faults:
        shutil.rmtree(lake, ignore_errors=True)
        shutil.copytree(fresh, lake)
        with crashing(lake, at) as faults:
            increment(StateStore(lake, "p"))
        return faults

    steps = die(None).steps
    assert len(steps) > 8
    outcomes = set()
    for at in range(len(steps)):
        assert die(at).crashed
        store = StateStore(lake, "p")
        found = n_of(store.get())
        assert found in (start, start + 1), steps[at]
        outcomes.add(found)
        for more in (1, 2):
            increment(StateStore(lake, "p"))
            assert n_of(store.get()) == found + more, steps[at]
        assert json.loads((lake / ".bridge/p/state.json").read_text()) == store.get()
        log = Log(LocalStorage(lake), "p")
        states = [n_of(record["state"]) for record in log.history(log.head(), fences=False)]
        assert states == sorted(set(states), reverse=True), steps[at]
        assert not store.read().edited
    assert outcomes == {start, start + 1}
