"""`run --dry-run`: what a run would do, and why. It writes nothing but the discovered catalog."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from bridge.cli.selection import ChosenPipeline
from bridge.cli.show import as_json, console, count, note, print_table
from bridge.commit.state_file import edit_note, short_bookmark
from bridge.exact_json import dumps
from bridge.lake.log import Snapshot
from bridge.load.barriers import METHODS
from bridge.load.checks.fingerprint import fingerprint, noticed
from bridge.load.checks.resume import completed, leave_out
from bridge.load.division import divided
from bridge.load.run import Request
from bridge.load.tables.methods import outlook, refusal
from bridge.load.tables.table_plan import TablePlanner, refuse_namesakes
from bridge.project.last_commit import LastCommits
from bridge.settings.options import Pipeline
from bridge.singer.catalog import selected_streams
from bridge.singer.state import bookmark, is_empty, without
from bridge.state.store import StateStore
from bridge.tap.catalog_overrides import named
from bridge.tap.source import Source


def plan(chosen: Sequence[ChosenPipeline], request: Request, *, json_output: bool, several: bool) -> int:
    """Print the plan of each run and return 0. `several`: the JSON is an array."""
    plans = []
    for each in chosen:
        facts = _facts(each, request)
        plans.append({"format": 1, **facts})
        if not json_output:
            _print(facts)
    if json_output:
        as_json(plans if several else plans[0])
    else:
        console().print("[dim]dry run: nothing was started, nothing was written[/]")
    return 0


def _facts(chosen: ChosenPipeline, request: Request) -> dict[str, Any]:
    pipeline = chosen.pipeline
    log = chosen.log
    storage = log.storage
    notes = LastCommits(chosen.home, pipeline).check(storage, full=request.full and not request.streams)
    view, stored = log.view(log.latest()), StateStore.at(storage, pipeline.name).read()
    if stored.edited:
        notes.append(edit_note(view.state, stored.state))
        view = replace(view, pipeline_state=view.pipeline_state.given(stored.state))
    source = Source(pipeline, chosen.home)
    catalog, _ = source.catalog(request.streams, refresh=request.refresh_catalog)
    pipeline = named(pipeline, catalog)
    refuse_namesakes(pipeline.name, catalog, view.tables)
    skipped = completed(storage, pipeline.name, pipeline.names) if request.resume else set()
    if request.resume:
        catalog, _ = leave_out(catalog, skipped, view.state if request.state is None else request.state)
    full = request.full or not pipeline.incremental.enabled
    if request.state is not None:
        view = replace(view, pipeline_state=view.pipeline_state.given(request.state))
    placement = TablePlanner(storage, pipeline, view, catalog, full=full, append=request.append)
    division, unlike = divided(pipeline, storage, view, catalog)
    state = _state(view, pipeline.all_names(request.streams), full=full)
    names = sorted(selected_streams(catalog)) if catalog else sorted(view.tables)
    now = fingerprint(pipeline, source.argv, catalog)
    asked = {"full": full, "streams": pipeline.all_names(request.streams), "state": request.state}
    return {
        "pipeline": pipeline.name,
        "tap": source.argv[0],
        "bucket": pipeline.destination.bucket,
        "catalog": catalog is not None,
        "full": full,
        "state": state,
        "processes": [list(group.streams) for group in division.groups] if division else None,
        "skipped": sorted(skipped),
        "streams": [_stream(placement, view, pipeline.names_of(name), state) for name in names],
        "warnings": [
            *notes,
            *source.notes,
            *_repeats(pipeline, placement, view, names),
            *noticed(storage, pipeline.name, now, view, **asked, names=pipeline.names),
            *(() if full else unlike),
        ],
    }


def _repeats(pipeline: Pipeline, placement: TablePlanner, view: Snapshot, names: Sequence[str]) -> list[str]:
    """Return a warning if the run would be refused, or else about what later runs do by default."""
    if again := placement.repeating(names):
        error = refusal(pipeline, again)
        return [f"a run would be refused: {error.message}. {error.hint}"]
    methods = {name: placement.expected(name)[0] for name in names}
    existing = {name for name in names if view.table(pipeline.names_of(name))}
    return outlook(
        (name, method) for name, method in methods.items() if method.mode == "upsert" or name not in existing
    )


def _state(view: Snapshot, asked: Collection[str], *, full: bool) -> Any:
    """Return the STATE that the tap would get; None if it starts from the beginning."""
    stored = view.state
    if full:
        stored = without(stored, asked) if asked else None
    return None if is_empty(stored) else stored


def _stream(placement: TablePlanner, view: Snapshot, names: tuple[str, ...], state: Any) -> dict[str, Any]:
    method, mode, reason = placement.expected(names[0])
    live = view.table(names)
    return {
        "stream": names[0],
        "load_method": METHODS[mode],
        "reason": reason,
        "rows_now": live.rows if live else 0,
        "bookmark": bookmark(state, names),
        "each_run": method.each_run,
    }


def _start(facts: dict[str, Any]) -> str:
    """Say where the tap starts."""
    state = facts["state"]
    if facts["full"] and state is None:
        return "state: ignored, --full starts from the beginning"
    return f"state: {dumps(state).decode().strip()}" if state else "state: none, the tap starts from the beginning"


def _print(facts: dict[str, Any]) -> None:
    out = console()
    out.print(f"[bold]{facts['pipeline']}[/]  {facts['tap']} -> {facts['bucket']}", soft_wrap=True)
    out.print(_start(facts), soft_wrap=True, markup=False)
    rows = [
        [s["stream"], f"{s['load_method']} ({s['reason']})", count(s["rows_now"]), short_bookmark(s["bookmark"])]
        for s in facts["streams"]
    ]
    if rows:
        columns = ["stream", "load method", "rows now", "bookmark"]
        print_table(columns, rows, right=["rows now"], folds=["load method", "bookmark"], less=["bookmark"])
    for number, streams in enumerate(facts["processes"] or (), 1):
        out.print(f"process {number} of the tap: {', '.join(streams)}", soft_wrap=True, markup=False)
    if facts["skipped"]:
        out.print(f"skipped, the last run completed them: {', '.join(facts['skipped'])}", soft_wrap=True)
    if not facts["catalog"]:
        out.print("no catalog: the tap itself decides on the streams, and each SCHEMA on its load method")
    for warning in facts["warnings"]:
        note("warning", "yellow", warning)
