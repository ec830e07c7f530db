"""The login of people, and the answers to what watches the service: is it alive, and its pipelines' figures."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from bridge.serve.service.web.auth.access import cookie_name
from bridge.serve.service.web.render import page
from bridge.serve.service.web.site import form, site_of

_PAUSE = 0.5
"""Seconds that a wrong token costs."""
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


async def healthz(_: Request) -> Response:
    """The service answers. It says nothing of pipelines, so it needs no token."""
    return JSONResponse({"status": "ok"})


def metrics(request: Request) -> Response:
    """The figures of all pipelines, as their buckets have them now."""
    site = site_of(request)
    return Response(site.scrape.text(site.pipelines.all().values()), headers={"content-type": _PROMETHEUS})


async def login(request: Request) -> Response:
    """Ask for the token, and give the browser a session for it."""
    site, following = site_of(request), _local(request.query_params.get("next", "/"))
    if request.method == "GET":
        return page(request, "login.html", wrong=False, following=following)
    following = _local(form(request, "next"))
    if not site.access.is_token(form(request, "token")):
        await asyncio.sleep(_PAUSE)
        return page(request, "login.html", 403, wrong=True, following=following)
    request.scope["state"]["session"] = site.access.entered()
    return RedirectResponse(following, 303)


def logout(request: Request) -> Response:
    """End the session, here and in the browser."""
    site_of(request).access.leave(request.scope["state"]["session"])
    response = RedirectResponse("/login", 303)
    response.delete_cookie(cookie_name(request.scope), path="/", httponly=True, samesite="strict")
    return response


def _local(path: str) -> str:
    """A path of this service, never an address elsewhere."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) else "/"
