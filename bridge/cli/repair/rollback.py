"""`rollback`: make data and STATE what they were after an earlier commit."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click

from bridge.cli import events
from bridge.cli.answer import Answer, is_quiet
from bridge.cli.confirm import print_differences, warn
from bridge.cli.options import NEEDS_YES, changing, pipeline_verb
from bridge.cli.selection import ChosenPipeline, Selection, committed, typed
from bridge.cli.show import console, count, count_of
from bridge.commit.rollback import Plan, follows_a_log, plan, roll_back
from bridge.errors import SettingsError
from bridge.lake.log import Log, bookmarks
from bridge.singer.catalog import replication_method
from bridge.singer.state_edits import differences
from bridge.state.store import StateStore
from bridge.tap.catalog_store import CatalogStore


@click.command()
@click.argument("commit", metavar="COMMIT", type=click.IntRange(1))
@pipeline_verb
@changing(NEEDS_YES)
def rollback(selection: Selection, *, commit: int, answer: Answer) -> None:
    """Go back to COMMIT: one new commit makes tables and STATE what they were after it.

    `commits list` shows the commits and the rows that each added, `commits show` shows one of them. Files that tables
    gave up are kept for `retention.trash`; a commit that needs older ones is refused. A rollback can itself be rolled
    back.

    \b
    singer-bridge rollback 1 flights --dry-run
    singer-bridge rollback 1 flights --yes
    """
    chosen = selection.pipeline(source=False)
    storage, view = committed(chosen.pipeline)
    answer.require_consent("to go back all the same: --yes; --dry-run shows it")
    if not answer.dry_run:
        StateStore.at(storage, chosen.pipeline.name).refuse_if_held()
    planned = plan(Log(storage, chosen.pipeline.name), view, commit)
    if (answer.asks or not is_quiet()) and not planned.nothing_to_do:
        _show(planned)
    warnings, head = _warnings(chosen, planned), planned.head
    for text in () if is_quiet() else warnings:
        warn(text)
    if not planned.nothing_to_do and answer.goes_ahead("go back?"):
        _, head, notes = roll_back(storage, chosen.pipeline.name, commit, planned if answer.asks else None)
        for text in notes:
            warn(text)
    text = f"as of commit {commit} again, by commit {head}"
    if planned.nothing_to_do:
        text = f"nothing to do, tables and STATE are those of commit {commit}"
    changes = not planned.nothing_to_do
    answer.finish(chosen.pipeline.name, head, _as_json(planned, warnings), text, changes=changes)


def _show(shown: Plan) -> None:
    """Print on stderr what changes: tables, then bookmarks."""
    for change in shown.tables:
        rows, back, removed = (change.now.rows, change.then.rows), len(change.back), len(change.removed)
        if events.is_json():
            facts = {"rows_before": rows[0], "rows_after": rows[1], "files_back": back, "files_removed": removed}
            events.emit("info", "table", stream=change.stream, **facts)
            continue
        files = f"{count_of(back, 'file')} back, {count(removed)} removed"
        line = f"{change.stream}: {count_of(rows[0], 'row')}, then {count(rows[1])}; {files}"
        console(err=True).print(line, markup=False, soft_wrap=True)
    print_differences(differences(shown.before, shown.after.shown))


def _warnings(chosen: ChosenPipeline, shown: Plan) -> list[str]:
    warnings = []
    if streams := follows_a_log(shown.before, shown.after.shown, _log_based(chosen, shown)):
        warnings.append(
            f"{_named(streams)}: the tap reads a database's log (LOG_BASED), and may not get the changes since then "
            "again: the database lets go of what was once confirmed. If it has, load anew: "
            f"singer-bridge run {typed(chosen.pipeline)} --full"
        )
    if shown.restarted:
        warnings.append(f"{_named(shown.restarted)}: half loaded at that commit; the next run starts the table again")
    if shown.dropped:
        warnings.append(f"{_named(shown.dropped)}: what is half loaded now is dropped")
    return warnings


def _named(streams: Sequence[str]) -> str:
    return ", ".join(streams[:5]) + (f" and {count(len(streams) - 5)} more" if len(streams) > 5 else "")


def _log_based(chosen: ChosenPipeline, shown: Plan) -> set[str]:
    catalog = None
    with suppress(SettingsError):  # the next run will report an unreadable catalog
        catalog = CatalogStore(chosen.home, chosen.pipeline).read()
    streams = {*bookmarks(shown.before), *bookmarks(shown.after.shown)}
    return {stream for stream in streams if replication_method(catalog, stream) == "LOG_BASED"}


def _as_json(plan: Plan, warnings: list[str]) -> dict[str, Any]:
    tables = [
        {
            "stream": change.stream,
            "rows_before": change.now.rows,
            "rows_after": change.then.rows,
            "files_back": len(change.back),
            "files_removed": len(change.removed),
        }
        for change in plan.tables
    ]
    return {"to": plan.to, "tables": tables, "before": plan.before, "after": plan.after.shown, "warnings": warnings}
