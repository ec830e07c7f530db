"""`rejects`: show records that could not be stored, load those that fit now, or delete them."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from bridge.cli.answer import Answer, is_quiet
from bridge.cli.confirm import warn
from bridge.cli.listing import Listing
from bridge.cli.options import NEEDS_YES, changing, json_option, limit_option, pipeline_verb, stream_option
from bridge.cli.plain import plain_json
from bridge.cli.selection import ChosenPipeline, Selection, committed
from bridge.cli.show import as_json, console, count, count_of, print_table, size
from bridge.cli.survey import one_or_all
from bridge.lake.state.store import StateStore

if TYPE_CHECKING:
    from bridge.lake.file_records import RejectFile
    from bridge.load.maintain.rejects.replay import Replayed
    from bridge.load.maintain.rejects.survey import Criteria, RejectGroup


def _rejects_verb(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the pipeline that is meant, and which of its rejects, as its first two arguments."""
    for option in (
        click.option("--reason", metavar="WORDS", help="Only those with these words in their reason."),
        click.option("--run", metavar="ID", help="Only those of one run."),
        stream_option("Only those of one stream."),
    ):
        function = option(function)

    @functools.wraps(function)
    def call(selection: Selection, *, stream: str | None, run: str | None, reason: str | None, **given: Any) -> Any:
        from bridge.load.maintain.rejects.survey import Criteria

        return function(selection, Criteria(stream, run, reason), **given)

    return pipeline_verb(call)


@click.group(cls=Listing)
def rejects() -> None:
    """Show records that could not be stored; load or delete them."""


@rejects.command("list")
@_rejects_verb
@json_option()
def list_(selection: Selection, criteria: Criteria, *, json_output: bool) -> int:
    """List rejects by stream, run and reason: of NAME, or of all pipelines of the file or bucket.

    \b
    singer-bridge rejects list flights
    singer-bridge rejects list --to ./lake --name x -s users --json
    """
    from bridge.load.maintain.rejects.survey import groups

    chosen, code = one_or_all(selection)
    several = len(chosen) > 1
    pairs = [
        (each.pipeline.name, group)
        for each in chosen
        for group in groups(_files(each, criteria, several=several), criteria)
    ]
    if json_output:
        as_json([{"pipeline": pipeline, **asdict(group)} for pipeline, group in pairs])
    else:
        _print_groups(pairs, several=several)
    return code


def _files(chosen: ChosenPipeline, criteria: Criteria, *, several: bool) -> list[RejectFile]:
    """The files with a pipeline's rejects; of several pipelines, one without a commit has none."""
    from bridge.load.maintain.rejects.survey import find

    storage, snapshot = committed(chosen.pipeline, required=not several)
    return find(storage, chosen.pipeline.name, snapshot, criteria)


def _print_groups(pairs: list[tuple[str, RejectGroup]], *, several: bool = False) -> None:
    if not pairs:
        click.echo("no rejects")
        return
    columns = ["pipeline", "stream", "run", "reason", "records", "size"]
    rows = [
        [pipeline, _named(group.stream), group.run_id, group.reason, count(group.records), size(group.bytes)]
        for pipeline, group in pairs
    ]
    without = () if several else ("pipeline",)
    print_table(columns, rows, right=["records", "size"], folds=["reason"], less=["size"], without=without)


def _named(stream: str | None) -> str:
    from bridge.load.maintain.rejects.survey import STDOUT

    return STDOUT if stream is None else stream


@rejects.command("show")
@_rejects_verb
@limit_option(20, "How many records.")
@json_option("Print one JSON object a reject, with its bytes.")
def show(selection: Selection, criteria: Criteria, *, limit: int, json_output: bool) -> None:
    """Print rejects, those of the oldest run first, each with the value that was wrong.

    \b
    singer-bridge rejects show flights -s public-flights
    singer-bridge rejects show --to ./lake --name x --reason "not an integer" --json
    """
    from bridge.load.maintain.rejects.survey import blamed, rejected_records

    pipeline = selection.pipeline(source=False).with_names
    storage, snapshot = committed(pipeline)
    records = list(islice(rejected_records(storage, pipeline.name, snapshot, criteria), limit))
    if json_output:
        for reject in records:
            facts = {"run_id" if key == "run" else key: value for key, value in reject.items()}
            click.echo(plain_json(json.dumps(facts, ensure_ascii=False)))
        return
    if not records:
        click.echo("no rejects")
        return
    columns = ["stream", "offset", "reason", "pointer", "value", "run"]
    rows = [
        [_named(r.get("stream")), str(r.get("offset", "")), r["reason"], r.get("pointer", ""), blamed(r), r["run"]]
        for r in records
    ]
    print_table(columns, rows, right=["offset"], folds=["value", "reason", "pointer"], less=["run"])


