"""Middleware that every request passes: it refuses, reads what is posted, adds the headers that bind a browser."""

from __future__ import annotations

import logging
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, quote

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bridge.serve.service.web.auth.access import (
    OWN_HEADER,
    LoginRules,
    LoginSession,
    cookie_name,
    is_own_origin,
    may_look,
)

_LARGEST = 1 << 20
"""Bytes of what may be posted."""
_LOG = logging.getLogger(__name__)
_OPEN = ("/static/", "/healthz", "/login")
_OF_PROGRAMS = ("/api/", "/metrics")
"""Paths that answer 401 where a page leads to the login."""
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class LoginGuard:
    """Middleware around the whole application. A request's session and form are in its `state`.

    It goes by the path that the router goes by, `scope["path"]`: `request.url` is made with the Host that was sent.
    """

    def __init__(self, app: ASGIApp, access: LoginRules) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        answer = _Answer(send, self._access, request)
        try:
            session = self._access.session(_cookie(request))
            scope.setdefault("state", {}).update(session=session, csrf=self._access.csrf(session), form={}, body=b"")
            answer.session = session
            refusal = await self._refusal(request, session)
            await (refusal or self._app)(scope, receive, answer)
        except ClientDisconnect:
            return  # in the middle of its request: nobody waits for an answer
        except Exception:  # an error of ours: its text may hold anything, so the log has it and no page
            if answer.began:
                raise
            _LOG.exception("%s %s", request.method, request.scope["path"])
            failure = _refused(request, 500, "something went wrong that should not", "the log of the service says what")
            await failure(scope, receive, answer)

    async def _refusal(self, request: Request, session: LoginSession) -> Response | None:
        """The answer to a request that goes no further; None for one that does."""
        access, path, headers = self._access, request.scope["path"], request.headers
        if not access.knows_host(headers):
            return _refused(request, 421, "this machine does not have this name", "open it as http://127.0.0.1:PORT")
        bearer = access.has_bearer(headers)
        if not (session.is_in or bearer or path.startswith(_OPEN)):
            if path.startswith(_OF_PROGRAMS) or request.method != "GET":
                response = _refused(request, 401, "a token is needed", "send it as: Authorization: Bearer TOKEN")
                response.headers["www-authenticate"] = "Bearer"
                return response
            query = request.scope["query_string"].decode("latin-1")
            return RedirectResponse(f"/login?next={quote(f'{path}?{query}' if query else path, safe='')}", 303)
        if request.method not in ("GET", "HEAD"):
            return await self._posted(request, session, bearer=bearer)
        if not may_look(headers):
            return _refused(request, 403, "another site asks for this", "open it in a tab of its own")
        return None

    async def _posted(self, request: Request, session: LoginSession, *, bearer: bool) -> Response | None:
        """Read what is posted, and refuse it if another site may have made the browser send it."""
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _LARGEST:
                return _refused(request, 413, "too much was sent", "")
        state, headers = request.scope["state"], request.headers
        state["body"] = body
        is_api = request.scope["path"].startswith("/api/")
        if not is_api:
            try:
                state["form"] = parse_qs(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=1000)
            except ValueError:
                return _refused(request, 413, "too much was sent", "")
        sent = headers.get("x-csrf-token") or next(iter(state["form"].get("csrf", [])), "")
        by_program = bearer or (is_api and self._access.token is None and OWN_HEADER in headers)
        by_page = self._access.is_csrf(session, sent) and not session.fresh
        if (by_program or by_page) and (bearer or is_own_origin(headers)):
            return None
        hint = "open the page again, and send the form from there"
        if is_api:
            hint = f"send the token of the service, or on the same machine the header {OWN_HEADER}: 1"
        return _refused(request, 403, "this does not come from a page of this service", hint)


class _Answer:
    """Sends a response with the headers, and with the cookie if the session is new."""

    def __init__(self, send: Send, access: LoginRules, request: Request) -> None:
        self._send, self._access, self._request = send, access, request
        self.session: LoginSession | None = None
        """That of the request, once it is known."""
        self.began = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.began = True
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            if not self._request.scope["path"].startswith("/static/"):
                headers.setdefault("cache-control", "no-store")
            if self.session:
                self._add_cookie(headers, self._request.scope["state"]["session"])  # logging in makes another one
        await self._send(message)

    def _add_cookie(self, headers: MutableHeaders, session: LoginSession) -> None:
        wants_page = "text/html" in headers.get("content-type", "") or session is not self.session
        if session.fresh and wants_page:
            name, secure = cookie_name(self._request.scope), self._request.scope["scheme"] == "https"
            headers.append("set-cookie", self._access.cookie(session, name, secure=secure))


def _cookie(request: Request) -> str | None:
    try:
        morsel = SimpleCookie(request.headers.get("cookie", "")).get(cookie_name(request.scope))
    except CookieError:
        return None
    return morsel.value if morsel else None


def _refused(request: Request, status: int, message: str, hint: str) -> Response:
    if request.scope["path"].startswith("/api/"):
        return JSONResponse({"error": {"type": "Refused", "message": message, "hint": hint}}, status)
    text = f"{message[:1].upper()}{message[1:]}. {hint[:1].upper()}{hint[1:]}\n"
    return Response(text, status, media_type="text/plain")
