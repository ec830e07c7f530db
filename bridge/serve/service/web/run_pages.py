"""A run: live while it works, and afterwards."""

from __future__ import annotations

import os
from codecs import getincrementaldecoder
from collections.abc import Iterator
from io import BytesIO
from typing import Any, BinaryIO

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from bridge.lake.runs import RunRecord, log_key
from bridge.load.run.scratch import Scratch
from bridge.read.query.runs import run_bookmarks
from bridge.serve.service.web.pages import steps_of
from bridge.serve.service.web.pipelines import ListedPipeline
from bridge.serve.service.web.render import page, plain
from bridge.serve.service.web.site import site_of

_TAIL = 64 << 10
"""Bytes of a log's end that the page of a run shows."""
_CHUNK = 256 << 10


def run(request: Request) -> Response:
    """A run: stage and speed, streams with rows and bookmarks, commits, warnings, the error, the end of the log."""
    site = site_of(request)
    shown = site.shown(request.path_params["key"])
    sight = site.sight(shown)
    record, live = site.run(shown, request.path_params["run"])
    facts: dict[str, Any] = {"record": record, "live": live, "rate": site.watch.rate(live) if live else None}
    log = _last_bytes(_opened(shown, request.path_params["run"], ""), _TAIL + 1) if record else b""
    facts |= {"log": _tail(log), "is_cut": len(log) > _TAIL, "bookmarks": {}, "commits": []}
    if record:
        facts["bookmarks"] = run_bookmarks(record, shown.with_names)
        facts["commits"] = steps_of(record, shown.lake)
    facts |= {"shown": shown, "sight": sight, "run_id": request.path_params["run"]}
    facts["retry"] = _retry(record) if record else {}
    return page(request, "run.html", **facts, tab="pipelines", can=_can(shown, record, live))


def _retry(record: RunRecord) -> dict[str, Any]:
    """The request that does a run once more. A full one begins anew; others leave out what was completed."""
    asked = {name: record.requested.get(name) for name in ("full", "append")}
    return {"stream": record.requested.get("streams"), **asked, "resume": not asked["full"]}


def _can(shown: ListedPipeline, record: RunRecord | None, live: object) -> dict[str, bool]:
    """The actions that a run allows: only one of this service can be stopped from here."""
    is_over = record is not None and record.status != "running" and live is None
    return {"stop": live is not None, "retry": is_over and shown.in_file}


def log(request: Request) -> Response:
    """The whole log of a run, as text: the tap's; with `of=spark` Spark's. Secrets were masked when it was written."""
    site = site_of(request)
    shown = site.shown(request.path_params["key"])
    site.sight(shown)
    record, _ = site.run(shown, request.path_params["run"])
    suffix = ".spark" if request.query_params.get("of") == "spark" else ""
    file = _opened(shown, record.run_id, suffix) if record else BytesIO()
    return StreamingResponse(_texts(file), media_type="text/plain; charset=utf-8")


def _texts(file: BinaryIO) -> Iterator[str]:
    """A file as text, a part at a time."""
    decoder = getincrementaldecoder("utf-8")(errors="replace")
    with file:
        while chunk := file.read(_CHUNK):
            yield plain(decoder.decode(chunk))
        yield plain(decoder.decode(b"", True))


def _opened(shown: ListedPipeline, run_id: str, suffix: str) -> BinaryIO:
    """A run's log. Of a run that is under way the bucket has at most the end, and its own machine all of it."""
    scratch = Scratch(shown.home, shown.settings, run_id)
    try:
        return (scratch.spark_log if suffix else scratch.tap_log).open("rb")
    except OSError:
        storage, key = shown.lake.storage, log_key(shown.lake.pipeline, run_id + suffix)
        return BytesIO() if storage.size(key) is None else storage.open(key)


def _last_bytes(file: BinaryIO, limit: int) -> bytes:
    with file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - limit))
        return file.read()


def _tail(log: bytes) -> str:
    """The end of a log, in whole lines."""
    end = log[-_TAIL:]
    if len(log) > _TAIL:
        end = end[end.find(b"\n") + 1 :]
    return end.decode(errors="replace")