@rejects.command("purge")
@_rejects_verb
@changing(NEEDS_YES)
def purge(selection: Selection, criteria: Criteria, *, answer: Answer) -> None:
    """Delete rejects for good: those that the options choose, or all.

    \b
    singer-bridge rejects purge flights -s public-flights --dry-run
    singer-bridge rejects purge flights --run 20261120T133501Z-k3f9a --yes
    """
    from bridge.load.maintain.rejects.purge import purge as delete
    from bridge.load.maintain.rejects.survey import find, groups

    pipeline = selection.pipeline(source=False).with_names
    storage, snapshot = committed(pipeline)
    answer.require_consent("to delete them all the same: --yes; or --dry-run")
    if not answer.dry_run:
        StateStore.at(storage, pipeline.name).refuse_if_held()
    removed, head = groups(find(storage, pipeline.name, snapshot, criteria), criteria), snapshot.n
    if answer.asks or (answer.dry_run and not answer.json_output):
        _print_groups([(pipeline.name, group) for group in removed])
    if answer.goes_ahead(f"delete {count_of(_sum(removed), 'record')}?"):
        removed, head, notes = delete(storage, pipeline.name, criteria)
        _warn(notes)
    facts = {"records": _sum(removed), "purged": [asdict(group) for group in removed]}
    answer.finish(pipeline.name, head, facts, f"{count_of(_sum(removed), 'reject')} deleted")


def _sum(groups: list[RejectGroup]) -> int:
    return sum(group.records for group in groups)


@rejects.command("replay")
@_rejects_verb
@changing()
def replay(selection: Selection, criteria: Criteria, *, answer: Answer) -> None:
    """Read rejects again with the current columns of their tables, and load those that fit, in one commit.

    The others stay rejects, and the STATE stays. Only the types of columns are checked again, so records that another
    rule of the SCHEMA rejected (`rejects.validate: full`) are loaded.

    \b
    singer-bridge rejects replay flights --dry-run
    singer-bridge rejects replay flights -s public-flights --yes
    """
    from bridge.load.maintain.rejects.replay import rehearse
    from bridge.load.maintain.rejects.replay import replay as load

    pipeline = selection.pipeline(source=False, tables=True).with_names
    storage, _ = committed(pipeline)
    if not answer.dry_run:
        StateStore.at(storage, pipeline.name).refuse_if_held()
    if answer.dry_run or answer.asks:
        replayed = rehearse(storage, pipeline, criteria)
        if answer.asks and replayed.fit:
            _print_outcome(replayed)
            answer.goes_ahead(f"load {count_of(replayed.fit, 'record')}?")
    if not answer.dry_run:
        replayed = load(storage, pipeline, criteria)
        _warn(replayed.notes)
    if not answer.json_output:
        _print_outcome(replayed)
    loaded = f"{count_of(replayed.fit, 'record')} loaded, by commit {replayed.commit}"
    answer.finish(pipeline.name, replayed.commit, _as_json(replayed), loaded if replayed.fit else "nothing to load")


def _print_outcome(replayed: Replayed) -> None:
    """Print what happens to each stream's rejects."""
    out = console()
    for stream, outcome in replayed.streams.items():
        left = sum(outcome.left.values())
        out.print(f"{_named(stream)}: {count(outcome.fit)} fit, {count(left)} do not", markup=False, soft_wrap=True)
        if outcome.why:
            out.print(f"  {outcome.why}", markup=False, soft_wrap=True)
        for reason, records in () if outcome.why else outcome.left.most_common():
            out.print(f"  {count(records)}: {reason}", markup=False, soft_wrap=True)


def _as_json(replayed: Replayed) -> dict[str, Any]:
    streams = [
        {"stream": stream, "fit": outcome.fit, "left": dict(outcome.left), "why": outcome.why}
        for stream, outcome in replayed.streams.items()
    ]
    return {"loaded": replayed.fit, "streams": streams}


def _warn(notes: Any) -> None:
    for text in () if is_quiet() else notes:
        warn(text)
