"""A run: live while it works, and afterwards."""

from __future__ import annotations

import os
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from bridge.lake.runs import RunRecord, read_log
from bridge.load.scratch import Scratch
from bridge.query.runs import run_bookmarks
from bridge.service.web.pages import steps_of
from bridge.service.web.pipelines import Shown
from bridge.service.web.render import page, plain
from bridge.service.web.site import site_of

_TAIL = 64 << 10
"""Bytes of a log's end that the page of a run shows."""


def run(request: Request) -> Response:
    """A run: stage and speed, streams with rows and bookmarks, commits, warnings, the error, the end of the log."""
    site = site_of(request)
    shown = site.shown(request.path_params["key"])
    sight = site.sight(shown)
    record, live = site.run(shown, request.path_params["run"])
    facts: dict[str, Any] = {"record": record, "live": live, "rate": site.watch.rate(live) if live else None}
    log = _log(shown, request.path_params["run"], "", _TAIL + 1) if record else b""
    facts |= {"log": _tail(log), "is_cut": len(log) > _TAIL, "bookmarks": {}, "commits": []}
    if record:
        facts["bookmarks"] = run_bookmarks(record, shown.with_names)
        facts["commits"] = steps_of(record, shown.lake)
    facts |= {"shown": shown, "sight": sight, "run_id": request.path_params["run"]}
    return page(request, "run.html", **facts, tab="pipelines", can=_can(shown, record, live))


def _can(shown: Shown, record: RunRecord | None, live: object) -> dict[str, bool]:
    """What can be done with a run: only one of this service can be stopped from here."""
    is_over = record is not None and record.status != "running" and live is None
    return {"stop": live is not None, "retry": is_over and shown.in_file}


def log(request: Request) -> Response:
    """The whole log of a run, as text: the tap's; with `of=spark` Spark's. Secrets were masked when it was written."""
    site = site_of(request)
    shown = site.shown(request.path_params["key"])
    site.sight(shown)
    record, _ = site.run(shown, request.path_params["run"])
    suffix = ".spark" if request.query_params.get("of") == "spark" else ""
    text = _log(shown, record.run_id, suffix) if record else b""
    return PlainTextResponse(plain(text.decode(errors="replace")))


def _log(shown: Shown, run_id: str, suffix: str, limit: int | None = None) -> bytes:
    """A run's log, or at least the last bytes of it.

    Of a run that is under way the bucket has at most the end, and its own machine all of it.
    """
    scratch = Scratch(shown.home, shown.settings, run_id)
    try:
        with (scratch.spark_log if suffix else scratch.tap_log).open("rb") as file:
            file.seek(0 if limit is None else max(0, file.seek(0, os.SEEK_END) - limit))
            return file.read()
    except OSError:
        return read_log(shown.lake.storage, shown.lake.pipeline, run_id + suffix) or b""


def _tail(log: bytes) -> str:
    """The end of a log, in whole lines."""
    end = log[-_TAIL:]
    if len(log) > _TAIL:
        end = end[end.find(b"\n") + 1 :]
    return end.decode(errors="replace")
