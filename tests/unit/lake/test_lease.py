"""One run at a time: who is refused, what it is told, and when the lock is free again."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from bridge.errors import LakeError, PipelineHeld
from bridge.lake.lease import fate, holder, holds, last_lease, take
from bridge.lake.lease.flock import FlockLease
from bridge.storage.local.storage import LocalStorage

_HOLD = """
import sys
from bridge.lake.lease import take
from bridge.storage import open_storage
lease = take(open_storage(sys.argv[1]), "p", "run-of-another")
print("held", flush=True)
sys.stdin.readline()
lease.close(head=7, clean=True)
"""

Hold = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def lake(tmp_path: Path) -> LocalStorage:
    """A folder that does not exist yet."""
    return LocalStorage(tmp_path / "lake")


@pytest.fixture
def path(lake: LocalStorage) -> Path:
    """Where the pipeline `p` keeps its lease."""
    return lake.root / ".bridge/p/lease.json"


@pytest.fixture
def hold(lake: LocalStorage) -> Iterator[Hold]:
    """Start processes that take the lease and keep it until a line comes."""
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", _HOLD, lake.uri], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_second_run_is_told_who_holds_it(lake: LocalStorage, path: Path, hold: Hold) -> None:
    """While a process holds the pipeline another one stops at once with exit 4, and names the holder."""
    other = hold()
    with pytest.raises(PipelineHeld) as caught:
        take(lake, "p", "mine")
    assert caught.value.exit_code == 4
    for fact in ("run=run-of-another", f"pid={other.pid}", f"host={socket.gethostname()}", "since=20"):
        assert fact in caught.value.message
    assert caught.value.hint
    held = holder(lake, "p")
    assert held
    assert (held["run"], held["pid"]) == ("run-of-another", other.pid)
    assert json.loads(path.read_text())["run"] == "run-of-another"


def test_a_killed_holder_holds_nothing(lake: LocalStorage, hold: Hold) -> None:
    """SIGKILL of the holder frees the pipeline at once, and its lease says that it did not end cleanly."""
    other = hold()
    other.send_signal(signal.SIGKILL)
    other.wait()
    lease = take(lake, "p", "mine")
    assert lease.last["closed"] is None
    assert lease.last["run"] == "run-of-another"
    lease.close(head=1, clean=True)


def test_a_clean_end_names_the_head(lake: LocalStorage, hold: Hold) -> None:
    """The next holder learns the last commit and that nothing was left half done."""
    other = hold()
    other.communicate("end\n")
    assert holder(lake, "p") is None
    lease = take(lake, "p", "mine")
    assert (lease.last["head"], lease.last["closed"]) == (7, 7)
    lease.close(head=9, clean=False)
    again = take(lake, "p", "mine")
    assert (again.last["head"], again.last["closed"]) == (9, None)
    again.close(head=9, clean=True)


def test_the_head_outlives_a_killed_holder(lake: LocalStorage) -> None:
    """Taking the lease keeps the known head for whoever comes after a crash, but not the promise of a clean end."""
    take(lake, "p", "first").close(head=5, clean=True)
    second = take(lake, "p", "second")
    assert isinstance(second, FlockLease)
    os.close(second._fd)  # as the kernel does for a killed process
    third = take(lake, "p", "third")
    assert (third.last["head"], third.last["closed"]) == (5, None)
    third.close(head=5, clean=True)


def test_the_first_lease_finds_nothing(lake: LocalStorage) -> None:
    """A pipeline that never ran has no last holder."""
    assert holder(lake, "p") is None
    lease = take(lake, "p", "mine")
    assert lease.last == {}
    lease.close(head=0, clean=True)


@pytest.mark.parametrize("torn", [b"", b'{"format":1,"head":3,"clo', b"[]", b"\xff\x00", b"null"])
def test_a_torn_lease_reads_as_not_closed(lake: LocalStorage, path: Path, torn: bytes) -> None:
    """A lease that a crash left half written costs a fence, never an error or a wrong promise."""
    path.parent.mkdir(parents=True)
    path.write_bytes(torn)
    lease = take(lake, "p", "mine")
    assert lease.last == {}
    lease.close(head=3, clean=True)
    assert json.loads(path.read_text())["closed"] == 3


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


def test_looking_while_it_is_held(lake: LocalStorage) -> None:
    """The holder is named as long as it holds, also to itself, and nobody after that."""
    lease = take(lake, "p", "mine")
    held = holder(lake, "p")
    assert held
    assert held["run"] == "mine"
    lease.close(head=1, clean=True)
    assert holder(lake, "p") is None


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
    assert 0.6 <= time.monotonic() - began < 5
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


def test_waiting_for_a_lock(lake: LocalStorage) -> None:
    """Whoever waits gets the lock when it is let go, and may give up at any moment in between."""
    first = take(lake, "p", "first")
    asked = []

    def pause(duration: timedelta) -> None:
        asked.append(duration)
        if len(asked) == 2:
            first.close(head=4, clean=True)

    second = take(lake, "p", "second", wait=timedelta(minutes=1), pause=pause)
    assert (second.last["closed"], len(asked)) == (4, 2)
    with pytest.raises(KeyboardInterrupt):
        take(lake, "p", "third", wait=timedelta(minutes=1), pause=_interrupt)
    second.close(head=4, clean=True)


def _interrupt(_: timedelta) -> None:
    raise KeyboardInterrupt
