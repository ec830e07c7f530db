"""`commits`: what each commit did, and which ones `rollback` can go back to."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import click

from bridge.cli.confirm import print_differences
from bridge.cli.listing import Listing
from bridge.cli.options import json_option, limit_option, pipeline_verb
from bridge.cli.selection import ChosenPipeline, Selection, committed, typed
from bridge.cli.show import as_json, console, count, moment, note, print_table
from bridge.cli.survey import one_or_all
from bridge.errors import BridgeError, SettingsError
from bridge.lake.log import Log
from bridge.read.query.changes.commit_effects import CommitStep, commit_step, commit_steps

_NAMED = 3
"""How many tables of a commit its row names; `show` has all of them."""


@click.group(cls=Listing)
def commits() -> None:
    """List commits, and show what each changed. `rollback` takes their numbers."""


@commits.command("list")
@pipeline_verb
@limit_option(20)
@json_option()
def list_(selection: Selection, *, limit: int, json_output: bool) -> int:
    """List the latest commits, newest first: of NAME, or of all pipelines of the file or bucket.

    \b
    singer-bridge commits list flights
    singer-bridge commits list flights -n 5 --json
    """
    chosen, code = one_or_all(selection)
    newest = heapq.merge(*map(_commits, chosen), key=lambda pair: pair[1].at, reverse=True)
    pairs = list(islice(newest, limit + 1))
    shown, more = pairs[:limit], len(pairs) > limit
    if json_output:
        as_json([_as_json(one.pipeline.name, step) for one, step in shown])
    elif shown:
        _print_list(shown, several=len(chosen) > 1)
        if more:
            note("not shown", "dim", f"older commits; -n {limit * 5} shows more")
    elif not code:
        click.echo("no commits yet", err=True)
    return code


def _commits(chosen: ChosenPipeline) -> Iterator[tuple[ChosenPipeline, CommitStep]]:
    log = chosen.log
    return ((chosen, step) for step in commit_steps(log, log.latest()))


def _print_list(pairs: Sequence[tuple[ChosenPipeline, CommitStep]], *, several: bool) -> None:
    cells = [
        {
            "pipeline": one.pipeline.name,
            "commit": str(step.commit),
            "at": moment(step.at),
            "kind": f"{step.kind}, taken back" if step.taken_back_by else step.kind,
            "added": _signed("+", step.added),
            "removed": _signed("-", step.removed),
            "rows now": _tables(step),
            "run": step.run,
            "reason": step.reason,
        }
        for one, step in pairs
    ]
    without = [
        *([] if several else ["pipeline"]),
        *([] if any(each["reason"] for each in cells) else ["reason"]),
    ]
    rows, folds = [list(each.values()) for each in cells], ["rows now", "reason"]
    right, less = ["commit", "added", "removed"], ["run", "kind"]
    print_table(list(cells[0]), rows, right=right, folds=folds, less=less, readable=20, without=without)


def _signed(sign: str, number: int | None) -> str:
    return "?" if number is None else f"{sign}{count(number)}" if number else ""


def _tables(step: CommitStep) -> str:
    """Name the tables of a commit, with the rows that they had after it."""
    named = ", ".join(f"{table.stream} {count(table.rows)}" for table in step.tables[:_NAMED])
    return f"{named} and {len(step.tables) - _NAMED} more" if len(step.tables) > _NAMED else named


@commits.command("show")
@pipeline_verb
@click.argument("commit", metavar="COMMIT", required=False)
@json_option()
def show(selection: Selection, *, commit: str | None, json_output: bool) -> None:
    """Show what one commit did to each table and bookmark, and whether `rollback` can go back to it.

    \b
    singer-bridge commits show flights 1
    singer-bridge commits show 1 --to ./lake --name x
    """
    name, number = _number(selection.word, commit)
    chosen = selection.of(name).pipeline(source=False)
    storage, snapshot = committed(chosen.pipeline)
    log = Log(storage, chosen.pipeline.name)
    step = commit_step(log, snapshot.n, number)
    if step is None:
        hint = f"singer-bridge commits list {typed(chosen.pipeline)} shows them"
        raise SettingsError("there is no such commit", hint=hint, commit=number, last=snapshot.last_change)
    obstacle = _obstacle(log, number)
    if json_output:
        as_json(_as_json(chosen.pipeline.name, step) | {"rollback": obstacle is None, "why_not": obstacle})
        return
    _print(chosen, step, obstacle)


def _number(name: str | None, commit: str | None) -> tuple[str | None, int]:
    """NAME and the commit's number; NAME may be left out, and the two may stand in either order."""
    if commit is None or not commit.isdigit():
        name, commit = commit, name
    if commit is None or not commit.isdigit():
        hint = "give its number, such as: singer-bridge commits show NAME 3"
        raise SettingsError("which commit?", hint=hint, **({"given": commit} if commit else {}))
    return name, int(commit)


def _obstacle(log: Log, number: int) -> str | None:
    """Why `rollback` cannot go back to a commit; None if it can."""
    from bridge.lake.commit.rollback import plan

    try:
        plan(log, log.snapshot(log.latest()), number)
    except BridgeError as error:
        return f"{error.message}. {error.hint}"
    return None


def _print(chosen: ChosenPipeline, step: CommitStep, obstacle: str | None) -> None:
    out = console()
    facts = {"commit": str(step.commit), "at": moment(step.at), "kind": step.kind, "run": step.run}
    for fact, value in (facts | {"reason": step.reason}).items():
        if value:
            out.print(f"{fact:>9}  {value}", markup=False, soft_wrap=True)
    if step.tables:
        out.print()
        columns = ["stream", "mode", "rows added", "rows removed", "rows now", "files"]
        rows = _rows(step)
        print_table(columns, rows, right=columns[2:], less=["files", "mode"])
    if step.changes:
        out.print()
        print_differences(step.changes, err=False)
    out.print()
    if obstacle is not None:
        note("rollback", "yellow", f"cannot go back to this commit: {obstacle}")
        return
    name = typed(chosen.pipeline)
    note("go back to this commit", "dim", f"singer-bridge rollback {step.commit} {name} --dry-run")
    if step.commit > 1:
        note("go back to before it", "dim", f"singer-bridge rollback {step.commit - 1} {name} --dry-run")


def _rows(step: CommitStep) -> list[list[str]]:
    rows = []
    for table in step.tables:
        added, removed = _signed("+", table.added), _signed("-", table.removed)
        files = " ".join(filter(None, (_signed("+", table.files_added), _signed("-", table.files_removed))))
        rows.append([table.stream, table.mode, added, removed, count(table.rows), files])
    return rows


def _as_json(pipeline: str, step: CommitStep) -> dict[str, Any]:
    tables = [
        {
            "stream": table.stream,
            "folder": table.folder,
            "mode": table.mode,
            "rows_added": table.added,
            "rows_removed": table.removed,
            "rows": table.rows,
            "files_added": table.files_added,
            "files_removed": table.files_removed,
        }
        for table in step.tables
    ]
    facts = {"pipeline": pipeline, "commit": step.commit, "at": step.at, "kind": step.kind, "run_id": step.run}
    rows = {"rows_added": step.added, "rows_removed": step.removed, "taken_back_by": step.taken_back_by}
    moved = [change.part for change in step.changes]
    return {**facts, "reason": step.reason, **rows, "tables": tables, "bookmarks_changed": moved}
