"""`trigger` asks a real server: the page on a port of its own."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from bridge.errors import BridgeError, SettingsError
from bridge.lake.runs import read_runs
from bridge.lake.storage.local.storage import LocalStorage
from bridge.serve.service.client import ServiceClient
from bridge.serve.service.web.server import page_served
from bridge.settings.service import Service
from tests.support.busy_lake import record_run, write_settings
from tests.support.service import until
from tests.support.shell import type_words
from tests.unit.serve.service.web.conftest import TOKEN, Waiting


@pytest.fixture
def runs() -> Waiting:
    return Waiting()


@pytest.fixture
def url(tmp_path: Path, runs: Waiting, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A page with a token; the project's settings name its port."""
    monkeypatch.chdir(tmp_path)
    urls: list[str] = []
    file = write_settings(tmp_path, ["shop"])
    with page_served(file, None, runs, Service(port=0, token=TOKEN), urls.append):
        port = urls[0].rstrip("/").rpartition(":")[2]
        with file.open("a") as settings:
            settings.write(f"service: {{port: {port}, token: {TOKEN}}}\n")
        yield urls[0]


def test_a_run_is_requested(url: str, runs: Waiting, capsys: pytest.CaptureFixture[str]) -> None:
    """With the flags as given; a second one is refused with what the service says."""
    code, out, _ = type_words(capsys, "trigger", "shop", "--full", "-s", "a", "--json")
    assert (code, json.loads(out)["run_id"]) == (0, runs.live()[0].run_id)
    assert runs.requested == [("shop", "--full", "--stream", "a")]
    code, _, err = type_words(capsys, "trigger", "shop")
    assert code == 2
    assert "in the queue already" in err
    assert type_words(capsys, "trigger", "nothing")[0] == 2


@pytest.mark.parametrize(("status", "code"), [("success", 0), ("failed", 1), ("interrupted", 130)])
def test_its_end_is_waited_for(
    url: str, runs: Waiting, tmp_path: Path, capsys: pytest.CaptureFixture[str], status: str, code: int
) -> None:
    """The outcome is the exit code; what is not over is asked for again."""

    def end() -> None:
        while not runs.runs:
            time.sleep(0.01)
        run = runs.runs[0]
        began = datetime.now(timezone.utc)
        record_run(LocalStorage(tmp_path / "lake"), "shop", began, status, rows=7, run=run.run_id)
        runs.runs = []

    thread = threading.Thread(target=end)
    thread.start()
    try:
        result = type_words(capsys, "trigger", "shop", "--wait")
    finally:
        thread.join()
    assert result[0] == code, result
    assert f"shop: {status}, 7 records" in result[1]


