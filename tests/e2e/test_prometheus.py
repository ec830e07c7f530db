"""A real Prometheus reads `/metrics`, and promtool finds nothing to say against it."""

from __future__ import annotations

import json
import subprocess
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from bridge.lake.storage.local.storage import LocalStorage
from bridge.serve.facts.metrics import write_textfile
from tests.e2e.realtaps import free_port
from tests.e2e.serving import served
from tests.support.busy_lake import record_run
from tests.support.debian import debian_program
from tests.support.service import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
TOKEN = "a token that nobody guesses"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """`shop` has a commit of 31 rows, `quiet` never ran."""
    record_run(
        LocalStorage(tmp_path / "lake"), "shop", datetime.now(timezone.utc) - timedelta(hours=3), "success", rows=31
    )
    common = {"source": {"tap": "tap-x"}, "destination": {"bucket": "lake"}, "stale_after": "1h"}
    service = {"port": 0, "token": TOKEN}
    (tmp_path / "bridge.yaml").write_text(
        json.dumps({"service": service, "pipelines": {"shop": common, "quiet": common}})
    )
    return tmp_path


def test_a_prometheus_scrapes_the_service(project: Path) -> None:
    with served(project) as url, free_port() as port:
        scrape = {
            "job_name": "lake",
            "scrape_interval": "1s",
            "authorization": {"credentials": TOKEN},
            "static_configs": [{"targets": [url.removeprefix("http://").rstrip("/")]}],
        }
        settings = project / "prometheus.yml"
        settings.write_text(json.dumps({"scrape_configs": [scrape]}))
        argv = [debian_program("prometheus", "prometheus"), f"--config.file={settings}"]
        argv += [f"--storage.tsdb.path={project}/series", f"--web.listen-address=127.0.0.1:{port}"]
        with (project / "prometheus.log").open("wb") as log:
            prometheus = subprocess.Popen(argv, stdout=log, stderr=log)
        try:
            rows = until(lambda: _value(port, 'singer_bridge_table_rows{pipeline="shop"}'), 60)
            assert (rows, _value(port, 'singer_bridge_stale{pipeline="shop"}')) == ("31", "1")
            assert _value(port, 'up{job="lake"}') == "1"
        finally:
            prometheus.terminate()
            prometheus.wait(60)
        request = Request(f"{url}metrics", headers={"Authorization": f"Bearer {TOKEN}"})
        _check(urlopen(request, timeout=10).read())


def test_the_textfile(project: Path) -> None:
    write_textfile(project / "textfile", LocalStorage(project / "lake"), "shop", timedelta(hours=1))
    (file,) = (project / "textfile").iterdir()
    _check(file.read_bytes())


def _value(port: int, query: str) -> Any:
    """The value of a query; None while Prometheus has none, or is not up."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/api/v1/query?query={quote(query)}", timeout=5) as answer:
            result = json.load(answer)["data"]["result"]
    except OSError:
        return None
    return result[0]["value"][1] if result else None


def _check(text: bytes) -> None:
    """Raise what promtool says against a text."""
    checked = subprocess.run(
        [debian_program("promtool", "prometheus"), "check", "metrics"], input=text, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
