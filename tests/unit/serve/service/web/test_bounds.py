"""However much a bucket holds, a page reads a bounded part of it, and says so."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from bridge.lake.log import Log
from bridge.lake.runs import log_key
from bridge.lake.state.store import StateStore
from bridge.lake.storage.local.storage import LocalStorage
from bridge.read.query.view import View
from tests.support.busy_lake import record_run
from tests.support.tables import INTEGER, Shop
from tests.support.view_tables import Views

from .conftest import AT, NOW, Open, Page


class Noted(LocalStorage):
    """Notes which objects are read whole."""

    reads: list[str] = []  # noqa: RUF012 - of the class, as the page opens its own

    def read(self, key: str) -> bytes | None:
        self.reads.append(key)
        return super().read(key)


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr("bridge.lake.storage.buckets.LocalStorage", Noted)
    return Noted.reads


def test_a_stream_s_bookmarks_are_searched_a_page_at_a_time(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Older` leads on, also where none of the commits that were read moved the stream."""
    store = StateStore.at(page.lake, "failing")
    store.set("t", {"id": 1})
    for number in range(9):
        store.set("s", {"id": number})
    moved, head = 4, 13
    monkeypatch.setattr("bridge.serve.service.web.pages._WALK", 4)
    html = page.get("/pipelines/failing/bookmarks?stream=t")
    assert f"No commit from {head - 3} to {head} moved it" in html
    before, pages = head - 3, 1
    while f">Commit {moved}<" not in html:
        assert f"bookmarks?stream=t&amp;before={before}" in html
        html, pages, before = page.get(f"/pipelines/failing/bookmarks?stream=t&before={before}"), pages + 1, before - 4
    assert pages == 3
    assert "Newest" in html


def test_an_old_commit_costs_a_few_reads(noted: list[str], open_page: Open) -> None:
    """Its page does not read all commits since."""
    page = open_page()
    store = StateStore.at(page.lake, "failing")
    for number in range(330):
        store.set("s", {"id": number})
    page.get("/pipelines/failing")
    noted.clear()
    html = page.get("/pipelines/failing/commits/20")
    assert "rollback?to=20" in html
    assert len([key for key in noted if "/commits/" in key]) < 100


def test_a_rehearsal_reads_a_sample(noted: list[str], open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says how many records it has not tried; loading tries them all. Samples of rejects are bounded, too."""
    page = open_page()
    shop = Shop(page.root)
    shop._head = Log(page.lake, "shop").latest()
    for number in range(5):
        shop.load("extra", {"id": INTEGER}, [{"id": "no number"}, {"id": number}], max_rejects=5)
    monkeypatch.setattr("bridge.serve.service.web.pages.SAMPLE_BYTES", 1)
    monkeypatch.setattr("bridge.serve.service.web.actions.SAMPLE_BYTES", 1)
    noted.clear()
    html = page.get("/pipelines/shop/rejects/replay?stream=extra")
    assert "4 further records are tried only when you load" in html
    assert '<button class="main">Load all that fit' in html
    page.get("/pipelines/shop/rejects?reason=integer")
    assert len([key for key in noted if key.endswith(".jsonl")]) == 2
    assert page.submit("/pipelines/shop/rejects/replay?stream=extra") == "/pipelines/shop/rejects"


def test_a_long_log_is_never_in_memory(noted: list[str], open_page: Open) -> None:
    """A run's page reads its end; the whole comes as a stream, with odd bytes and half characters in it."""
    page = open_page()
    run = record_run(page.lake, "quiet", AT, "failed", error={"message": "no"})
    line = "größer \x1b[31mred\n".encode()
    page.lake.write(log_key("quiet", run), b"x" + line * 60_000 + b"\xc3")
    assert "größer" in page.get(f"/pipelines/quiet/runs/{run}")
    text = page.get(f"/pipelines/quiet/runs/{run}/log")
    assert text == "x" + "größer \\x1b[31mred\n" * 60_000 + "\N{REPLACEMENT CHARACTER}"
    assert log_key("quiet", run) not in noted


def test_a_view_that_is_slow_to_open_holds_up_no_other(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each view has a lock of its own."""
    views = Views(page.root, pipeline="quiet")
    for name in ("slow", "quick"):
        views.put(pa.table({"id": pa.array([1], pa.int64()), "n": pa.array([2], pa.int64())}), name)
        views.n = Log(page.lake, "quiet").latest()
    opening, goes_on = threading.Event(), threading.Event()
    opened = View.__init__

    def slow(self: View, head: object, name: str, at: int | None = None) -> None:
        if name == "slow":
            opening.set()
            assert goes_on.wait(60)
        opened(self, head, name, at)  # type: ignore[arg-type]

    monkeypatch.setattr(View, "__init__", slow)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(page.client.get, "/api/views/quiet/slow?key=1")
        assert opening.wait(60)
        assert page.client.get("/api/views/quiet/quick?key=1").json()["row"] == {"id": 1, "n": 2}
        goes_on.set()
        assert waiting.result().status_code == 200


@pytest.mark.parametrize(
    ("requested", "link"),
    [
        ({}, "run?resume=1"),
        ({"streams": ["a", "b"]}, "run?stream=a&amp;stream=b&amp;resume=1"),
        ({"full": True, "append": True, "streams": ["a"]}, "run?stream=a&amp;full=1&amp;append=1"),
    ],
)
def test_retry_asks_for_what_the_run_was_asked_for(page: Page, requested: dict[str, object], link: str) -> None:
    """The same streams; in full if it was in full, else without what was completed."""
    run = record_run(page.lake, "quiet", NOW, "failed", error={"message": "no"}, requested=requested)
    assert f'href="/pipelines/quiet/{link}">Retry' in page.get(f"/pipelines/quiet/runs/{run}")
