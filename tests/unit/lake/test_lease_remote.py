"""The lease of a bucket: who may take it, when, and how its holder learns that it is lost. A store over real HTTP."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import CommitLost, LakeError, PipelineHeld
from bridge.lake.lease import Lease, holder, holds, last_lease, release, silence, take
from bridge.lake.storage import Storage
from bridge.lake.storage.local.storage import LocalStorage
from tests.support.leases import KEY, briefly, never, said
from tests.support.s3server import S3Server

from .conftest import Hold

PUT = r"PUT /lake/.*/lease\.json"
TTL = timedelta(seconds=1)


@pytest.fixture
def lake(s3: S3Server, request: pytest.FixtureRequest) -> Any:
    """A new bucket's folder for each test; `prepare` was done."""
    storage = s3.storage(f"s3://lake/{request.node.name.replace('[', '-').rstrip(']')}")
    storage.prepare()
    return storage


def checked(process: subprocess.Popen[str]) -> str:
    """What the holder's `check` says."""
    assert process.stdin
    assert process.stdout
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def foreign(lake: Storage, *, renewed: float = 0, **facts: Any) -> dict[str, Any]:
    """Leave the lease of a run on another host, which renewed it so many seconds ago by its own clock."""
    at = datetime.now(timezone.utc) - timedelta(seconds=renewed)
    place = {"run": "far-away", "host": "elsewhere", "boot": "other", "pids": "pid:[1]", "pid": 1, "start": "7"}
    owner = {"format": 1, **place, "since": at.isoformat(), "renewed": at.isoformat(), "ttl": TTL.total_seconds()}
    lake.write(KEY, json.dumps(owner | {"nonce": "theirs", "head": 3, "closed": None} | facts).encode())
    return last_lease(lake, "p")


def quick(lake: Storage, run: str = "mine", **more: Any) -> Lease:
    """Take a lease that lives for a second."""
    return take(lake, "p", run, ttl=TTL, **more)


def seconds(since: float) -> float:
    return time.monotonic() - since


# taking it, and letting it go


