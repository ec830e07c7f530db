"""An action does what its page said it would, or nothing."""

from __future__ import annotations

import pytest

from bridge.lake.lease import take
from bridge.lake.log import Log
from bridge.lake.runs import new_run_id
from bridge.lake.state.store import StateStore
from tests.support.busy_lake import record_run
from tests.support.tables import INTEGER, STRING, Shop

from .conftest import NOW, Page, fields_of


def rows_of(page: Page, pipeline: str, stream: str) -> int:
    log = Log(page.lake, pipeline)
    return log.snapshot(log.latest()).tables[stream].rows


def test_a_rollback_does_what_its_page_says(page: Page) -> None:
    """The page shows rows and bookmarks before and after; the form does it by one commit."""
    html = page.get("/pipelines/shop/rollback?to=2")
    assert ">31<" in html
    assert ">20<" in html
    assert page.submit("/pipelines/shop/rollback?to=2") == "/pipelines/shop/commits"
    assert rows_of(page, "shop", "orders") == 20
    assert "rollback to commit 2" in page.get("/pipelines/shop/commits")
    assert "Nothing to do" in page.get("/pipelines/shop/rollback?to=2")


def test_a_rollback_that_would_be_another_one_by_now_is_not_done(page: Page) -> None:
    """What was agreed to is what the page showed: after a commit it is shown anew."""
    form = fields_of(page.get("/pipelines/failing/rollback?to=1"))
    record_run(page.lake, "failing", NOW, "success", rows=44)
    answer = page.client.post("/pipelines/failing/rollback", data=form)
    assert answer.status_code == 409
    assert "has changed since" in answer.text
    assert rows_of(page, "failing", "s") == 500 + 501 + 502 + 44
    again = page.client.post("/pipelines/failing/rollback", data=fields_of(answer.text))
    assert again.status_code == 303
    assert rows_of(page, "failing", "s") == 500


@pytest.mark.parametrize("to", ["0x1", "-1", "", "99", "1 2", "²"])
def test_a_rollback_to_no_commit_is_refused(page: Page, to: str) -> None:
    assert page.client.get("/pipelines/shop/rollback", params={"to": to}).status_code == 400


def test_nothing_is_changed_while_a_run_is_alive(page: Page) -> None:
    """Rollback, reset and replay say who holds the pipeline."""
    run = new_run_id()
    lease = take(page.lake, "failing", run)
    try:
        for action in ("rollback?to=1", "reset", "rejects/replay"):
            assert run in page.get(f"/pipelines/failing/{action}", 409)
        assert "pid" in page.get("/pipelines/failing")
    finally:
        lease.close(head=3, clean=True)


def test_a_stream_is_reset(page: Page) -> None:
    """The page shows the bookmark that goes, and warns of rows that would come twice; others stay."""
    store = StateStore.at(page.lake, "failing")
    store.update(lambda state: {"bookmarks": {**state["bookmarks"], "t": {"id": 1}}})
    html = page.get("/pipelines/failing/reset?stream=s")
    assert "append-only" in html
    assert "singer-bridge run failing --full" in html
    assert page.submit("/pipelines/failing/reset?stream=s") == "/pipelines/failing/bookmarks"
    assert store.get() == {"bookmarks": {"t": {"id": 1}}}
    assert "state clear -s s" in page.get("/pipelines/failing/bookmarks")
    page.submit("/pipelines/failing/reset")
    assert store.get() == {"bookmarks": {}}


def test_a_reset_after_the_state_has_moved_is_not_done(page: Page) -> None:
    form = fields_of(page.get("/pipelines/failing/reset?stream=s"))
    store = StateStore.at(page.lake, "failing")
    store.set("s", {"id": 12345})
    assert page.client.post("/pipelines/failing/reset", data=form).status_code == 409
    assert store.get("s") == {"id": 12345}


def test_a_state_edited_by_hand_is_seen_and_committed_first(page: Page) -> None:
    """As the next run would do."""
    page.lake.write(".bridge/failing/state.json", b'{"bookmarks": {"s": {"id": 7}, "t": {"id": 8}}}')
    assert "edited by hand" in page.get("/pipelines/failing/reset?stream=t")
    page.submit("/pipelines/failing/reset?stream=t")
    assert StateStore.at(page.lake, "failing").get() == {"bookmarks": {"s": {"id": 7}}}


