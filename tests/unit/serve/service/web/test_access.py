"""Who may use the page, and what another site must not make a browser do."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.datastructures import URL
from starlette.requests import Request

from bridge.errors import SettingsError
from bridge.serve.service.web.auth.access import LoginRules, is_loopback

from .conftest import TOKEN, Open, Page, fields_of

COOKIE = "singer_bridge_8765"
BEARER = {"authorization": f"Bearer {TOKEN}"}


def test_an_address_of_the_network_needs_a_token() -> None:
    """Without one the service does not start; a short one can be guessed."""
    for host in ("0.0.0.0", "::", "192.168.1.5", "lake.example.com"):
        with pytest.raises(SettingsError, match="a token is needed"):
            LoginRules.of(host, None)
        assert LoginRules.of(host, TOKEN).token == TOKEN
    with pytest.raises(SettingsError, match="shorter"):
        LoginRules.of("127.0.0.1", "short")
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.8.8.8", "::1")))
    assert TOKEN not in repr(LoginRules.of("0.0.0.0", TOKEN))


FOREIGN = ["evil.example", "127.0.0.1.evil.example", "", "localhost.evil:8765", "[::2]", "[::1"]
INSIDE = ["localhost/x", "evil@localhost", "localhost?x", "localhost:8765/static/?", "localhost#evil", "localhost:x"]


@pytest.mark.parametrize("host", [*FOREIGN, *INSIDE])
def test_a_foreign_name_is_refused_on_loopback(page: Page, host: str) -> None:
    """A site whose name resolves to this machine reads nothing (DNS rebinding)."""
    for path in ("/", "/api/pipelines", "/healthz"):
        assert page.client.get(path, headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost", "localhost:8765", "127.0.0.1:1", "[::1]:8765"])
def test_names_of_this_machine_are_right(page: Page, host: str) -> None:
    assert page.client.get("/", headers={"host": host}).status_code == 200


def test_without_the_token_nothing_is_shown(open_page: Open) -> None:
    """Pages lead to the login, the API answers 401, actions too. Only `/healthz` and the style are open."""
    page = open_page(host="0.0.0.0", token=TOKEN, base_url="http://bridge.example")
    answer = page.client.get("/pipelines/shop?x=1")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2Fpipelines%2Fshop%3Fx%3D1")
    for path in ("/api/pipelines", "/api/events", "/api/views/shop/x", "/metrics"):
        refused = page.client.get(path)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert page.client.post("/pipelines/shop/run").status_code == 401
    assert page.client.post("/api/pipelines/shop/runs").status_code == 401
    assert page.client.get("/healthz").json() == {"status": "ok"}
    assert page.client.get("/static/page.css").status_code == 200
    assert "shop" not in page.get("/login")


@pytest.mark.parametrize("host", ["x/static/?", "x/healthz?", "x/login#", "x"])
def test_the_host_is_no_part_of_the_path(open_page: Open, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """Older Starlettes make `request.url` of whatever Host was sent. What needs the token asks for it all the same."""
    built = property(lambda self: URL(f"{self.scope['scheme']}://{self.headers['host']}{self.scope['path']}"))
    monkeypatch.setattr(Request, "url", built)
    page = open_page(host="0.0.0.0", token=TOKEN, base_url="http://bridge.example")
    for path in ("/api/pipelines", "/pipelines/shop", "/metrics"):
        answer = page.client.get(path, headers={"host": host})
        assert answer.status_code == (303 if path.startswith("/pipelines") else 401)
        assert "no-store" in answer.headers["cache-control"]
    assert page.client.post("/api/pipelines/shop/runs", headers={"host": host}).status_code == 401
    assert page.runs.requested == []


def test_the_token_opens_the_api(open_page: Open) -> None:
    """As `Authorization: Bearer`; a wrong one, or a part of it, does not."""
    page = open_page(host="0.0.0.0", token=TOKEN)
    assert page.client.get("/api/pipelines", headers=BEARER).status_code == 200
    for wrong in (TOKEN[:-1], f"{TOKEN}x", "", TOKEN.upper(), "ä"):
        headers = {"authorization": f"Bearer {wrong}".encode()}
        assert page.client.get("/api/pipelines", headers=headers).status_code == 401
    assert page.client.post("/api/pipelines/shop/runs", headers=BEARER).status_code == 202
    assert page.runs.requested == [("shop",)]


def test_a_browser_logs_in(open_page: Open) -> None:
    """The token once, then a cookie that scripts do not see and other sites do not send; it leads where one wanted."""
    page = open_page(token=TOKEN)
    assert page.submit("/login?next=/pipelines/shop", 403, token="wrong token, long enough") != "/pipelines/shop"
    assert page.client.get("/").status_code == 303
    fields = fields_of(page.get("/login?next=/pipelines/shop"))
    answer = page.client.post("/login", data=fields | {"token": TOKEN})
    assert (answer.status_code, answer.headers["location"]) == (303, "/pipelines/shop")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert TOKEN not in cookie
    assert "orders" in page.get("/pipelines/shop")
    csrf = fields_of(page.get("/"))["csrf"]
    page.client.post("/logout", data={"csrf": csrf})
    assert page.client.get("/").status_code == 303


@pytest.mark.parametrize("following", ["//evil.example", "https://evil.example", "/\\evil.example", "evil"])
def test_a_login_never_leads_elsewhere(open_page: Open, following: str) -> None:
    page = open_page(token=TOKEN)
    assert page.submit(f"/login?next={following}", token=TOKEN) == "/"


def test_a_forged_cookie_is_worth_nothing(open_page: Open) -> None:
    """Neither a changed one, nor one of a session that never logged in, nor one of another token."""
    page, other = open_page(token=TOKEN), open_page(token="another token of sixteen")
    other.submit("/login", token="another token of sixteen")
    forged = dict(other.client.cookies)[COOKIE]
    page.get("/login")
    outside = dict(page.client.cookies)[COOKIE]
    for value in (forged, outside, outside.replace(".out.", ".in."), "x", "a.in.9999999999.", ""):
        page.client.cookies.clear()
        answer = page.client.get("/", headers={"cookie": f"{COOKIE}={value}"})
        assert answer.status_code == 303, value


@pytest.mark.parametrize("cookie", [r"a.in.9.\351", '"a.in.9.\\351"', '"a.in.9999999999.\\777"', "a.in.²." + "0" * 64])
@pytest.mark.parametrize("path", ["/", "/api/pipelines", "/static/page.css"])
def test_a_cookie_of_odd_characters_is_none(open_page: Open, path: str, cookie: str) -> None:
    """It is answered as if it were not there, with the headers that bind a browser."""
    page = open_page(token=TOKEN)
    answer = page.client.get(path, headers={"cookie": f"{COOKIE}={cookie}".encode()})
    assert answer.status_code == (401 if "api" in path else 200 if "static" in path else 303)
    assert "content-security-policy" in answer.headers


def test_services_on_two_ports_have_sessions_of_their_own(open_page: Open) -> None:
    """A browser sends the cookies of 127.0.0.1 to all its ports: logging in to one service leaves the other's."""
    one, other = open_page(token=TOKEN), open_page(token="another token of sixteen", base_url="http://127.0.0.1:8766")
    one.submit("/login", token=TOKEN)
    other.client.cookies.update(dict(one.client.cookies))
    other.submit("/login", token="another token of sixteen")
    jar = dict(other.client.cookies)
    assert sorted(jar) == ["singer_bridge_8765", "singer_bridge_8766"]
    one.client.cookies.update(jar)
    assert "shop" in one.get("/pipelines/shop")
    assert "shop" in other.get("/pipelines/shop")


