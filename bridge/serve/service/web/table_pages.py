"""A table: its columns and how they changed, its files, its newest rows, and how each engine reads it."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from bridge.errors import BridgeError
from bridge.lake.log import Log
from bridge.lake.records import TableState
from bridge.lake.table_columns import read_columns, visible_columns, words
from bridge.operate.readers.choice import reading_statement
from bridge.operate.readers.ddl import DIALECTS
from bridge.operate.readers.history import Version, schema_history
from bridge.read.query.growth import LatestCommits
from bridge.read.query.head import newest_rows
from bridge.serve.service.web.pictures.steps import pictures
from bridge.serve.service.web.pipelines import ListedPipeline
from bridge.serve.service.web.render import page
from bridge.serve.service.web.site import site_of

_ROWS, _FILES = 20, 200
_BACK = 300
"""How many commits back changes of columns and of size are shown, at least."""


def table(request: Request) -> Response:
    """The table of `stream`, or a view of that name."""
    site = site_of(request)
    shown = site.shown(request.path_params["key"])
    sight = site.sight(shown)
    log, stream = shown.lake, request.query_params.get("stream", "")
    snapshot = log.snapshot(log.latest())
    live = snapshot.tables.get(stream)
    if live is None:
        raise HTTPException(404, "there is no such table")
    columns = [
        {
            "name": entry["name"],
            "type": words(entry["type"]),
            "required": bool(entry.get("required")),
            "is_number": words(entry["type"]).startswith(("int", "double", "decimal")),
        }
        for entry in visible_columns(log.storage, log.pipeline, live)
    ]
    rows, trouble = _head(log, live)
    latest = LatestCommits.of(log, snapshot.n, _BACK)
    versions = _versions(log, stream, live, latest)
    facts: dict[str, Any] = {"columns": columns, "rows": rows, "trouble": trouble, "versions": versions}
    facts |= {"more": not latest.is_whole, "pictures": pictures(list(latest.sizes(stream)))}
    files = sorted(live.files.items(), reverse=True)
    facts |= {"files": files[:_FILES], "total": len(files), "bytes": sum(file.size for _, file in files)}
    over: dict[str, Any] = {
        "shown": shown,
        "sight": sight,
        "live": site.watch.live(shown.key),
        "tab": "pipelines",
    }
    engines = _statements(shown, log, stream, live)
    return page(request, "table.html", **over, **facts, stream=stream, table=live, commit=snapshot.n, engines=engines)


def _head(log: Log, live: TableState) -> tuple[list[dict[str, Any]], str]:
    """The newest rows, and why there are none if a file of the table cannot be read."""
    try:
        return newest_rows(log.storage, live, _ROWS), ""
    except BridgeError as error:
        return [], f"{error.message}. {error.hint}"


def _versions(log: Log, stream: str, live: TableState, latest: LatestCommits) -> list[Version]:
    """The schemas that the table had in the latest commits, newest first."""

    def visible(key: str) -> list[dict[str, Any]]:
        return [entry for entry in read_columns(log.storage, log.pipeline, key) if not live.hides(entry["name"])]

    return list(schema_history(latest.records, stream, visible))[::-1]


def _statements(shown: ListedPipeline, log: Log, stream: str, live: TableState) -> dict[str, str]:
    """How each engine reads the table; one that cannot is left out."""
    statements, server = {}, shown.settings.destination.store_options
    for dialect in DIALECTS:
        try:
            statements[dialect] = reading_statement(log, stream, live, dialect, server)
        except BridgeError:
            continue
    return statements
