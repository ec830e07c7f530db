"""What a run would do, and why. It writes nothing but the discovered catalog; with `ask_tap=False` not even that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridge.errors import BridgeError, DataError, SettingsError
from bridge.lake.commit.state_file import edit_note
from bridge.lake.lease import require_free
from bridge.lake.log import Log, Snapshot
from bridge.lake.records import TapGroup
from bridge.lake.schemas import read_schema
from bridge.lake.state.store import StateStore
from bridge.lake.storage import Storage
from bridge.load.run.barriers import METHODS
from bridge.load.run.checks.changed_values import text_columns
from bridge.load.run.checks.fingerprint import fingerprint, noticed
from bridge.load.run.checks.resume import completed, leave_out
from bridge.load.run.checks.view_outlook import views_of
from bridge.load.run.planning.division import divided
from bridge.load.run.planning.planned_views import PlannedViews
from bridge.load.run.planning.start_state import StartStates
from bridge.load.run.run import Run
from bridge.load.run.tables.catalog_columns import misquoted
from bridge.load.run.tables.declared import whole_tables
from bridge.load.run.tables.methods import Method, outlook
from bridge.load.run.tables.table_plan import TablePlanner
from bridge.load.run.tables.views import placed
from bridge.load.slots.guard import check
from bridge.load.tap.catalog_overrides import named
from bridge.load.tap.source import Source
from bridge.load.write.keys import refuse_new_columns
from bridge.protocol.singer.catalog import Catalog, key_properties, record_name, selected_streams, stream_id
from bridge.protocol.singer.messages import Schema
from bridge.protocol.singer.state import bookmark
from bridge.settings.options import Pipeline
from bridge.settings.values.request import Request


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


def dry_run(pipeline: Pipeline, home: Path, request: Request, *, ask_tap: bool = True, ask_spark: bool = False) -> Plan:
    """What a run of one pipeline would do, for all that can be known before it.

    The tap is asked for its streams, as a run would ask it. Without `ask_tap` no process is started: the stored catalog
    counts, and where there is none, the streams are those of the tables. `ask_spark`: start Spark to judge new and
    changed views, and those of streams with other columns than before.
    """
    run = Run(pipeline, request, home)
    try:
        request.check(pipeline)
        storage = run.open_bucket()
        run.check_request()
        facts, refusal = _plan(home, run, storage, ask_tap=ask_tap, ask_spark=ask_spark)
    except BridgeError as error:
        run.fail(error)
        return Plan({"pipeline": pipeline.name}, error, is_complete=False)
    facts["warnings"] += run.result.warnings
    if refusal:
        run.fail(refusal)
    return Plan(facts, refusal)


def _plan(
    home: Path, run: Run, storage: Storage, *, ask_tap: bool, ask_spark: bool
) -> tuple[dict[str, Any], BridgeError | None]:
    """What a run would do, and the error with which it would be refused after all this is known."""
    pipeline, request = run.pipeline, run.request
    source = Source(pipeline, home)
    catalog, deselected = _catalog(source, request, ask_tap=ask_tap)
    run.pipeline, run.declared = named(pipeline, catalog), source.declared
    run.result.report((), source.news)
    held = _held(run, storage)
    try:
        facts, refusal, views = _facts(run, storage, source, catalog, deselected)
    except BridgeError as error:
        raise held or error from None
    refusal = held or refusal or views.refusal(in_spark=ask_spark)
    facts["warnings"] += views.warnings
    return facts, refusal


def _catalog(source: Source, request: Request, *, ask_tap: bool) -> tuple[Catalog | None, set[str]]:
    if ask_tap:
        return source.catalog(request.streams, refresh=request.refresh_catalog)
    return source.stored_catalog(request.streams)


def _held(run: Run, storage: Storage) -> BridgeError | None:
    """The error with which the run would end, as another one holds the pipeline."""
    try:
        if run.request.wait is None:
            require_free(storage, run.pipeline.name)
    except BridgeError as error:
        return error
    return None


def _facts(
    run: Run, storage: Storage, source: Source, catalog: Catalog | None, deselected: set[str]
) -> tuple[dict[str, Any], BridgeError | None, PlannedViews]:
    pipeline, request = run.pipeline, run.request
    view, notes = _lake(run, storage)
    skipped = completed(storage, pipeline.name, pipeline.names) if request.resume else set()
    if request.resume:
        catalog, deselected = leave_out(catalog, skipped, view.state)
    full = request.begins_anew(pipeline)
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
            *source.notes,
            *notes,
            *_outlook(methods, view, pipeline),
            *noticed(storage, pipeline, now, view, **flags),
            *(() if full else unlike),
            *starting.warnings([lookback]),
            *_texts(placement, storage, pipeline, view, catalog),
        ],
    }
    views = PlannedViews(pipeline, storage, view, catalog, source.declared, placement)
    slot = run.asked_of_slot(catalog, division.groups if division else (TapGroup((), view.state),))
    try:
        check(pipeline, source.argv, storage, view, catalog, slot)
        _check_tables(run, storage, view, catalog, deselected, names)
    except BridgeError as error:
        return facts, error, views
    return facts, None, views


def _lake(run: Run, storage: Storage) -> tuple[Snapshot, list[str]]:
    """The lake with the STATE that the tap starts from, and what the operator should know of it."""
    log = Log(storage, run.pipeline.name)
    view, stored, notes = log.view(log.latest()), StateStore.at(storage, run.pipeline.name).read(), list[str]()
    if stored.edited:
        notes.append(edit_note(view.state, stored.state))
        view = view.given(stored.state)
    return view if run.request.state is None else view.given(run.request.state), notes


def _check_tables(
    run: Run, storage: Storage, view: Snapshot, catalog: Catalog | None, deselected: set[str], names: Sequence[str]
) -> None:
    """Raise the error with which a run would end for the tables of the streams that it names, or for their SQL."""
    tables, pipeline = run.planner(storage, view, catalog, deselected), run.pipeline
    for error in misquoted(pipeline, catalog):
        raise error
    for name in names:
        aliases = pipeline.names_of(name)
        tables.check_table(next((alias for alias in aliases if alias in view.tables), aliases[-1]))
    for one in views_of(pipeline):
        with placed(pipeline, one):
            tables.open_view(one)


def _texts(
    placement: TablePlanner, storage: Storage, pipeline: Pipeline, view: Snapshot, catalog: Catalog | None
) -> Iterator[str]:
    """A sentence for each column that would become text, and for each change of types or keys that would be refused."""
    selected = selected_streams(catalog) if catalog else ()
    for entry in catalog["streams"] if catalog else ():
        name = record_name(entry)
        table = view.table(pipeline.names_of(name))
        if stream_id(entry) not in selected or not (table and table.schema) or placement.expected(name)[1] == "replace":
            continue
        message = Schema(name, entry.get("schema") or {}, key_properties(entry), None)
        before = read_schema(storage, pipeline.name, table.schema)
        try:
            if placement.expected(name)[0].mode == "upsert" and not pipeline.stream(name).key_properties:
                refuse_new_columns(before.arrow, name, key_properties(entry))
            incoming = placement.incoming(message)
            if incoming.statement is None:
                after = incoming.into(before, placement.evolution(message))
                yield from (f"{name}: {text}" for text in text_columns(before, after).values())
        except (DataError, SettingsError) as error:
            yield f"{name}: {error.message}. {error.hint}"


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
