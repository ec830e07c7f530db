"""Each fault strikes where it was set, with the exit code it promises, and all before it is on the wire."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Tap = Callable[..., Any]


def _config(records: int = 10, **settings: Any) -> dict[str, Any]:
    return {"streams": [{"name": "s", "records": records}], "state": {"every": 3}, **settings}


@pytest.mark.parametrize(
    ("how", "code"), [("exit", 3), ("signal", -signal.SIGKILL), ("half_line", 1), ("half_line_ok", 0), ("term", 0)]
)
def test_failures(smoke: Tap, how: str, code: int) -> None:
    """After so many records, none more or less; with half a line behind them where asked for."""
    run = smoke(_config(fail={"at": 5, "how": how}))
    assert run.code == code
    whole, rest = run.stdout.rsplit(b"\n", 1)
    kinds = [json.loads(line)["type"] for line in whole.splitlines()]
    assert kinds == ["SCHEMA", *["RECORD"] * 3, "STATE", *["RECORD"] * 2, *(["STATE"] if how == "term" else [])]
    assert rest.startswith(b'{"type":"RECORD"') is how.startswith("half_line")
    assert ("Traceback" in run.stderr) is (how == "exit")


@pytest.mark.parametrize(("at", "records"), [(0, 0), (3, 3), (10, 10)])
def test_a_failure_comes_before_the_state_of_its_record(smoke: Tap, at: int, records: int) -> None:
    """The records are on the wire, their STATE is not; also at the first and at the last record."""
    run = smoke(_config(fail={"at": at}))
    assert (run.code, run.ids()) == (3, list(range(1, records + 1)))
    assert run.messages[-1]["type"] == ("RECORD" if records else "SCHEMA")


def test_a_count_that_is_not_reached_does_not_fail(smoke: Tap) -> None:
    """`at` counts the records of this run, so a resumed run with fewer of them is whole."""
    assert smoke(_config(fail={"at": 11})).code == 0


def test_failing_once(smoke: Tap, tmp_path: Path) -> None:
    """The first run fails and leaves the file; the next one is whole."""
    config = _config(fail={"at": 2, "how": "signal"}, fail_once_file=str(tmp_path / "failed"))
    assert [smoke(config).code for _ in range(3)] == [-signal.SIGKILL, 0, 0]


def test_noise_on_stdout(smoke: Tap) -> None:
    """The line stands right before its record."""
    lines = smoke(_config(stdout_noise=5)).stdout.splitlines()
    at = lines.index(b"hello")
    assert json.loads(lines[at + 1])["record"]["id"] == 5
    assert lines.count(b"hello") == 1
    assert smoke(_config(stdout_noise=1)).stdout.splitlines()[1] == b"hello"


def test_noise_on_stderr(smoke: Tap) -> None:
    """As many bytes as asked for, in lines, and a line each so many records."""
    assert len(smoke(_config(stderr_bytes=1_000_003)).stderr) == 1_000_003
    assert smoke(_config(stderr_every=4)).stderr.splitlines() == ["tap-smoke: 4 records", "tap-smoke: 8 records"]


def test_the_secret_is_told_on_stderr_only(smoke: Tap) -> None:
    """A runner has something to mask."""
    run = smoke(_config(secret="hunter2"))
    assert "hunter2" in run.stderr and b"hunter2" not in run.stdout


def test_no_output(smoke: Tap) -> None:
    """Exit 0 and not a byte."""
    run = smoke(_config(no_output=True))
    assert (run.code, run.stdout) == (0, b"")


def test_delays_change_the_time_and_not_the_bytes(smoke: Tap) -> None:
    """Pauses come after each record and after each STATE."""
    started = time.monotonic()
    slow = smoke(_config(delay_ms=20, batch_delay_ms=50))
    assert time.monotonic() - started >= 10 * 0.02 + 4 * 0.05
    assert slow.stdout == smoke(_config()).stdout


def _start(tmp_path: Path, config: dict[str, Any]) -> subprocess.Popen[bytes]:
    path = tmp_path / "live.json"
    path.write_text(json.dumps(config))
    return subprocess.Popen([sys.executable, "-m", "tap_smoke", "--config", str(path)], stdout=subprocess.PIPE)


def test_records_leave_before_a_pause(tmp_path: Path) -> None:
    """A reader gets each record although the tap hangs right after it; only a kill ends that."""
    with _start(tmp_path, _config(fail={"at": 2, "how": "hang"}, sigterm_ok=False)) as tap:
        assert tap.stdout
        assert [json.loads(tap.stdout.readline())["type"] for _ in range(3)] == ["SCHEMA", "RECORD", "RECORD"]
        assert tap.poll() is None
        tap.terminate()
        assert tap.wait(10) == -signal.SIGTERM


@pytest.mark.parametrize("settings", [{"delay_ms": 1}, {"batch_delay_ms": 1}, {"fail": {"at": 5, "how": "hang"}}, {}])
def test_sigterm_writes_the_state_it_reached(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Exit 0, and the last line is a STATE that says exactly what was sent, wherever the signal struck."""
    with _start(tmp_path, _config(records=10**9, **settings)) as tap:
        assert tap.stdout
        head = [tap.stdout.readline() for _ in range(5)]
        tap.terminate()
        lines = head + tap.stdout.read().splitlines()
        assert tap.wait(10) == 0
    sent = [message["record"]["id"] for message in map(json.loads, lines) if message["type"] == "RECORD"]
    assert json.loads(lines[-1])["value"]["bookmarks"]["s"]["replication_key_value"] == sent[-1]
    assert sent == list(range(1, len(sent) + 1))


def test_a_reader_that_leaves_ends_the_run(tmp_path: Path) -> None:
    """Nobody reads: exit 1, no endless run."""
    with _start(tmp_path, _config(records=10**9)) as tap:
        assert tap.stdout
        tap.stdout.close()
        assert tap.wait(10) == 1
