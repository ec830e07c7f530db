"""Many writers of one STATE: none loses an update, none disturbs a run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.errors import CommitLost, LakeError, PipelineHeld
from bridge.lake.log import Log
from bridge.lake.state.store import StateStore
from bridge.lake.storage.local.storage import LocalStorage
from bridge.protocol.singer.state import bookmark
from tests.support.lake import Faulty, Lake, fail, holding


@pytest.fixture
def store(lake: Lake) -> StateStore:
    return StateStore(lake.root, "p")


# compare and swap


def test_compare_and_swap(store: StateStore, lake: Lake) -> None:
    """A STATE is swapped if it is still that version; otherwise nothing changes and the caller learns the new one."""
    seen = store.read()
    assert store.compare_and_swap(seen.version, {"bookmarks": {"a": 1}}) == 1
    for stale in (seen.version, 2, 99):
        with pytest.raises(CommitLost, match=f"expected={stale} now=1") as caught:
            store.compare_and_swap(stale, {"bookmarks": {}})
        assert caught.value.hint
    assert lake.state == {"bookmarks": {"a": 1}}
    assert store.compare_and_swap(1, {"bookmarks": {"a": 2}}) == 2
    assert lake.kinds == ["state", "state"]


def test_a_fence_is_nobodys_write(store: StateStore, lake: Lake) -> None:
    """The fence that a writer sets after another one died changes no STATE, so it fails no compare and swap."""
    store.set("a", 1)
    seen = store.read()
    lake.storage.delete(".bridge/p/lease.json")  # as a death leaves it: nothing says that the end was clean
    assert store.compare_and_swap(seen.version, {"bookmarks": {"a": 2}}) == 3
    assert lake.kinds == ["state", "fence", "state"]


def test_an_edit_by_hand_is_a_write(store: StateStore, lake: Lake) -> None:
    """An edited `state.json` is never overwritten unseen: it is recorded first, and compare and swap fails on it."""
    store.set("a", 1)
    seen = store.read()
    lake.edit_state('{"bookmarks": {"a": "mine"}}')
    with pytest.raises(CommitLost):
        store.compare_and_swap(seen.version, {"bookmarks": {"a": 2}})
    assert (store.get("a"), lake.kinds) == ("mine", ["state", "state"])
    assert store.compare_and_swap(store.version, {"bookmarks": {"a": 2}}) == 3


class Rival(Faulty):
    """A bucket in which somebody else takes the next number just before us, a few times."""

    def __init__(self, lake: Lake, times: int) -> None:
        super().__init__(lake)
        self.lake, self.times, self.puts = lake, times, 0

    def put_if_absent(self, key: str, data: bytes) -> bool:
        if "/commits/" in key and json.loads(data)["kind"] == "state":
            self.puts += 1
            if self.puts <= self.times:
                state = {"bookmarks": {"n": 100 * self.puts}}
                super().put_if_absent(key, json.dumps({**json.loads(data), "nonce": "theirs", "state": state}).encode())
        return super().put_if_absent(key, data)


def increment(state: Any) -> Any:
    return {"bookmarks": {"n": (state or {"bookmarks": {"n": 0}})["bookmarks"]["n"] + 1}}


@pytest.mark.parametrize("times", [0, 1, 4])
def test_a_lost_number_is_tried_again(store: StateStore, lake: Lake, times: int) -> None:
    """A writer that loses its number reads what the winner wrote and changes that: neither update is lost."""
    store._storage = store._log.storage = rival = Rival(lake, times)
    began = time.monotonic()
    assert store.update(increment).after == {"bookmarks": {"n": 100 * times + 1}}
    waited = time.monotonic() - began
    assert rival.puts == times + 1
    assert lake.state == {"bookmarks": {"n": 100 * times + 1}}
    assert waited >= sum(0.025 * 2**n for n in range(times))


def test_five_lost_numbers_are_enough(store: StateStore, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the fifth loss the writer gives up and has written nothing; its waits doubled, with jitter."""
    waits: list[float] = []
    monkeypatch.setattr("bridge.lake.state.store.time", SimpleNamespace(sleep=waits.append))  # not that of all threads
    store._storage = store._log.storage = rival = Rival(lake, 5)
    with pytest.raises(CommitLost) as caught:
        store.update(increment)
    assert (rival.puts, len(waits), bool(caught.value.hint)) == (5, 4, True)
    assert all(0.025 * 2**n <= wait <= 0.05 * 2**n for n, wait in enumerate(waits))
    assert store.get("n") == 500


