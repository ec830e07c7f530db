"""`singer-bridge serve` as a process of its own: what its stderr says, and that it needs nobody who reads it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from bridge.service.client import ServiceClient
from bridge.storage.local.storage import LocalStorage
from tests.support.busy_lake import record_run
from tests.support.service import until
from tests.unit.service.web.conftest import NOW

Serve = Callable[..., "subprocess.Popen[str]"]
FILE = """
service: {warm: 0, port: 0}
pipelines:
  shop: {source: {tap: [sh, -c, exit 1]}, destination: {bucket: ./lake}}
"""


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start one; it is killed at the end if it still runs."""
    started: list[subprocess.Popen[str]] = []
    (tmp_path / "bridge.yaml").write_text(FILE)
    LocalStorage(tmp_path / "lake").prepare()

    def start(*words: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "bridge", "serve", *words]
        started.append(subprocess.Popen(argv, cwd=tmp_path, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        if process.stderr:
            process.stderr.close()


def url_of(process: subprocess.Popen[str]) -> str:
    """Read its first lines up to the page's URL."""
    assert process.stderr
    for line in process.stderr:
        if found := re.search(r"http://[^/]+", line):
            return found[0]
    raise AssertionError("it ended")


@pytest.mark.parametrize("words", [(), ("--log-format", "json")])
def test_what_no_page_shows_is_in_the_log(serve: Serve, tmp_path: Path, words: tuple[str, ...]) -> None:
    """A page says that the log has the details: it has the traceback, as text or as one JSON object."""
    record_run(LocalStorage(tmp_path / "lake"), "shop", NOW, "success", rows=1)
    for path in (tmp_path / "lake/.bridge/shop/commits").glob("*.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"at": "often"}))
    process = serve(*words)
    page = url_of(process)
    with urlopen(f"{page}/pipelines/shop") as answer:
        assert b"log of the service" in answer.read()
    process.send_signal(signal.SIGTERM)
    _, text = process.communicate(timeout=60)
    if words:
        facts = [json.loads(line) for line in text.splitlines()]
        text = next(each["message"] for each in facts if each["event"] == "log" and each["level"] == "error")
    assert "Traceback" in text
    assert "shop: what its bucket holds cannot be shown" in text


def test_the_log_names_the_file(serve: Serve, tmp_path: Path) -> None:
    """A wrong pipeline is left out at the start; a second service is told for which file the first one works."""
    (tmp_path / "other.yaml").write_text(f"{FILE}  wrong: {{}}\n")
    process = serve("--file", "other.yaml")
    assert process.stderr
    assert "settings refused, the pipeline is left out: other.yaml:5: missing key" in process.stderr.readline()
    url_of(process)
    second = serve()
    _, text = second.communicate(timeout=60)
    assert second.returncode == 2
    assert "another service works in this folder" in text
    assert f"its process is {process.pid}, for {tmp_path}/other.yaml" in text
    (tmp_path / "other.yaml").write_text(FILE)
    assert any("other.yaml was read again" in line for line in process.stderr)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def test_it_outlives_the_reader_of_its_log(serve: Serve) -> None:
    """`serve 2>&1 | head`: it goes on without anybody who reads, and its runs end as always."""
    process = serve()
    page = url_of(process)
    assert process.stderr
    process.stderr.close()
    client = ServiceClient(page)
    assert client.ended("shop", client.start("shop"))["status"] == "failed"
    assert until(lambda: client._ask("/api/pipelines"))[0]["status"] == "failed"
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
