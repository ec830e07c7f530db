"""The service with real processes: it is killed and started again; its runs wait, and are stopped."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import SettingsError
from tests.e2e.conftest import processes_of, wait_until_gone
from tests.support.paged_shop import LAST, SECONDS
from tests.support.paged_shop import PagedShop as Shop
from tests.support.service import Queue, until


@contextmanager
def serving(shop: Shop) -> Iterator[subprocess.Popen[bytes]]:
    """A service that runs; it is killed at the end if it still does."""
    argv = [sys.executable, "-m", "bridge", "serve", "--log-format", "json"]
    with (shop.folder / "service.log").open("ab") as log:
        process = subprocess.Popen(argv, cwd=shop.folder, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        wait_until_gone(shop.folder, 30)


def events(shop: Shop, event: str) -> list[dict[str, Any]]:
    lines = (shop.folder / "service.log").read_text().splitlines()
    return [facts for line in lines if (facts := json.loads(line))["event"] == event]


def due_now(shop: Shop) -> None:
    """Leave a run that died, of a schedule that is due once a year: a service that starts does it again."""
    run = subprocess.Popen(
        [sys.executable, "-m", "bridge", "run", "shop", "-q"], cwd=shop.folder, start_new_session=True
    )
    until(shop.records)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    wait_until_gone(shop.folder, 30)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_again_and_again_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    """kill -9 of the service at any moment: its runs end with it, the next start goes on, each row is there once."""
    seed = int(os.environ.get("SEED", time.time_ns() % 10**6))
    chance = random.Random(seed)
    print(f"SEED={seed}")
    shop = Shop(tmp_path, schedule={"cron": "0 0 1 1 *", "timezone": "UTC"})
    due_now(shop)
    for kill in range(int(os.environ.get("SERVICE_KILLS", "5"))):
        rows = len(shop.ids())
        with serving(shop) as service:
            if kill % 2:
                time.sleep(chance.uniform(0.5, 12))  # perhaps before its run has begun
            else:
                more = chance.randint(1, 6)
                until(lambda rows=rows, more=more: len(shop.ids()) >= min(rows + more, LAST))
            service.send_signal(signal.SIGKILL)
            service.wait()
            wait_until_gone(shop.folder, 30)
            assert processes_of(shop.folder) == []
        ids = shop.ids()
        assert ids == list(range(1, len(ids) + 1)), f"{kill=}"

    with serving(shop) as service:
        until(lambda: any(record.status == "success" for record in shop.records()), 200)
        service.send_signal(signal.SIGTERM)
        assert service.wait(30) == 0
    assert shop.ids() == list(range(1, LAST + 1))
    state = json.loads((tmp_path / "lake/.bridge/shop/state.json").read_bytes())
    assert state["bookmarks"]["orders"]["replication_key_value"] == LAST
    assert shop.project.command("verify", "shop").code == 0
    assert {record.status for record in shop.records()} <= {"running", "success", "interrupted"}

    before = len(shop.records())
    with serving(shop) as service:
        until(lambda: len(events(shop, "service_started")) > 1)
        time.sleep(5)  # it has been served: nothing is due any more
        service.send_signal(signal.SIGTERM)
        assert service.wait(30) == 0
    assert len(shop.records()) == before


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_sigterm_ends_its_runs_as_it_ends_a_run(tmp_path: Path) -> None:
    """Whole commits stay, the record says why it ended, the exit code is 0, and no process is left."""
    shop = Shop(tmp_path, schedule={"cron": "* * * * *"})
    shop.reads({"orders": {"last": 10_000, "page": 2, "seconds": SECONDS}})
    due_now(shop)
    with serving(shop) as service:
        rows = len(shop.ids())
        until(lambda: len(shop.ids()) > rows + 4)
        service.send_signal(signal.SIGTERM)
        assert service.wait(60) == 0
        wait_until_gone(shop.folder, 30)
    (record, _) = shop.records()
    assert record.status == "interrupted"
    assert record.error
    assert "SIGTERM" in record.error.message
    assert shop.ids() == list(range(1, len(shop.ids()) + 1))
    (ending,) = events(shop, "service_ending")
    assert ending["runs"] == 1


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_changed_file_counts_and_a_wrong_one_does_not(tmp_path: Path) -> None:
    """Without a restart: a pipeline that is new runs by its schedule while the service says once what is wrong."""
    shop = Shop(tmp_path)
    shop.reads({"orders": {"last": 4}})
    with serving(shop) as service:
        until(lambda: events(shop, "service_started"))
        shop.write(shop={}, added={"schedule": {"cron": "* * * * *"}})
        until(lambda: events(shop, "settings_read"))
        (tmp_path / "bridge.yaml").write_text("pipelines: [")
        until(lambda: shop.ids("added") == [1, 2, 3, 4], 150)
        assert len(events(shop, "settings_refused")) == 1
        second = subprocess.run(
            [sys.executable, "-m", "bridge", "serve", "-f", str(tmp_path / "bridge.yaml")],
            capture_output=True,
            check=False,
        )
        assert second.returncode == 2
        service.send_signal(signal.SIGINT)
        assert service.wait(60) == 0
    assert shop.ids("shop") == []


@contextmanager
def queue_of(shop: Shop) -> Iterator[Queue]:
    queue = Queue(shop.folder)
    try:
        yield queue
    finally:
        queue.runs.close(signal.SIGTERM)
        queue.until_empty()
        wait_until_gone(shop.folder, 30)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_runs_wait_and_are_stopped(tmp_path: Path) -> None:
    """At most `max_runs`, in their order; a waiting one is taken out, a running one is interrupted, others go on."""
    shop = Shop(tmp_path, ("a", "b", "c"))
    shop.reads({"orders": {"last": 10_000, "page": 2, "seconds": SECONDS}})
    with queue_of(shop) as queue:
        a = queue.runs.start("a")
        queue.turn()
        until(lambda: len(shop.ids("a")) > 4)
        shop.reads({"orders": {"last": LAST, "page": 2, "seconds": SECONDS}})
        b, c = queue.runs.start("b"), queue.runs.start("c")
        with pytest.raises(SettingsError):
            queue.runs.start("c")
        queue.turn()
        assert [queue.status(each) for each in (a, b, c)] == ["running", "running", "waiting"]
        assert queue.runs.stop(c)
        assert queue.status(c) == "ended"
        live = next(live for live in queue.runs.live() if live.run_id == a)
        assert live.records > 4
        assert live.stage
        assert queue.runs.stop(a)
        until(lambda: queue.status(a) == "ended")
        assert not queue.runs.stop(a)
        queue.until_empty()
    assert [record.status for record in shop.records("a")] == ["interrupted"]
    assert shop.records("a")[0].run_id == a
    assert [record.status for record in shop.records("b")] == ["success"]
    assert (shop.ids("b"), shop.records("c")) == (list(range(1, LAST + 1)), [])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_that_is_held_waits_its_turn(tmp_path: Path) -> None:
    """While a run that somebody else started has the pipeline, it waits without a record; then it goes on."""
    shop = Shop(tmp_path)
    other = subprocess.Popen([sys.executable, "-m", "bridge", "run", "shop", "-q"], cwd=tmp_path)
    until(shop.ids)
    with queue_of(shop) as queue:
        run = queue.runs.start("shop")
        until(lambda: queue.turn() or any(entry[0] == "waits" for entry in queue.log))
        assert queue.status(run) in ("waiting", "running")
        shop.reads({"orders": {"last": LAST}})
        until(lambda: queue.turn() or other.poll() is not None)
        assert len(shop.records()) == 1
        queue.until_empty()
    assert other.wait() == 0
    assert [record.status for record in shop.records()] == ["success", "success"]
    assert shop.records()[0].run_id == run or shop.records()[1].run_id == run
    assert shop.ids() == list(range(1, LAST + 1))
