"""Looking often costs little: what a listing shows unchanged is not read again. What is new is an event, once."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, ClassVar

import pytest
from starlette.testclient import TestClient

from bridge.lake.commit.open import open_pipeline
from bridge.lake.runs import new_run_id
from bridge.lake.storage.local.storage import LocalStorage
from bridge.serve.service.web.app import make_app
from bridge.serve.service.web.hub import Hub
from bridge.serve.service.web.pipeline_status import look
from bridge.serve.service.web.pipelines import ServedPipelines
from bridge.serve.service.web.watch import Watch
from tests.support.busy_lake import busy_project, commit_rows, record_run, write_settings
from tests.support.service import until

from .conftest import NOW, Waiting


class Counted(LocalStorage):
    """Counts what is read."""

    reads: ClassVar[Counter[str]] = Counter()

    def read(self, key: str) -> bytes | None:
        self.reads[key.split("/")[2]] += 1
        return super().read(key)


def test_what_has_not_changed_is_not_read_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second look reads the newest record only, and gives the same object; a new run is read, old ones are not."""
    monkeypatch.setattr("bridge.lake.storage.buckets.LocalStorage", Counted)
    shown = ServedPipelines(root / "bridge.yaml", None).all()["failing"]
    first = look(shown, None)
    assert [run.status for run in first.runs] == ["failed", "success", "success", "success"]
    Counted.reads.clear()
    assert look(shown, first) is first
    assert (Counted.reads["runs"], Counted.reads["commits"]) == (1, 0)
    run = record_run(LocalStorage(root / "lake"), "failing", NOW, "success", rows=3)
    second = look(shown, first)
    assert [each.run_id for each in second.runs] == [run, *(each.run_id for each in first.runs)]
    assert second.runs[2] is first.runs[1], "an outcome that was read before"


def test_what_turns_stale_is_read_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though its bucket is as it was: the same object before, and once again after."""
    more = {"failing": ", stale_after: 1h"}
    write_settings(root, ["failing"], **more)
    record_run(LocalStorage(root / "lake"), "failing", datetime.now(timezone.utc) - timedelta(minutes=30), "success")
    shown = ServedPipelines(root / "bridge.yaml", None).all()["failing"]
    fresh = look(shown, None)
    assert fresh.status
    assert fresh.status["stale"] is False
    assert look(shown, fresh) is fresh

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + timedelta(hours=1)

    monkeypatch.setattr("bridge.serve.service.web.pipeline_status.datetime", Later)
    stale = look(shown, fresh)
    assert stale.status
    assert stale.status["stale"] is True
    assert look(shown, stale) is stale


class Listening(Hub):
    """Keeps what is published."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, Any]] = []

    def publish(self, kind: str, facts: dict[str, Any]) -> None:
        self.events.append((kind, facts))


def test_each_event_comes_once(root: Path) -> None:
    """A run that began and ended, wherever it ran, and its commit; nothing at the first look, nothing at the next.

    The watch looks by itself, too: perhaps after the commit, before the run's record, so the commit has no order here.
    """
    hub = Listening()
    watch = Watch(ServedPipelines(root / "bridge.yaml", None), Waiting(), hub)
    watch.start()
    try:
        watch.all(30)
        assert hub.events == []
        run = record_run(LocalStorage(root / "lake"), "failing", NOW, "success", rows=3)
        watch.all(30)
        watch.all(30)
    finally:
        watch.close()
    assert [kind for kind, _ in hub.events if kind != "committed"] == ["run_started", "run_ended"]
    (committed,) = (facts for kind, facts in hub.events if kind == "committed")
    started, ended = (facts for kind, facts in hub.events if kind != "committed")
    assert started["run_id"] == ended["run_id"] == run
    assert (ended["status"], ended["records"]) == ("success", 3)
    assert (committed["pipeline"], committed["commit"]) == ("failing", 4)