def test_other_errors_are_not_tried_again(store: StateStore, lake: Lake) -> None:
    """A bucket that cannot be written is an error at once, and the pipeline is free afterwards."""
    lake.storage.prepare()
    store._storage = store._log.storage = Faulty(lake, put=fail)
    store._storage.armed = True  # type: ignore[attr-defined]
    with pytest.raises(LakeError, match="cannot reach"):
        store.set("a", 1)
    assert StateStore(lake.root, "p").set("a", 2) == 2  # a fence was needed


_INCREMENT = """
import sys
from bridge import StateStore
from bridge.errors import CommitLost

def increment(state):
    bookmarks = (state or {}).get("bookmarks", {})
    return {"bookmarks": bookmarks | {"n": bookmarks.get("n", 0) + 1}}

def swap(store):
    while True:
        seen = store.read()
        try:
            return store.compare_and_swap(seen.version, increment(seen.state))
        except CommitLost:
            pass

store = StateStore(sys.argv[1], "p")
for _ in range(20):
    store.update(increment) if sys.argv[2] == "update" else swap(store)
"""


@pytest.mark.timeout(240)
def test_eight_processes_lose_no_increment(tmp_path: Path) -> None:
    """Eight processes that add 1 twenty times each make exactly 160, in 160 commits, by either way of writing.

    Who reads meanwhile sees each version with its own STATE, and never takes a commit under way for an edit by hand.
    """
    ways = ["update"] * 6 + ["swap"] * 2
    store, log = StateStore(tmp_path, "p"), Log(LocalStorage(tmp_path), "p")
    writers = [subprocess.Popen([sys.executable, "-c", _INCREMENT, str(tmp_path), way]) for way in ways]
    seen = [store.read()]
    while any(writer.poll() is None for writer in writers):
        seen.append(store.read())
    assert [writer.wait() for writer in writers] == [0] * 8
    assert all(bookmark(one.state, "n") == (one.version or None) for one in seen)
    assert [one.version for one in seen] == sorted(one.version for one in seen)
    assert not any(one.edited for one in seen)
    kinds = [record.kind for record in log.history(log.head())]
    assert (store.get("n"), store.version, kinds) == (160, 160, ["state"] * 160)
    assert json.loads((tmp_path / ".bridge/p/state.json").read_text()) == {"bookmarks": {"n": 160}}


# while a run holds the pipeline


def test_a_run_is_not_disturbed(store: StateStore, lake: Lake) -> None:
    """While a run holds the pipeline a write is refused with its id and exit 4; reading goes on."""
    store.set("a", 1)
    with holding(lake, "20261120T133501Z-k3f9"):
        for write in (lambda: store.set("a", 2), lambda: store.compare_and_swap(1, {}), store.refuse_if_held):
            with pytest.raises(PipelineHeld, match="run=20261120T133501Z-k3f9") as caught:
                write()
            assert (caught.value.exit_code, bool(caught.value.hint)) == (4, True)
        assert (store.get("a"), store.version) == (1, 1)
    store.refuse_if_held()
    assert store.set("a", 2) == 2


_BRIEFLY = """
import sys
from bridge.lake.lease import take
from bridge.lake.storage import open_storage
lease = take(open_storage(sys.argv[1]), "p", "writer", brief=True)
print("held", flush=True)
sys.stdin.readline()
lease.close(head=0, clean=True)
"""


@pytest.mark.parametrize("write", [lambda store: store.set("a", 1), lambda store: store.refuse_if_held()])
def test_another_writer_is_waited_for(store: StateStore, lake: Lake, write: Callable[[StateStore], Any]) -> None:
    """A writer that has the pipeline for one commit is waited for, longer than a run would be."""
    argv = [sys.executable, "-c", _BRIEFLY, lake.storage.uri]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        assert other.stdin
        assert other.stdout.readline() == "held\n"
        letting_go = [sys.executable, "-c", "import time; time.sleep(0.5); print()"]
        with subprocess.Popen(letting_go, stdout=other.stdin):
            write(store)
        other.stdin.close()
    assert other.returncode == 0
