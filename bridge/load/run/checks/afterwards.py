"""Warnings after a load that ended well."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.lake.log import Snapshot
from bridge.lake.runs import Difference
from bridge.load.run.checks.failure_hints import restarted
from bridge.load.run.checks.forgotten import came_again
from bridge.load.run.checks.marks import LoadedRun
from bridge.load.run.checks.not_extracted import left_documents, left_out, not_extracted, nothing_sent, without_rows
from bridge.load.run.checks.null_keys import say_null_keys
from bridge.load.run.checks.repeats import Seen
from bridge.load.run.plan import LoadPlan
from bridge.load.run.planning.run_plan import RunPlan
from bridge.load.run.result import Result
from bridge.load.run.tap_reader import TapReader
from bridge.load.slots.guard import log_based
from bridge.load.tap.source import silent
from bridge.protocol.singer.catalog import Catalog
from bridge.settings.commands import reload

_BACK = "`singer-bridge commits list` shows the commit before, `singer-bridge rollback` goes back to it"


def look_back(run: RunPlan, plan: LoadPlan, reader: TapReader, result: Result) -> None:
    """Add to the result: rows that come again, marks, that no stream came, that the tap was stopped before its end."""
    pipeline, catalog, before, is_piped = run.pipeline, run.catalog, run.snapshot, run.is_piped
    after = plan.committer.snapshot
    new = {name: counts.records for name, counts in result.streams.items() if name not in before.tables}
    missing = not_extracted(catalog, new.keys())
    empty = {name for name, count in result.streams.items() if not (count.records or _has_rows(after, name))}
    result.differ(*missing, *without_rows(catalog, empty), *_expired(plan, catalog))
    if not reader.is_partial:
        result.differ(*left_documents(pipeline.name, catalog, new))
    if plan.scratch.tap_log.exists():
        with plan.scratch.tap_log.open("rb") as log:
            result.differ(*left_out(log, result.streams.keys(), pipeline))
    result.warnings += came_again(plan.committer.log, plan.tables.streams, before, after)
    if not (plan.full or plan.backfill):
        say_null_keys(plan, run.runs, result, after)
        seen = Seen(plan.tables.streams, before, after, piped=is_piped)
        result.warnings += seen.warnings(result.streams, plan.committer.storage)
        loaded = LoadedRun(
            streams=plan.tables.streams,
            before=before,
            after=after,
            counts=result.streams,
            deselected=plan.deselected,
            without_state=reader.without_state,
            is_narrowed=run.is_narrowed or reader.is_partial,
        )
        judgement = loaded.judge(run.runs)
        result.marks |= judgement.marks
        result.warnings += judgement.warnings
    if not (result.streams or after.tables or is_piped):
        if catalog is None:
            result.warnings.append(silent(pipeline.name, run.source.declared))
        elif after.state is None:
            result.differ(*nothing_sent(catalog, pipeline.source.argv))
    if is_piped and reader.without_state:
        result.warnings.append(
            f"the tap sent rows and no STATE: {', '.join(reader.without_state)}. If it died, its next attempt sends "
            "them again, and these are taken back at its first STATE; if it never sends one, each run adds its rows"
        )
    if reader.is_partial:
        result.warnings.append(
            f"stopped after {result.records:,} records, as --max-records says: run again for the rest"
        )


def _has_rows(lake: Snapshot, stream: str) -> bool:
    table = lake.table([stream])
    return bool(table and table.rows)


def _expired(plan: LoadPlan, catalog: Catalog | None) -> Iterator[Difference]:
    if catalog and not plan.full and restarted(plan.scratch.tap_log.read_bytes()):
        text = "the database no longer has the changes since the bookmark, and the tap went on without them"
        for stream in log_based(plan.pipeline, catalog):
            yield Difference(stream, "expired_token", f"{text}; load again: {reload(plan.pipeline, [stream])}")


def say_merges(result: Result, before: Snapshot) -> None:
    """Add to the result how many rows its merges removed beside those that came again: by a key of null, or a new key.

    `before`: the lake before the run. Of a table without a key the rows may be there twice, and are meant to go.
    """
    for stream, counts in result.streams.items():
        nulls, table = counts.merged.get("dropped_nulls", 0), before.tables.get(stream)
        if nulls:
            text = (
                f"{nulls:,} rows whose key is null were removed, as a new row has the same: they may be older than the "
                f"key. {_BACK}; then set key_properties to columns that are never null"
            )
            result.differ(Difference(stream, "null_key", text, nulls))
        if table and table.key and (rows := counts.merged.get("dropped", 0) - nulls):
            key = ", ".join(table.key)
            text = (
                f"{rows:,} rows were removed, as a new row has the same key: the key is not {key} any more, by which "
                f"they were apart. {_BACK}; then set key_properties: [{key}] for the stream"
            )
            result.differ(Difference(stream, "other_key", text, rows))