@pytest.mark.parametrize("before", ["free", "dead"])
def test_of_several_that_come_at_once_one_gets_it(lake: Storage, before: str) -> None:
    """However many take a free lease, or one whose owner died, in the same instant: exactly one has it."""
    if before == "dead":
        quick(lake).close(head=0, clean=True)
        lake.write(KEY, json.dumps(said(lake) | {"nonce": "x", "start": "1"}).encode())
    gate, won, lost = threading.Barrier(6), list[Lease](), list[PipelineHeld]()

    def race(number: int) -> None:
        gate.wait()
        try:
            won.append(take(lake, "p", f"run-{number}"))
        except PipelineHeld as error:
            lost.append(error)

    racers = [threading.Thread(target=race, args=(number,)) for number in range(6)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert (len(won), len(lost)) == (1, 5)
    won[0].check()
    won[0].close(head=0, clean=True)


# after a death


def test_a_pid_that_was_given_again(lake: Storage) -> None:
    """A container that was started anew has the same host and pid 1: only the process's start tells."""
    quick(lake).close(head=2, clean=True)
    lake.write(KEY, json.dumps(said(lake) | {"nonce": "x", "pid": os.getppid(), "start": "1"}).encode())
    lease = quick(lake, pause=never)
    assert lease.last["nonce"] == "x"
    lease.close(head=2, clean=True)


def test_what_a_failed_attempt_of_ours_left(lake: Storage) -> None:
    """A put of this very process that was thought to have failed, and landed, does not keep its next attempt out."""
    quick(lake).close(head=2, clean=True)
    lake.write(KEY, json.dumps(said(lake) | {"nonce": "late", "closed": None}).encode())
    quick(lake, pause=never).close(head=2, clean=True)


def test_a_holder_elsewhere_that_renewed_just_now(lake: Storage) -> None:
    """It is taken to be alive, whatever became of it: refused at once, unless somebody wants to wait."""
    for skew in (0.5, -0.5):
        foreign(lake, renewed=skew, ttl=30)
        with pytest.raises(PipelineHeld, match="run=far-away pid=1 host=elsewhere"):
            quick(lake)


@pytest.mark.parametrize("renewed", [3600, -3600])
def test_a_silent_holder_elsewhere(lake: Storage, renewed: float) -> None:
    """After a whole time to live in which nothing changed, and not before, it is taken; without being told to wait."""
    owner = foreign(lake, renewed=renewed)
    assert silence(owner)
    assert holder(lake, "p") == owner
    assert not holds(lake, "p", "far-away"), "no sign of life"
    began = time.monotonic()
    lease = quick(lake, pause=briefly)
    assert 1 <= seconds(began) < 40
    assert (lease.last["run"], lease.last["head"], lease.last["closed"]) == ("far-away", 3, None)
    assert said(lake)["head"] == 3
    lease.close(head=3, clean=True)


def test_a_wrong_clock_elsewhere(lake: Storage) -> None:
    """A holder whose clock is an hour off, and that renews, keeps its lease from everybody."""
    foreign(lake, renewed=3600, ttl=2)
    looks = []

    def renews(_: timedelta) -> None:
        looks.append(time.monotonic())
        time.sleep(0.3)
        foreign(lake, renewed=3600 - len(looks), ttl=2)

    with pytest.raises(PipelineHeld):
        quick(lake, wait=timedelta(seconds=3), pause=renews)
    assert looks[-1] - looks[0] > 2
    with pytest.raises(PipelineHeld):
        quick(lake, pause=renews)  # it changed: it is alive, and nobody said to wait


def test_waiting_outlives_the_holder(lake: Storage) -> None:
    """With `--wait` one that seemed alive, and died elsewhere, is taken when it was silent for long enough."""
    foreign(lake)
    began = time.monotonic()
    lease = quick(lake, wait=timedelta(minutes=1), pause=briefly)
    assert 1 <= seconds(began) < 40
    lease.close(head=3, clean=True)


# while it is held


def test_renewing_keeps_it(lake: Storage) -> None:
    """For as long as its holder lives nobody gets it, however long they wait; its version changes all the time."""
    lease = take(lake, "p", "mine", ttl=2 * TTL)
    with pytest.raises(PipelineHeld):
        take(lake, "p", "other", wait=timedelta(seconds=3.5), pause=briefly)
    lease.check()
    assert said(lake)["beat"] >= 4
    lease.close(head=0, clean=True)
    assert "nonce" not in said(lake)


def test_a_stopped_holder(lake: Storage, hold: Hold) -> None:
    """SIGSTOP: if nobody missed it, it goes on; else it was taken over, is told so, and its end changes nothing."""
    other = hold(ttl=1)
    other.send_signal(signal.SIGSTOP)
    time.sleep(1.3)
    other.send_signal(signal.SIGCONT)
    assert checked(other) == "ours"
    other.send_signal(signal.SIGSTOP)
    lease = take(lake, "p", "mine", wait=timedelta(minutes=1), pause=briefly)
    other.send_signal(signal.SIGCONT)
    assert checked(other) == f"CommitLost another run took over run=mine pid={os.getpid()} host={socket.gethostname()}"
    other.communicate()
    assert other.returncode == 0
    lease.check()
    assert said(lake)["run"] == "mine"
    lease.close(head=0, clean=True)


def test_a_store_that_is_busy_for_a_while(lake: Storage, s3: S3Server) -> None:
    """Renewals that meet with 503, a reset or a lost answer lose nothing."""
    lease = quick(lake)
    s3.fault("error", PUT, status=503, code="SlowDown", times=3)
    s3.fault("reset", PUT, skip=3, times=1)
    s3.fault("reset", PUT, skip=5, times=1, when="after")
    until, beat = time.monotonic() + 20, said(lake)["beat"]
    while said(lake)["beat"] < beat + 4:
        assert time.monotonic() < until
        time.sleep(0.1)
    lease.check()
    lease.close(head=1, clean=True)
    assert said(lake)["closed"] == 1


def test_a_store_that_is_gone(lake: Storage, s3: S3Server) -> None:
    """Not renewed for a time to live, another may have it: the run is told to end, and why. It can begin anew."""
    lease = quick(lake)
    s3.fault("error", PUT, status=403, code="AccessDenied", times=None)
    until = time.monotonic() + 10
    with pytest.raises(LakeError, match="the lease could not be renewed in time") as caught:
        while time.monotonic() < until:
            lease.check()
            time.sleep(0.05)
    assert not isinstance(caught.value, CommitLost)
    assert "AccessDenied" in caught.value.hint or "s3:PutObject" in caught.value.hint
    with pytest.raises(LakeError):
        lease.close(head=0, clean=True)
    s3.clear()
    again = quick(lake)  # ours is the process that it names, and it let go
    again.close(head=0, clean=True)


def test_taken_away_by_hand(lake: Storage) -> None:
    """`release` frees it for anybody, and its holder is told; an owner that is none any more keeps nothing."""
    lease = quick(lake)
    owner = said(lake)
    assert release(lake, "p", owner) is None
    assert holder(lake, "p") is None
    until = time.monotonic() + 10
    with pytest.raises(CommitLost, match="taken away"):
        while time.monotonic() < until:
            lease.check()
            time.sleep(0.02)
    lease.close(head=0, clean=True)
    assert said(lake)["closed"] is None
    other = quick(lake, "other")
    held = release(lake, "p", owner)
    assert held
    assert held["run"] == "other"
    other.check()
    other.close(head=0, clean=True)
    assert release(lake, "p", owner) is None


class Unsure(LocalStorage):
    """Objects whose swaps, `lost` of them, do what they shall and then fail: the answer never came."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.folder = None
        self.lost = 0

    def compare_and_swap(self, key: str, data: bytes, etag: str | None) -> str | None:
        new = super().compare_and_swap(key, data, etag)
        if self.lost:
            self.lost -= 1
            raise LakeError("no answer", hint="look at the network")
        return new


def test_answers_that_never_came(tmp_path: Path) -> None:
    """A lease that was taken, renewed or let go without our knowing is still known as our own."""
    lake = Unsure(tmp_path)
    lake.lost = 1
    with pytest.raises(LakeError, match="no answer"):
        quick(lake)
    lease = quick(lake, pause=never)
    for _ in range(2):
        lake.lost, beat, until = 1, said(lake)["beat"], time.monotonic() + 20
        while said(lake)["beat"] < beat + 3:
            assert time.monotonic() < until
            time.sleep(0.02)
        lease.check()
    lake.lost = 99
    with pytest.raises(LakeError, match="no answer"):
        lease.close(head=5, clean=True)
    lake.lost = 0
    assert holder(lake, "p") is None
    quick(lake, pause=never).close(head=5, clean=True)
