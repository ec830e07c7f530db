"""The page in a real browser, over a real service: start a run, watch it end, roll back; by keyboard, at any width."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.lake.log import Log
from bridge.lake.storage.local.storage import LocalStorage
from tests.e2e.serving import served
from tests.support.debian import debian_program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
TAP = str(Path(sys.executable).with_name("tap-smoke"))
SECOND = 1000.0
"""Playwright counts in milliseconds."""


@pytest.fixture(scope="module")
def chromium() -> str:
    """Debian's Chromium. Skips where there is none and none can be installed."""
    return debian_program("chromium", "chromium")


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A service over a project with a tap of 200 records; its page's URL."""
    source = {"tap": TAP, "config": {"seed": 1, "streams": [{"name": "users", "records": 200}]}}
    shop = {"source": source, "destination": {"bucket": "lake", "load_method": "append-only"}}
    (tmp_path / "bridge.yaml").write_text(json.dumps({"service": {"port": 0}, "pipelines": {"shop": shop}}))
    with served(tmp_path) as address:
        yield address


@pytest.fixture
def browser(chromium: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(browser: Any, **options: Any) -> tuple[Any, list[str]]:
    """A page, and what its console says: a policy that is broken, an error of the script."""
    page, complaints = browser.new_context(**options).new_page(), list[str]()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    return page, complaints


def rows(folder: Path) -> int:
    log = Log(LocalStorage(folder / "lake"), "shop")
    tables = log.snapshot(log.latest()).tables
    return tables["users"].rows if "users" in tables else 0


def test_a_run_is_started_watched_and_rolled_back(browser: Any, url: str, tmp_path: Path) -> None:
    """By the buttons alone. The run's page follows it to its end without a reload; the rows are those of the lake."""
    page, complaints = opened(browser)
    for total in (200, 400):
        page.goto(url)
        page.get_by_role("link", name="Run shop").click()
        page.get_by_role("button", name="Start the run").click()
        page.wait_for_url("**/runs/*")
        page.evaluate("window.isTheSame = true")
        page.locator("#head .status.success").wait_for(timeout=180 * SECOND)
        assert page.evaluate("window.isTheSame"), "no reload"
        page.get_by_role("link", name="Run again").wait_for()
        assert [page.locator(f"#{part}").count() for part in ("head", "facts", "streams", "commits", "log")] == [1] * 5
        assert "200" in page.locator("#facts").inner_text()
        assert rows(tmp_path) == total
        if total == 200:
            _forget(page, url)
    page.goto(f"{url}pipelines/shop/commits")
    page.locator("tbody tr").last.get_by_role("link").first.click()
    page.get_by_role("link", name="Go back to this commit").click()
    assert "400" in page.locator("tbody").inner_text()
    page.get_by_role("button", name="Go back").click()
    page.wait_for_url("**/commits")
    assert "rollback" in page.locator("tbody tr").first.inner_text()
    assert rows(tmp_path) == 200
    assert complaints == []


def _forget(page: Any, url: str) -> None:
    """Reset all streams, so that the next run extracts its records again."""
    page.goto(f"{url}pipelines/shop/bookmarks")
    page.get_by_role("link", name="Reset all streams").click()
    page.get_by_role("button", name="Reset", exact=True).click()
    page.wait_for_url("**/bookmarks")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone_do_not_shift_and_can_be_read(browser: Any, url: str, scheme: str) -> None:
    """No page is wider than a phone, nothing moves while it loads, and text has the contrast of WCAG AA."""
    page, complaints = opened(browser, viewport={"width": 390, "height": 844}, color_scheme=scheme)
    for path in ("", "runs", "pipelines/shop", "pipelines/shop/settings", "pipelines/shop/run", "nothing"):
        page.goto(url + path)
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), path
        assert page.evaluate(SHIFT) == 0, path
        assert page.evaluate(CONTRAST) == [], path
    assert [text for text in complaints if "404" not in text] == []


def test_the_page_works_by_keyboard_and_without_javascript(browser: Any, url: str) -> None:
    """The first Tab is a link past the head; `/` goes to the search; without scripts a run can still be planned."""
    page, _ = opened(browser)
    page.goto(url)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.keyboard.press("/")
    page.keyboard.type("nothing")
    page.keyboard.press("Enter")
    page.get_by_text("No pipeline is like that").wait_for()
    page, _ = opened(browser, java_script_enabled=False)
    page.goto(url)
    page.get_by_role("link", name="Run shop").click()
    page.get_by_role("button", name="Start the run").wait_for()
    assert "never ran" in page.goto(url).text()


SHIFT = """() => new Promise((answer) => {
  let sum = 0;
  new PerformanceObserver((list) => { for (const each of list.getEntries()) sum += each.value; })
    .observe({ type: "layout-shift", buffered: true });
  setTimeout(() => answer(sum), 300);
})"""
CONTRAST = """() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = parts(getComputedStyle(node).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const poor = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility()) continue;
    if (node.closest(":disabled, script, noscript, .hide, .skip")) continue;
    const [one, other] = [light(parts(getComputedStyle(node).color)), light(behind(node))].sort((a, b) => b - a);
    if ((one + 0.05) / (other + 0.05) < 4.5) poor.push(walker.currentNode.data.trim());
  }
  return poor;
}"""
