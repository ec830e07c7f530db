"""A Delta table under the commit protocol: killed at every single change to the bucket, and looked at by a reader."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bridge.commit.committer import Committer
from bridge.maintain.verify.check import verify
from bridge.storage import Storage
from bridge.storage.local.storage import LocalStorage
from tests.contract.crashing import crashing
from tests.support.delta_lake import DeltaLake
from tests.support.lake import DEAD, FIRST, closed

Act = Callable[[DeltaLake, Committer], None]

HISTORY: list[tuple[Act, list[int]]] = [
    (lambda lake, run: lake.append(run, [1, 2]), [1, 2]),
    (lambda lake, run: lake.append(run, [3], name="new"), [1, 2, 3]),
    (lambda lake, run: lake.rewrite(run, [1, 4], name="new"), [1, 3, 4]),
    (lambda lake, run: lake.replace(run, [7, 8], name="all"), [7, 8]),
]
"""Commits: an append to no table, a new column, a merge by key, an overwrite; with the ids after each."""


@pytest.fixture(autouse=True)
def _no_power_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda fd: None)


EVERY = [3, pytest.param(1, marks=pytest.mark.slow)]
"""Only each third step has its turn; or each one."""


class Table:
    """A Delta table that has come to a commit of the history, and what the next one makes of it."""

    def __init__(self, storage: Storage, before: int) -> None:
        self.lake = DeltaLake(storage)
        self.act, self.after = HISTORY[before]
        self.before = HISTORY[before - 1][1] if before else []
        for n in range(before):
            HISTORY[n][0](self.lake, self.lake.open(closed(n) if n else FIRST))
        self.last = closed(before) if before else FIRST

    def rows(self) -> list[int]:
        return self.lake.ids() if self.lake.is_there else []

    def run(self, last: dict[str, Any]) -> None:
        """What a run does: open, recover, and load what its STATE does not have."""
        committer = self.lake.open(last)
        if (committer.view.state or {}).get("last") != self.after[-1]:
            self.act(self.lake, committer)

    def whole(self) -> None:
        """Each row is there once for every reader, and nothing is wrong in the bucket."""
        assert self.rows() == self.lake.listed() == self.after
        head = self.lake.log.head()
        assert self.lake.log.view(head).state == {"last": self.after[-1]}
        found = verify(self.lake.storage, "p").findings
        assert [f for f in found if f.severity == "error" and f.check != "owner"] == []


class Bucket(Table):
    """A folder that is set back to what it was before each death."""

    def __init__(self, root: Path, before: int) -> None:
        self.root, self.kept = root / "lake", root / "kept"
        super().__init__(LocalStorage(self.root), before)
        self.root.mkdir(exist_ok=True)
        shutil.copytree(self.root, self.kept)

    def thaw(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self.kept, self.root)


@contextmanager
def dying(bucket: Bucket, at: int | None) -> Iterator[Any]:
    with crashing(bucket.root, at) as faults:
        yield faults


@pytest.mark.parametrize("before", range(len(HISTORY)))
@pytest.mark.parametrize("every", EVERY)
def test_one_death(tmp_path: Path, before: int, every: int) -> None:
    """Wherever a run dies a reader has the rows before or those after, and the next run completes it."""
    bucket = Bucket(tmp_path, before)
    with dying(bucket, None) as faults:
        bucket.run(bucket.last)
    bucket.whole()
    steps = faults.steps
    assert any("_delta_log" in step for step in steps)
    for at in range(before % every, len(steps), every):
        bucket.thaw()
        with dying(bucket, at) as faults:
            bucket.run(bucket.last)
        assert faults.crashed
        assert bucket.rows() in (bucket.before, bucket.after), steps[at]
        bucket.run(DEAD)
        bucket.whole()


@pytest.mark.parametrize("before", range(len(HISTORY)))
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_death_of_the_recovery(tmp_path: Path, before: int, every: int) -> None:
    """A recovery that dies around the Delta commit leaves nothing that a third run cannot repair."""
    bucket = Bucket(tmp_path, before)
    with dying(bucket, None) as faults:
        bucket.run(bucket.last)
    committed = next(at for at, step in enumerate(faults.steps) if "os.link" in step and "/commits/" in step)
    for first in range(committed + 1, len(faults.steps), every):
        bucket.thaw()
        with dying(bucket, first):
            bucket.run(bucket.last)
        shutil.copytree(bucket.root, died := tmp_path / "died", dirs_exist_ok=False)
        with dying(bucket, None) as second:
            bucket.run(DEAD)
        for at in range(before % every, len(second.steps), every):
            shutil.rmtree(bucket.root)
            shutil.copytree(died, bucket.root)
            with dying(bucket, at):
                bucket.run(DEAD)
            assert bucket.rows() in (bucket.before, bucket.after)
            bucket.run(DEAD)
            bucket.whole()
        shutil.rmtree(died)


@pytest.mark.parametrize("before", [1, 2, 3])
def test_lost_files(tmp_path: Path, before: int) -> None:
    """A commit whose pending files are lost before they are visible is taken back, and loaded again."""
    bucket = Bucket(tmp_path, before)
    with dying(bucket, None) as faults:
        bucket.run(bucket.last)
    moved = next(at for at, step in enumerate(faults.steps) if step.startswith("os.rename") and "/p/s/" in step)
    bucket.thaw()
    with dying(bucket, moved):
        bucket.run(bucket.last)
    for file in (bucket.root / ".bridge/p/pending").iterdir():
        file.unlink()
    committer = bucket.lake.open(DEAD)
    assert bucket.rows() == bucket.before
    assert next(bucket.lake.log.history(committer.view.n)).kind == "void"
    bucket.run(DEAD)
    bucket.whole()


def test_a_polling_reader_sees_whole_commits(tmp_path: Path) -> None:
    """While tables are replaced again and again a reader has the rows of one commit, never of two, and no error."""
    lake = DeltaLake(LocalStorage(tmp_path))
    committer = lake.open(FIRST)
    lake.append(committer, [0, 1, 2])
    ended, seen = threading.Event(), set()

    def poll() -> None:
        while not ended.is_set():
            seen.add(tuple(lake.ids()))

    reader = threading.Thread(target=poll)
    reader.start()
    try:
        for n in range(1, 31):
            lake.replace(committer, [3 * n, 3 * n + 1, 3 * n + 2])
    finally:
        ended.set()
        reader.join()
    assert seen
    assert all(len(ids) == 3 and ids[0] % 3 == 0 and ids[2] - ids[0] == 2 for ids in seen), seen
