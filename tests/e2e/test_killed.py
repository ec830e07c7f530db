"""A run that is killed between two commits: what is known of it afterwards, and how the next run goes on from there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Project

TAP = Path(__file__).parents[1] / "support" / "paged_tap.py"


@pytest.fixture
def shop(project: Project) -> Project:
    """A pipeline that commits at each STATE, and retries once."""
    (project.folder / "given").mkdir()
    tap = shutil.copy(TAP, project.folder)
    source = {
        "tap": [sys.executable, str(tap)],
        "config": {"given": "given", "source": "source.json"},
        "select": ["*"],
    }
    settings = {
        "source": source,
        "destination": {"bucket": "lake"},
        "commit": {"rows": 1},
        "retry": {"attempts": 2, "backoff": "1s"},
    }
    (project.folder / "bridge.yaml").write_text(json.dumps({"pipelines": {"smoke": settings}}))
    return project


def has(project: Project, users: dict[str, Any] | None = None, **orders: Any) -> None:
    """Say what the tap reads: six users, then ten orders, and what becomes of them."""
    streams = {"users": {"last": 6} | (users or {}), "orders": {"last": 10} | orders}
    (project.folder / "source.json").write_text(json.dumps({"streams": streams}))


def shown(project: Project, words: str) -> Any:
    return json.loads(project.command(*words.split(), "--json").out)


def kill(project: Project, *, orders: int) -> str:
    """Start a run, kill all of its processes when so many orders are committed; return its id."""
    argv = [sys.executable, "-m", "bridge", "run", "-q"]
    run = subprocess.Popen(argv, cwd=project.folder, start_new_session=True)
    try:
        end = time.monotonic() + 120
        while (project.ids("orders") or [0])[-1] < orders:
            assert run.poll() is None
            assert time.monotonic() < end
            time.sleep(0.2)
        live = shown(project, "runs show")
        assert (live["status"], live["streams"]["orders"]["records"]) == ("running", orders)
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait(60)
    return str(live["run_id"])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_run_is_known_and_resumed(shop: Project) -> None:
    """Its records, commits, STATE and log survive it; `--resume` and its retry leave out what it completed."""
    has(shop, silent_at=5)
    run = kill(shop, orders=4)
    shutil.rmtree(shop.folder / ".singer-bridge")  # the machine is gone, too
    (died,) = shown(shop, "runs list")
    assert (died["run_id"], died["status"], died["commits"], died["state_before"]) == (run, "died", 5, None)
    assert {name: each["records"] for name, each in died["streams"].items()} == {"users": 6, "orders": 4}
    assert {name: each["complete"] for name, each in died["streams"].items()} == {"users": True, "orders": False}
    marks = {name: each["replication_key_value"] for name, each in died["state"]["bookmarks"].items()}
    assert marks == {"users": 6, "orders": 4}
    assert "10" in shop.command("runs", "list").out
    (row,) = shown(shop, "status")
    assert (row["status"], row["records"], row["rows"], row["failures"]["count"]) == ("died", 10, 10, 1)
    assert "reading users" in shop.command("runs", "show", "--logs").out

    not_again = {"fails_at": 1}
    has(shop, not_again, fails_at=8)
    done = shop.command("run", "--resume", "--json", timeout=300)
    assert (done.code, json.loads(done.out)["attempt"]) == (1, 2)
    assert json.loads(done.out)["skipped"] == ["users"]
    has(shop, not_again)
    done = shop.command("run", "--resume", "--json", timeout=300)
    assert (done.code, json.loads(done.out)["skipped"]) == (0, ["users"])
    assert (shop.ids("users"), shop.ids("orders")) == (list(range(1, 7)), list(range(1, 11)))
    assert shown(shop, "status")[0]["status"] == "success"
