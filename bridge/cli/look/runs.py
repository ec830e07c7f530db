"""`runs`: what ran, and how it ended."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from itertools import islice
from textwrap import shorten
from typing import Any

import click

from bridge.cli.listing import Listing
from bridge.cli.options import json_option, limit_option, pipeline_verb
from bridge.cli.plain import PlainLines
from bridge.cli.selection import ChosenPipeline, Selection
from bridge.cli.show import as_json, console, count, moment, note, print_table, size
from bridge.cli.survey import Unread, readable, survey, with_warnings
from bridge.durations import duration
from bridge.errors import SettingsError
from bridge.exact_json import dumps
from bridge.lake.run_status import current, last_run
from bridge.lake.runs import RunRecord, StreamResult, any_run, is_run_id, read_log, read_run
from bridge.protocol.singer.moves import moves, short_bookmark
from bridge.protocol.singer.state_edits import contexts_of
from bridge.read.query.runs import latest_runs, run_bookmarks, stream_results
from bridge.settings.options import Pipeline
from bridge.settings.values.units import parse_duration

_READABLE = 30
"""Characters of an error for which the list always has room."""

_LONGEST = 170
"""Characters of an error that the list shows; `runs show` has all of it."""

_STATUS = ("success", "failed", "interrupted", "held", "died", "running", "unreadable")


@click.group(cls=Listing)
def runs() -> None:
    """List runs, and show how each ended."""


def _since(_ctx: click.Context, _param: click.Parameter, value: str | None) -> datetime | None:
    """A time in the past: a duration ago, or a date in UTC."""
    if value is None:
        return None
    try:
        return datetime.now(timezone.utc) - parse_duration(value)
    except SettingsError:
        pass
    try:
        time = datetime.fromisoformat(value.removesuffix("Z"))
    except ValueError:
        raise click.BadParameter(f"{value!r} is no time: write 2d, 2026-11-20 or 2026-11-20T13:30") from None
    return time if time.tzinfo else time.replace(tzinfo=timezone.utc)


@runs.command("list")
@pipeline_verb
@click.option("--pipeline", "only", metavar="NAME", help="Only this pipeline; the same as NAME.")
@click.option("--status", type=click.Choice(_STATUS), help="Only runs with this status.")
@click.option("--since", callback=_since, metavar="TIME", help="Only runs that began since: 2d, or 2026-11-20 (UTC).")
@limit_option(20)
@json_option()
def list_(
    selection: Selection, *, only: str | None, status: str | None, since: datetime | None, limit: int, json_output: bool
) -> int:
    """List the latest runs, newest first: of NAME, or of all pipelines of the file or bucket.

    \b
    singer-bridge runs list flights --status failed --since 2d
    singer-bridge runs list --to ./lake --name x --json
    """
    name = selection.word
    if only and name and only != name:
        raise SettingsError("two names for one pipeline", hint="give NAME or --pipeline", name=name, other=only)
    among = survey(selection.of(name or only))
    chosen, code = readable(among)
    lists = [latest_runs(each.log, since=since, every=status == "held") for each in chosen]
    latest = heapq.merge(*lists, key=lambda record: record.run_id, reverse=True)
    shown = list(islice((record for record in latest if status in (None, record.status)), limit))
    if json_output:
        as_json([record.stored for record in shown])
    elif shown or code:
        _print_list(shown, [each for each in among if isinstance(each, Unread)], several=len(among) > 1)
    else:
        click.echo("no such runs" if status or since else "no runs yet", err=True)
    return code


def _print_list(shown: Sequence[RunRecord], unread: Sequence[Unread], *, several: bool) -> None:
    rows = [
        [
            record.pipeline,
            record.run_id,
            with_warnings(_status(record), len(record.warnings)),
            "-" if record.read is None else count(record.read),
            "-" if record.records is None else count(record.records),
            "" if record.commits is None else str(record.commits),
            _duration(record) if record.ended else "-",
            shorten(record.error.message if record.error else "", _LONGEST, placeholder=" ..."),
        ]
        for record in shown
    ]
    rows += [[each.name, "", "unreadable", "", "", "", "", each.text] for each in unread]
    columns = ["pipeline", "run", "status", "read", "records", "commits", "time", "error"]
    right, less = columns[3:7], ["commits", "time"]
    without = [*(() if several else ("pipeline",)), *(("read",) if all(map(_is_all_stored, shown)) else ())]
    print_table(columns, rows, right=right, folds=["error"], less=less, readable=_READABLE, without=without)


def _is_all_stored(record: RunRecord) -> bool:
    """Whether each record that the run read is in a commit, as far as its record says."""
    return all(result.is_all_stored for result in record.streams.values())


def _status(record: RunRecord) -> str:
    times = record.held_times
    return f"held {times} times" if times > 1 else record.status


@runs.command("show")
@pipeline_verb
@click.argument("word", metavar="[ID]", required=False)
@click.option("--run", "run_id", metavar="ID", help="The same as ID.")
@click.option("--logs", is_flag=True, help="Print the tap's whole log, and Spark's.")
@json_option()
def show(selection: Selection, word: str | None, run_id: str | None, logs: bool, json_output: bool) -> None:
    """Show one run: the latest of NAME, or the one with this ID, for which NAME is not needed.

    \b
    singer-bridge runs show flights
    singer-bridge runs show flights 20261120T133501Z-k3f9a --logs
    """
    if selection.word and is_run_id(selection.word) and not (word and is_run_id(word)):
        selection, word = selection.of(word), selection.word
    if word and run_id and word != run_id:
        raise SettingsError("two IDs for one run", hint="give ID or --run", id=word, other=run_id)
    run_id = run_id or word
    chosen, record = _find(readable(survey(selection))[0], run_id)
    if logs:
        _print_logs(chosen, record)
    elif json_output:
        as_json(record.stored | {"streams": stream_results(record, chosen.with_names)})
    else:
        _print(record, chosen.with_names)


def _find(among: Sequence[ChosenPipeline], run_id: str | None) -> tuple[ChosenPipeline, RunRecord]:
    """A run and its pipeline: the one with this ID, or the latest of all."""
    matches: list[tuple[ChosenPipeline, RunRecord]] = []
    for chosen in among:
        storage, name = chosen.log.storage, chosen.pipeline.name
        record = any_run(storage, name, run_id) if run_id else last_run(storage, name)
        if record:
            matches.append((chosen, current(storage, record)))
    if matches:
        chosen, record = max(matches, key=lambda each: each[1].run_id)
        if not record.is_readable:
            read_run(chosen.log.storage, chosen.pipeline.name, record.run_id)  # raises what is wrong with it
        return chosen, record
    names = ", ".join(chosen.pipeline.name for chosen in among)
    if run_id:
        hint = "`singer-bridge runs list` has them; the oldest go after `retention.runs`"
        raise SettingsError("no such run", hint=hint, run=run_id, pipeline=names)
    raise SettingsError("no runs yet", hint="`singer-bridge run` makes the first", pipeline=names)


def _print_logs(chosen: ChosenPipeline, record: RunRecord) -> None:
    from bridge.load.run.scratch import Scratch

    pipeline, run = chosen.pipeline, record.run_id
    scratch, storage = Scratch(chosen.home, pipeline, run), chosen.log.storage
    for suffix, here in (("", scratch.tap_log), (".spark", scratch.spark_log)):
        # Of a run that has not ended, the bucket has at most the end of the log, and its own machine all of it.
        try:
            log = here.read_bytes()
        except OSError:
            log = read_log(storage, pipeline.name, run + suffix) or b""
        PlainLines(sys.stdout.buffer).write(log)
    sys.stdout.flush()


def _print(record: RunRecord, pipeline: Pipeline) -> None:
    out = console()
    facts = {"pipeline": record.pipeline, "run_id": record.run_id, "status": record.status}
    facts |= {"started": moment(record.started), "ended": moment(record.ended or "")}
    if record.records is not None:
        read = "" if record.read in (None, record.records) else f"{record.read:,} read, "
        facts["records"] = f"{read}{record.records:,}{' committed' if read else ''}"
    facts["commits"] = "" if record.commits is None else str(record.commits)
    if record.ended:
        facts["duration"] = _duration(record)
    window, attempt = record.requested.get("backfill"), record.attempt if record.attempt > 1 else ""
    more = {"attempt": str(attempt), "backfill": str(window or ""), "skipped": ", ".join(record.skipped)}
    facts |= {fact: value for fact, value in more.items() if value}
    for fact, value in (facts | {"tap": f"{record.tap} {record.tap_version}".strip()}).items():
        out.print(f"{fact.replace('_', ' '):>12}  {value}", markup=False)
    for fact, state in (("state before", record.state_before), ("state", record.state)):
        out.print(f"{fact:>12}  {_compact(state)}", markup=False, soft_wrap=True)
    if record.streams:
        _print_streams(record, pipeline)
    for warning in record.warnings:
        note("warning", "yellow", warning)
    if record.error:
        note("error", "red", record.error.message)
        note("hint", "yellow", record.error.hint)


def _print_streams(record: RunRecord, pipeline: Pipeline) -> None:
    console().print()
    columns = ["stream", "load method", "read", "records", "rejected", "files", "size", "time"]
    less = [*([] if any(result.rejected for result in record.streams.values()) else ["rejected"]), "files", "time"]
    rows = [_row(stream, result) for stream, result in record.streams.items()]
    without = ("read",) if _is_all_stored(record) else ()
    print_table(columns, rows, right=columns[2:], folds=["load method"], less=less, without=without)
    console().print()
    bookmarks = list[list[str]]()
    for stream, (before, after) in run_bookmarks(record, pipeline).items():
        if contexts_of(after):  # there may be thousands
            parts = [[move.of(stream), move.before, move.after] for move in moves(before, after)]
            bookmarks += parts or [[stream, short_bookmark(before), short_bookmark(after)]]
        else:
            bookmarks.append([stream, _compact(before), _compact(after)])
    columns = ["stream", "bookmark before", "bookmark after"]
    print_table(columns, bookmarks, folds=columns[1:])


def _row(stream: str, result: StreamResult) -> list[str]:
    read = "-" if result.read is None else count(result.read)
    figures = [count(number) for number in (result.records, result.rejected, result.files)]
    method = "held back" if result.held_back else result.load_method
    return [stream, method, read, *figures, size(result.bytes), _seconds(result.seconds)]


def _duration(record: RunRecord) -> str:
    """The time of the whole run; of one that an older version recorded, that of its load."""
    return duration(record.seconds.get("total", record.seconds.get("load", 0.0)))


def _seconds(seconds: float) -> str:
    """A time for people; nothing for less than a millisecond."""
    return duration(seconds) if seconds >= 0.001 else ""


def _compact(value: Any) -> str:
    return "" if value is None else dumps(value).decode().strip()