def test_a_copied_cookie_ends_with_the_session(open_page: Open) -> None:
    """After `Log out` a copy of the cookie is worth nothing, also after a restart; other browsers stay in."""
    page, other = open_page(token=TOKEN), open_page(token=TOKEN)
    for browser in (page, other):
        browser.submit("/login", token=TOKEN)
    copied = dict(page.client.cookies)[COOKIE]
    form = {"csrf": fields_of(page.get("/"))["csrf"]}
    assert page.client.post("/logout", data=form).status_code == 303
    for service in (page, open_page(token=TOKEN)):
        service.client.cookies.clear()
        assert service.client.get("/", headers={"cookie": f"{COOKIE}={copied}"}).status_code == 303
    assert "shop" in other.get("/pipelines/shop")


POSTS: list[tuple[str, dict[str, str]]] = [
    ("/pipelines/shop/run", {}),
    ("/pipelines/shop/rollback", {"to": "1"}),
    ("/pipelines/shop/reset", {}),
    ("/pipelines/shop/rejects/replay", {}),
    ("/pipelines/shop/runs/20260101T000000Z-aaaa/stop", {}),
    ("/api/pipelines/shop/runs", {}),
    ("/api/runs/20260101T000000Z-aaaa/stop", {}),
    ("/logout", {}),
    ("/login", {"token": TOKEN}),
]


