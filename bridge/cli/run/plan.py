"""`run --dry-run`: what a run would do, and why. It writes nothing but the discovered catalog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from bridge.cli.events import report
from bridge.cli.selection import ChosenPipeline
from bridge.cli.show import as_json, console, count, note, print_table
from bridge.commit.state_file import edit_note, short_bookmark
from bridge.errors import BridgeError, LakeError
from bridge.exact_json import dumps
from bridge.lake.lease import require_free
from bridge.lake.log import Snapshot
from bridge.load.barriers import METHODS
from bridge.load.checks.fingerprint import fingerprint, noticed
from bridge.load.checks.resume import completed, leave_out
from bridge.load.division import divided
from bridge.load.plan import Request
from bridge.load.run import Run
from bridge.load.scratch import check_paths
from bridge.load.start_state import StartStates
from bridge.load.tables.declared import whole_tables
from bridge.load.tables.methods import Method, outlook
from bridge.load.tables.table_plan import TablePlanner
from bridge.project.clashes import clash
from bridge.project.last_commit import LastCommits
from bridge.settings.options import Pipeline
from bridge.singer.catalog import Catalog, selected_streams
from bridge.singer.state import bookmark
from bridge.state.store import StateStore
from bridge.storage import Storage
from bridge.tap.catalog_overrides import named
from bridge.tap.source import Source


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run would do: the facts that are printed, and the error with which it would be refused."""

    facts: dict[str, Any]
    refusal: BridgeError | None = None
    is_complete: bool = True
    """False: it would be refused before anything is known of its streams."""

    def to_json(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        error = self.refusal
        refused = error and {
            "type": type(error).__name__,
            "message": error.message,
            "hint": error.hint,
            "exit_code": error.exit_code,
        }
        return {"format": 1, **self.facts, "refused": refused}


def plan(
    chosen: Sequence[ChosenPipeline],
    request: Request,
    *,
    siblings: Sequence[ChosenPipeline],
    json_output: bool,
    several: bool,
) -> int:
    """Print the plan of each run; return 0, or the highest exit code of those that would be refused.

    `siblings` are all pipelines of the file. `several`: the JSON is an array.
    """
    plans, code = [], 0
    for place, each in enumerate(chosen):
        one = _with_clashes(_plan(each, request), each, chosen[:place], siblings)
        plans.append(one)
        if not json_output and one.is_complete:
            _print(one.facts)
        if one.refusal:
            code = max(code, report(one.refusal))
    if json_output:
        as_json([one.to_json() for one in plans] if several else plans[0].to_json())
    else:
        console().print("[dim]dry run: nothing was started, nothing was written[/]")
    return code


def _with_clashes(
    one: Plan, chosen: ChosenPipeline, earlier: Sequence[ChosenPipeline], siblings: Sequence[ChosenPipeline]
) -> Plan:
    """The plan with what is known of other pipelines' folders; one that runs `earlier` has them first."""
    before, refusal, is_noted = {each.pipeline.name for each in earlier}, one.refusal, False
    for other in siblings:
        shared = other.pipeline.name != chosen.pipeline.name and clash(other.pipeline, chosen.pipeline, chosen.home)
        if not shared or not one.is_complete:
            continue
        if shared.is_certain and other.pipeline.name in before:
            refusal = refusal or LakeError(shared.message, hint=shared.hint)
        elif shared.is_certain or not is_noted:
            one.facts["warnings"].append(f"{shared.message}. {shared.hint}")
            is_noted = is_noted or not shared.is_certain
    return replace(one, refusal=refusal)


def _plan(chosen: ChosenPipeline, request: Request) -> Plan:
    run = Run(chosen.pipeline, request, chosen.home)
    try:
        run.check_flags()
        check_paths(chosen.home, chosen.pipeline)
        run.check_request()
        facts, refusal = _facts(chosen, run)
    except BridgeError as error:
        return Plan({"pipeline": chosen.pipeline.name}, error, is_complete=False)
    facts["warnings"] += run.result.warnings
    return Plan(facts, refusal)


def _facts(chosen: ChosenPipeline, run: Run) -> tuple[dict[str, Any], BridgeError | None]:
    """What a run would do, and the error with which it would be refused after all this is known."""
    pipeline, request, log = run.pipeline, run.request, chosen.log
    storage = log.storage
    notes = LastCommits(chosen.home, pipeline).check(storage, full=request.full and not request.streams)
    view, stored = log.view(log.latest()), StateStore.at(storage, pipeline.name).read()
    if stored.edited:
        notes.append(edit_note(view.state, stored.state))
        view = view.given(stored.state)
    source = Source(pipeline, chosen.home)
    catalog, deselected = source.catalog(request.streams, refresh=request.refresh_catalog)
    run.pipeline, run.declared = named(pipeline, catalog), source.declared
    pipeline = run.pipeline
    skipped = completed(storage, pipeline.name, pipeline.names) if request.resume else set()
    if request.resume:
        catalog, deselected = leave_out(catalog, skipped, view.state if request.state is None else request.state)
    full = request.full or not pipeline.incremental.enabled
    if request.state is not None:
        view = view.given(request.state)
    whole = whole_tables(source.declared, pipeline, storage, view)
    division, unlike = divided(pipeline, storage, view, catalog)
    asked = pipeline.all_names(request.streams)
    starting = StartStates(pipeline, view, asked, full=full)
    state, lookback = starting.of(view.state, None)
    placement = TablePlanner(storage, pipeline, view, catalog, full=full, append=request.append, whole=whole)
    names = sorted(selected_streams(catalog)) if catalog else sorted(view.stream_tables)
    methods = {name: placement.expected(name)[0] for name in names}
    now = fingerprint(pipeline, source.argv, catalog)
    flags = {"full": full, "streams": asked, "state": request.state}
    facts: dict[str, Any] = {
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
            *_outlook(methods, view, pipeline),
            *noticed(storage, pipeline.name, now, view, **flags, names=pipeline.names),
            *(() if full else unlike),
            *starting.warnings([lookback]),
        ],
    }
    return facts, _refusal(run, storage, view, catalog, deselected, names)


def _refusal(
    run: Run,
    storage: Storage,
    view: Snapshot,
    catalog: Catalog | None,
    deselected: set[str],
    names: Sequence[str],
) -> BridgeError | None:
    """The error with which a run would end before its tap sends anything; None if it would not."""
    try:
        if run.request.wait is None:
            require_free(storage, run.pipeline.name)
        tables = run.planner(storage, view, catalog, deselected)
        for name in names:
            aliases = run.pipeline.names_of(name)
            tables.check_table(next((alias for alias in aliases if alias in view.tables), aliases[-1]))
    except BridgeError as error:
        return error
    return None


def _outlook(methods: dict[str, Method], view: Snapshot, pipeline: Pipeline) -> list[str]:
    """What later runs do by default with streams whose replication nobody declares."""
    existing = {name for name in methods if view.table(pipeline.names_of(name))}
    return outlook(
        (name, method) for name, method in methods.items() if method.mode == "upsert" or name not in existing
    )


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
