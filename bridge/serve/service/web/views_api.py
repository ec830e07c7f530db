"""A row of a view by its key. The answer's ETag is the commit, so who has it asks again for next to nothing."""

from __future__ import annotations

import threading
from functools import lru_cache

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from bridge.errors import SettingsError
from bridge.lake.log import Log
from bridge.lake.records import TableState
from bridge.read.query.follow import LatestCommit
from bridge.read.query.keys import key_by_column, key_from_text
from bridge.read.query.values import json_value
from bridge.read.query.view import View
from bridge.serve.service.web.api import answer
from bridge.serve.service.web.site import number, site_of

_OPEN = 64
"""Views that stay open, with the footers of their files in memory."""
_LOCK = threading.Lock()
"""Held for a moment: nothing is read under it."""


def row(request: Request) -> Response:
    """`key=VALUE` or `key=COLUMN=VALUE` for each column of the key, `null=COLUMN`, `at=COMMIT`."""
    site, name = site_of(request), request.path_params["view"]
    shown = site.shown(request.path_params["key"])
    asked = request.query_params
    at = _commit(asked.get("at"))
    with _LOCK:
        commits = _commits(shown.lake)
    now = site.watch.first_read(shown, commits.now)
    table = now.tables.get(name)
    if at is None and (table is None or not table.view):
        raise HTTPException(404, f"there is no such view; there are: {_named(now.tables)}")
    tag = f'"{now.n if at is None else at}"'
    if tag in [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]:
        return Response(status_code=304, headers={"etag": tag, "cache-control": "no-cache"})
    with _LOCK:
        one = _view(commits, name)
    view = one.opened()
    columns = view.key_columns
    key = key_from_text(name, columns, key_by_column(name, columns, asked.getlist("key"), asked.getlist("null")))
    found_row, commit = view.look_up(key, at)
    plain = None if found_row is None else {column: json_value(value) for column, value in found_row.items()}
    facts = {"pipeline": shown.key, "view": name, "commit": commit, "row": plain}
    return answer(facts, 404 if plain is None else 200, etag=f'"{commit}"', **{"cache-control": "no-cache"})


def _commit(text: str | None) -> int | None:
    if text is None:
        return None
    at = number(text)
    if at is None:
        raise SettingsError("at is the number of a commit", hint="`singer-bridge commits list` shows them")
    return at


def _named(tables: dict[str, TableState]) -> str:
    views = sorted(name for name, table in tables.items() if table.view)
    return ", ".join(views) or "none"


@lru_cache(_OPEN)
def _commits(log: Log) -> LatestCommit:
    return LatestCommit(log)


class _OneView:
    """A view that is opened when it is first asked for. Meanwhile whoever asks for another one does not wait."""

    def __init__(self, commits: LatestCommit, name: str) -> None:
        self._commits, self._name = commits, name
        self._lock = threading.Lock()
        self._view: View | None = None

    def opened(self) -> View:
        with self._lock:
            self._view = self._view or View(self._commits, self._name)
            return self._view


_view = lru_cache(_OPEN)(_OneView)