@pytest.mark.parametrize(("path", "fields"), POSTS)
def test_every_action_needs_a_form_of_this_session(page: Page, path: str, fields: dict[str, str]) -> None:
    """A form of another site, which the browser sends with or without a cookie, changes nothing."""
    page.get("/")
    for csrf in ({}, {"csrf": ""}, {"csrf": "0" * 64}):
        assert page.client.post(path, data=fields | csrf).status_code == 403
    assert page.runs.requested == []


def test_a_form_of_another_session_is_refused(open_page: Open) -> None:
    one, other = open_page(), open_page()
    fields = fields_of(other.get("/pipelines/shop/run"))
    one.get("/")
    assert one.client.post("/pipelines/shop/run", data=fields).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [{"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}],
)
def test_what_a_browser_says_of_its_origin_counts(page: Page, headers: dict[str, str]) -> None:
    """Even with the right fields, and even with the header of a program."""
    fields = fields_of(page.get("/pipelines/shop/run"))
    assert page.client.post("/pipelines/shop/run", data=fields, headers=headers).status_code == 403
    own: dict[str, Any] = headers | {"x-singer-bridge": "1"}
    assert page.client.post("/api/pipelines/shop/runs", headers=own).status_code == 403
    assert page.runs.requested == []


IMAGE = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


@pytest.mark.parametrize(
    "headers",
    [IMAGE, IMAGE | {"sec-fetch-site": "same-site"}, LINK | {"sec-fetch-dest": "iframe"}, {"origin": "null"}],
)
@pytest.mark.parametrize("path", ["/pipelines/shop/run?refresh_catalog=1", "/api/pipelines", "/metrics"])
def test_another_site_cannot_make_a_browser_look(page: Page, headers: dict[str, str], path: str) -> None:
    """No image, script or frame of another site is answered; a link that somebody follows is, and so is our page."""
    assert page.client.get(path, headers=headers).status_code == 403
    assert page.client.get(path, headers=LINK).status_code == 200
    assert page.client.get(path, headers=IMAGE | {"sec-fetch-site": "same-origin"}).status_code == 200


def test_a_program_on_this_machine_sends_a_header(page: Page) -> None:
    """No form of a site can send it, and a script of another site may not."""
    answer = page.client.post("/api/pipelines/shop/runs", headers={"x-singer-bridge": "1"})
    assert answer.status_code == 202
    preflight = page.client.options("/api/pipelines/shop/runs", headers={"origin": "https://evil.example"})
    assert "access-control-allow-origin" not in preflight.headers


def test_too_much_is_not_read(page: Page) -> None:
    headers = {"x-singer-bridge": "1"}
    assert page.client.post("/api/pipelines/shop/runs", content=b"x" * (2 << 20), headers=headers).status_code == 413
    assert page.client.post("/pipelines/shop/run", content=b"x&" * 2000).status_code == 413


def test_each_answer_binds_the_browser(page: Page) -> None:
    """No script and no style but ours, no frame, nothing guessed, nothing kept; also where something fails."""
    for path in ("/", "/pipelines/no", "/login", "/api/pipelines", "/static/page.js"):
        headers = page.client.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert path.startswith("/static/") or headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["/", "/pipelines/shop", "/pipelines/shop/table?stream=orders", "/login"])
def test_pages_have_no_script_or_style_of_their_own(page: Page, path: str) -> None:
    """What the policy forbids is not there, so that nothing of a page is lost by it."""
    html = page.get(path)
    assert "<style" not in html
    assert " style=" not in html
    assert "javascript:" not in html
    assert all(f" on{event}=" not in html for event in ("click", "load", "error", "submit", "change"))
    assert html.count("<script") == html.count('<script src="/static/page.js?')
