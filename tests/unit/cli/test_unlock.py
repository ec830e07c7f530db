"""`unlock`: what a user is told of who holds a pipeline, and when it is taken away."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import CommitLost
from bridge.lake.lease import fate, holder, last_lease, release, take
from bridge.lake.storage import Storage
from bridge.lake.storage.local.storage import LocalStorage
from tests.support.s3server import S3Server
from tests.support.shell import Typed

KEY = ".bridge/flights/lease.json"
RUN = "20261120T133501Z-k3f9"

_HOLD = """
import sys
from bridge.lake.lease import take
from bridge.lake.storage import open_storage
take(open_storage("lake"), "flights", "20261120T133501Z-k3f9")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def bucket(s3: S3Server, request: pytest.FixtureRequest) -> Any:
    """A new folder of a bucket for each test."""
    return s3.storage(f"s3://lake/{request.node.name}")


def elsewhere(bucket: Storage, renewed: timedelta) -> None:
    """Leave the lease of a run on another host."""
    bucket.prepare()
    at = (datetime.now(timezone.utc) - renewed).isoformat(timespec="seconds")
    owner = {"run": RUN, "host": "far.example", "boot": "b", "pids": "pid:[1]", "pid": 1, "start": "7", "since": at}
    facts = {"format": 1, "renewed": at, "ttl": 60, "nonce": "theirs", "head": 3, "closed": None}
    bucket.write(KEY, json.dumps(owner | facts).encode())


def there(bucket: Storage) -> str:
    """The words that name the pipeline."""
    return f"--to {bucket.uri} --name flights"


def test_a_pipeline_that_nobody_holds(typed: Typed, folder: Path) -> None:
    """It is said, and that is a success, also of one that never ran; nothing is made."""
    done = typed("unlock --to lake --name flights")
    assert (done.code, done.out, done.err) == (0, "flights: nobody holds it\n", "")
    assert not (folder / "lake").exists()
    take(LocalStorage(folder / "lake"), "flights", RUN).close(head=4, clean=True)
    done = typed("unlock --to lake --json")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out) == {"format": 1, "pipeline": "flights", "held_by": None, "unlocked": False}


