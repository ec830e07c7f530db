"""Two writers and no lock: the number of a commit is the fence, whoever sleeps, and however long."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bridge.errors import CommitLost, LakeError
from bridge.lake.commit.committer import Committer
from bridge.lake.commit.open import open_committer
from bridge.lake.paths import file_name, pipeline_key
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.records import TableChange
from bridge.lake.storage import Storage, open_storage
from tests.support.lake import DEAD
from tests.support.records import table_change

from .driver import PIPELINE
from .faults import Fault, Watcher
from .history import History
from .invariants import manifest, pending, rows_of, shown, state_file, visible
from .places import Place

SECONDS = 12.0
"""How long two writers race at most."""
ROUNDS = 150


def pending_file(storage: Storage, committer: Committer, stream: str, ids: range) -> dict[str, Any]:
    """Write a pending Parquet file with these ids and return it as a report names it."""
    name = file_name(committer.generation, 1)
    source = pipeline_key(PIPELINE, "pending", f"{name}.pending")
    with closing(storage.open_pending(source, f"{PIPELINE}/{stream}/{name}")) as file:
        pq.write_table(pa.table({"id": list(ids)}), file)
        facts = {"name": name, "source": source, "size": file.tell(), "rows": len(ids)}
    return facts | ({"upload": file.upload} if file.upload else {})


def entry(stream: str, adds: list[dict[str, Any]], removes: list[str]) -> TableChange:
    mode = "replace" if removes else "append"
    return table_change(adds, removes, stream, folder=f"{PIPELINE}/{stream}", mode=mode)


def step_on(storage: Storage, committer: Committer) -> None:
    """Commit as a tap would go on: three more rows of `a`, in two files, and the whole of `t` anew."""
    done = (committer.snapshot.state or {"bookmarks": {"a": 0}})["bookmarks"]["a"]
    table = committer.snapshot.tables.get("t")
    appended = [
        pending_file(storage, committer, "a", ids) for ids in (range(done + 1, done + 3), range(done + 3, done + 4))
    ]
    whole = [pending_file(storage, committer, "t", range(1, done + 4))]
    entries = [entry("a", appended, []), entry("t", whole, list(table.files) if table else [])]
    committer.commit(PipelineState({"bookmarks": {"a": done + 3}}), entries)


def opened(place: Place) -> tuple[Storage, Committer]:
    """Open the log as if the last run had died, and nobody held a lease."""
    storage = open_storage(place.uri)
    return storage, open_committer(storage, PIPELINE, "run", last=DEAD)


def check(place: Place) -> None:
    """The log has no gap, and each table has each row once, as many as the STATE says."""
    history = History(place.lake, PIPELINE)
    history.head()
    done = history.state["bookmarks"]["a"]
    assert state_file(place.lake) == history.state
    for stream in ("a", "t"):
        assert rows_of(place.lake, stream, ("id",)) == Counter((number,) for number in range(1, done + 1))
        assert visible(place.lake)[stream] == set(history.live(stream)) == manifest(place.lake, stream)
    numbers = [name for name in place.lake.files(f".bridge/{PIPELINE}/commits") if not name.startswith(".")]
    assert sorted(numbers) == [f"{n:020d}.json" for n in range(1, len(history.records) + 1)]


def settle(place: Place) -> None:
    """Let one more writer repair what the others left."""

    def work(watcher: Watcher) -> None:
        opened(place)

    assert (ending := place.child(work).wait()).error is None, ending.text


def race(place: Place, until: float) -> Callable[[Watcher], None]:
    """A writer that opens the log and commits, again and again, and tells what came of each try."""

    def work(watcher: Watcher) -> None:
        random.seed()  # a fork would do what the other does
        for _ in range(ROUNDS):
            if time.monotonic() > until:
                return
            try:
                step_on(*opened(place))
                watcher.tell("won")
            except (CommitLost, LakeError):  # the other one published, or removed, what it was about to rename
                watcher.tell("lost")
                time.sleep(random.uniform(0, 0.4))  # else they might only fence each other off

    return work


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.slow), "s3-uploads"])
def place(request: pytest.FixtureRequest, place_of: Callable[[str], Place]) -> Place:
    return place_of(request.param)


def own_tables(place: Place) -> None:
    """Say whose the tables are, as a run does at a stream's first SCHEMA: only of such are old uploads aborted."""
    for stream in ("a", "t"):
        owner = {"format": 1, "pipeline": PIPELINE, "stream": stream}
        place.put(f".bridge/tables/{PIPELINE}/{stream}.json", json.dumps(owner).encode())


def test_race(place: Place) -> None:
    """Two processes without a lock commit as fast as they can: no gap, no row twice, and who loses changes nothing."""
    with place.thawed():
        own_tables(place)
        until = time.monotonic() + SECONDS
        racers = [place.child(race(place, until)) for _ in range(2)]
        endings = [racer.wait() for racer in racers]
        assert [ending.error for ending in endings] == [None, None], [ending.text for ending in endings]
        tries = Counter(told for ending in endings for told in ending.told)
        settle(place)
        check(place)
        history = History(place.lake, PIPELINE)
        history.head()
        committed = sum(record["kind"] == "data" for record in history.records)
        assert tries["won"] <= committed <= tries["won"] + tries["lost"]
        assert tries["lost"] > 0, "they never met"


# A writer that sleeps


def sleeper(place: Place) -> Callable[[Watcher], None]:
    def work(watcher: Watcher) -> None:
        storage, committer = opened(place)
        watcher.mark("opened")
        step_on(storage, committer)

    return work


def successor(place: Place) -> Callable[[Watcher], None]:
    """Take over and go on for two commits: what the sleeper would publish is gone by then."""

    def work(watcher: Watcher) -> None:
        impatient()
        storage, committer = opened(place)
        for _ in range(2):
            step_on(storage, committer)

    return work


ENDS = ("CommitLost", "LakeError")
"""It hears that it lost, or meets something that is gone: its upload, the file it was about to move, or had moved."""


def impatient() -> None:
    """Do not wait long for a process that stands still while it holds a folder."""
    from bridge.lake.storage.local import folders

    assert folders._PATIENCE > 1
    folders._PATIENCE = 0.05


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_sleeper(every: int, place: Place) -> None:
    """A writer is stopped at any step of its commit and another takes over: it wakes up, changes nothing, and ends."""
    with place.thawed():
        own_tables(place)
        first = place.child(successor(place)).wait()
        assert first.error is None, first.text
        frozen = place.freeze()
    with place.thawed(frozen):
        trace = place.child(sleeper(place), Fault(by=signal.SIGSTOP, reads=True)).wait()
    assert trace.error is None, trace.text
    changes = [step.change for step in trace.steps]
    begin = changes.index("opened")
    # What comes after a request has seen no more than what comes before the next one.
    steps = [at for at in range(begin, len(changes)) if not changes[at].startswith("after ")]
    for at in steps[::every]:
        with place.thawed(frozen):
            wakes_up(place, at, f"{at}: {changes[at]} {trace.steps[at].path}")


def wakes_up(place: Place, at: int, what: str) -> None:
    child = place.child(sleeper(place), Fault(at, signal.SIGSTOP, reads=True))
    assert child.stopped()
    other = place.child(successor(place)).wait()
    before = shown(place.lake)
    child.resume()
    ending = child.wait()
    if other.error is None:
        print(what, ending.error, ending.text.splitlines()[:1])
        assert shown(place.lake) == before, what
        assert ending.error in ENDS, (what, ending.text)
    else:
        print(what, other.error, other.text.splitlines()[:1], ending.error)
    settle(place)
    check(place)
    assert pending(place.lake) == [], what
