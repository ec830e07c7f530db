"""The page in a real browser over a lake that is full: every page, narrow and wide, light and dark; speed; login."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.serving import served
from tests.e2e.test_page import CONTRAST, SECOND, SHIFT, opened
from tests.support.busy_lake import busy_project
from tests.support.debian import debian_program
from tests.support.filled_lake import MARK, READ_BY_FAILED, filled_project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
TOKEN = "a token that nobody guesses"
_PAINT = """() => new Promise((answer) => {
  const seen = () => performance.getEntriesByName("first-contentful-paint")[0];
  const look = () => seen() ? answer(seen().startTime) : requestAnimationFrame(look);
  look();
})"""

_OUTSIDE = """() => [...document.querySelectorAll("main *")]
  .filter((each) => each.checkVisibility() && !each.closest(".hide, thead"))
  .filter((each) => each.getBoundingClientRect().right > innerWidth + 1)
  .map((each) => `${each.tagName}.${each.className} ${each.textContent.trim().slice(0, 40)}`)"""
"""What is to the right of the screen, also where a part of the page scrolls by itself."""
_EDGE = """() => {
  const light = (text) => text.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255)
    .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ours = light(getComputedStyle(document.querySelector(".chart .edge")).stroke);
  const [one, other] = [ours, light(getComputedStyle(document.documentElement).backgroundColor)].sort((a, b) => b - a);
  return (one + 0.05) / (other + 0.05);
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    chromium = debian_program("chromium", "chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The URLs of all pages of a service over a lake that is full."""
    root = tmp_path_factory.mktemp("filled")
    pages = filled_project(root)
    with served(root) as url:
        yield {name: url + path for name, path in pages.items()}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_each_page_fits_does_not_shift_and_can_be_read(
    browser: Any, filled: dict[str, str], scheme: str, width: int
) -> None:
    """Run, table, view, commit, rejects, rollback and all others, with long names, texts and errors on them."""
    page, complaints = opened(browser, viewport={"width": width, "height": 844}, color_scheme=scheme)
    for name, url in filled.items():
        answer = page.goto(url)
        assert answer.status == (404 if name == "nothing" else 200), name
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), name
        assert page.evaluate(SHIFT) == 0, name
        assert page.evaluate(CONTRAST) == [], name
        assert width > 390 or page.evaluate(_OUTSIDE) == [], name
    assert [text for text in complaints if "404" not in text] == []


def test_a_phone_shows_rows_next_run_and_button(browser: Any, filled: dict[str, str]) -> None:
    """Of each pipeline, without scrolling sideways."""
    page, _ = opened(browser, viewport={"width": 390, "height": 844})
    page.goto(filled["overview"])
    shop = page.locator("tr", has=page.get_by_role("link", name="shop", exact=True))
    for part in ("[data-label='Rows']", "[data-label='Next run'] time", "a.button"):
        box = shop.locator(part).bounding_box()
        assert box is not None, part
        assert 0 <= box["x"] < box["x"] + box["width"] <= 390, part
    assert shop.locator("[data-label='Rows']").inner_text() == "232"
    assert shop.locator("[data-label='Next run']").inner_text().startswith("in ")
    shop.get_by_role("link", name="Run shop").click()
    page.get_by_role("button", name="Start the run").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_of_rows_and_bytes(browser: Any, filled: dict[str, str], scheme: str) -> None:
    """A picture says its figures to those who do not see it, stands out from the page, and leads to each commit."""
    page, complaints = opened(browser, color_scheme=scheme)
    page.goto(filled["failing"])
    rows, size = page.get_by_role("img", name="of failing").all()
    assert rows.locator("desc").text_content() == (
        "Rows over the last 39 commits: 100 after commit 1, 26,762 after commit 39, at most 26,762"
    )
    assert "156 B after commit 39" in size.locator("desc").text_content()
    assert page.locator("figcaption").first.inner_text().split() == ["Rows", "26,762", "at", "most", "26,762"]
    assert rows.locator("rect").count() == 39
    assert page.evaluate(_EDGE) >= 3, "the contrast that WCAG asks of what is no text"
    rows.locator("a").last.click()
    page.wait_for_url("**/commits/39")
    page.goto(filled["orders"])
    words = page.get_by_role("img", name="Rows of orders").locator("desc").text_content()
    assert words == "Rows over the last 5 commits: 50 after commit 1, 201 after commit 7, at most 201"
    page.goto(filled["empty"])
    assert page.locator("figure").count() == 0
    assert complaints == []


