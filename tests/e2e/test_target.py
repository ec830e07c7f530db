"""`tap | target-bridge` as two real processes with Spark: what is printed when, and what a kill leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

import bridge
from tests.support.pipe import wire
from tests.support.view_oracle import check_commits

TARGET = [sys.executable, "-m", "target_bridge"]
# The process ends where its STATE is committed, and not printed yet.
DIES = "import os, target_bridge as t; t.TargetBridge._print = lambda *_: os.kill(os.getpid(), 9); t.main()"


def schema() -> dict[str, Any]:
    said = {"properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}
    return {"type": "SCHEMA", "stream": "t", "schema": said, "key_properties": ["id"], "bookmark_properties": ["id"]}


def record(number: int) -> dict[str, Any]:
    return {"type": "RECORD", "stream": "t", "record": {"id": number, "name": f"n{number}"}}


def state(number: int) -> dict[str, Any]:
    return {"type": "STATE", "value": {"bookmarks": {"t": {"replication_key": "id", "replication_key_value": number}}}}


def ids(folder: Path) -> list[int]:
    rows = duckdb.sql(f"select id from read_parquet('{folder}/lake/shop/t/*.parquet') order by id").fetchall()
    return [row[0] for row in rows]


def commits(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_bytes()) for path in sorted((folder / "lake/.bridge/shop/commits").glob("*.json"))]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = {"bucket": str(tmp_path / "lake"), "pipeline": "shop", "start_state": "state.json", "batch_size_rows": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


def run(folder: Path, text: bytes, argv: list[str] = TARGET) -> subprocess.CompletedProcess[bytes]:
    command = [*argv, "--config", "config.json"]
    return subprocess.run(command, cwd=folder, input=text, capture_output=True, timeout=240, check=False)


def test_killed_between_its_commit_and_the_print(folder: Path) -> None:
    """Its tap starts again from the STATE before, and sends the rows once more: each is there once."""
    killed = run(folder, wire(schema(), record(1), record(2), state(2)), [sys.executable, "-c", DIES])
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, b"")
    assert ids(folder) == [1, 2]
    assert commits(folder)[-1]["state"] == state(2)["value"]
    done = run(folder, wire(schema(), record(1), record(2), record(3), state(3)))
    assert done.returncode == 0, done.stderr.decode()
    assert [json.loads(line) for line in done.stdout.splitlines()] == [state(3)["value"]]
    assert ids(folder) == [1, 2, 3]
    assert not list(folder.glob(".singer-bridge/spool/*/*"))


def test_asked_to_stop(folder: Path) -> None:
    """SIGTERM, as Meltano sends it: each STATE soon after its commit, nothing else on stdout, exit 143."""
    process = subprocess.Popen(
        [*TARGET, "--config", "config.json"],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin and process.stdout and process.stderr
    heard: list[tuple[float, Any]] = []
    errors: list[bytes] = []

    def listen() -> None:
        assert process.stdout
        heard.extend((time.time(), json.loads(line)) for line in process.stdout)

    threads = [threading.Thread(target=listen), threading.Thread(target=lambda: errors.append(process.stderr.read()))]
    for thread in threads:
        thread.start()
    process.stdin.write(wire(schema()))
    for number in range(1, 10):
        process.stdin.write(wire(record(number), state(number)))
        process.stdin.flush()
    deadline = time.monotonic() + 120
    while not heard and time.monotonic() < deadline:
        time.sleep(0.1)
    process.stdin.write(wire(record(10)))  # no STATE covers it
    process.stdin.flush()
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    code = process.wait(60)
    for thread in threads:
        thread.join(10)
    process.stdin.close()
    process.stdout.close()
    process.stderr.close()
    assert code == 143, errors[0].decode()
    last = heard[-1][1]["bookmarks"]["t"]["replication_key_value"]
    assert ids(folder) == list(range(1, last + 1))
    made = {json.dumps(record["state"], sort_keys=True): record["at"] for record in reversed(commits(folder))}
    for at, said in heard:
        committed = datetime.fromisoformat(made[json.dumps(said, sort_keys=True)]).timestamp()
        assert -0.01 <= at - committed < 2
    assert os.listdir(folder / "lake/shop") == ["t"]


def test_nobody_reads_the_states(folder: Path) -> None:
    """What was committed stays, and the exit code says that nobody heard of it."""
    (folder / "in.singer").write_bytes(wire(schema(), record(1), state(1)))
    shell = f"({' '.join(TARGET)} --config config.json --input in.singer; echo $? > code) | true"
    done = subprocess.run(["sh", "-c", shell], cwd=folder, capture_output=True, timeout=240, check=False)
    assert (folder / "code").read_text().strip() == "1"
    assert b"nobody reads the STATEs" in done.stderr
    assert b"Traceback" not in done.stderr
    assert ids(folder) == [1]


def test_views_are_kept(folder: Path) -> None:
    """Rows that a killed run had committed come again, and count once; a view that is only in `config.json` is kept."""
    query = "SELECT id % 2 AS odd, count(*) AS n, max(id) AS last FROM t GROUP BY 1"
    config = json.loads((folder / "config.json").read_text()) | {"views": {"by_odd": query}}
    (folder / "config.json").write_text(json.dumps(config))
    lines = wire(schema(), record(1), record(2), state(2))
    assert run(folder, lines, [sys.executable, "-c", DIES]).returncode == -signal.SIGKILL
    done = run(folder, lines + wire(record(3), state(3)))
    assert done.returncode == 0, done.stderr.decode()
    rows = bridge.Lake(str(folder / "lake")).view("shop", "by_odd")
    assert [answer.row["n"] for odd in (0, 1) if (answer := rows.get(odd=odd))] == [1, 2]
    assert check_commits(str(folder / "lake"), "shop")["by_odd"] >= 2