def test_a_fence_is_no_event(root: Path) -> None:
    """After a run that was killed the next writer fences; only what it then commits is told."""
    lake = LocalStorage(root / "lake")
    hub = Listening()
    watch = Watch(ServedPipelines(root / "bridge.yaml", None), Waiting(), hub)
    watch.start()
    try:
        watch.all(30)
        (root / "lake/.bridge/failing/lease.json").write_text(json.dumps({"format": 1, "head": None, "closed": None}))
        with open_pipeline(lake, "failing", new_run_id()) as committer:
            watch.all(30)
            assert committer.snapshot.n == 4
            assert hub.events == []
            commit_rows(lake, committer, {"bookmarks": {"s": 1}}, 9)
            watch.all(30)
    finally:
        watch.close()
    assert [(kind, facts["commit"]) for kind, facts in hub.events] == [("committed", 5)]


def test_events_are_sent_as_they_happen(root: Path) -> None:
    """`GET /api/events`: a stream of events with names, ids and JSON, which ends with the service."""
    app = make_app(root / "bridge.yaml", None, Waiting(), host="127.0.0.1", token=None)
    hub: Hub = app.state.site.hub

    async def told() -> list[str]:
        lines = []
        async for chunk in hub.listen():
            lines.append(chunk.decode())
            if len(lines) == 1:
                hub.publish("committed", {"pipeline": "a\nb", "commit": 7})
                hub.close()
        return lines

    first, event = asyncio.run(told())
    assert first.startswith(":")
    assert re.fullmatch(r"id: 1\nevent: committed\ndata: (\{.*\})\n\n", event)
    assert json.loads(event.split("data: ")[1]) == {"pipeline": "a\nb", "commit": 7}
    with TestClient(app, base_url="http://127.0.0.1:8765") as client:
        answer = client.get("/api/events")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


@pytest.mark.heavy
def test_the_first_paint_of_200_pipelines_and_10000_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The overview takes less than 300 ms of CPU, also when nothing of the bucket was read yet."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    file = busy_project(tmp_path, 200, 50)
    assert sum(1 for _ in (tmp_path / "lake/.bridge").glob("*/runs/*.json")) == 10_000
    app = make_app(file, None, Waiting(), host="127.0.0.1", token=None)
    with TestClient(app, base_url="http://127.0.0.1:8765") as client:
        cold = client.get("/")
        assert cold.text.count("<tr id=") == 200
        assert len(client.get("/api/pipelines").json()) == 200
        until(lambda: "reading" not in client.get("/").text)
        times = []
        for _ in range(5):
            began = time.process_time()
            answer = client.get("/")
            times.append(time.process_time() - began)
            assert "reading" not in answer.text
            assert answer.text.count("latest runs: 24 success") == 2 * 200
        assert sorted(times)[2] < 0.3, times
        assert len(answer.content) < 400_000
        record_run(LocalStorage(tmp_path / "lake"), "p007", NOW, "failed", error={"message": "new"})
        assert client.get("/api/pipelines").json()[7]["status"] == "failed"
        assert 'class="status failed"' in client.get("/").text


def test_a_listener_is_served_at_once(root: Path) -> None:
    """Nobody looks while nobody listens or asks; whoever comes need not wait for that pause to end."""
    app = make_app(root / "bridge.yaml", None, Waiting(), host="127.0.0.1", token=None)
    site = app.state.site

    async def first() -> bytes:
        listening = site.hub.listen()
        assert (await anext(listening)).startswith(b":")
        await asyncio.to_thread(record_run, LocalStorage(root / "lake"), "failing", NOW, "success", rows=3)
        return await asyncio.wait_for(anext(listening), 30)

    site.watch.start()
    try:
        site.watch.all(30)
        # The commit is there before the run's record, so a look in between tells it first.
        assert re.search(rb"event: (run_started|run_ended|committed)\n", asyncio.run(first()))
    finally:
        site.watch.close()