def test_the_search_finds_tables(browser: Any, filled: dict[str, str]) -> None:
    """From the keyboard to the page of the table."""
    page, _ = opened(browser)
    page.goto(filled["overview"])
    page.keyboard.press("/")
    page.keyboard.type("RDER")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="orders_by_region").wait_for()
    page.get_by_role("link", name="orders", exact=True).click()
    page.get_by_role("heading", name="orders", exact=True).wait_for()


def test_bookmarks_are_values(browser: Any, filled: dict[str, str]) -> None:
    """What the command line prints of them; the whole JSON is one click away."""
    page, _ = opened(browser)
    page.goto(filled["partitions"])
    shown = [each.inner_text() for each in page.locator("#main [data-label='Bookmark'] code").all()]
    assert shown == [MARK, "40 partitions, up to 2026-10-28T00:00:00Z"]
    page.goto(filled["bookmarks of partitions"])
    page.get_by_text("in full").first.click()
    assert page.locator(".whole dd.plus").first.inner_text().count("replication_key_value") == 40


def test_a_failed_run_shows_what_it_read_and_committed(browser: Any, filled: dict[str, str]) -> None:
    """Both figures, on its page and in the list of all runs."""
    page, _ = opened(browser)
    page.goto(filled["failed run"])
    read, committed = (f"{count:,}" for count in READ_BY_FAILED)
    assert page.locator("#facts").inner_text().split()[:4] == ["Read", read, "Committed", committed]
    page.goto(filled["runs"])
    row = page.locator("#runs tr", has_text="psycopg2").first
    assert [row.locator(f"[data-label='{word}']").inner_text() for word in ("Read", "Committed")] == [read, committed]


def test_the_first_paint_of_200_pipelines_and_10000_runs(browser: Any, tmp_path: Path) -> None:
    """The browser paints the overview within 300 ms: the median of nine visits in a tab that is open."""
    file = busy_project(tmp_path, 200, 50)
    file.write_text("service: {port: 0}\n" + file.read_text())
    with served(tmp_path) as url:
        page, _ = opened(browser)
        page.goto(url)
        page.locator("[data-unread]").wait_for(state="detached", timeout=60 * SECOND)
        assert page.locator("tbody tr").count() == 200
        paints = []
        for _ in range(9):
            page.goto(url)
            paints.append(page.evaluate(_PAINT))
        assert sorted(paints)[4] < 300, paints


def test_a_token_opens_the_page_in_the_browser(browser: Any, tmp_path: Path) -> None:
    """A wrong one is refused; the right one leads to the wanted page. `Log out` ends copied cookies, too."""
    filled_project(tmp_path, f', token: "{TOKEN}"')
    with served(tmp_path) as url:
        page, complaints = opened(browser)
        page.goto(f"{url}pipelines/shop/commits")
        page.get_by_label("Token of the service").fill("a token that is wrong")
        page.get_by_role("button", name="Log in").click()
        page.get_by_text("This is not the token").wait_for()
        page.get_by_label("Token of the service").fill(TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_url("**/pipelines/shop/commits")
        (cookie,) = page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert cookie["name"] == f"singer_bridge_{url.rstrip('/').rpartition(':')[2]}"
        page.get_by_role("link", name="Pipelines").first.click()
        page.get_by_role("link", name="meltano-load").wait_for()
        page.get_by_role("button", name="Log out").click()
        page.wait_for_url("**/login")
        page.context.add_cookies([cookie])
        page.goto(url)
        page.get_by_label("Token of the service").wait_for()
        assert [text for text in complaints if "403" not in text] == []
