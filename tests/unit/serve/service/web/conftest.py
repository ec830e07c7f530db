"""A page over a real small lake: bridge.yaml, tables, rejects, runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from bridge.errors import SettingsError
from bridge.lake.runs import new_run_id
from bridge.lake.storage.local.storage import LocalStorage
from bridge.serve.service.runs import LiveRun
from bridge.serve.service.web.app import make_app
from tests.support.busy_lake import record_run, write_settings
from tests.support.tables import INTEGER, STRING, Shop

NOW = datetime.now(timezone.utc).replace(microsecond=0)
AT = datetime(2026, 5, 1, 6, tzinfo=timezone.utc)
HOST = "http://127.0.0.1:8765"
TOKEN = "a token that nobody guesses"


@dataclass
class Waiting:
    """The runs of a service that is busy: what is requested waits, and can be taken out again."""

    runs: list[LiveRun] = field(default_factory=list)
    requested: list[tuple[str, ...]] = field(default_factory=list)
    next: dict[str, datetime] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)

    def start(self, pipeline: str, *options: str) -> str:
        if any(run.pipeline == pipeline for run in self.runs):
            raise SettingsError("a run of this pipeline is in the queue already", hint="wait for it")
        self.requested.append((pipeline, *options))
        self.runs.append(LiveRun(new_run_id(), pipeline, "waiting", NOW, "request", "waits for its turn"))
        return self.runs[-1].run_id

    def stop(self, run_id: str) -> bool:
        before = len(self.runs)
        waiting = any(run.run_id == run_id and run.status == "waiting" for run in self.runs)
        self.stopped |= {run_id: "stopped before it started"} if waiting else {}
        self.runs = [run for run in self.runs if run.run_id != run_id]
        return len(self.runs) < before

    def not_run(self, run_id: str) -> str | None:
        return self.stopped.get(run_id)

    def live(self) -> list[LiveRun]:
        return list(self.runs)

    def next_run(self, pipeline: str) -> datetime | None:
        return self.next.get(pipeline)

    def work(self, records: int, stage: str = "extracting") -> None:
        """Let all requested runs be under way."""
        self.runs = [replace(run, status="running", records=records, stage=stage) for run in self.runs]


@dataclass
class Page:
    """A browser at the page of a service."""

    root: Path
    runs: Waiting
    client: TestClient

    @property
    def lake(self) -> LocalStorage:
        return LocalStorage(self.root / "lake")

    def get(self, path: str, status: int = 200) -> str:
        """The page at a path."""
        answer = self.client.get(path)
        assert answer.status_code == status, (path, answer.status_code, answer.text[-600:])
        return str(answer.text)

    def seen(self, path: str) -> str:
        """A page of all pipelines, after a look at all of them has ended."""
        assert self.client.get("/api/pipelines").status_code == 200
        return self.get(path)

    def submit(self, path: str, status: int = 303, **changed: str) -> str:
        """Send the form of a page as it is, but for what is `changed`; return where that leads, or the answer."""
        fields = fields_of(self.get(path)) | changed
        answer = self.client.post(path.partition("?")[0], data=fields)
        assert answer.status_code == status, (answer.status_code, answer.text[-600:])
        return str(answer.headers.get("location", answer.text))


def fields_of(html: str) -> dict[str, str]:
    """The hidden fields of the page's last form."""
    form = html.rpartition('method="post"')[2]
    return dict(re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', form))


Open = Callable[..., Page]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project: `shop` has tables, rejects and runs, `quiet` never ran, `failing` fails."""
    monkeypatch.setattr("os.fsync", lambda fd: None)
    write_settings(tmp_path, ["shop", "quiet", "failing"])
    shop = Shop(tmp_path)
    for step in range(3):
        rows = [{"id": step * 10 + number, "name": f"n{number}"} for number in range(10)]
        shop.load("orders", {"id": {"type": "integer"}, "name": STRING}, rows, keys=("id",))
    wider = {"id": {"type": "integer"}, "name": STRING, "discount": INTEGER}
    bad = [{"id": 99, "discount": 5}, {"id": "no number"}]
    shop.load("orders", wider, bad, keys=("id",), max_rejects=5)
    lake = LocalStorage(tmp_path / "lake")
    for hour in range(3):
        record_run(lake, "failing", AT + timedelta(hours=hour), "success", rows=500 + hour)
    error = {"type": "TapError", "message": "the tap failed", "hint": "look at the tap"}
    record_run(lake, "failing", AT + timedelta(hours=4), "failed", error=error)
    return tmp_path


@pytest.fixture
def open_page(root: Path) -> Iterator[Open]:
    """Open the page of a service over the project."""
    with ExitStack() as stack:

        def open_(*, host: str = "127.0.0.1", token: str | None = None, base_url: str = HOST) -> Page:
            runs = Waiting()
            app = make_app(root / "bridge.yaml", None, runs, host=host, token=token)
            client = stack.enter_context(TestClient(app, base_url=base_url, follow_redirects=False))
            return Page(root, runs, client)

        yield open_


@pytest.fixture
def page(open_page: Open) -> Page:
    """A page without a token, on this machine."""
    return open_page()
