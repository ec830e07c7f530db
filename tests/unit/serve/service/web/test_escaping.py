"""What comes from outside is text on every page: names, log lines, bookmarks, values, reasons, errors."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from bridge.lake.log import Log
from bridge.lake.runs import log_key
from bridge.lake.state.store import StateStore
from tests.support.busy_lake import record_run
from tests.support.tables import STRING, Shop

from .conftest import AT, Page

EVIL = """</pre></code><script>alert(1)</script><img src=x onerror='alert(2)'>"&lt;{{7*7}}\x1b[2J\x00"""


class Tags(HTMLParser):
    """The tags of a page and their attributes, as a browser reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


@pytest.fixture
def evil(page: Page) -> Page:
    """A lake in which everything that a tap can say is markup."""
    shop = Shop(page.root)
    shop._head = Log(page.lake, "shop").latest()
    columns = {"id": {"type": "integer"}, EVIL: STRING}
    shop.load(EVIL, columns, [{"id": 1, EVIL: EVIL}, {"id": EVIL}], max_rejects=5)
    error = {"type": "TapError", "message": EVIL, "hint": EVIL}
    streams = {EVIL: {"records": 3, "load_method": EVIL, "reason": EVIL}}
    run = record_run(page.lake, "shop", AT, "failed", error=error, warnings=[EVIL], streams=streams, tap_version=EVIL)
    page.lake.write(log_key("shop", run), EVIL.encode())
    store = StateStore.at(page.lake, "shop")
    store.replace({"bookmarks": {EVIL: {EVIL: EVIL}}}, reason=EVIL)
    return page


def test_no_page_takes_text_for_markup(evil: Page) -> None:
    """Each page of a lake full of markup has our own script only, and no handler; the text is there to be read."""
    (run,) = (each["run_id"] for each in evil.client.get("/api/pipelines/shop/runs").json())
    pages = ["/", "/runs", "/?q=<script>alert(1)</script>", "/pipelines/<script>alert(1)<%2fscript>"]
    pages += [f"/pipelines/shop{rest}" for rest in ("", "/runs", "/commits", "/commits/5", "/commits/6", "/bookmarks")]
    pages += [f"/pipelines/shop{rest}" for rest in ("/rejects", "/settings", "/run", "/reset", "/rollback?to=2")]
    pages += [f"/pipelines/shop/runs/{run}", "/pipelines/shop/rejects/replay", "/login?next=/<script>"]
    for path in pages:
        _check(evil, path, evil.client.get(path).text)
    for where in ("/table", "/reset", "/rejects", "/bookmarks"):
        answer = evil.client.get(f"/pipelines/shop{where}", params={"stream": EVIL, "reason": EVIL})
        _check(evil, where, answer.text)
        assert "&lt;script&gt;alert(1)" in answer.text, where
    assert "&lt;script&gt;alert(1)" in evil.get(f"/pipelines/shop/runs/{run}")


def _check(page: Page, path: str, html: str) -> None:
    parser = Tags()
    parser.feed(html)
    scripts = [attributes.get("src") or "" for tag, attributes in parser.tags if tag == "script"]
    assert all(src.startswith("/static/page.js?") for src in scripts), path
    assert "img" not in [tag for tag, _ in parser.tags], path
    assert not [name for _, attributes in parser.tags for name in attributes if name.startswith("on")], path
    assert "\x1b" not in html, path
    assert "\x00" not in html, path
    links = [attributes.get("href") or "" for tag, attributes in parser.tags if tag == "a"]
    assert all(link.startswith(("/", "#", "?")) and not link.startswith("//") for link in links), path


def test_a_log_is_never_a_page(evil: Page) -> None:
    """As text, which the browser may not take for anything else."""
    (run,) = (each["run_id"] for each in evil.client.get("/api/pipelines/shop/runs").json())
    answer = evil.client.get(f"/pipelines/shop/runs/{run}/log")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
