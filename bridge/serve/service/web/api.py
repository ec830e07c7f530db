"""The same for programs, as JSON."""

from __future__ import annotations

from itertools import islice
from typing import Any

from msgspec import to_builtins
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from bridge.errors import SettingsError
from bridge.exact_json import NotJson, dumps, loads
from bridge.lake.runs import is_run_id
from bridge.read.query.runs import latest_runs, stream_results
from bridge.read.query.status import table_facts
from bridge.read.query.views import list_views
from bridge.serve.service.requested import SWITCHES
from bridge.serve.service.runs import LiveRun
from bridge.serve.service.web.pipeline_status import PipelineStatus
from bridge.serve.service.web.site import Site, number, site_of

_MOST = 1000
_PATIENCE = 10.0
"""Seconds that a program may wait for a look at all buckets."""
_FLAGS = {word[2:].replace("-", "_"): word for word in SWITCHES}


def answer(value: Any, status: int = 200, **headers: str) -> Response:
    """A JSON document, in which every digit is kept."""
    return Response(dumps(value), status, headers, "application/json")


def pipelines(request: Request) -> Response:
    """All pipelines: of each what `status --json` says, and when it runs next."""
    site = site_of(request)
    return answer([_facts(site, sight) for sight in site.watch.all(_PATIENCE)])


def _facts(site: Site, sight: PipelineStatus) -> dict[str, Any]:
    following = site.runs.next_run(sight.key) if sight.shown.in_file else None
    facts: dict[str, Any] = {"name": sight.key, "in_file": sight.shown.in_file}
    if sight.status:
        facts |= sight.status
    else:
        facts |= {"status": "unreadable", "error": sight.error.message if sight.error else "not read yet"}
    live = [_live(run) for run in site.watch.live(sight.key)]
    return facts | {"next_run": following.isoformat() if following else None, "live": live}


def _live(run: LiveRun) -> dict[str, Any]:
    facts: dict[str, Any] = to_builtins(run)
    return facts


def pipeline(request: Request) -> Response:
    """One pipeline: as in the list, with its tables and views."""
    site = site_of(request)
    shown = site.shown(request.path_params["key"])
    facts = _facts(site, site.sight(shown))
    if shown.log:
        facts["tables"] = table_facts(shown.log.snapshot(shown.log.latest()))
        facts["views"] = list_views(shown.log)
    return answer(facts)


def runs(request: Request) -> Response:
    """The runs of a pipeline, newest first; or, by POST, start one."""
    site = site_of(request)
    shown = site.shown(request.path_params["key"])
    if request.method == "POST":
        if not shown.in_file:
            file = site.pipelines.file.name
            raise SettingsError(f"this pipeline is not in {file}", hint="add it there to run it from here")
        run_id = site.runs.start(shown.key, *_options(request))
        return answer(
            {"pipeline": shown.key, "run_id": run_id}, 202, location=f"/api/pipelines/{shown.key}/runs/{run_id}"
        )
    before, limit = request.query_params.get("before"), request.query_params.get("limit", "20")
    if before and not is_run_id(before):
        raise SettingsError("before is the id of a run", hint="such as 20261120T133501Z-k3f9a")
    most = number(limit) or 0
    if not 0 < most <= _MOST:
        raise SettingsError("limit is a number", hint=f"from 1 to {_MOST}")
    site.sight(shown)
    return answer([record.stored for record in islice(latest_runs(shown.lake, before=before), most)])


def _options(request: Request) -> list[str]:
    """The flags of `singer-bridge run` that the JSON of a request means."""
    try:
        asked = loads(request.scope["state"]["body"] or b"{}")
    except NotJson as error:
        raise SettingsError(f"the request is not JSON: {error.msg}", hint='such as {"full": true}') from None
    if not isinstance(asked, dict):
        raise SettingsError("the request is not a JSON object", hint='such as {"full": true}')
    options = list[str]()
    for name, value in asked.items():
        if name in _FLAGS and isinstance(value, bool):
            options += [_FLAGS[name]] if value else []
        elif name == "streams" and isinstance(value, list) and all(isinstance(each, str) for each in value):
            options += [word for stream in value for word in ("--stream", stream)]
        else:
            hint = f"{', '.join(_FLAGS)}: true or false; streams: a list of names"
            raise SettingsError("the request has a key, or a value, that no run takes", hint=hint, key=name)
    return options


def run(request: Request) -> Response:
    """One run as it stands: its record, each stream with its bookmark before and after; `live` if it is under way.

    Of one that never started, the reason.
    """
    site = site_of(request)
    shown, run_id = site.shown(request.path_params["key"]), request.path_params["run"]
    if reason := site.runs.not_run(run_id):
        return answer({"run_id": run_id, "pipeline": shown.key, "status": "not run", "reason": reason, "live": None})
    site.sight(shown)
    record, live = site.run(shown, run_id)
    facts: dict[str, Any] = {"run_id": run_id, "pipeline": shown.key, "status": live and live.status}
    if record:
        facts = record.stored | {"streams": stream_results(record, shown.with_names)}
    return answer(facts | {"live": _live(live) if live else None})


def stop(request: Request) -> Response:
    """Stop a run of this service, as SIGINT does; a second time at once."""
    if not site_of(request).runs.stop(request.path_params["run"]):
        raise HTTPException(404, "it is no run of this service, or has ended")
    return answer({"run_id": request.path_params["run"], "status": "stopping"}, 202)


async def events(request: Request) -> Response:
    """Stream all that happens from now on, as server-sent events."""
    hub = site_of(request).hub
    if hub.is_full:
        raise HTTPException(503, "too many programs listen already: close some, or ask /api/pipelines now and then")
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(hub.listen(), media_type="text/event-stream", headers=headers)
