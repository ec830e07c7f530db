"""`rejects`: what could not be stored: look at it, load what fits by now, or delete it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bridge.cli.confirm import warn
from bridge.cli.listing import Listing
from bridge.cli.plain import plain_json
from bridge.cli.selection import changing, choose, committed, options
from bridge.cli.show import as_json, console, count, count_of, print_table, size
from bridge.cli.survey import one_or_all, readable
from bridge.errors import SettingsError
from bridge.lake.log import Log
from bridge.state.store import StateStore
from bridge.storage import lake_of

if TYPE_CHECKING:
    from bridge.lake.records import RejectFile
    from bridge.maintain.rejects.replay import Replayed
    from bridge.maintain.rejects.survey import Group, Wanted
    from bridge.settings.options import Pipeline

_F = TypeVar("_F", bound=Callable[..., Any])
_LONGEST = 100
"""Characters of a value that are shown in a table; `--json` has all of them."""


def _which(function: _F) -> _F:
    """Add the options that choose rejects; they come as one argument `wanted`, after those that choose a pipeline."""
    for option in (
        click.option("--reason", metavar="WORDS", help="Only those with these words in their reason."),
        click.option("--run", metavar="ID", help="Only those of one run."),
        click.option("-s", "--stream", metavar="STREAM", help="Only those of one stream."),
        options,
    ):
        function = option(function)
    return function


def _chosen(
    name: str | None,
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    stream: str | None,
    run: str | None,
    reason: str | None,
) -> tuple[Pipeline, Wanted]:
    from bridge.maintain.rejects.survey import Wanted

    return choose(name, file, to, pipeline_name, look=True).named, Wanted(stream, run, reason)


@click.group(cls=Listing, short_help="What could not be stored, and why.")
def rejects() -> None:
    """Look at what could not be stored, load what fits by now, or delete it."""


@rejects.command("list")
@_which
@click.option("--json", "json_output", is_flag=True, help="Print JSON.")
def list_(
    name: str | None,
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    stream: str | None,
    run: str | None,
    reason: str | None,
    json_output: bool,
) -> int:
    """List rejects by stream, run and reason: of NAME, or of all pipelines of the file or bucket.

    \b
    singer-bridge rejects list flights
    singer-bridge rejects list --to ./lake --name x -s users --json
    """
    from bridge.maintain.rejects.survey import Wanted, groups

    chosen, code = readable(one_or_all(name, file, to, pipeline_name))
    wanted, several = Wanted(stream, run, reason), len(chosen) > 1
    found = [
        (each.pipeline.name, group)
        for each in chosen
        for group in groups(_files(each.pipeline, wanted, several=several), wanted)
    ]
    if json_output:
        as_json([{"pipeline": pipeline, **asdict(group)} for pipeline, group in found])
    else:
        _print_groups(found, several=several)
    return code


def _files(pipeline: Pipeline, wanted: Wanted, *, several: bool) -> list[RejectFile]:
    """Return the files with a pipeline's rejects; of several pipelines, one without a commit has none."""
    from bridge.maintain.rejects.survey import find

    storage = lake_of(pipeline.destination)
    log = Log(storage, pipeline.name)
    view = log.view(log.latest()) if several else committed(pipeline)[1]
    return find(storage, pipeline.name, view, wanted)


def _print_groups(found: list[tuple[str, Group]], *, several: bool = False) -> None:
    if not found:
        click.echo("no rejects")
        return
    columns = ["pipeline", "stream", "run", "reason", "records", "size"]
    rows = [
        [pipeline, _named(group.stream), group.run, group.reason, count(group.records), size(group.bytes)]
        for pipeline, group in found
    ]
    if not several:
        columns, rows = columns[1:], [row[1:] for row in rows]
    print_table(columns, rows, right=["records", "size"], folds=["reason"], less=["size"])


def _named(stream: str | None) -> str:
    from bridge.maintain.rejects.survey import STDOUT

    return STDOUT if stream is None else stream


@rejects.command("show")
@_which
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="How many records.")
@click.option("--json", "json_output", is_flag=True, help="Print one JSON object a reject, with its bytes.")
def show(limit: int, json_output: bool, **choice: Any) -> None:
    """Print rejects, those of the oldest run first, with the value that was to blame.

    \b
    singer-bridge rejects show flights -s public-flights
    singer-bridge rejects show --to ./lake --name x --reason "not an integer" --json
    """
    pipeline, wanted = _chosen(**choice)
    storage, view = committed(pipeline)
    found = list(islice(_records(storage, pipeline.name, view, wanted), limit))
    if json_output:
        for reject in found:
            click.echo(plain_json(json.dumps(reject, ensure_ascii=False)))
        return
    if not found:
        click.echo("no rejects")
        return
    columns = ["stream", "offset", "reason", "pointer", "value", "run"]
    rows = [
        [_named(r.get("stream")), str(r.get("offset", "")), r["reason"], r.get("pointer", ""), _blamed(r), r["run"]]
        for r in found
    ]
    print_table(columns, rows, right=["offset"], folds=["value", "reason", "pointer"], less=["run"])