def test_the_process_that_has_the_lock(typed: Typed, folder: Path) -> None:
    """In a folder the lock goes with its process: that one is named, and how to end it; nothing is changed, exit 4."""
    words = [sys.executable, "-c", _HOLD]
    with subprocess.Popen(words, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout
        assert other.stdout.readline() == b"held\n"
        lake = LocalStorage(folder / "lake")
        before = lake.read(KEY)
        done = typed("unlock --to lake --yes")
        assert (done.code, done.out) == (4, "")
        for fact in (f"run={RUN}", f"pid={other.pid}", f"host={socket.gethostname()}", "since="):
            assert fact in done.err
        assert done.err.endswith(f"it is alive: wait for it, or end it: kill {other.pid}\n")
        other.send_signal(signal.SIGSTOP)
        while fate(last_lease(lake, "flights")) != "stopped":
            time.sleep(0.01)
        assert f"kill -CONT {other.pid}" in typed("unlock --to lake").err
        (row,) = json.loads(typed("status --to lake --json").out)
        assert (row["held_by"]["process"], row["held_by"]["silent_seconds"]) == ("stopped", None)
        assert f"pid {other.pid}, " in (shown := typed("status --to lake").out)
        assert ", stopped" in shown
        assert lake.read(KEY) == before
        other.kill()
    assert typed("unlock --to lake").out == "flights: nobody holds it\n"


@pytest.mark.parametrize("host", ["far.example", socket.gethostname()])
def test_a_lock_of_another_machine_or_container(typed: Typed, folder: Path, host: str) -> None:
    """Whoever has the folder mounted elsewhere is not to be killed by a pid that means another process here."""
    lake = LocalStorage(folder / "lake")
    lease = take(lake, "flights", RUN)
    owner = last_lease(lake, "flights")
    (folder / "lake" / KEY).write_text(json.dumps(owner | {"host": host, "pid": 1, "pids": "pid:[1]"}))
    done = typed("unlock --to lake")
    assert (done.code, "kill" in done.err) == (4, False)
    assert f"it is on {host}, or in a container there" in done.err
    assert f"on {host}, " in typed("status --to lake").out
    lease.close(head=0, clean=True)


def test_a_dead_owner_on_this_host(typed: Typed, bucket: Storage) -> None:
    """Nobody has to be asked about a process that is known to be dead; the next run recovers."""
    take(bucket, "flights", RUN).close(head=4, clean=True)
    lease = json.loads(bucket.read(KEY) or b"") | {"nonce": "x", "start": "1", "closed": None}
    bucket.write(KEY, json.dumps(lease).encode())
    done = typed(f"unlock {there(bucket)}")
    assert (done.code, done.err) == (0, "")
    assert done.out == f"flights: free now; the next run looks first at what {RUN} left\n"
    lease = last_lease(bucket, "flights")
    assert (lease["head"], lease["closed"], "nonce" in lease) == (4, None, False)
    assert typed(f"unlock {there(bucket)}").out == "flights: nobody holds it\n"


def test_an_owner_elsewhere(typed: Typed, bucket: Storage) -> None:
    """Without a terminal it takes --yes, after it was said who it is, since when, and when it last was heard of."""
    elsewhere(bucket, timedelta(hours=3))
    (row,) = json.loads(typed(f"status {there(bucket)} --json").out)
    assert (row["held_by"]["host"], row["held_by"]["process"]) == ("far.example", "unknown")
    assert 10800 <= row["held_by"]["silent_seconds"] < 10900
    assert "pid 1 on far.example, 3 h, silent for 3 h" in typed(f"status {there(bucket)}").out
    done = typed(f"unlock {there(bucket)}")
    assert (done.code, done.out) == (2, "")
    for fact in (f"run {RUN}", "pid 1", "host far.example", "held since 20", "it last renewed that 3 h", "--yes"):
        assert fact in done.err
    assert holder(bucket, "flights")
    done = typed(f"unlock {there(bucket)} --yes --json")
    assert (done.code, json.loads(done.out)["unlocked"], json.loads(done.out)["held_by"]["run_id"]) == (0, True, RUN)
    assert holder(bucket, "flights") is None
    lease = take(bucket, "flights", "next")
    assert (lease.last["head"], lease.last["closed"]) == (3, None)
    lease.close(head=3, clean=True)


def test_one_that_is_alive(typed: Typed, bucket: Storage) -> None:
    """It is said that it seems to be alive; if it is taken away all the same, its run is told."""
    lease = take(bucket, "flights", RUN, ttl=timedelta(seconds=2))
    done = typed(f"unlock {there(bucket)}")
    assert (done.code, "it seems to be alive" in done.err) == (2, True)
    assert typed(f"unlock {there(bucket)} --yes").code == 0
    until = time.monotonic() + 20
    with pytest.raises(CommitLost, match="taken away"):
        while time.monotonic() < until:
            lease.check()
            time.sleep(0.05)
    lease.close(head=0, clean=True)


@pytest.mark.parametrize("answer", ["y", "n"])
def test_somebody_is_asked(bucket: Storage, answer: str) -> None:
    """On a terminal the question comes after the facts; without a yes nothing is changed, exit code 130."""
    elsewhere(bucket, timedelta(hours=3))
    main, other = os.openpty()
    words = [sys.executable, "-m", "bridge", "unlock", *there(bucket).split()]
    with subprocess.Popen(words, stdin=other, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as asked:
        os.write(main, f"{answer}\n".encode())
        out, err = asked.communicate(timeout=60)
    os.close(main)
    os.close(other)
    assert f"run {RUN}" in err
    assert "take it away? [y/N]" in err
    assert (asked.returncode, "free now" in out) == ((0, True) if answer == "y" else (130, False))
    assert (holder(bucket, "flights") is None) == (answer == "y")


def test_two_runs_at_once(typed: Typed, folder: Path, bucket: Storage) -> None:
    """Over a store: the second run ends with exit 4 and names the first, or waits for it; what is unlocked ends."""
    source = "source: {tap: [sh, -c, 'touch began; while test ! -e go; do sleep 0.1; done'], discover: never}"
    (folder / "bridge.yaml").write_text(
        f"pipelines: {{flights: {{{source}, destination: {{bucket: '{bucket.uri}'}}}}}}"
    )
    words = [sys.executable, "-m", "bridge", "run", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as first:
        try:
            while not (folder / "began").exists():
                time.sleep(0.05)
                assert first.poll() is None
            done = typed("run -q")
            assert (done.code, f"pid={first.pid}" in done.err, f"host={socket.gethostname()}" in done.err) == (
                4,
                True,
                True,
            )
            (row,) = json.loads(typed("status --json").out)
            assert (row["status"], row["held_by"]["pid"], row["held_by"]["process"]) == ("running", first.pid, "alive")
            # Of two that started in the same second either may be the newer one.
            assert {run["status"] for run in json.loads(typed("runs list --json").out)} == {"held", "running"}
            with subprocess.Popen([*words, "--wait", "1m"], stdout=subprocess.PIPE, text=True) as second:
                (folder / "go").touch()
                assert json.loads(first.communicate()[0])["status"] == "success"
                assert json.loads(second.communicate()[0])["status"] == "success"
        finally:
            (folder / "go").touch()
    assert (first.returncode, second.returncode) == (0, 0)
    assert typed("unlock").out == "flights: nobody holds it\n"


def test_a_run_that_lost_its_lease_ends(
    typed: Typed, folder: Path, bucket: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tap is stopped and nothing more is committed, as soon as the run learns of it."""
    monkeypatch.setattr("bridge.load.run.run.take", partial(take, ttl=timedelta(seconds=1)))
    source = "source: {tap: [sh, -c, 'touch began; sleep 600'], discover: never}"
    (folder / "bridge.yaml").write_text(
        f"pipelines: {{flights: {{{source}, destination: {{bucket: '{bucket.uri}'}}}}}}"
    )

    def unlock() -> None:
        while not (folder / "began").exists():
            time.sleep(0.05)
        release(bucket, "flights", last_lease(bucket, "flights"))

    other = threading.Thread(target=unlock)
    other.start()
    done = typed("run --json")
    other.join()
    assert (done.code, json.loads(done.out)["error"]["type"]) == (3, "CommitLost")
    assert "taken away" in done.err
    assert last_lease(bucket, "flights")["closed"] is None
