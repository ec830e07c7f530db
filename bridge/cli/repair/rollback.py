"""`rollback`: data and STATE as they were after an earlier commit."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from bridge.cli import events
from bridge.cli.confirm import print_differences, warn
from bridge.cli.selection import Chosen, choose, committed, options, typed
from bridge.cli.show import as_json, console, count, count_of
from bridge.commit.rollback import Plan, follows_a_log, plan, roll_back
from bridge.errors import SettingsError
from bridge.lake.log import Log, bookmarks
from bridge.singer.catalog import replication_method
from bridge.singer.state_edits import differences
from bridge.state.store import StateStore
from bridge.tap.catalog_store import Kept


@click.command(short_help="Go back to an earlier commit, data and STATE.")
@click.argument("commit", metavar="COMMIT", type=click.IntRange(1))
@options
@click.option("--dry-run", is_flag=True, help="Show what it would do; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask; without a terminal it is needed.")
@click.option("--json", "json_output", is_flag=True, help="Print one JSON object.")
def rollback(
    commit: int,
    name: str | None,
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    *,
    dry_run: bool,
    yes: bool,
    json_output: bool,
) -> None:
    """Have tables and STATE be as they were after COMMIT, by one new commit; the next run goes on from there.

    `commits list` shows the commits and the rows that each added, `commits show` one of them. What tables gave up is
    kept for `retention.trash`, and a commit that needs more than that is refused. A rollback can be rolled back.

    \b
    singer-bridge rollback 1 flights --dry-run
    singer-bridge rollback 1 flights --yes
    """
    chosen = choose(name, file, to, pipeline_name, look=True)
    storage, view = committed(chosen.pipeline)
    asks = not (dry_run or yes)
    if asks and not sys.stdin.isatty():
        raise SettingsError("nobody is there to be asked", hint="to go back all the same: --yes; --dry-run shows it")
    if not dry_run:
        StateStore.at(storage, chosen.pipeline.name).refuse_if_held()
    shown = plan(Log(storage, chosen.pipeline.name), view, commit)
    quiet = bool(click.get_current_context().meta.get("bridge.quiet"))
    head = shown.head
    if (asks or not quiet) and not shown.nothing_to_do:
        _show(shown)
    warnings = _warnings(chosen, shown)
    for text in warnings if not quiet else ():
        warn(text)
    if not dry_run and not shown.nothing_to_do:
        if asks:
            click.confirm("go back?", abort=True, err=True)
        _, head, notes = roll_back(storage, chosen.pipeline.name, commit, shown if asks else None)
        for text in notes:
            warn(text)
    _finish(chosen, shown, head, warnings, dry_run=dry_run, json_output=json_output)


def _show(shown: Plan) -> None:
    """Say on stderr what changes, table by table, then the bookmarks."""
    for change in shown.tables:
        rows, back, removed = (change.now.rows, change.then.rows), len(change.back), len(change.removed)
        if events.is_json():
            facts = {"rows_before": rows[0], "rows_after": rows[1], "files_back": back, "files_removed": removed}
            events.emit("info", "table", stream=change.stream, **facts)
            continue
        files = f"{count_of(back, 'file')} back, {count(removed)} removed"
        line = f"{change.stream}: {count_of(rows[0], 'row')}, then {count(rows[1])}; {files}"
        console(err=True).print(line, markup=False, soft_wrap=True)
    print_differences(differences(shown.before, shown.state))


def _warnings(chosen: Chosen, shown: Plan) -> list[str]:
    found = []
    if streams := follows_a_log(shown.before, shown.state, _log_based(chosen, shown)):
        found.append(
            f"{_named(streams)}: the tap reads a database's log (LOG_BASED), and may not get the changes since then "
            "again: the database lets go of what was once confirmed. If it has, load anew: "
            f"singer-bridge run {typed(chosen.pipeline)} --full"
        )
    if shown.restarted:
        found.append(f"{_named(shown.restarted)}: half loaded at that commit; the next run starts the table again")
    if shown.dropped:
        found.append(f"{_named(shown.dropped)}: what is half loaded now is dropped")
    return found


def _named(streams: Sequence[str]) -> str:
    return ", ".join(streams[:5]) + (f" and {count(len(streams) - 5)} more" if len(streams) > 5 else "")


def _log_based(chosen: Chosen, shown: Plan) -> set[str]:
    catalog = None
    with suppress(SettingsError):  # an unreadable catalog is the run's matter
        catalog = Kept(chosen.home, chosen.pipeline).read()
    streams = {*bookmarks(shown.before), *bookmarks(shown.state)}
    return {stream for stream in streams if replication_method(catalog, stream) == "LOG_BASED"}


def _finish(chosen: Chosen, done: Plan, head: int, warnings: list[str], *, dry_run: bool, json_output: bool) -> None:
    name = chosen.pipeline.name
    if json_output:
        as_json({"format": 1, "pipeline": name, "commit": head, "dry_run": dry_run, **_as_json(done, warnings)})
    elif done.nothing_to_do:
        click.echo(f"{name}: nothing to do, tables and STATE are those of commit {done.to}")
    elif dry_run:
        click.echo("dry run: nothing was changed")
    else:
        click.echo(f"{name}: as of commit {done.to} again, by commit {head}")


def _as_json(done: Plan, warnings: list[str]) -> dict[str, Any]:
    tables = [
        {
            "stream": change.stream,
            "rows_before": change.now.rows,
            "rows_after": change.then.rows,
            "files_back": len(change.back),
            "files_removed": len(change.removed),
        }
        for change in done.tables
    ]
    return {"to": done.to, "tables": tables, "before": done.before, "after": done.state, "warnings": warnings}