def test_rejects_that_fit_by_now_are_loaded(page: Page) -> None:
    """The page says how many fit; the others stay."""
    shop = Shop(page.root)
    shop._head = Log(page.lake, "shop").latest()
    number = {"id": {"type": "integer"}, "name": STRING, "discount": INTEGER}
    shop.load("orders", number, [{"id": 100, "discount": "x"}], keys=("id",), max_rejects=5)
    text = {"id": {"type": "integer"}, "name": STRING, "discount": STRING}
    shop.load("orders", text, [{"id": 101, "discount": "10 %"}], keys=("id",))
    before = rows_of(page, "shop", "orders")
    assert "Load 1 record<" in page.get("/pipelines/shop/rejects/replay?stream=orders")
    assert page.submit("/pipelines/shop/rejects/replay?stream=orders") == "/pipelines/shop/rejects"
    assert rows_of(page, "shop", "orders") == before + 1
    left = page.get("/pipelines/shop/rejects")
    assert "1 record<" in left
    assert "no number" in left


def test_a_run_is_planned_and_started(page: Page) -> None:
    """The plan is that of `run --dry-run`; what is ticked is what is started."""
    html = page.get("/pipelines/failing/run")
    assert "append-only" in html
    assert ">1,503<" in html, "the rows now"
    refused = page.get("/pipelines/failing/run?full=1&resume=1")
    assert "--resume and --full contradict each other" in refused
    assert '<button class="main" disabled>Start the run</button>' in refused
    where = page.submit("/pipelines/shop/run?resume=1&stream=orders")
    assert page.runs.requested == [("shop", "--resume", "--stream", "orders")]
    assert "waits" in page.get(where)
    assert page.client.post("/pipelines/shop/run", data=fields_of(page.get("/pipelines/quiet/run"))).status_code == 400


TAP = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/asked"
echo '{"streams": [{"tap_stream_id": "orders", "stream": "orders",
"schema": {"type": "object", "properties": {"id": {"type": "integer"}}},
"metadata": [{"breadcrumb": [], "metadata": {"selected": true}}]}]}'
"""
"""A tap that discovers one stream, and notes each start."""


@pytest.mark.parametrize("query", ["", "?refresh_catalog=1", "?stream=orders"])
def test_to_look_at_a_plan_starts_no_process(page: Page, query: str) -> None:
    """The tap is started by a form only, also where a quick one is asked for the types of its stored catalog."""
    tap = page.root / "tap"
    tap.write_text(TAP)
    tap.chmod(0o755)
    settings = f"pipelines:\n  shop: {{source: {{tap: {tap}, select: [orders]}}, destination: {{bucket: lake}}}}\n"
    (page.root / "bridge.yaml").write_text(settings)
    path = f"/pipelines/shop/run{query}"
    assert "the tap was not asked" in page.get(path)
    assert not (page.root / "asked").exists()
    csrf = fields_of(page.get(path))["csrf"]
    assert page.client.post("/pipelines/shop/run", data={"plan": "1"}).status_code == 403
    assert not (page.root / "asked").exists()
    planned = page.client.post("/pipelines/shop/run", data={"plan": "1", "csrf": csrf, "full": "1"})
    assert planned.status_code == 200
    assert ">orders<" in planned.text
    assert 'name="full" value="1">' in planned.text.rpartition("<form")[2], "what was ticked stays ticked"
    asked = (page.root / "asked").read_text()
    assert "--discover" in asked
    assert ">orders<" in page.get(path), "of the catalog that is stored now"
    assert (page.root / "asked").read_text() == asked
    assert page.runs.requested == []


def test_a_run_is_stopped(page: Page) -> None:
    where = page.submit("/pipelines/shop/run")
    assert "taken out of the queue" in page.get(f"{where}/stop")
    assert page.submit(f"{where}/stop") == "/pipelines/shop/runs"
    assert "the run never started: stopped" in page.get(where, 404)
    assert page.runs.live() == []


def test_a_run_that_was_started_elsewhere_cannot_be_stopped_here(page: Page) -> None:
    run = record_run(page.lake, "failing", NOW, "success")
    assert "where it was started" in page.get(f"/pipelines/failing/runs/{run}/stop")
