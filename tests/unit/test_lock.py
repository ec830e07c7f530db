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
from bridge.lock import Lease, holder

_HOLD = """
import sys
from pathlib import Path
from bridge.lock import Lease
lease = Lease(Path(sys.argv[1]), "run-of-another")
print("held", flush=True)
sys.stdin.readline()
lease.close(head=7, clean=True)
"""

Hold = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a pipeline keeps its lease; the folder does not exist yet."""
    return tmp_path / "lake" / "pipeline" / "lease.json"


@pytest.fixture
def hold(path: Path) -> Iterator[Hold]:
    """Start processes that take the lease and keep it until a line comes."""
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", _HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_second_run_is_told_who_holds_it(path: Path, hold: Hold) -> None:
    """While a process holds the pipeline another one stops at once with exit 4, and names the holder."""
    other = hold()
    with pytest.raises(PipelineHeld) as caught:
        Lease(path, "mine")
    assert caught.value.exit_code == 4
    for fact in ("run=run-of-another", f"pid={other.pid}", f"host={socket.gethostname()}", "since=20"):
        assert fact in caught.value.message
    assert caught.value.hint
    held = holder(path)
    assert held
    assert (held["run"], held["pid"]) == ("run-of-another", other.pid)
    assert json.loads(path.read_text())["run"] == "run-of-another"


def test_a_killed_holder_holds_nothing(path: Path, hold: Hold) -> None:
    """SIGKILL of the holder frees the pipeline at once, and its lease says that it did not end cleanly."""
    other = hold()
    other.send_signal(signal.SIGKILL)
    other.wait()
    lease = Lease(path, "mine")
    assert lease.last["closed"] is None
    assert lease.last["run"] == "run-of-another"
    lease.close(head=1, clean=True)


def test_a_clean_end_names_the_head(path: Path, hold: Hold) -> None:
    """The next holder learns the last commit and that nothing was left half done."""
    other = hold()
    other.communicate("end\n")
    assert holder(path) is None
    lease = Lease(path, "mine")
    assert (lease.last["head"], lease.last["closed"]) == (7, 7)
    lease.close(head=9, clean=False)
    again = Lease(path, "mine")
    assert (again.last["head"], again.last["closed"]) == (9, None)
    again.close(head=9, clean=True)


def test_the_head_outlives_a_killed_holder(path: Path) -> None:
    """Taking the lease keeps the known head for whoever comes after a crash, but not the promise of a clean end."""
    Lease(path, "first").close(head=5, clean=True)
    second = Lease(path, "second")
    os.close(second._fd)  # as the kernel does for a killed process
    third = Lease(path, "third")
    assert (third.last["head"], third.last["closed"]) == (5, None)
    third.close(head=5, clean=True)


def test_the_first_lease_finds_nothing(path: Path) -> None:
    """A pipeline that never ran has no last holder."""
    assert holder(path) is None
    lease = Lease(path, "mine")
    assert lease.last == {}
    lease.close(head=0, clean=True)


@pytest.mark.parametrize("torn", [b"", b'{"format":1,"head":3,"clo', b"[]", b"\xff\x00", b"null"])
def test_a_torn_lease_reads_as_not_closed(path: Path, torn: bytes) -> None:
    """A lease that a crash left half written costs a fence, never an error or a wrong promise."""
    path.parent.mkdir(parents=True)
    path.write_bytes(torn)
    lease = Lease(path, "mine")
    assert lease.last == {}
    lease.close(head=3, clean=True)
    assert json.loads(path.read_text())["closed"] == 3


def test_a_shorter_lease_leaves_no_tail(path: Path) -> None:
    """Rewriting in place never leaves the end of a longer one behind."""
    Lease(path, "a-run-with-a-very-long-name" * 20).close(head=1, clean=True)
    Lease(path, "b").close(head=2, clean=True)
    assert json.loads(path.read_text())["head"] == 2


def test_looking_does_not_disturb(path: Path) -> None:
    """However often somebody asks who holds the pipeline, a run that starts meanwhile is not refused."""
    Lease(path, "first").close(head=1, clean=True)
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            holder(path)

    watchers = [threading.Thread(target=look) for _ in range(3)]
    for watcher in watchers:
        watcher.start()
    try:
        for number in range(60):
            Lease(path, f"run-{number}").close(head=number, clean=True)
    finally:
        done.set()
        for watcher in watchers:
            watcher.join()


def test_looking_while_it_is_held(path: Path) -> None:
    """The holder is named as long as it holds, also to itself, and nobody after that."""
    lease = Lease(path, "mine")
    held = holder(path)
    assert held
    assert held["run"] == "mine"
    lease.close(head=1, clean=True)
    assert holder(path) is None


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """A bucket where a file stands in the way is a lake error, exit 3."""
    (tmp_path / "file").write_text("")
    with pytest.raises(LakeError) as caught:
        Lease(tmp_path / "file" / "lease.json", "mine")
    assert caught.value.exit_code == 3
    assert caught.value.hint


def test_a_brief_holder_is_waited_for_but_not_forever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that said it would be brief is given longer than a run, and refused in the end as a run is."""
    monkeypatch.setattr("bridge.lock._QUEUE", timedelta(seconds=0.6))
    first = Lease(path, "writer", brief=True)
    began = time.monotonic()
    with pytest.raises(PipelineHeld, match="run=writer"):
        Lease(path, "mine", brief=True)
    assert 0.6 <= time.monotonic() - began < 5
    freed = threading.Timer(0.4, lambda: first.close(head=3, clean=True))
    freed.start()
    second = Lease(path, "mine")
    assert second.last["closed"] == 3
    assert "brief" not in json.loads(path.read_text())
    freed.join()
    second.close(head=3, clean=True)


def test_a_lease_that_cannot_be_written_is_let_go(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a full disk the next attempt of the same process is not refused because of the one before."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk, pytest.raises(LakeError, match="cannot write the lease"):
        disk.setattr(os, "fsync", full)
        Lease(path, "one")
    Lease(path, "two").close(head=0, clean=True)
