"""A forecast of a run. It writes nothing but the discovered catalog; with `ask_tap=False` not even that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridge.errors import BridgeError, DataError, SettingsError
from bridge.lake.commit.state_file import edit_note
from bridge.lake.lease import require_free
from bridge.lake.log import Log, Snapshot
from bridge.lake.schemas import read_schema
from bridge.lake.state.store import StateStore
from bridge.lake.storage import Storage
from bridge.load.run.checks.changed_values import text_columns
from bridge.load.run.last_commit import LastCommits
from bridge.load.run.planning.planned_views import PlannedViews
from bridge.load.run.planning.run_plan import RunPlan, check_start, open_bucket, plan_run
from bridge.load.run.result import Result, error_facts
from bridge.load.run.streams import StreamPlan
from bridge.load.run.tables.catalog_columns import misquoted
from bridge.load.run.tables.table_plan import TablePlanner
from bridge.load.run.tables.undeclared import outlook
from bridge.load.run.tables.views import placed
from bridge.load.slots.guard import Asked, SlotGuard, check
from bridge.load.tap.source import Source
from bridge.load.write.keys import refuse_new_columns
from bridge.protocol.singer.catalog import key_properties, record_name, stream_id
from bridge.protocol.singer.messages import Schema
from bridge.protocol.singer.state import bookmark
from bridge.settings.destination import OVERWRITE, UPSERT
from bridge.settings.options import Pipeline
from bridge.settings.redact import redactor
from bridge.settings.sql.view import read_views
from bridge.settings.values.request import Request


@dataclass(frozen=True, slots=True)
class Plan:
    """The forecast of a run: the facts that are printed, and the error with which it would be refused."""

    facts: dict[str, Any]
    refusal: BridgeError | None = None
    is_complete: bool = True
    """False: it would be refused before anything is known of its streams."""

    def to_json(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        refused = self.refusal and {**error_facts(self.refusal), "exit_code": self.refusal.exit_code}
        return {"format": 1, **self.facts, "refused": refused}


def dry_run(pipeline: Pipeline, home: Path, request: Request, *, ask_tap: bool = True, ask_spark: bool = False) -> Plan:
    """Forecast a run of one pipeline, as far as that can be known before it.

    The tap is asked for its streams, as a run would ask it. Without `ask_tap` no process is started: the stored catalog
    counts, and where there is none, the streams are those of the tables. `ask_spark`: start Spark to judge new and
    changed views, and those of streams with other columns than before.
    """
    result, mask, only = Result("", pipeline.name), redactor(pipeline.secrets).mask, request.streams
    try:
        request.check(pipeline)
        storage, result.warnings = open_bucket(pipeline, request, home, LastCommits(home, pipeline))
        check_start(pipeline, request)
        source = Source(pipeline, home)
        selection = source.catalog(only, refresh=request.refresh_catalog) if ask_tap else source.stored_catalog(only)
        result.report((), source.news)
        held = _held(storage, pipeline, request)
        try:
            snapshot, notes = _lake(storage, pipeline)
            plan = plan_run(request, pipeline, source, selection, storage, snapshot)
            plan = plan.without(skipped := plan.completed())
            planner, facts, asked = _facts(plan, sorted(skipped), [*source.notes, *notes])
        except BridgeError as error:
            raise held or error from None
    except BridgeError as error:
        mask(error)
        return Plan({"pipeline": pipeline.name}, error, is_complete=False)
    refusal, views = _refusal(plan, planner, asked, result), PlannedViews(plan, planner)
    refusal = held or refusal or views.refusal(in_spark=ask_spark)
    facts["warnings"] += [*views.warnings, *result.warnings]
    if refusal:
        mask(refusal)
    return Plan(facts, refusal)


def _held(storage: Storage, pipeline: Pipeline, request: Request) -> BridgeError | None:
    """The error with which the run would end, as another one holds the pipeline."""
    try:
        if request.wait is None:
            require_free(storage, pipeline.name)
    except BridgeError as error:
        return error
    return None


def _lake(storage: Storage, pipeline: Pipeline) -> tuple[Snapshot, list[str]]:
    """The lake with the STATE that the next run finds, and a note if somebody edited that."""
    log = Log(storage, pipeline.name)
    snapshot, stored = log.snapshot(log.latest()), StateStore.at(storage, pipeline.name).read()
    if not stored.edited:
        return snapshot, []
    return snapshot.given(stored.state), [edit_note(snapshot.state, stored.state)]


def _facts(plan: RunPlan, skipped: list[str], notes: list[str]) -> tuple[TablePlanner, dict[str, Any], Asked]:
    """The planner of the tables, what a plan says, and what its run asks of a replication slot."""
    planner, (division, unlike) = plan.planner(), plan.division()
    state, lookback = plan.start(plan.snapshot.state, None, SlotGuard())
    streams = [planner.streams.expected(name) for name in plan.streams]
    facts = {
        "pipeline": plan.pipeline.name,
        "tap": plan.source.argv[0],
        "bucket": plan.pipeline.destination.bucket,
        "catalog": plan.catalog is not None,
        "full": plan.is_full,
        "backfill": str(plan.request.backfill) if plan.request.backfill else None,
        "state": state,
        "processes": [list(group.streams) for group in division.groups] if division else None,
        "skipped": skipped,
        "streams": [_stream(plan.snapshot, stream, state) | _masked(planner, stream) for stream in streams],
        "warnings": [
            *notes,
            *_outlook(plan.snapshot, streams),
            *plan.changes(plan.fingerprint()),
            *unlike,
            *plan.lookback_warnings([lookback]),
            *_texts(plan, planner),
        ],
    }
    return planner, facts, plan.asked_of_slot("", division)


def _refusal(plan: RunPlan, planner: TablePlanner, asked: Asked, result: Result) -> BridgeError | None:
    """The error with which a run would end for its slot, the tables of the streams that it names, or for their SQL."""
    pipeline, tables = plan.pipeline, plan.snapshot.tables
    try:
        check(pipeline, plan.source.argv, plan.storage, plan.snapshot, plan.catalog, asked)
        result.warnings += plan.check_tables(planner)
        for error in misquoted(pipeline, plan.catalog):
            return error
        for name in plan.streams:
            aliases = pipeline.names_of(name)
            planner.check_table(next((alias for alias in aliases if alias in tables), aliases[-1]))
        for one in read_views(pipeline.views):
            with placed(pipeline, one):
                planner.open_view(one)
    except BridgeError as error:
        return error
    return None


def _texts(plan: RunPlan, planner: TablePlanner) -> Iterator[str]:
    """A sentence for each column that would become text, and for each change of types or keys that would be refused."""
    selected = set(plan.selected)
    for entry in plan.catalog["streams"] if plan.catalog else ():
        stream = planner.streams.expected(record_name(entry))
        table = plan.snapshot.table(stream.names)
        if stream_id(entry) not in selected or not (table and table.schema) or stream.method == OVERWRITE:
            continue
        message = Schema(stream.name, entry.get("schema") or {}, key_properties(entry), None)
        message = planner.streams.masking.schema(message)
        before = read_schema(plan.storage, plan.pipeline.name, table.schema)
        try:
            if stream.usual == UPSERT and not stream.settings.key_properties:
                refuse_new_columns(before.arrow, stream.name, key_properties(entry))
            incoming = planner.incoming(message)
            if incoming.statement is None:
                after = incoming.into(before, planner.streams.with_schema(message).evolution)
                yield from (f"{stream.name}: {text}" for text in text_columns(before, after).values())
        except (DataError, SettingsError) as error:
            yield f"{stream.name}: {error.message}. {error.hint}"


def _outlook(snapshot: Snapshot, streams: Sequence[StreamPlan]) -> list[str]:
    """Say what later runs do by default, with streams whose replication nobody declares."""
    return outlook(stream for stream in streams if stream.usual == UPSERT or not snapshot.table(stream.names))


def _masked(planner: TablePlanner, stream: StreamPlan) -> dict[str, Any]:
    entry = planner.streams.entries.get(stream.name)
    return {"masked": planner.streams.masking.fields(stream.name, entry.get("schema")) if entry else {}}


def _stream(snapshot: Snapshot, stream: StreamPlan, state: Any) -> dict[str, Any]:
    live = snapshot.table(stream.names)
    return {
        "stream": stream.names[0],
        "load_method": stream.word,
        "reason": stream.reason,
        "rows_now": live.rows if live else 0,
        "bookmark": bookmark(state, stream.names),
        "each_run": stream.each_run,
    }
