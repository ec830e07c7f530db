"""Actions: a page that says what one does, and a form on it that does just that.

The form holds a digest of what was shown. If the lake has changed since, nothing is done, and the new plan is shown.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.errors import DataError, SettingsError
from bridge.exact_json import dumps
from bridge.lake.commit.rollback import plan, roll_back
from bridge.lake.state.store import StateStore, Stored
from bridge.load.maintain.rejects.replay import rehearse
from bridge.load.maintain.rejects.survey import Criteria
from bridge.load.maintain.resets import reset, would_double
from bridge.load.run.planning.dry_run import dry_run
from bridge.operate.rollback_warnings import rollback_warnings
from bridge.protocol.singer.state_edits import differences, plain, same
from bridge.serve.service.web.pages import SAMPLE_BYTES, criteria
from bridge.serve.service.web.pipelines import ListedPipeline
from bridge.serve.service.web.render import href, page
from bridge.serve.service.web.site import Site, form, forms, number, site_of
from bridge.settings.inline import typed_as
from bridge.settings.values.request import FLAGS
from bridge.settings.values.request import Request as RunRequest

_CHANGED = "The lake has changed since this page was shown: look at it again."
_FLAGS = {name: flag.words[0] for name, flag in FLAGS.items() if "page" in flag.doors}


def _asked(request: Request) -> tuple[Site, ListedPipeline, dict[str, Any]]:
    """The site, the pipeline, and what the head of its pages shows."""
    site = site_of(request)
    shown = site.shown(request.path_params["key"])
    head = {"shown": shown, "sight": site.sight(shown), "live": site.watch.live(shown.key), "tab": "pipelines"}
    return site, shown, head


def _digest(*parts: object) -> str:
    return sha256("\0".join(map(repr, parts)).encode(errors="backslashreplace")).hexdigest()


def _planned(request: Request, template: str, digest: str, facts: dict[str, Any]) -> Response:
    """The page that says what the action will do. A form that was posted and comes here was of another plan."""
    stale = request.method == "POST"
    return page(request, template, 409 if stale else 200, **facts, digest=digest, notice=_CHANGED if stale else "")


def _required_in_file(site: Site, shown: ListedPipeline) -> None:
    if not shown.in_file:
        file = site.pipelines.file.name
        hint = f"its settings are elsewhere: do it from there, or add it to {file}"
        raise SettingsError(f"this pipeline is not in {file}", hint=hint, pipeline=shown.key)


def run(request: Request) -> Response:
    """Start a run: a plain one, in full, of some streams, or without the streams that the last run completed.

    Whoever only looks starts no process: the plan is of the stored catalog. A form with `plan` asks the tap, too.
    """
    site, shown, head = _asked(request)
    _required_in_file(site, shown)
    asks_tap = bool(form(request, "plan"))
    if request.method == "POST" and not asks_tap:
        words = [word for name, word in _FLAGS.items() if form(request, name)]
        words += [word for stream in forms(request, "stream") for word in ("--stream", stream)]
        run_id = site.runs.start(shown.key, *words)
        return RedirectResponse(href("pipelines", shown.key, "runs", run_id), 303)
    asked = request.query_params
    streams = tuple(forms(request, "stream") if asks_tap else filter(None, asked.getlist("stream")))
    flags: dict[str, Any] = {name: bool(form(request, name) if asks_tap else asked.get(name)) for name in _FLAGS}
    pipeline = shown.whole(site.pipelines.file, site.pipelines.environment)
    planned = dry_run(pipeline, shown.home, RunRequest(streams=streams, **flags), ask_tap=asks_tap)
    return page(request, "act_run.html", **head, planned=planned, flags=flags, streams=streams, asks_tap=asks_tap)


def stop(request: Request) -> Response:
    """Stop a run of this service."""
    site, shown, head = _asked(request)
    run_id = request.path_params["run"]
    record, live = site.run(shown, run_id)
    if request.method == "POST":
        if not site.runs.stop(run_id):
            raise SettingsError("it is no run of this service, or has ended", hint="look at the run again")
        run = () if site.runs.not_run(run_id) else (run_id,)  # of a run that never started there is no page
        return RedirectResponse(href("pipelines", shown.key, "runs", *run), 303)
    return page(request, "act_stop.html", **head, run_id=run_id, record=record, run=live)


def reset_streams(request: Request) -> Response:
    """Reset streams, as `state clear` does: those of `stream`, or all."""
    site, shown, head = _asked(request)
    pipeline, log = shown.with_names, shown.lake
    store = StateStore.at(log.storage, log.pipeline)
    posted = request.method == "POST"
    streams = forms(request, "stream") if posted else [text for text in request.query_params.getlist("stream") if text]
    store.refuse_if_held()
    seen = store.read()
    after = plain(reset(pipeline, seen.state, streams))
    digest, warning = _digest(dumps(seen.state), dumps(after)), ""
    if posted and form(request, "digest") == digest:
        reason = " ".join(["state clear", *(f"-s {stream}" for stream in streams)])
        _commit_state(store, seen, after, reason)
        return RedirectResponse(href("pipelines", shown.key, "bookmarks"), 303)
    warning = would_double(pipeline, log, seen.state, streams, _typed(shown, site.pipelines.environment))
    facts = {"streams": streams, "changes": differences(seen.state, after), "edited": seen.edited, "warning": warning}
    return _planned(request, "act_reset.html", digest, head | facts)


def _commit_state(store: StateStore, seen: Stored, after: Any, reason: str) -> None:
    """Replace the STATE that was seen; one that was edited by hand is committed first, as the next run would do.

    Raises `CommitLost` if it is another one by now.
    """
    version = seen.version
    if seen.edited:
        store.update(lambda state: state)
        again = store.read()
        if not same(again.state, seen.state):
            raise SettingsError("the STATE has changed", hint="look at it again")
        version = again.version
    store.compare_and_swap(version, after, reason=reason)


def rollback(request: Request) -> Response:
    """Go back to the commit `to`, tables and STATE, by one new commit."""
    site, shown, head = _asked(request)
    log = shown.lake
    posted = request.method == "POST"
    text = form(request, "to") if posted else request.query_params.get("to", "")
    to = number(text)
    if to is None:
        raise SettingsError("which commit?", hint="choose one among the commits of the pipeline")
    StateStore.at(log.storage, log.pipeline).refuse_if_held()
    planned = plan(log, log.snapshot(log.latest()), to)
    digest = _digest(replace(planned, head=0))
    if posted and form(request, "digest") == digest:
        if not planned.nothing_to_do:
            roll_back(log.storage, log.pipeline, planned.to, planned)
        return RedirectResponse(href("pipelines", shown.key, "commits"), 303)
    warnings = rollback_warnings(shown.settings, shown.home, planned, _typed(shown, site.pipelines.environment))
    facts = {"planned": planned, "warnings": warnings, "changes": differences(planned.before, planned.after.shown)}
    return _planned(request, "act_rollback.html", digest, head | facts)


def replay(request: Request) -> Response:
    """Read rejects again and load those that fit now, as `rejects replay` does."""
    site, shown, head = _asked(request)
    _required_in_file(site, shown)
    posted = request.method == "POST"
    chosen = Criteria(*(form(request, name) or None for name in ("stream", "run", "reason"))) if posted else None
    asked = chosen or criteria(request)
    log = shown.lake
    StateStore.at(log.storage, log.pipeline).refuse_if_held()
    rehearsed = rehearse(log.storage, shown.with_names, asked, SAMPLE_BYTES)
    digest = _digest(
        rehearsed.unread, [(stream, o.fit, o.why, sorted(o.left.items())) for stream, o in rehearsed.streams.items()]
    )
    if posted and form(request, "digest") == digest:
        _replayed(site, shown, asked)
        return RedirectResponse(href("pipelines", shown.key, "rejects"), 303)
    return _planned(request, "act_replay.html", digest, head | {"asked": asked, "rehearsed": rehearsed})


def _replayed(site: Site, shown: ListedPipeline, asked: Criteria) -> None:
    """Type it, in a process of its own: views need Spark, which is not to live in the service."""
    where = ["--file", str(site.pipelines.file)]
    where += ["--env", site.pipelines.environment] if site.pipelines.environment else []
    options = (("--stream", asked.stream), ("--run", asked.run), ("--reason", asked.reason))
    chosen = [f"{flag}={value}" for flag, value in options if value is not None]
    words = ["rejects", "replay", shown.key, *where, *chosen, "--yes", "--json"]
    ended = subprocess.run(
        [sys.executable, "-m", "bridge", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise DataError("the rejects were not replayed", hint=ended.stderr.strip()[-2000:])


def _typed(shown: ListedPipeline, environment: str | None) -> str:
    """The arguments that choose the pipeline, for hints."""
    return typed_as(shown.key, environment, None if shown.in_file else shown.lake.storage.uri)
