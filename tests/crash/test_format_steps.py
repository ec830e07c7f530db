"""A Delta or Iceberg table under the commit protocol: killed at every single change, and looked at by its readers.

In this process, since Delta's readers do not survive a fork: whoever is dead changes nothing any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from botocore.httpsession import URLLib3Session

from bridge.lake.commit.committer import Committer
from bridge.lake.storage import open_storage
from bridge.operate.verify.check import verify
from bridge.settings.values.stores import S3Options
from tests.contract.crashing import Crash, Faults, crashing
from tests.support.delta_lake import DeltaLake
from tests.support.iceberg_lake import IcebergLake, PartitionedLake
from tests.support.lake import DEAD, FIRST, closed

from .places import InBucket, Place
from .s3copies import ENVIRON

HISTORY: list[tuple[Callable[[DeltaLake, Committer], None], list[int]]] = [
    (lambda lake, run: lake.append(run, [1, 2]), [1, 2]),
    (lambda lake, run: lake.append(run, [3], name="new"), [1, 2, 3]),
    (lambda lake, run: lake.rewrite(run, [1, 4], name="new"), [1, 3, 4]),
    (lambda lake, run: lake.replace(run, [7, 8], name="all"), [7, 8]),
]
"""Commits: an append to no table, a new column, a merge by key, an overwrite; with the ids after each."""

FORMATS = {
    "delta": (DeltaLake, "_delta_log"),
    "iceberg": (IcebergLake, "/metadata/"),
    "partitions": (PartitionedLake, "/metadata/"),
}
"""By format: the table, and a part of the paths of its log."""
TABLES = [("delta", "local"), ("iceberg", "local"), ("delta", "s3"), ("delta", "s3-uploads"), ("partitions", "local")]


def cells(quick: list[int], slow: list[int]) -> list[Any]:
    """The tables, each with how many steps one death in `make test` stands for, and one in `make crash`."""
    marks = [pytest.mark.slow, pytest.mark.timeout(3600)]
    ids = ["-".join(table) for table in TABLES]
    chosen = [
        pytest.param(table, n, id=f"{i}-{n}", marks=marks * (table == ("delta", "s3")))  # a bucket is tried once
        for table, n, i in zip(TABLES, quick, ids, strict=False)
    ]
    every = zip(TABLES, slow, ids, strict=True)
    return chosen + [pytest.param(table, n, id=f"{i}-{n}", marks=marks) for table, n, i in every]


_SEND = URLLib3Session.send


@dataclass
class Requests:
    """The changes that a store was asked for, counted from 0; the one `at` which we die is not sent, and none after."""

    at: int | None
    steps: list[str] = field(default_factory=list)
    crashed: bool = False
    _lock: Any = field(default_factory=threading.Lock)

    def send(self, session: Any, request: Any) -> Any:
        """Send a request, or die."""
        with self._lock:
            if request.method not in ("GET", "HEAD") and not self.crashed:
                self.crashed = len(self.steps) == self.at
                self.steps.append(f"{request.method} {request.url}")
            if self.crashed:
                raise Crash(request.url)
        return _SEND(session, request)


@contextmanager
def crashing_requests(at: int | None) -> Iterator[Requests]:
    """Run the block as a process that dies at that request."""
    requests = Requests(at)

    def send(session: Any, request: Any) -> Any:  # a bound method would not be given the session
        return requests.send(session, request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(URLLib3Session, "send", send)
        try:
            yield requests
        except Crash:
            assert requests.crashed


class Table:
    """A table that has come to a commit of the history, and what the next one makes of it."""

    def __init__(self, place: Place, kind: str, before: int) -> None:
        options = S3Options(endpoint_url=place.endpoint) if isinstance(place, InBucket) else S3Options()
        lake, self.log = FORMATS[kind]
        self.place, self.lake = place, lake(open_storage(place.uri, options))
        self.act, self.after = HISTORY[before]
        self.before = HISTORY[before - 1][1] if before else []
        for n in range(before):
            HISTORY[n][0](self.lake, self.lake.open(closed(n) if n else FIRST))
        self.last = closed(before) if before else FIRST
        self.frozen = place.freeze()

    def thaw(self) -> None:
        self.place.put_back(self.frozen)

    def dying(self, at: int | None) -> AbstractContextManager[Faults | Requests]:
        return crashing_requests(at) if isinstance(self.place, InBucket) else crashing(Path(self.place.uri), at)

    def rows(self) -> list[int]:
        return self.lake.ids() if self.lake.is_there else []

    def run(self, last: dict[str, Any]) -> None:
        """What a run does: open, recover, and load what its STATE does not have."""
        committer = self.lake.open(last)
        if (committer.snapshot.state or {}).get("last") != self.after[-1]:
            self.act(self.lake, committer)

    def die(self, last: dict[str, Any], at: int | None) -> list[str]:
        """Run until that step, look at what a reader has, and return the steps."""
        with self.dying(at) as faults:
            self.run(last)
        assert faults.crashed == (at is not None)
        assert self.rows() in (self.before, self.after), faults.steps[-1:]
        return faults.steps

    def complete(self) -> None:
        """Have the next run complete it: each row is there once for every reader, and the bucket is in order."""
        self.run(DEAD)
        assert self.rows() == self.lake.listed() == self.after
        assert self.lake.log.snapshot(self.lake.log.head()).state == {"last": self.after[-1]}
        found = verify(self.lake.storage, "p").findings
        assert [f for f in found if f.status == "error" and f.check != "owner"] == []

    def steps(self) -> list[str]:
        """The steps of a run that nobody kills."""
        steps = self.die(self.last, None)
        self.complete()
        assert any(self.log in step for step in steps)
        self.thaw()
        return steps


@pytest.fixture
def place(where: tuple[str, str], place_of: Callable[[str], Place], monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr("os.fsync", lambda fd: None)
    for name, value in {**ENVIRON, "AWS_MAX_ATTEMPTS": "2"}.items():
        monkeypatch.setenv(name, value)
    if where[1] == "s3-uploads":
        monkeypatch.setattr("bridge.lake.storage.s3.pending._SMALL", -1)
    return place_of(where[1])


@pytest.fixture
def table(where: tuple[str, str], before: int, place: Place) -> Iterator[Table]:
    with place.thawed():
        yield (made := Table(place, where[0], before))
        place.forget(made.frozen)


@pytest.mark.parametrize("before", range(len(HISTORY)))
@pytest.mark.parametrize(("where", "every"), cells([3, 9, 13, 13, 9], [1, 1, 1, 1, 1]))
def test_one_death(table: Table, before: int, every: int) -> None:
    """Wherever a run dies a reader has the rows before or those after, and the next run completes it."""
    for at in range(before % every, len(table.steps()), every):
        table.thaw()
        table.die(table.last, at)
        table.complete()


@pytest.mark.parametrize("before", range(len(HISTORY)))
@pytest.mark.parametrize(("where", "every"), cells([7, 80], [1, 1, 3, 3, 3]))
def test_death_of_the_recovery(table: Table, before: int, every: int) -> None:
    """A recovery that dies around the table's own commit leaves nothing that a third run cannot repair."""
    steps = table.steps()
    committed = next(at for at, step in enumerate(steps) if step.startswith(("os.link", "PUT")) and "/commits/" in step)
    for first in range(committed + 1, len(steps), every):
        table.thaw()
        table.die(table.last, first)
        died = table.place.freeze()
        for at in range(before % every, len(table.die(DEAD, None)), every):
            table.place.put_back(died)
            table.die(DEAD, at)
            table.complete()
        table.place.forget(died)


