"""The commit protocol, killed at every single change that it makes to a folder, and at every request to a bucket.

`test_matrix.py` has the same by the name of the step. Here every step has its turn, also those that nobody has named:
some of them in `make test`, all in `make crash`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from .cases import CASES
from .driver import Run
from .faults import Fault
from .invariants import after_death, after_success, files_of_last_commit, kinds, pending, readable_by_duckdb
from .lakes import Folder
from .places import Place
from .scenes import META, Scene, Stage

EVERY = [7, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
"""Only each seventh step has its turn; or each one."""
PLACES = ["local", *(pytest.param(name, marks=pytest.mark.slow) for name in ("s3", "s3-uploads"))]
NAMES = list(CASES)
_LONG = ("parallel", "parallel, staged")
CHOSEN = [pytest.param(name, marks=[pytest.mark.slow] if name in _LONG else []) for name in CASES]
"""The cases, of which those with the most commits are for `make crash`: `test_parallel.py` kills one of them."""


class Bucket:
    """A lake on which a case's run dies, at one step after the other."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage, self.place, self.case, self.scene = stage, stage.place, CASES[name], Scene(name)
        self.again = self.case.again or self.case.run
        self._first = NAMES.index(name)

    def steps(self, every: int) -> Iterator[int]:
        """Yield the numbers of steps, other ones for each case."""
        return iter(range(self._first % every, len(self.stage.instants(self.scene)), every))

    @contextmanager
    def fresh(self) -> Iterator[None]:
        with self.place.thawed(self.stage.lake(self.scene)):
            yield

    def die(self, run: Run, at: int) -> bool:
        """Run until that step, or to the end; look at what a reader would see, and return whether it came there."""
        ending = self.place.run(run, Fault(at))
        assert ending.killed or ending.error in (None, "TapError"), ending.text
        after_death(self.place.lake)
        return ending.killed

    def recover(self) -> None:
        ending = self.place.run(self.again)
        assert ending.error is None, ending.text
        after_success(self.place.lake, self.case)


@pytest.fixture(scope="module")
def stages(place_of: Callable[[str], Place]) -> Callable[[str], Stage]:
    made: dict[str, Stage] = {}
    return lambda name: made.setdefault(name, Stage(place_of(name)))


@pytest.fixture
def bucket(request: pytest.FixtureRequest, stages: Callable[[str], Stage]) -> Bucket:
    where = request.node.callspec.params.get("where", "local")
    return Bucket(stages(where), request.param)


@pytest.mark.parametrize("bucket", CASES, indirect=True)
@pytest.mark.parametrize("where", PLACES)
def test_no_death(where: str, bucket: Bucket) -> None:
    """Without any crash, twice in a row, the lake holds each record exactly once and every reader can open it."""
    with bucket.fresh():
        for _ in range(2):
            bucket.recover()
        if isinstance(bucket.place.lake, Folder):
            readable_by_duckdb(bucket.place.lake, bucket.case)


@pytest.mark.parametrize("bucket", CHOSEN, indirect=True)
@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("every", EVERY)
def test_one_death(every: int, where: str, bucket: Bucket) -> None:
    """Wherever a run dies, the next one leaves each record exactly once and the tap's last STATE."""
    for step in bucket.steps(every):
        with bucket.fresh():
            bucket.die(bucket.case.run, step)
            bucket.recover()
            assert pending(bucket.place.lake) == [], "what nobody can commit any more is deleted"


@pytest.mark.parametrize("bucket", CHOSEN, indirect=True)
@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("every", [13, pytest.param(2, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_death_of_the_recovery(every: int, where: str, bucket: Bucket) -> None:
    """A run that dies while it repairs the lake of a dead run leaves nothing that a third cannot repair."""
    for first in bucket.steps(every):
        with bucket.fresh():
            bucket.die(bucket.case.run, first)
            if bucket.die(bucket.again, first * 13 % 61):
                bucket.recover()


@pytest.mark.parametrize("bucket", [name for name in CASES if name != "staged, the tap fails"], indirect=True)
@pytest.mark.parametrize("every", [pytest.param(1, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_death_and_a_lost_file(every: int, bucket: Bucket) -> None:
    """If a committed file is gone before its STATE was seen, the commit is taken back and its rows come again."""
    before, voided = len(kinds_of(bucket)), 0
    for step in bucket.steps(every):
        with bucket.fresh():
            bucket.die(bucket.case.run, step)
            lake = bucket.place.lake
            lost = files_of_last_commit(lake)[::5] if len(kinds(lake)) > before else []
            dead = bucket.place.freeze() if lost else None
            for number, (key, upload) in enumerate(lost):
                if number:
                    bucket.place.put_back(dead)
                bucket.place.lose(key, upload)
                assert "void" not in kinds(lake)
                bucket.recover()
                assert "void" in kinds(lake)
                voided += 1
    assert voided


def kinds_of(bucket: Bucket) -> list[str]:
    with bucket.fresh():
        return kinds(bucket.place.lake)


@pytest.mark.parametrize("bucket", ["staged, adopted"], indirect=True)
@pytest.mark.parametrize("every", EVERY)
def test_lost_staged_file(every: int, bucket: Bucket) -> None:
    """A half loaded table that lost a file starts again from nothing, wherever the run that finds out dies."""
    for step in bucket.steps(every):
        with bucket.fresh():
            bucket.place.lose(f"{META}/pending/{pending(bucket.place.lake)[0]}")
            bucket.die(bucket.case.run, step)
            bucket.recover()


@pytest.mark.parametrize("bucket", ["append", "overwrite", "staged, adopted", "rewritten"], indirect=True)
@pytest.mark.parametrize("every", [13, pytest.param(3, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_death_of_the_taking_back(every: int, bucket: Bucket) -> None:
    """A commit that is being taken back when its run dies is taken back by the next one."""
    for step in bucket.steps(every):
        with bucket.fresh():
            bucket.die(bucket.case.run, step)
            lost = [key for key, upload in files_of_last_commit(bucket.place.lake) if key.startswith(META)]
            if not lost:
                continue
            bucket.place.lose(lost[0])
            dead = bucket.place.freeze()
            for second in range(step % 7, 28, 7):  # fence and void are among the first steps
                bucket.place.put_back(dead)
                if bucket.die(bucket.case.run, second):
                    bucket.recover()


@pytest.mark.parametrize("bucket", ["overwrite", "--full", "staged, adopted"], indirect=True)
@pytest.mark.parametrize("every", EVERY)
def test_death_without_exchange(every: int, bucket: Bucket, monkeypatch: Any) -> None:
    """Where folders cannot be exchanged two renames do it: the table may be absent for an instant, never mixed."""
    monkeypatch.setattr("bridge.storage.local.publish.exchange", lambda one, other: False)
    for step in bucket.steps(every):
        with bucket.fresh():
            bucket.die(bucket.case.run, step)
            bucket.recover()