def test_a_run_that_never_starts_is_said(url: str, runs: Waiting, capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody stops it while it waits: that is its end, with the reason, not a wrong request."""

    def stop() -> None:
        until(lambda: runs.runs)
        runs.stop(runs.runs[0].run_id)

    for words in ((), ("--json",)):
        thread = threading.Thread(target=stop)
        thread.start()
        try:
            code, out, err = type_words(capsys, "trigger", "shop", "--wait", *words)
        finally:
            thread.join()
        assert (code, err) == (1, "")
        assert json.loads(out)["status"] == "not run" if words else out == "shop: not run, stopped before it started\n"


def test_all_attempts_are_waited_for(
    url: str, runs: Waiting, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`retry`: a first attempt that failed is not the outcome, neither while the next is under way nor afterwards."""
    lake = LocalStorage(tmp_path / "lake")
    began = datetime.now(timezone.utc)

    def end() -> None:
        while not runs.runs:
            time.sleep(0.01)
        first = runs.runs[0].run_id
        record_run(lake, "shop", began, "failed", run=first)
        second = record_run(lake, "shop", began + timedelta(seconds=1), "success", rows=7, attempt=2)
        runs.runs = [replace(runs.runs[0], status="running", run_id=second, attempts=(first, second))]
        (live,) = ServiceClient(url.rstrip("/"), TOKEN)._ask(f"/api/pipelines/shop/runs/{first}")["live"]["attempts"][
            1:
        ]
        assert live == second
        runs.stop(second)

    thread = threading.Thread(target=end)
    thread.start()
    try:
        code, out, _ = type_words(capsys, "trigger", "shop", "--wait")
    finally:
        thread.join()
    (second, _) = [record.run_id for record in read_runs(lake, "shop")]
    assert (code, out) == (0, f"shop: success, 7 records, run {second}\n")


def test_an_attempt_that_died_is_not_the_outcome(url: str, tmp_path: Path) -> None:
    """The service tries a run again whose process was killed."""
    lake, began = LocalStorage(tmp_path / "lake"), datetime.now(timezone.utc)
    run = record_run(lake, "shop", began, "running")
    second = record_run(lake, "shop", began + timedelta(seconds=1), "success", rows=7, attempt=2)
    assert ServiceClient(url.rstrip("/"), TOKEN).ended("shop", run)["run_id"] == second


def test_a_run_after_it_is_no_attempt_at_it(
    url: str, runs: Waiting, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only an attempt with the next number is followed."""
    lake, began = LocalStorage(tmp_path / "lake"), datetime.now(timezone.utc)
    run = record_run(lake, "shop", began, "failed")
    record_run(lake, "shop", began + timedelta(seconds=1), "success", rows=7)
    record_run(lake, "shop", began + timedelta(seconds=2), "success", rows=7, attempt=2)
    assert ServiceClient(url.rstrip("/"), TOKEN).ended("shop", run)["run_id"] == run


def test_without_a_service_it_says_so(tmp_path: Path) -> None:
    """Neither a wrong token nor a port where nobody listens is a success."""
    with pytest.raises(SettingsError, match="any port"):
        ServiceClient.of(Service(port=0))
    with pytest.raises(BridgeError, match="does not answer"):
        ServiceClient.of(Service(port=1)).start("shop")
    assert ServiceClient.of(Service(host="0.0.0.0", port=7)).url == "http://127.0.0.1:7"
    assert ServiceClient.of(Service(host="::1", port=7)).url == "http://[::1]:7"


def test_a_wrong_token_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="a token is needed"):
        ServiceClient(url.rstrip("/"), "another").start("shop")


def test_a_page_that_ends_at_once_ends_cleanly(tmp_path: Path) -> None:
    """Even before its server is up; the port is free again then."""
    file = write_settings(tmp_path, ["shop"])
    urls: list[str] = []
    for _ in range(20):
        port = int(urls[0].rstrip("/").rpartition(":")[2]) if urls else 0
        with page_served(file, None, Waiting(), Service(port=port), urls.append):
            pass
    assert len(set(urls)) == 1


def test_a_page_that_is_stuck_does_not_keep_it(tmp_path: Path) -> None:
    """A bucket, or whatever a page waits for, may never answer: the server ends, and whoever asked is told."""
    stuck, asked, answers = threading.Event(), threading.Event(), list[str]()
    before = threading.enumerate()

    class Stuck(Waiting):
        def start(self, pipeline: str, *options: str) -> str:
            asked.set()
            stuck.wait(60)
            return "never"

    def ask() -> None:
        with pytest.raises(BridgeError) as refused:
            ServiceClient(urls[0].rstrip("/")).start("shop")
        answers.append(refused.value.message)

    urls: list[str] = []
    with page_served(write_settings(tmp_path, ["shop"]), None, Stuck(), Service(port=0), urls.append):
        asking = threading.Thread(target=ask)
        asking.start()
        assert asked.wait(30)
    asking.join()
    assert answers == ["the service ends"]
    until(lambda: all(each.daemon or each in before for each in threading.enumerate()), 10)
    stuck.set()


def test_the_page_needs_a_free_port_and_a_token(url: str, tmp_path: Path) -> None:
    """Else it is refused before anything starts, with what to do."""
    port = int(url.rstrip("/").rpartition(":")[2])
    for settings, text in (
        (Service(port=port), "cannot serve the page"),
        (Service(host="0.0.0.0"), "a token is needed"),
    ):
        page = page_served(tmp_path / "bridge.yaml", None, Waiting(), settings, lambda url: None)
        with pytest.raises(SettingsError, match=text), page:
            raise AssertionError("it was served")
