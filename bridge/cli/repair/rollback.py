"""`rollback`: make data and STATE what they were after an earlier commit."""

from __future__ import annotations

from typing import Any

import click

from bridge.cli import events
from bridge.cli.answer import Answer, is_quiet
from bridge.cli.confirm import print_differences, warn
from bridge.cli.options import NEEDS_YES, changing, pipeline_verb
from bridge.cli.selection import Selection, committed, typed
from bridge.cli.show import console, count, count_of
from bridge.lake.commit.rollback import RollbackPlan, plan, roll_back
from bridge.lake.log import Log
from bridge.lake.state.store import StateStore
from bridge.operate.rollback_warnings import rollback_warnings
from bridge.protocol.singer.state_edits import differences


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
    storage, snapshot = committed(chosen.pipeline)
    answer.require_consent("to go back all the same: --yes; --dry-run shows it")
    if not answer.dry_run:
        StateStore.at(storage, chosen.pipeline.name).refuse_if_held()
    planned = plan(Log(storage, chosen.pipeline.name), snapshot, commit)
    if (answer.asks or not is_quiet()) and not planned.nothing_to_do:
        _show(planned)
    warnings, head = rollback_warnings(chosen.pipeline, chosen.home, planned, typed(chosen.pipeline)), planned.head
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


def _show(shown: RollbackPlan) -> None:
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


def _as_json(plan: RollbackPlan, warnings: list[str]) -> dict[str, Any]:
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
