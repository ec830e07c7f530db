"""`singer-bridge serve` as a process of its own: what its stderr says, and that it needs nobody who reads it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.request import urlopen

import pytest

from bridge.lake.storage.local.storage import LocalStorage
from bridge.serve.service.client import ServiceClient
from tests.support.service import until

Serve = Callable[..., "subprocess.Popen[str]"]
FILE = """
service: {port: 0}
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


class NoStore(BaseHTTPRequestHandler):
    """An S3 server that breaks the protocol: its answers have no ETag."""

    def do_GET(self) -> None:
        listing = b'<?xml version="1.0"?><ListBucketResult><KeyCount>0</KeyCount></ListBucketResult>'
        body = listing if "list-type" in self.path else b"{}"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Not on the test's output."""


@pytest.fixture
def no_store(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The bucket of the pipeline is in such a store."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with ThreadingHTTPServer(("127.0.0.1", 0), NoStore) as server:
        options = f"{{endpoint_url: 'http://127.0.0.1:{server.server_port}', region: us-east-1}}"
        file = tmp_path / "bridge.yaml"
        file.write_text(file.read_text().replace("bucket: ./lake", f"bucket: s3://lake, s3: {options}"))
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield
        server.shutdown()
        thread.join()


@pytest.mark.usefixtures("no_store")
@pytest.mark.parametrize("words", [(), ("--log-format", "json")])
def test_what_no_page_shows_is_in_the_log(serve: Serve, words: tuple[str, ...]) -> None:
    """A page says that the log has the details: it has the traceback, as text or as one JSON object."""
    process = serve(*words)
    page = url_of(process)

    def is_said() -> bool:
        with urlopen(f"{page}/pipelines/shop") as answer:
            return b"log of the service" in answer.read()

    until(is_said)  # the store may be slow at first
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
