"""The commit protocol, killed at every single change that it makes to the bucket."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from bridge.errors import TapError

from .cases import CASES, Case
from .driver import Run
from .faults import Faults, crashing
from .invariants import after_death, after_success, files_of_last_commit, kinds, pending, readable_by_duckdb


class Bucket:
    """A lake that is put back before each death, always under the same path."""

    def __init__(self, folder: Path, case: Case) -> None:
        self.lake, self.case = folder / "lake", case
        self._fresh, self._scratch = folder / "fresh", folder / "spool"
        self.lake.mkdir()
        for run in case.before:
            self.run(run)
        self.lake.rename(self._fresh)
        self.commits = len(kinds(self._fresh))

    def reset(self) -> None:
        shutil.rmtree(self.lake, ignore_errors=True)
        shutil.copytree(self._fresh, self.lake)

    def run(self, run: Run) -> None:
        with suppress(TapError):
            run.execute(self.lake, self._scratch)

    def die(self, run: Run, at: int | None) -> Faults:
        """Run until step `at`, or to the end and count the steps; then look at what a reader would see."""
        with crashing(self.lake, at) as faults:
            self.run(run)
        after_death(self.lake)
        return faults

    def recover(self) -> None:
        self.run(self.case.again or self.case.run)
        after_success(self.lake, self.case)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consider each STATE: a tap that ends within milliseconds would otherwise have one barrier."""
    monkeypatch.setattr("bridge.intake._RETRY", timedelta(0))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: thousands of fsyncs would measure the disk, and prove nothing here."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture
def bucket(request: pytest.FixtureRequest, folder: Path) -> Bucket:
    return Bucket(folder, CASES[request.param])


def steps(bucket: Bucket) -> Iterator[int]:
    """Put the bucket back and yield the number of each step of the case's run, in order."""
    bucket.reset()
    for step in range(len(bucket.die(bucket.case.run, None).steps)):
        bucket.reset()
        yield step


@pytest.mark.parametrize("bucket", CASES, indirect=True)
def test_no_death(bucket: Bucket) -> None:
    """Without any crash, twice in a row, the lake holds each record exactly once and every reader can open it."""
    bucket.reset()
    for _ in range(2):
        bucket.recover()
    readable_by_duckdb(bucket.lake, bucket.case)


@pytest.mark.parametrize("bucket", CASES, indirect=True)
def test_one_death(bucket: Bucket) -> None:
    """Wherever a run dies, the next one leaves each record exactly once and the tap's last STATE."""
    for step in steps(bucket):
        assert bucket.die(bucket.case.run, step).crashed
        bucket.recover()
        assert pending(bucket.lake) == [], "what nobody can commit any more is deleted"


@pytest.mark.parametrize("bucket", CASES, indirect=True)
def test_death_of_the_recovery(bucket: Bucket) -> None:
    """A run that dies while it repairs the lake of a dead run leaves nothing that a third cannot repair."""
    for first in steps(bucket):
        bucket.die(bucket.case.run, first)
        if bucket.die(bucket.case.again or bucket.case.run, first * 13 % 61).crashed:
            bucket.recover()


@pytest.mark.slow
@pytest.mark.parametrize("bucket", CASES, indirect=True)
def test_death_of_the_recovery_everywhere(bucket: Bucket) -> None:
    """The same, at a third of all pairs of steps."""
    every = 3
    again = bucket.case.again or bucket.case.run
    for first in steps(bucket):
        bucket.die(bucket.case.run, first)
        second = first % every
        dead = bucket.lake.rename(bucket.lake.with_name(f"dead-{first}"))
        crashed = True
        while crashed:
            shutil.copytree(dead, bucket.lake)
            if crashed := bucket.die(again, second).crashed:
                bucket.recover()
            shutil.rmtree(bucket.lake)
            second += every


@pytest.mark.parametrize("bucket", [name for name in CASES if name != "staged, the tap fails"], indirect=True)
def test_death_and_a_lost_file(bucket: Bucket) -> None:
    """If a committed file is gone before its STATE was seen, the commit is taken back and its rows come again."""
    voided = 0
    for step in steps(bucket):
        bucket.die(bucket.case.run, step)
        dead = bucket.lake.rename(bucket.lake.with_name(f"dead-{step}"))
        for lost in files_of_last_commit(dead)[::5] if len(kinds(dead)) > bucket.commits else []:
            shutil.copytree(dead, bucket.lake)
            (bucket.lake / lost).unlink()
            assert "void" not in kinds(bucket.lake)
            bucket.recover()
            assert "void" in kinds(bucket.lake)
            shutil.rmtree(bucket.lake)
            voided += 1
    assert voided


@pytest.mark.parametrize("bucket", ["staged, adopted"], indirect=True)
def test_lost_staged_file(bucket: Bucket) -> None:
    """A half loaded table that lost a file starts again from nothing, wherever the run that finds out dies."""
    for step in steps(bucket):
        next(bucket.lake.glob(".bridge/p/pending/part-*")).unlink()
        bucket.die(bucket.case.run, step)
        bucket.recover()


@pytest.mark.parametrize("bucket", ["append", "overwrite", "staged, adopted"], indirect=True)
def test_death_of_the_taking_back(bucket: Bucket) -> None:
    """A commit that is being taken back when its run dies is taken back by the next one."""
    for step in steps(bucket):
        bucket.die(bucket.case.run, step)
        dead = bucket.lake.rename(bucket.lake.with_name(f"dead-{step}"))
        for lost in [file for file in files_of_last_commit(dead) if file.parts[0] == ".bridge"][:1]:
            for second in range(step % 7, 28, 7):  # fence and void are among the first steps
                shutil.copytree(dead, bucket.lake)
                (bucket.lake / lost).unlink()
                if bucket.die(bucket.case.run, second).crashed:
                    bucket.recover()
                shutil.rmtree(bucket.lake)


@pytest.mark.parametrize("bucket", ["overwrite", "--full", "staged, adopted", "empty"], indirect=True)
def test_swap_is_exchanged(bucket: Bucket) -> None:
    """A replaced table changes by one system call, and dying right before it was among the deaths above."""
    bucket.reset()
    assert any("renameat2" in step for step in bucket.die(bucket.case.run, None).steps)


@pytest.mark.parametrize("bucket", ["overwrite", "--full", "staged, adopted"], indirect=True)
def test_death_without_exchange(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where folders cannot be exchanged two renames do it: the table may be absent for an instant, never mixed."""
    monkeypatch.setattr("bridge.storage.local._exchange", lambda one, other: False)
    for step in steps(bucket):
        assert bucket.die(bucket.case.run, step).crashed
        bucket.recover()