@pytest.mark.parametrize("before", [1, 2, 3])
@pytest.mark.parametrize("where", TABLES[:2], ids=["delta", "iceberg"])
def test_lost_files(table: Table, before: int) -> None:
    """A commit whose pending files are lost before they are visible is taken back, and loaded again."""
    steps = table.steps()
    table.die(table.last, next(at for at, s in enumerate(steps) if s.startswith("os.rename") and "/p/s/" in s))
    for file in Path(table.place.uri, ".bridge/p/pending").iterdir():
        file.unlink()
    committer = table.lake.open(DEAD)
    assert table.rows() == table.before
    assert next(table.lake.log.history(committer.snapshot.n)).kind == "void"
    table.complete()


@pytest.mark.parametrize(("where", "rounds"), [(TABLES[0], 30), (TABLES[1], 15)], ids=["delta", "iceberg"])
def test_a_polling_reader_sees_whole_commits(where: tuple[str, str], rounds: int, place: Place) -> None:
    """While tables are replaced again and again a reader has the rows of one commit, never of two, and no error."""
    ended, seen = threading.Event(), set()
    with place.thawed():
        lake = FORMATS[where[0]][0](open_storage(place.uri))
        committer = lake.open(FIRST)
        lake.append(committer, [0, 1, 2])

        def poll() -> None:
            while not ended.is_set():
                seen.add(tuple(lake.ids()))

        reader = threading.Thread(target=poll)
        reader.start()
        try:
            for n in range(1, rounds + 1):
                lake.replace(committer, [3 * n, 3 * n + 1, 3 * n + 2])
        finally:
            ended.set()
            reader.join()
    assert seen
    assert all(len(ids) == 3 and ids[0] % 3 == 0 and ids[2] - ids[0] == 2 for ids in seen), seen
