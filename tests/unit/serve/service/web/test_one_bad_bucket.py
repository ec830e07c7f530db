"""One bucket that is silent, or holds nonsense, is unreadable. All others are shown as if it were not there."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from bridge.lake.runs import RunFile, new_run_id
from tests.support.busy_lake import record_run

from .conftest import NOW, Open, Page

SECONDS = 3.0
"""How long a bucket may be silent here."""


@pytest.fixture
def silent(page: Page, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A further pipeline, whose S3 server accepts connections and never answers.

    At the end it is closed, and threads that wait for it end: none tries again, at random times, while others test.
    """
    before = set(threading.enumerate())
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")  # one waits 60 seconds already, and all the threads take their turn
    for module in ("watch", "scrape"):
        monkeypatch.setattr(f"bridge.serve.service.web.{module}._DEADLINE", SECONDS)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with (page.root / "bridge.yaml").open("a") as file:
            file.write(
                "  dead: {source: {tap: 'true', discover: never}, destination: {bucket: s3://dead, "
                f"s3: {{endpoint_url: 'http://127.0.0.1:{port}', region: us-east-1}}}}}}\n"
            )
        yield
    for thread in set(threading.enumerate()) - before:
        if thread.daemon:
            thread.join(60)


def nonsense(page: Page, pipeline: str, facts: dict[str, Any]) -> None:
    """Leave a run record that no run writes. A text that begins with `=` stands for a number, as it is in JSON."""
    run = new_run_id()
    record_run(page.lake, pipeline, NOW, "success", run=run)
    path = page.root / f"lake/.bridge/{pipeline}/runs/{run}.json"
    path.write_text(re.sub(r'"=([^"]*)"', r"\1", json.dumps(json.loads(path.read_text()) | facts)))