def _records(storage: Any, pipeline: str, view: Any, wanted: Wanted) -> Iterator[dict[str, Any]]:
    from bridge.maintain.rejects.survey import find, read

    for file in find(storage, pipeline, view, wanted):
        yield from (reject for reject in read(storage, file) if wanted.says(reject["reason"]))


def _blamed(reject: dict[str, Any]) -> str:
    """Return the value at a reject's pointer, or the whole line, cut to what a table can show."""
    from bridge.write.rejects import raw_of, value_at

    raw = raw_of(reject)
    found = value_at(raw, reject.get("pointer", ""))
    text = raw.decode("utf-8", "replace") if found is None else found
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


@rejects.command("purge")
@_which
@changing
def purge(dry_run: bool, yes: bool, json_output: bool, **choice: Any) -> None:
    """Delete rejects for good; without a choice all of them.

    \b
    singer-bridge rejects purge flights -s public-flights --dry-run
    singer-bridge rejects purge flights --run 20261120T133501Z-k3f9 --yes
    """
    from bridge.maintain.rejects.purge import purge as delete
    from bridge.maintain.rejects.survey import find, groups

    pipeline, wanted = _chosen(**choice)
    storage, view = committed(pipeline)
    asks = not (dry_run or yes)
    if asks and not sys.stdin.isatty():
        raise SettingsError("nobody is there to be asked", hint="to delete them all the same: --yes; or --dry-run")
    gone, head = groups(find(storage, pipeline.name, view, wanted), wanted), view.n
    if not dry_run:
        StateStore.at(storage, pipeline.name).refuse_if_held()
        if asks:
            _print_groups([(pipeline.name, group) for group in gone])
            click.confirm(f"delete {count_of(_sum(gone), 'record')}?", abort=True, err=True)
        gone, head, notes = delete(storage, pipeline.name, wanted)
        _warn(notes)
    if json_output:
        facts = {"pipeline": pipeline.name, "commit": head, "dry_run": dry_run, "records": _sum(gone)}
        as_json({"format": 1, **facts, "purged": [asdict(group) for group in gone]})
    elif dry_run:
        _print_groups([(pipeline.name, group) for group in gone])
        click.echo("dry run: nothing was changed")
    else:
        click.echo(f"{pipeline.name}: {count_of(_sum(gone), 'reject')} deleted")


def _sum(groups: list[Group]) -> int:
    return sum(group.records for group in groups)


@rejects.command("replay")
@_which
@changing
def replay(dry_run: bool, yes: bool, json_output: bool, **choice: Any) -> None:
    """Read rejects again with the columns that their tables have now, and load those that fit, by one commit.

    What still does not fit stays a reject. The STATE stays. Only the types of columns are asked, so what another rule
    of the SCHEMA had set aside (`rejects.validate: full`) is loaded.

    \b
    singer-bridge rejects replay flights --dry-run
    singer-bridge rejects replay flights -s public-flights --yes
    """
    from bridge.maintain.rejects.replay import rehearse
    from bridge.maintain.rejects.replay import replay as load

    pipeline, wanted = _chosen(**choice)
    storage, _ = committed(pipeline)
    asks = not (dry_run or yes) and sys.stdin.isatty()
    if not dry_run:
        StateStore.at(storage, pipeline.name).refuse_if_held()
    if dry_run or asks:
        done = rehearse(storage, pipeline, wanted)
        if asks and done.fit:
            _print_outcome(done)
            click.confirm(f"load {count_of(done.fit, 'record')}?", abort=True, err=True)
    if not dry_run:
        done = load(storage, pipeline, wanted)
        _warn(done.notes)
    if json_output:
        as_json({"format": 1, "pipeline": pipeline.name, "commit": done.commit, "dry_run": dry_run, **_as_json(done)})
        return
    _print_outcome(done)
    if dry_run:
        click.echo("dry run: nothing was changed")
    elif done.fit:
        click.echo(f"{pipeline.name}: {count_of(done.fit, 'record')} loaded, by commit {done.commit}")
    else:
        click.echo(f"{pipeline.name}: nothing to load")


def _print_outcome(done: Replayed) -> None:
    """Say what becomes of each stream's rejects."""
    out = console()
    for stream, outcome in done.streams.items():
        left = sum(outcome.left.values())
        out.print(f"{_named(stream)}: {count(outcome.fit)} fit, {count(left)} do not", markup=False, soft_wrap=True)
        if outcome.why:
            out.print(f"  {outcome.why}", markup=False, soft_wrap=True)
        for reason, records in () if outcome.why else outcome.left.most_common():
            out.print(f"  {count(records)}: {reason}", markup=False, soft_wrap=True)


def _as_json(done: Replayed) -> dict[str, Any]:
    streams = [
        {"stream": stream, "fit": outcome.fit, "left": dict(outcome.left), "why": outcome.why}
        for stream, outcome in done.streams.items()
    ]
    return {"loaded": done.fit, "streams": streams}


def _warn(notes: Any) -> None:
    if not click.get_current_context().meta.get("bridge.quiet"):
        for text in notes:
            warn(text)
