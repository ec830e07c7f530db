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
from tests.support.filled_lake import filled_project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
TOKEN = "a token that nobody guesses"
_PAINT = """() => new Promise((answer) => {
  const seen = () => performance.getEntriesByName("first-contentful-paint")[0];
  const look = () => seen() ? answer(seen().startTime) : requestAnimationFrame(look);
  look();
})"""


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
    assert [text for text in complaints if "404" not in text] == []


def test_the_first_paint_of_200_pipelines_and_10000_runs(browser: Any, tmp_path: Path) -> None:
    """The browser paints the overview within 300 ms: the median of nine visits in a tab that is open."""
    file = busy_project(tmp_path, 200, 50)
    file.write_text("service: {warm: 0, port: 0}\n" + file.read_text())
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
