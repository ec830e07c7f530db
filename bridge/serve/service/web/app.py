"""The application: its routes, and what happens to an error. `make_app` is what the service calls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from bridge.errors import BridgeError
from bridge.load.tap.source import home_folder
from bridge.serve.service.runs import Runs
from bridge.serve.service.web import actions, api, login, pages, run_pages, table_pages, views_api
from bridge.serve.service.web.auth.access import LoginRules
from bridge.serve.service.web.auth.guard import LoginGuard
from bridge.serve.service.web.hub import Hub
from bridge.serve.service.web.pipelines import ServedPipelines
from bridge.serve.service.web.render import HERE, page
from bridge.serve.service.web.site import Site, blocking, status_of
from bridge.serve.service.web.watch import Watch


def make_app(file: Path, environment: str | None, runs: Runs, *, host: str, token: str | None) -> Starlette:
    """The page and the API of a service over the pipelines of `file`, for `uvicorn`.

    `host`: the address that it is served at. Before the server waits for its connections to end, call
    `app.state.site.watch.close()`: it ends those that wait for events. Raises `SettingsError` if `host` is not of this
    machine only, and there is no token.
    """
    access = LoginRules.of(host, token, home_folder(file) / "logged-out")
    pipelines, hub = ServedPipelines(file, environment), Hub()
    site = Site(pipelines, runs, Watch(pipelines, runs, hub), access, hub)
    app = Starlette(
        routes=_routes(),
        middleware=[Middleware(LoginGuard, access=access)],
        exception_handlers={HTTPException: _http_error, BridgeError: _bridge_error},
        lifespan=_lifespan,
    )
    app.state.site = site
    return app


def _routes() -> list[Route | Mount]:
    """All addresses. A parameter is looked up among names, and never becomes a path."""
    pipeline, run = "/pipelines/{key}", "/pipelines/{key}/runs/{run}"
    looks = {
        "/": pages.overview,
        "/runs": pages.all_runs,
        pipeline: pages.pipeline,
        f"{pipeline}/runs": pages.runs,
        f"{pipeline}/commits": pages.commits,
        f"{pipeline}/commits/{{n}}": pages.commit,
        f"{pipeline}/bookmarks": pages.bookmarks,
        f"{pipeline}/rejects": pages.rejects,
        f"{pipeline}/source": pages.source,
        f"{pipeline}/settings": pages.settings,
        f"{pipeline}/table": table_pages.table,
        run: run_pages.run,
        f"{run}/log": run_pages.log,
    }
    acts = {
        f"{pipeline}/run": actions.run,
        f"{run}/stop": actions.stop,
        f"{pipeline}/reset": actions.reset_streams,
        f"{pipeline}/rollback": actions.rollback,
        f"{pipeline}/rejects/replay": actions.replay,
    }
    programs = {
        "/api/pipelines": api.pipelines,
        "/api/pipelines/{key}": api.pipeline,
        "/api/pipelines/{key}/runs/{run}": api.run,
        "/api/views/{key}/{view}": views_api.row,
    }
    return [
        *(Route(path, blocking(work), methods=["GET"]) for path, work in (looks | programs).items()),
        *(Route(path, blocking(work), methods=["GET", "POST"]) for path, work in acts.items()),
        Route("/api/pipelines/{key}/runs", blocking(api.runs), methods=["GET", "POST"]),
        Route("/api/runs/{run}/stop", blocking(api.stop), methods=["POST"]),
        Route("/api/events", api.events, methods=["GET"]),
        Route("/metrics", blocking(login.metrics), methods=["GET"]),
        Route("/healthz", login.healthz, methods=["GET"]),
        Route("/login", login.login, methods=["GET", "POST"]),
        Route("/logout", blocking(login.logout), methods=["POST"]),
        Mount("/static", StaticFiles(directory=HERE / "static")),
    ]


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    watch: Watch = app.state.site.watch
    watch.start()
    try:
        yield
    finally:
        await to_thread.run_sync(watch.close)


def _answer(request: Request, status: int, kind: str, message: str, hint: str) -> Response:
    if request.scope["path"].startswith("/api/"):
        return api.answer({"error": {"type": kind, "message": message, "hint": hint}}, status)
    return page(request, "error.html", status, message=message, hint=hint, status_code=status)


# Handlers are coroutines, as a thread's answer would come too late once the service ends.
async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = {404: "NotFound", 405: "MethodNotAllowed"}.get(error.status_code, "Refused")
    return _answer(request, error.status_code, kind, error.detail, "")


async def _bridge_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, BridgeError)
    return _answer(request, status_of(error), type(error).__name__, error.message, error.hint)
