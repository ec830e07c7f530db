"""The lease of a folder: a lock that dies with its owner. See test_lease.py for what it shares with a bucket's."""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

from bridge.errors import LakeError, PipelineHeld
from bridge.lake.lease import fate, holder, holds, last_lease, take
from bridge.lake.lease.flock import FlockLease
from bridge.lake.storage.local.storage import LocalStorage

from .conftest import Hold


@pytest.fixture
def lake(tmp_path: Path) -> LocalStorage:
    """A folder that does not exist yet."""
    return LocalStorage(tmp_path / "lake")


@pytest.fixture
def path(lake: LocalStorage) -> Path:
    """Where the pipeline `p` keeps its lease."""
    return lake.root / ".bridge/p/lease.json"


def test_the_head_outlives_a_killed_holder(lake: LocalStorage) -> None:
    """Taking the lease keeps the known head for whoever comes after a crash, but not the promise of a clean end."""
    take(lake, "p", "first").close(head=5, clean=True)
    second = take(lake, "p", "second")
    assert isinstance(second, FlockLease)
    os.close(second._fd)  # as the kernel does for a killed process
    third = take(lake, "p", "third")
    assert (third.last["head"], third.last["closed"]) == (5, None)
    third.close(head=5, clean=True)


def test_a_shorter_lease_leaves_no_tail(lake: LocalStorage, path: Path) -> None:
    """Rewriting in place never leaves the end of a longer one behind."""
    take(lake, "p", "a-run-with-a-very-long-name" * 20).close(head=1, clean=True)
    take(lake, "p", "b").close(head=2, clean=True)
    assert json.loads(path.read_text())["head"] == 2


def test_looking_does_not_disturb(lake: LocalStorage) -> None:
    """However often somebody asks who holds the pipeline, a run that starts meanwhile is not refused."""
    take(lake, "p", "first").close(head=1, clean=True)
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            holder(lake, "p")

    watchers = [threading.Thread(target=look) for _ in range(3)]
    for watcher in watchers:
        watcher.start()
    try:
        for number in range(60):
            take(lake, "p", f"run-{number}").close(head=number, clean=True)
    finally:
        done.set()
        for watcher in watchers:
            watcher.join()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """A bucket where a file stands in the way is a lake error, exit 3."""
    (tmp_path / "file").write_text("")
    with pytest.raises(LakeError) as caught:
        take(LocalStorage(tmp_path / "file"), "p", "mine")
    assert caught.value.exit_code == 3
    assert caught.value.hint


def test_a_brief_holder_is_waited_for_but_not_forever(
    lake: LocalStorage, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that said it would be brief is given longer than a run, and refused in the end as a run is."""
    monkeypatch.setattr("bridge.lake.lease.flock.QUEUE", timedelta(seconds=0.6))
    first = take(lake, "p", "writer", brief=True)
    began = time.monotonic()
    with pytest.raises(PipelineHeld, match="run=writer"):
        take(lake, "p", "mine", brief=True)
    assert time.monotonic() - began >= 0.6
    freed = threading.Timer(0.4, lambda: first.close(head=3, clean=True))
    freed.start()
    second = take(lake, "p", "mine")
    assert second.last["closed"] == 3
    assert "brief" not in json.loads(path.read_text())
    freed.join()
    second.close(head=3, clean=True)


def test_a_lease_that_cannot_be_written_is_let_go(lake: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a full disk the next attempt of the same process is not refused because of the one before."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    lake.prepare()
    with monkeypatch.context() as disk, pytest.raises(LakeError, match="cannot write the lease"):
        disk.setattr(os, "fsync", full)
        take(lake, "p", "one")
    take(lake, "p", "two").close(head=0, clean=True)


def test_an_owner_is_a_process_and_not_a_pid(lake: LocalStorage, hold: Hold) -> None:
    """Its start tells it from whoever gets its pid later; a stopped one is known as such, a zombie as dead."""
    other = hold()
    owner = last_lease(lake, "p")
    assert (owner["pid"], fate(owner)) == (other.pid, "alive")
    assert holds(lake, "p", "run-of-another")
    assert fate(owner | {"start": "1"}) == "gone"
    other.send_signal(signal.SIGSTOP)
    while fate(owner) == "alive":
        time.sleep(0.01)
    assert fate(owner) == "stopped"
    other.send_signal(signal.SIGKILL)
    while fate(owner) != "gone":  # though nobody has waited for it yet
        time.sleep(0.01)
    other.wait()
    assert fate(owner) == "gone"
    assert not holds(lake, "p", "run-of-another")


@pytest.mark.parametrize("key", ["host", "boot", "pids"])
def test_an_owner_elsewhere_is_not_judged(lake: LocalStorage, key: str) -> None:
    """A pid of another host, another boot or another container says nothing here, though two of the three be ours."""
    take(lake, "p", "mine").close(head=0, clean=True)
    owner = last_lease(lake, "p")
    assert fate(owner | {"pid": 1 << 22}) == "gone"
    assert fate(owner | {"pid": 1 << 22, key: "another"}) == "unknown"
    assert fate({}) == "unknown"
