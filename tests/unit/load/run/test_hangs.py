"""Whatever a run waits for, a time-out and a signal end it, its record says so, and nothing of it lives on."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bridge.lake.runs import RunRecord, read_runs
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.run.run import Run
from bridge.settings.options import Pipeline
from bridge.settings.values.request import Request
from tests.support.pipe import wire
from tests.support.restcatalog import RestCatalog

ROW = wire(
    {"type": "SCHEMA", "stream": "s", "schema": {"properties": {"id": {"type": "integer"}}}, "key_properties": []},
    {"type": "RECORD", "stream": "s", "record": {"id": 1}},
    {"type": "STATE", "value": {"bookmarks": {"s": {"id": 1}}}},
)


class Silent:
    """A server that accepts a connection and never answers."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.uri = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.accepted = threading.Event()
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        connections = list[socket.socket]()
        while True:
            connections.append(self._socket.accept()[0])
            if self.accepted.is_set():
                break
            self.accepted.set()
        for connection in connections:
            connection.close()

    def close(self) -> None:
        self.accepted.set()
        with socket.create_connection(self._socket.getsockname()):
            self._thread.join()
        self._socket.close()


@pytest.fixture
def silent() -> Iterator[Silent]:
    server = Silent()
    yield server
    server.close()


def settings(folder: Path, uri: str, tap: str) -> dict[str, Any]:
    catalog = {"properties": {"type": "rest", "uri": uri}}
    destination = {"bucket": str(folder / "lake"), "format": "iceberg", "catalog": catalog}
    source = {"tap": ["sh", "-c", tap], "discover": "never"}
    return {"name": "p", "source": source, "destination": destination, "commit": {"rows": 1}}


def recorded(folder: Path) -> RunRecord:
    (record,) = read_runs(LocalStorage(folder / "lake"), "p")
    assert record.ended
    assert record.error
    return record


def test_a_catalog_that_never_answers_and_a_limit(folder: Path, silent: Silent) -> None:
    """`--timeout` ends the run at once, exit code 1, and the run failed."""
    began = time.monotonic()
    pipeline = Pipeline.model_validate(settings(folder, silent.uri, "exit 0"))
    result = Run(pipeline, Request(timeout=timedelta(seconds=4)), folder / "home").execute()
    assert silent.accepted.is_set()
    assert 4 < time.monotonic() - began < 45
    assert result.error
    assert result.error.exit_code == 1
    record = recorded(folder)
    assert (record.status, record.error and record.error.type) == ("failed", "TimedOut")


def test_a_catalog_that_never_answers_and_a_signal(folder: Path, silent: Silent) -> None:
    """SIGTERM ends the run at once, and the run was interrupted."""
    pipeline = Pipeline.model_validate(settings(folder, silent.uri, "exit 0"))

    def stop() -> None:
        assert silent.accepted.wait(60)
        os.kill(os.getpid(), signal.SIGTERM)

    other = threading.Thread(target=stop)
    other.start()
    result = Run(pipeline, Request(), folder / "home").execute()
    other.join()
    assert (result.status, result.error and result.error.exit_code) == ("interrupted", 143)
    assert recorded(folder).status == "interrupted"


PROGRAM = """
import json, sys
from pathlib import Path
import bridge.load.run.execution, bridge.load.run.run
from bridge.settings.values.request import Request
from bridge.load.run.stop import Stop
from bridge.settings.options import Pipeline
from tests.support.pipe import InProcess

bridge.load.run.execution.Loader = InProcess
stop = Stop()
stop.grace = 0.5
pipeline = Pipeline.model_validate(json.loads(sys.argv[1]))
bridge.load.run.run.Run(pipeline, Request(), Path("home").absolute(), stop=stop).execute()
"""


def test_a_commit_that_hangs(folder: Path) -> None:
    """A run that does not end by itself after a signal is ended: its record says so, and the tap has ended."""
    (folder / "said").write_bytes(ROW)
    with RestCatalog(folder) as server:
        server.hangs = True
        said = json.dumps(settings(folder, server.uri, "echo $$ > pid; cat said; exec sleep 600"))
        root = Path(__file__).parents[4]
        environ = os.environ | {"PYTHONPATH": str(root)}
        with subprocess.Popen([sys.executable, "-c", PROGRAM, said], stderr=subprocess.PIPE, env=environ) as run:
            assert server.hung.wait(60)
            run.send_signal(signal.SIGTERM)
            _, words = run.communicate(timeout=60)
    assert run.returncode == 143
    assert b"error: stopped by SIGTERM\nhint: it hung while" in words
    assert recorded(folder).status == "interrupted"
    tap, limit = int((folder / "pid").read_text()), time.monotonic() + 20
    while Path(f"/proc/{tap}").exists():
        assert time.monotonic() < limit
        time.sleep(0.05)
