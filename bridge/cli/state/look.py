"""`state list`, `state get`, `state history`: what the bookmarks are, and how they came to be that."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import click

from bridge.cli.confirm import print_differences, store_of, warn
from bridge.cli.selection import choose, choose_all, committed, options
from bridge.cli.show import as_json, console, moment, print_table
from bridge.exact_json import dumps
from bridge.lake.log import Log, bookmarks
from bridge.settings.options import Pipeline
from bridge.singer.state import bookmark, known_as
from bridge.state.history import Step, last_move, steps
from bridge.state.store import Stored
from bridge.storage import lake_of


def _read(pipeline: Pipeline) -> Stored:
    """Return the STATE; say so if `state.json` was changed. Raises `SettingsError` where there is nothing at all."""
    seen = store_of(pipeline).read()
    if not seen.version and not seen.edited:
        committed(pipeline)
    if seen.edited:
        warn("state.json was edited by hand: the next run starts from it, and records it as a commit")
    if seen.older:
        warn("state.json is older than the lake: the next run will refuse it; delete it, the log has the last STATE")
    return seen


@click.command("get", short_help="Print the STATE, or one stream's bookmark.")
@options
@click.option("-s", "--stream", metavar="STREAM", help="Only this stream's bookmark.")
@click.option("--json", "json_output", is_flag=True, help="Print JSON, as it does anyway.")
def get(
    name: str | None,
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    stream: str | None,
    json_output: bool,
) -> None:
    """Print the STATE that the next run starts from, verbatim, as JSON.

    \b
    singer-bridge state get flights
    singer-bridge state get --to ./lake --name x -s users
    """
    del json_output
    pipeline = choose(name, file, to, pipeline_name, look=True).named
    value = _read(pipeline).state
    as_json(value if stream is None else bookmark(value, pipeline.names_of(stream)))


@click.command("list", short_help="List the bookmarks, and when each moved.")
@options
@click.option("--all", "everything", is_flag=True, help="All pipelines of the file, as without NAME.")
@click.option("--json", "json_output", is_flag=True, help="Print JSON.")
def list_(
    name: str | None,
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    everything: bool,
    json_output: bool,
) -> None:
    """List the bookmarks, a row a stream: when it last moved, and by which commit. Without NAME: of all pipelines.

    \b
    singer-bridge state list flights
    singer-bridge state list
    """
    everything = everything or not (name or pipeline_name or to)
    chosen = choose_all([name] if name else [], file, to, pipeline_name, everything=everything, look=True)
    found = [row for each in chosen for row in _rows(each.pipeline, quiet=len(chosen) > 1)]
    if json_output:
        as_json(found)
        return
    columns = ["pipeline", "stream", "bookmark", "moved", "commit"][0 if len(chosen) > 1 else 1 :]
    rows = [[moment(row[name]) if name == "moved" else _cell(row[name]) for name in columns] for row in found]
    print_table(columns, rows, right=["commit"], folds=["bookmark"], less=["commit", "moved"])


def _cell(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return dumps(value).decode()


def _rows(pipeline: Pipeline, *, quiet: bool) -> Iterator[dict[str, Any]]:
    seen = store_of(pipeline).read() if quiet else _read(pipeline)
    log = Log(lake_of(pipeline.destination), pipeline.name)
    moved = log.view(seen.version).moved if seen.version and not seen.edited else {}
    for stream, value in bookmarks(seen.state).items():
        at = moved.get(stream)
        commit = last_move(log, seen.version, stream, at) if at else None
        when = f"{at[:19]}Z" if at else None
        yield {"pipeline": pipeline.name, "stream": stream, "bookmark": value, "moved": when, "commit": commit}


@click.command("history")
@options
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="How many, newest first.")
@click.option("-s", "--stream", metavar="STREAM", help="Only what moved this stream's bookmark.")
@click.option("--diff", is_flag=True, help="Show each bookmark before and after.")
@click.option("--json", "json_output", is_flag=True, help="Print JSON.")
def history(
    name: str | None,
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    limit: int,
    stream: str | None,
    diff: bool,
    json_output: bool,
) -> None:
    """Show the commits that changed the STATE, newest first.

    \b
    singer-bridge state history flights --diff
    singer-bridge state history flights -s public-users -n 5
    """
    pipeline = choose(name, file, to, pipeline_name, look=True).named
    log, seen = Log(lake_of(pipeline.destination), pipeline.name), _read(pipeline)
    stream, head = stream and known_as(seen.state, pipeline.names_of(stream)), seen.version
    found = (step for step in steps(log, head) if stream is None or any(c.part == stream for c in step.changes))
    shown = list(islice(found, limit))
    if json_output:
        as_json([_as_json(step) for step in shown])
    elif diff:
        _print_diffs(shown, stream)
    else:
        columns = ["commit", "at", "kind", "run", "changed", "reason"]
        rows = [[str(s.commit), moment(s.at), s.kind, s.run, _parts(s), s.reason] for s in shown]
        print_table(columns, rows, right=["commit"], folds=["changed", "reason"], less=["kind", "run"])


def _parts(step: Step) -> str:
    return ", ".join(change.part for change in step.changes)


def _as_json(step: Step) -> dict[str, Any]:
    changed = [{"stream": c.stream, "key": c.part, "before": c.before, "after": c.after} for c in step.changes]
    facts = {"commit": step.commit, "kind": step.kind, "at": step.at, "run_id": step.run, "reason": step.reason}
    return {**facts, "changed": changed}


def _print_diffs(shown: list[Step], stream: str | None) -> None:
    for step in shown:
        facts = (f"commit {step.commit}", moment(step.at), step.kind, step.run, step.reason)
        console().print("  ".join(filter(None, facts)), markup=False, style="bold", soft_wrap=True)
        print_differences([c for c in step.changes if stream in (None, c.part)], err=False)
