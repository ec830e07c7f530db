"""A service looks at the clock for pipelines that cannot tell of themselves."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from bridge.lake.storage.local.storage import LocalStorage
from bridge.serve.service import clock
from bridge.serve.service.clock import Clock
from bridge.settings.load import read_settings
from tests.support.busy_lake import record_run


class Log:
    """Keeps what is noted."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def noted(self, text: str) -> None:
        self.texts.append(text)


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")
def test_a_pipeline_that_is_stale_is_told_of_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the service looks. A pipeline without `notify` is not looked at."""
    received: list[Any] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    Thread(target=server.serve_forever, daemon=True).start()
    lake = LocalStorage(tmp_path / "lake")
    record_run(lake, "shop", datetime.now(timezone.utc) - timedelta(hours=3), "success")
    (tmp_path / "bridge.yaml").write_text(
        f"""
defaults: {{destination: {{bucket: {tmp_path / "lake"}}}, source: {{tap: tap-x}}}}
pipelines:
  shop: {{stale_after: 1h, notify: [{{url: "json://127.0.0.1:{server.server_port}/", on: [stale]}}]}}
  quiet: {{stale_after: 1h}}
"""
    )
    settings = read_settings(tmp_path / "bridge.yaml")
    pipelines = {name: settings.pipeline(name) for name in settings.pipelines}
    monkeypatch.setattr(clock, "_EVERY", 0.0)
    log = Log()
    looks = Clock(log)  # type: ignore[arg-type]
    try:
        until = time.monotonic() + 5
        while time.monotonic() < until and not (log.texts and time.monotonic() > until - 4):
            looks.tend(pipelines)
            time.sleep(0.05)
    finally:
        server.shutdown()
        server.server_close()
    assert len(log.texts) == len(received) == 1
    assert "shop: stale: " in log.texts[0]
