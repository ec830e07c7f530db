"""One run at a time, in a folder and in a bucket: who is refused, what it is told, and when the lock is free again."""

from __future__ import annotations

import signal
import socket
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import PipelineHeld
from bridge.lake.lease import fate, holder, holds, last_lease, silence, take
from bridge.lake.storage import Storage
from bridge.lake.storage.local.storage import LocalStorage
from tests.support.leases import KEY, briefly, never, said

from .conftest import Hold

MINUTE = timedelta(minutes=1)


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.heavy)])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A folder that does not exist yet; or one of a bucket, new for each test."""
    if request.param == "folder":
        return LocalStorage(tmp_path / "lake")
    server = request.getfixturevalue("s3")
    storage = server.storage(f"s3://lake/{request.node.name.replace('[', '-').rstrip(']')}")
    storage.prepare()
    return storage


def test_a_second_run_is_told_who_holds_it_until_it_is_dead(lake: Storage, hold: Hold) -> None:
    """Exit 4 at once, with run, process, host and since when; SIGKILL of the holder frees the pipeline at once."""
    other = hold()
    with pytest.raises(PipelineHeld) as caught:
        take(lake, "p", "mine")
    assert caught.value.exit_code == 4
    for fact in ("run=run-of-another", f"pid={other.pid}", f"host={socket.gethostname()}", "since=20"):
        assert fact in caught.value.message
    assert "--wait" in caught.value.hint
    held = holder(lake, "p")
    assert held
    assert (held["run"], held["pid"], fate(held), silence(held)) == ("run-of-another", other.pid, "alive", None)
    assert (holds(lake, "p", "run-of-another"), holds(lake, "p", "mine")) == (True, False)
    assert said(lake)["run"] == "run-of-another"
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert holder(lake, "p") is None
    lease = take(lake, "p", "mine", pause=never)
    assert (lease.last["run"], lease.last["closed"]) == ("run-of-another", None)
    lease.close(head=1, clean=True)


def test_a_clean_end_names_the_head(lake: Storage, hold: Hold) -> None:
    """The next holder learns the last commit, and that nothing was left half done; in between it is free."""
    assert (holder(lake, "p"), last_lease(lake, "p")) == (None, {})
    hold().communicate()
    assert holder(lake, "p") is None
    lease = take(lake, "p", "mine")
    assert (lease.last["head"], lease.last["closed"]) == (7, 7)
    assert (said(lake)["head"], said(lake)["closed"]) == (7, None)
    lease.close(head=9, clean=False)
    again = take(lake, "p", "mine")
    assert (again.last["head"], again.last["closed"]) == (9, None)
    again.close(head=9, clean=True)


def test_looking_while_it_is_held(lake: Storage) -> None:
    """The holder is named as long as it holds, also to itself, and nobody after that."""
    lease = take(lake, "p", "mine")
    assert lease.last == {}
    held = holder(lake, "p")
    assert held
    assert held["run"] == "mine"
    lease.close(head=1, clean=True)
    assert holder(lake, "p") is None


def test_waiting_for_the_end_of_another(lake: Storage) -> None:
    """Whoever waits gets it as soon as it is let go, and may give up; a wait that is too short ends as none would."""
    other = take(lake, "p", "other")
    with pytest.raises(PipelineHeld):
        take(lake, "p", "mine", wait=timedelta(seconds=0.3), pause=briefly)
    with pytest.raises(KeyboardInterrupt):
        take(lake, "p", "mine", wait=MINUTE, pause=interrupted)
    done = threading.Timer(0.3, lambda: other.close(head=7, clean=True))
    done.start()
    lease = take(lake, "p", "mine", wait=MINUTE, pause=briefly)
    done.join()
    assert lease.last["closed"] == 7
    lease.close(head=7, clean=True)


def interrupted(_: timedelta) -> None:
    """Hear of Ctrl-C while waiting."""
    raise KeyboardInterrupt


def test_brief_holders_stand_in_line(lake: Storage) -> None:
    """Writers of one commit each wait for each other: none is refused, and no two have it at once."""
    taken: list[int] = []
    busy = threading.Lock()

    def write(number: int) -> None:
        lease = take(lake, "p", f"writer-{number}", brief=True)
        assert busy.acquire(blocking=False)
        taken.append(number)
        time.sleep(0.05)
        busy.release()
        lease.close(head=number, clean=True)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(5)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(taken) == list(range(5))
    assert holder(lake, "p") is None


@pytest.mark.parametrize("torn", [b"", b'{"format":1,"head":3,"clo', b"[]", b"\xff\x00", b"null"])
def test_a_lease_that_nobody_can_read(lake: Storage, torn: bytes) -> None:
    """What a crash left half written, or somebody wrote, holds nobody up; it costs a fence, and promises nothing."""
    lake.write(KEY, torn)
    assert holder(lake, "p") is None
    lease = take(lake, "p", "mine")
    assert lease.last == {}
    lease.close(head=3, clean=True)
    assert said(lake)["closed"] == 3
