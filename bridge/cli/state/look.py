"""`state list`, `state get`, `state history`: the bookmarks, and how they changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import click

from bridge.cli.confirm import print_differences, store_of, warn
from bridge.cli.options import all_option, json_option, limit_option, partition_option, pipeline_verb, stream_option
from bridge.cli.selection import ChosenPipeline, Selection, committed
from bridge.cli.show import as_json, console, moment, print_table
from bridge.cli.state.streams import context_of
from bridge.exact_json import dumps
from bridge.lake.log import Snapshot, bookmarks
from bridge.lake.state.history import StateStep, last_move, steps
from bridge.lake.state.store import Stored
from bridge.lake.stream_files import replication_methods
from bridge.protocol.singer.state import bookmark, known_as
from bridge.protocol.singer.state_edits import partition_of, same
from bridge.settings.options import Pipeline


def _read(pipeline: Pipeline) -> Stored:
    """Read the STATE, and warn if `state.json` was edited. Raises `SettingsError` if there is no commit yet."""
    seen = store_of(pipeline).read()
    if not seen.version and not seen.edited:
        committed(pipeline)
    if seen.edited:
        warn("state.json was edited by hand: the next run starts from it, and records it as a commit")
    return seen


@click.command("get")
@pipeline_verb
@stream_option("Only this stream's bookmark.")
@partition_option("With -s: only the part of the bookmark that has this context.")
@json_option("Print JSON, which is the default.")
def get(selection: Selection, stream: str | None, partition: str | None, json_output: bool) -> None:
    """Print the STATE that the next run starts from. It is JSON, exactly as the tap sent it.

    \b
    singer-bridge state get flights
    singer-bridge state get --to ./lake --name x -s users
    """
    del json_output
    pipeline = selection.pipeline(source=False).with_names
    context = context_of(stream, partition) if partition is not None else None
    value = _read(pipeline).state
    if stream is not None:
        value = bookmark(value, pipeline.names_of(stream))
    as_json(value if context is None else partition_of(value, context))


@click.command("list")
@pipeline_verb
@all_option("All pipelines of the file, as without NAME.")
@json_option()
def list_(selection: Selection, json_output: bool) -> None:
    """List the bookmarks: replication method, when each last changed, by which commit. Without NAME: of all pipelines.

    \b
    singer-bridge state list flights
    singer-bridge state list
    """
    if not (selection.name or selection.to):
        selection = replace(selection, everything=True)
    chosen = selection.pipelines(source=False)
    facts = [row for each in chosen for row in _rows(each, quiet=len(chosen) > 1)]
    if json_output:
        as_json(facts)
        return
    columns = ["pipeline", "stream", "replication_method", "bookmark", "moved", "commit"]
    rows = [[moment(row[name]) if name == "moved" else _cell(row[name]) for name in columns] for row in facts]
    without = [*(() if len(chosen) > 1 else ("pipeline",)), *(() if any(row[2] for row in rows) else ("method",))]
    columns[2] = "method"
    print_table(
        columns, rows, right=["commit"], folds=["bookmark"], less=["commit", "moved", "method"], without=without
    )


def _cell(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return dumps(value).decode()


def _rows(chosen: ChosenPipeline, *, quiet: bool) -> Iterator[dict[str, Any]]:
    pipeline, log = chosen.pipeline, chosen.log
    seen = store_of(pipeline).read() if quiet else _read(pipeline)
    snapshot = log.snapshot(seen.version) if seen.version else Snapshot()
    committed_ones = bookmarks(snapshot.state)
    methods = replication_methods(log, snapshot)
    for stream, value in bookmarks(seen.state).items():
        is_edited = seen.edited and not same(committed_ones.get(stream), value)
        at = None if is_edited else snapshot.bookmark_changed_at.get(stream)
        commit = last_move(log, seen.version, stream, at) if at else None
        when = f"{at[:19]}Z" if at else None
        facts = {"pipeline": pipeline.name, "stream": stream, "replication_method": methods.get(stream)}
        yield {**facts, "bookmark": value, "moved": when, "commit": commit}


@click.command("history")
@pipeline_verb
@limit_option(20)
@stream_option("Only what moved this stream's bookmark.")
@click.option("--diff", is_flag=True, help="Show each bookmark before and after.")
@json_option()
def history(selection: Selection, limit: int, stream: str | None, diff: bool, json_output: bool) -> None:
    """List the commits that changed the STATE, newest first.

    \b
    singer-bridge state history flights --diff
    singer-bridge state history flights -s public-users -n 5
    """
    chosen = selection.pipeline(source=False)
    pipeline = chosen.with_names
    log, seen = chosen.log, _read(pipeline)
    stream, head = stream and known_as(seen.state, pipeline.names_of(stream)), seen.version
    changes = (step for step in steps(log, head) if stream is None or any(c.part == stream for c in step.changes))
    shown = list(islice(changes, limit))
    if json_output:
        as_json([_as_json(step) for step in shown])
    elif diff:
        _print_diffs(shown, stream)
    else:
        columns = ["commit", "at", "kind", "run", "changed", "reason"]
        rows = [[str(s.commit), moment(s.at), s.kind, s.run, _parts(s), s.reason] for s in shown]
        print_table(columns, rows, right=["commit"], folds=["changed", "reason"], less=["kind", "run"])


def _parts(step: StateStep) -> str:
    return ", ".join(change.part for change in step.changes)


def _as_json(step: StateStep) -> dict[str, Any]:
    changed = [{"stream": c.stream, "key": c.part, "before": c.before, "after": c.after} for c in step.changes]
    facts = {"commit": step.commit, "kind": step.kind, "at": step.at, "run_id": step.run, "reason": step.reason}
    return {**facts, "changed": changed}


def _print_diffs(shown: list[StateStep], stream: str | None) -> None:
    for step in shown:
        facts = (f"commit {step.commit}", moment(step.at), step.kind, step.run, step.reason)
        console().print("  ".join(filter(None, facts)), markup=False, style="bold", soft_wrap=True)
        print_differences([c for c in step.changes if stream in (None, c.part)], err=False)