NONSENSE: list[dict[str, Any]] = [
    {"started": "yesterday", "ended": "now", "seconds": {}},
    {"started": "2026-05-01T06:00:00", "ended": None},  # of no time zone
    {"held_times": "=1e999999999"},  # as an integer it would be a gigabyte, and nothing else would go on
    {"held_times": "=1" + "0" * 400},
    {"attempt": "=1" + "0" * 4000},
    {"commit": "=1e999999999"},
    {"seconds": {"total": "=Infinity"}},
    {"seconds": {"total": "=NaN"}},
    {"seconds": {"total": "=1e999999999"}},
    {"streams": {"orders": {"records": "=1" + "0" * 400}}},
    {"streams": {"orders": {"rejected": "=1" + "0" * 4000}}},
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("facts", NONSENSE, ids=lambda facts: str(facts)[:40])
def test_nonsense_in_a_bucket_hides_no_other(page: Page, facts: dict[str, Any]) -> None:
    """The run is unreadable, and its page and its row say so; the runs before it are shown, and all other pipelines."""
    before = [each["run_id"] for each in page.client.get("/api/pipelines/quiet/runs").json()]
    nonsense(page, "quiet", facts)
    rows = page.client.get("/api/pipelines/quiet/runs").json()
    assert [each["run_id"] for each in rows[1:]] == before
    assert (rows[0]["status"], rows[0]["error"]["type"]) == ("unreadable", "CorruptLake")
    own = page.client.get(f"/api/pipelines/quiet/runs/{rows[0]['run_id']}").json()
    assert (own["status"], own["live"]) == ("unreadable", None)
    for _ in range(2):
        states = {each["name"]: each["status"] for each in page.client.get("/api/pipelines").json()}
        assert (states["quiet"], states["failing"]) == ("unreadable", "failed")
        assert 'singer_bridge_run_success{pipeline="quiet"} 0.0' in page.get("/metrics")
    assert "unreadable" in page.get("/")
    assert "record is unreadable" in page.get("/pipelines/quiet")
    assert "delete it" in page.get(f"/pipelines/quiet/runs/{rows[0]['run_id']}")
    assert rows[0]["run_id"] in page.get("/pipelines/quiet/runs")
    assert rows[0]["run_id"] in page.get("/runs?show=unreadable")
    record_run(page.lake, "failing", NOW, "success", rows=9)
    assert page.client.get("/api/pipelines").json()[2]["status"] == "success"
    assert 'singer_bridge_readable{pipeline="failing"} 1.0' in page.get("/metrics")


@pytest.mark.usefixtures("silent")
def test_a_silent_bucket_holds_up_no_page(page: Page) -> None:
    """Pages come at once, its pipeline is unreadable after the deadline, and events of others come meanwhile."""
    began = time.monotonic()
    assert 'href="/pipelines/dead"' in page.get("/")
    assert "orders" in page.get("/pipelines/shop")
    states = {each["name"]: each["status"] for each in page.client.get("/api/pipelines").json()}
    assert states["dead"] == "unreadable"
    assert states["failing"] == "failed"
    assert "does not answer" in page.get("/")
    assert "does not answer" in page.get("/pipelines/dead")
    assert "does not answer" in page.get("/pipelines/dead/commits", 503)
    record_run(page.lake, "failing", NOW, "success", rows=9)
    assert {each["name"]: each["status"] for each in page.client.get("/api/pipelines").json()}["failing"] == "success"
    assert time.monotonic() - began < 40, "the S3 client itself waits for a minute and more"


@pytest.mark.usefixtures("silent")
def test_a_silent_bucket_holds_up_no_program(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API answers 503 of it within the deadline, to however many, and of the others as always."""
    monkeypatch.setattr("bridge.serve.service.web.watch._DEADLINE", 1.0)
    run = new_run_id()
    paths = [f"/api/pipelines/dead{more}" for more in ("", "/runs", f"/runs/{run}")] + ["/api/views/dead/v?key=1"]
    began = time.monotonic()
    with ThreadPoolExecutor(44) as pool:
        answers = list(pool.map(page.client.get, paths * 11))
        assert page.client.get("/api/pipelines/shop").json()["rows"] == 31
    assert {answer.status_code for answer in answers} == {503}
    assert {answer.json()["error"]["type"] for answer in answers} == {"LakeError"}
    assert time.monotonic() - began < 20


@pytest.mark.usefixtures("silent")
def test_a_scrape_has_a_deadline(page: Page) -> None:
    """`/metrics` answers before Prometheus gives up, and says of which pipeline it knows nothing."""
    text = page.get("/metrics")
    assert 'singer_bridge_readable{pipeline="dead"} 0.0' in text
    assert 'singer_bridge_readable{pipeline="shop"} 1.0' in text


def test_a_source_that_is_wrong_is_said(open_page: Open) -> None:
    """The pipeline is shown, and its page says that its runs go by the settings from before."""
    page = open_page()
    path = page.root / "bridge.yaml"
    path.write_text(
        path.read_text().replace("shop: {source: {", "shop: {source: {config: {password: '${NOBODY_SET}'}, ")
    )
    html = page.seen("/")
    assert html.count("old settings") == 1
    shop = page.get("/pipelines/shop")
    assert "runs still start with those from before" in shop
    assert "NOBODY_SET" in shop
    assert "orders" in shop
    assert "from before" not in page.get("/pipelines/failing")


def test_runs_from_the_future_hide_none(page: Page) -> None:
    """However many there are: the pipeline stands as its last run of a right clock does, and its page names them."""
    days = [datetime.now(timezone.utc) + timedelta(days=2 + number) for number in range(30)]
    ahead = [f"{day:%Y%m%dT%H%M%SZ}-aaaa" for day in days]
    for run, day in zip(ahead, days, strict=True):
        RunFile(page.lake, "failing", run, started=day.isoformat()).finish(status="success")
    for status in ("failed", "success"):
        run = new_run_id()
        RunFile(page.lake, "failing", run).finish(status=status)
        facts = next(each for each in page.client.get("/api/pipelines").json() if each["name"] == "failing")
        assert (facts["run_id"], facts["status"], facts["ahead"]) == (run, status, ahead[::-1])
        html = page.get("/")
        assert f"/pipelines/failing/runs/{run}" in html
        assert "was ahead" in page.get("/pipelines/failing")
    assert [each["run_id"] for each in page.client.get("/api/pipelines/failing/runs?limit=31").json()] == [
        *ahead[::-1],
        run,
    ]
    assert ahead[0] in page.get("/pipelines/failing/runs")


def test_a_name_that_no_text_holds_hides_no_other(page: Page) -> None:
    """Half of a character, as a stream's name: the figures of all pipelines are there, and those of this stream."""
    nonsense(page, "quiet", {"streams": {"\ud800": {"records": 7}}})
    figures = page.get("/metrics")
    assert 'singer_bridge_run_success{pipeline="failing"} 0.0' in figures
    assert 'singer_bridge_run_records{pipeline="quiet",stream="\\\\ud800"} 7.0' in figures
