"""An upsert through the command, on Spark: updates, deletions and versions over runs, one of which is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Project

pytestmark = pytest.mark.usefixtures("in_process")

TAP = str(Path(sys.executable).with_name("tap-replay"))
SCHEMA = {
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": ["null", "string"]},
        "_sdc_deleted_at": {"type": ["null", "string"], "format": "date-time"},
    }
}
SETTINGS: dict[str, Any] = {
    "pipelines": {
        "smoke": {
            "source": {"tap": TAP, "config": "config.json"},
            "destination": {"bucket": "lake", "load_method": "upsert", "hard_delete": True},
            "commit": {"every": "1s"},
        }
    }
}


def record(number: int, name: str | None, version: int, **more: Any) -> dict[str, Any]:
    return {"type": "RECORD", "stream": "users", "record": {"id": number, "name": name} | more, "version": version}


def state(number: int) -> dict[str, Any]:
    return {"type": "STATE", "value": {"bookmarks": {"users": {"at": number}}}}


def play(project: Project, name: str, messages: list[dict[str, Any]], **settings: Any) -> None:
    """Have the tap say these messages next."""
    first = {"type": "SCHEMA", "stream": "users", "schema": SCHEMA, "key_properties": ["id"]}
    lines = (json.dumps(message) for message in [first, *messages])
    (project.folder / name).write_text("\n".join(lines) + "\n")
    (project.folder / "config.json").write_text(json.dumps({"path": name, "honour_state": False} | settings))


@pytest.mark.timeout(1200)
def test_updates_deletions_and_versions_over_runs_one_of_them_killed(project: Project) -> None:
    """After the rerun each key is there once with its last values, and rows of the version before are gone."""
    (project.folder / "bridge.yaml").write_text(json.dumps(SETTINGS))  # YAML reads JSON
    play(project, "1.singer", [*(record(n, "old", 1) for n in range(3000)), state(1)])
    done = project.command("run", "smoke", "--json", timeout=400)
    assert done.code == 0, done.err
    assert done.json["streams"]["users"]["load_method"] == "upsert"
    assert done.json["streams"]["users"]["records"] == 3000
    changes = [record(n, f"new {time_}", 2) for time_ in range(3) for n in range(500, 2500)]
    gone = [record(n, None, 2, _sdc_deleted_at="2025-01-01T00:00:00Z") for n in range(500, 700)]
    later = [state(2), *(record(n, "late", 2) for n in range(2400, 3100)), state(3)]
    play(project, "2.singer", [*changes, *gone, *later], lines_per_second=900)
    process = subprocess.Popen(
        [sys.executable, "-m", "bridge", "run", "smoke"],
        cwd=project.folder,
        env=project.environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    before, end = _commits(project), time.monotonic() + 90
    while process.poll() is None and _commits(project) == before and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    play(project, "3.singer", [*changes, *gone, *later, {"type": "ACTIVATE_VERSION", "stream": "users", "version": 2}])
    done = project.command("run", "smoke", "--json", timeout=400)
    assert done.code == 0, done.err
    found = {row[0]: row[1] for row in project.rows("users", "id, name")}
    assert len(project.ids("users")) == len(found)
    late = dict.fromkeys(range(2400, 3100), "late")
    assert found == dict.fromkeys(range(700, 2400), "new 2") | late
    assert project.state()["bookmarks"]["users"] == {"at": 3}
    assert not list(project.lake.glob(".bridge/smoke/pending/*"))


def _commits(project: Project) -> int:
    return len(list((project.lake / ".bridge/smoke/commits").glob("*.json")))


@pytest.mark.timeout(1200)
def test_keys_that_differ_stay_apart_on_executors(project: Project) -> None:
    """Numbers that no double holds are rejects; a key that changes in the middle merges what came by the old one."""
    settings = {"smoke": SETTINGS["pipelines"]["smoke"] | {"rejects": {"on_reject": "quarantine"}}}
    (project.folder / "bridge.yaml").write_text(json.dumps({"pipelines": settings}))
    kinds = {"id": {"type": "number"}, "part": {"type": "integer"}, "name": {"type": "string"}}
    schemas = [
        {"type": "SCHEMA", "stream": "users", "schema": {"properties": kinds}, "key_properties": keys}
        for keys in (["id"], ["id", "part"])
    ]
    odd = [9007199254740993, 9007199254740995]
    first = [record(n, "a" * 80, 1, part=0) for time_ in range(2) for n in (*range(60_000), *odd)]
    later = [record(n, "b" * 80, 1, part=part) for part in (0, 1) for n in range(60_000)]
    lines = [schemas[0], *first, state(1), *later[:1], schemas[1], *later[1:], state(2)]
    play(project, "keys.singer", [])
    (project.folder / "keys.singer").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = project.command("run", "smoke", "--json", timeout=600)
    assert done.code == 0, done.err
    assert done.json["streams"]["users"]["rejected"] == 4
    rows = project.rows("users", "id, part, substr(name, 1, 1)")
    assert sorted(rows) == [(float(n), part, "b") for n in range(60_000) for part in (0, 1)]
