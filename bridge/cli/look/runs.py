"""`runs`: what ran, and how it ended."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from textwrap import shorten
from typing import Any

import click

from bridge.cli.listing import Listing
from bridge.cli.plain import PlainLines
from bridge.cli.selection import Chosen, options
from bridge.cli.show import as_json, console, count, moment, note, print_table, size
from bridge.cli.survey import Unread, look_at, readable, settled, with_warnings
from bridge.errors import SettingsError
from bridge.exact_json import dumps
from bridge.lake.runs import is_run_id, read_log, read_run, read_runs, records
from bridge.settings.options import Pipeline
from bridge.settings.values.units import parse_duration
from bridge.singer.state import bookmark
from bridge.storage import lake_of

_READABLE = 30
"""Characters of an error in a line of the list."""

_LONGEST = 170
"""Characters of an error that the list shows; `runs show` has all of it."""

_STATUS = ("success", "failed", "interrupted", "died", "running")


@click.group(cls=Listing, short_help="What ran, and how it ended.")
def runs() -> None:
    """Look at runs."""


def _since(_ctx: click.Context, _param: click.Parameter, value: str | None) -> datetime | None:
    """Return a time in the past: so long ago, or a date, in UTC as all times that are shown."""
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
@options
@click.option("--pipeline", "only", metavar="NAME", help="Only this pipeline; the same as NAME.")
@click.option("--status", type=click.Choice(_STATUS), help="Only runs that ended so, or still run.")
@click.option("--since", callback=_since, metavar="TIME", help="Only runs that began since: 2d, or 2026-11-20 (UTC).")
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="How many, newest first.")
@click.option("--json", "json_output", is_flag=True, help="Print JSON.")
def list_(
    name: str | None,
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    *,
    only: str | None,
    status: str | None,
    since: datetime | None,
    limit: int,
    json_output: bool,
) -> int:
    """List the latest runs, newest first: of NAME, or of all pipelines of the file or bucket.

    \b
    singer-bridge runs list flights --status failed --since 2d
    singer-bridge runs list --to ./lake --name x --json
    """
    if only and name and only != name:
        raise SettingsError("two names for one pipeline", hint="give NAME or --pipeline", name=name, other=only)
    among = look_at(name or only, file, to, pipeline_name)
    chosen, code = readable(among)
    latest = heapq.merge(*(_runs(each, since) for each in chosen), key=lambda record: record["run_id"], reverse=True)
    found = list(islice((record for record in latest if status in (None, record["status"])), limit))
    if json_output:
        as_json(found)
    elif found or code:
        _print_list(found, [each for each in among if isinstance(each, Unread)], several=len(among) > 1)
    else:
        click.echo("no such runs" if status or since else "no runs yet", err=True)
    return code


def _runs(chosen: Chosen, since: datetime | None) -> Iterator[dict[str, Any]]:
    storage = lake_of(chosen.pipeline.destination)
    return (settled(storage, record) for record in read_runs(storage, chosen.pipeline.name, since=since))


def _print_list(found: Sequence[dict[str, Any]], unread: Sequence[Unread], *, several: bool) -> None:
    rows = [
        [
            *([record["pipeline"]] if several else []),
            record["run_id"],
            with_warnings(record["status"], len(record.get("warnings", []))),
            "-" if (loaded := records(record)) is None else count(loaded),
            str(record.get("commits", "")),
            f"{record.get('seconds', {}).get('load', 0):.1f} s" if "ended" in record else "-",
            shorten((record.get("error") or {}).get("message", ""), _LONGEST, placeholder=" ..."),
        ]
        for record in found
    ]
    rows += [[each.name, "", "unreadable", "", "", "", each.text] for each in unread]
    columns = [*(["pipeline"] if several else []), "run", "status", "records", "commits", "time", "error"]
    less = ["commits", "time"]
    print_table(columns, rows, right=["records", *less], folds=["error"], less=less, readable=_READABLE)


@runs.command("show")
@options
@click.option("--run", "run_id", metavar="ID", help="Which run; default: the latest.")
@click.option("--logs", is_flag=True, help="Print the tap's whole log, and Spark's.")
@click.option("--json", "json_output", is_flag=True, help="Print JSON.")
def show(
    name: str | None,
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    run_id: str | None,
    logs: bool,
    json_output: bool,
) -> None:
    """Show one run: NAME's latest, or the one whose ID is given, also in the place of NAME.

    \b
    singer-bridge runs show flights
    singer-bridge runs show 20261120T133501Z-k3f9 --logs
    """
    if name and not run_id and is_run_id(name):
        name, run_id = None, name
    chosen, record = _find(readable(look_at(name, file, to, pipeline_name))[0], run_id)
    if logs:
        _print_logs(chosen, record)
    elif json_output:
        as_json(record | {"streams": _streams(record, chosen.named)})
    else:
        _print(record, chosen.named)


def _find(among: Sequence[Chosen], run_id: str | None) -> tuple[Chosen, dict[str, Any]]:
    """Return the run, or the latest of all, and the pipeline that it is one of."""
    found: list[tuple[Chosen, dict[str, Any]]] = []
    for chosen in among:
        pipeline = chosen.pipeline
        storage = lake_of(pipeline.destination)
        record = (
            read_run(storage, pipeline.name, run_id) if run_id else next(read_runs(storage, pipeline.name, 1), None)
        )
        if record:
            found.append((chosen, settled(storage, record)))
    if found:
        return max(found, key=lambda each: str(each[1]["run_id"]))
    names = ", ".join(chosen.pipeline.name for chosen in among)
    if run_id:
        hint = "`singer-bridge runs list` has them; the oldest go after `retention.runs`"
        raise SettingsError("no such run", hint=hint, run=run_id, pipeline=names)
    raise SettingsError("no runs yet", hint="`singer-bridge run` makes the first", pipeline=names)


def _print_logs(chosen: Chosen, record: dict[str, Any]) -> None:
    from bridge.load.scratch import Scratch

    pipeline, run = chosen.pipeline, record["run_id"]
    scratch, storage = Scratch(chosen.home, pipeline, run), lake_of(pipeline.destination)
    for suffix, here in (("", scratch.tap_log), (".spark", scratch.spark_log)):
        # A log comes into the bucket when its run ends; one that died or still runs has it on its own machine.
        kept = read_log(storage, pipeline.name, run + suffix)
        log = kept if kept is not None else here.read_bytes() if here.exists() else b""
        PlainLines(sys.stdout.buffer).write(log)
    sys.stdout.flush()


def _streams(record: dict[str, Any], pipeline: Pipeline) -> dict[str, Any]:
    """Return what came of each stream, with its bookmark before and after."""
    before, after = record.get("state_before"), record.get("state")
    return {
        stream: facts | {"bookmark_before": bookmark(before, names), "bookmark": bookmark(after, names)}
        for stream, facts in record.get("streams", {}).items()
        for names in [pipeline.names_of(stream)]
    }


def _print(record: dict[str, Any], pipeline: Pipeline) -> None:
    out = console()
    tap = f"{record.get('tap', '')} {record.get('tap_version', '')}".strip()
    facts = {key: record.get(key, "") for key in ("pipeline", "run_id", "status", "started", "ended", "commits")}
    facts |= {key: moment(facts[key]) for key in ("started", "ended")}
    if "load" in record.get("seconds", {}):
        facts["duration"] = f"{record['seconds']['load']:.1f} s"
    if record.get("attempt", 1) > 1:
        facts["attempt"] = record["attempt"]
    if record.get("skipped"):
        facts["skipped"] = ", ".join(record["skipped"])
    for fact, value in (facts | {"tap": tap}).items():
        out.print(f"{fact.replace('_', ' '):>12}  {value}", markup=False)
    for fact in ("state_before", "state"):
        out.print(f"{fact.replace('_', ' '):>12}  {_compact(record.get(fact))}", markup=False, soft_wrap=True)
    streams = _streams(record, pipeline)
    if streams:
        out.print()
        columns = ["stream", "load method", "records", "rejected", "files", "size", "time"]
        less = [*([] if any(f["rejected"] for f in streams.values()) else ["rejected"]), "files", "time"]
        rows = [_row(stream, facts) for stream, facts in streams.items()]
        print_table(columns, rows, right=columns[2:], folds=["load method"], less=less)
        out.print()
        bookmarks = [[s, _compact(f["bookmark_before"]), _compact(f["bookmark"])] for s, f in streams.items()]
        columns = ["stream", "bookmark before", "bookmark after"]
        print_table(columns, bookmarks, folds=columns[1:])
    for warning in record.get("warnings", []):
        note("warning", "yellow", warning)
    if record.get("error"):
        note("error", "red", record["error"]["message"])
        note("hint", "yellow", record["error"]["hint"])


def _row(stream: str, facts: dict[str, Any]) -> list[str]:
    figures = [count(facts[key]) for key in ("records", "rejected", "files")]
    return [stream, facts["load_method"], *figures, size(facts["bytes"]), _seconds(facts.get("seconds", 0))]


def _seconds(seconds: float) -> str:
    """Return a time; a tap that sent a stream in one piece took none that would be worth a figure."""
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{seconds * 1000:.0f} ms" if seconds >= 0.001 else ""


def _compact(value: Any) -> str:
    return "" if value is None else dumps(value).decode().strip()
