"""Propose how to replicate the streams of a catalog: as a table, as questions, and as lines for bridge.yaml."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import click

from bridge.cli.plain import echo, plain
from bridge.cli.show import console, count_of, note, print_table
from bridge.exact_json import dumps
from bridge.load.slots.log_ready import LogReady, log_ready
from bridge.load.tap.database.columns import columns_with_nulls
from bridge.load.tap.source import Source
from bridge.protocol.singer.catalog import Catalog, is_system, replication_method, root_facts, stream_id
from bridge.protocol.singer.replication import Proposal, propose
from bridge.protocol.singer.selection import loaded_streams, unmatched
from bridge.settings.destination import APPEND_ONLY, UPSERT

_FULL, _LOG = "full", "log"
_CHOSEN = "as chosen"
_LISTED = 40


def ask_streams(catalog: Catalog) -> list[str]:
    """Show the streams that are not system tables, and ask for the patterns of those to load."""
    own = [stream_id(entry) for entry in catalog["streams"] if not is_system(entry)]
    system = len(catalog["streams"]) - len(own)
    hidden = f", and {count_of(system, 'stream')} of the database's own schemas" if system else ""
    more = f" and {len(own) - _LISTED} more" if len(own) > _LISTED else ""
    echo(f"{count_of(len(own), 'stream')}{hidden}: {', '.join(own[:_LISTED])}{more}")
    default = " ".join(_default_patterns(catalog))
    while True:
        patterns: list[str] = click.prompt("which streams? globs, ! excludes", default=default).split()
        wrong = [f"{text} matches nothing. {guess}".strip() for text, guess in unmatched(catalog, patterns)]
        for text in wrong:
            echo(text)
        if not wrong and loaded_streams(catalog, patterns):
            return patterns
        if not wrong:
            echo("no stream would be selected")


def _default_patterns(catalog: Catalog) -> list[str]:
    """Patterns for all streams but system tables: by schema, if the names begin with the schema."""
    own = [entry for entry in catalog["streams"] if not is_system(entry)]
    if len(own) in (0, len(catalog["streams"])):
        return ["*"]
    schemas = list(dict.fromkeys(str(root_facts(entry).get("schema-name", "")) for entry in own))
    patterns = [f"{schema}-*" for schema in schemas]
    if loaded_streams(catalog, patterns) == {stream_id(entry) for entry in own}:
        return patterns
    return [stream_id(entry) for entry in own]


def ask_proposals(source: Source, catalog: Catalog, streams: Collection[str]) -> tuple[list[Proposal], LogReady | None]:
    """Show how these streams could be replicated, and return the proposals that the user accepts.

    The second value is what the tap and its database need for those from the log; None if there are none.
    """
    proposals, ready = _proposals(source, catalog, streams)
    _print(proposals)
    answer = click.prompt(
        "replicate them like this?", type=click.Choice(["yes", "each", "no"]), default="yes", show_choices=True
    )
    if answer == "no":
        return [], None
    accepted = proposals if answer == "yes" else [_ask_one(proposal) for proposal in proposals]
    return accepted, ready if any(each.method == "LOG_BASED" for each in accepted) else None


def _proposals(source: Source, catalog: Catalog, streams: Collection[str]) -> tuple[list[Proposal], LogReady | None]:
    """Propose for these streams; a database that can be asked says what its log has, and which columns have NULLs."""
    entries = [entry for entry in catalog["streams"] if stream_id(entry) in streams]
    ready = log_ready(source.pipeline, source.database, entries) if entries else None
    if ready and ready.problem:
        note("note", "dim", source.redact.text(f"LOG_BASED is not proposed: {ready.problem}"))
    log = ready.tables if ready and not ready.problem else {}
    first = [propose(entry, log=log.get(stream_id(entry))) for entry in entries]
    doubtful = {each.stream: _doubtful(each) for each in first if each.method == "INCREMENTAL"}
    nulls, notes = columns_with_nulls(source.database, catalog, doubtful)
    for text in notes:
        note("warning", "yellow", source.redact.text(text))
    whole = [propose(entry, nulls.get(stream_id(entry), ()), log.get(stream_id(entry))) for entry in entries]
    return whole if nulls else first, ready if any(each.method == "LOG_BASED" for each in whole) else None


def _doubtful(proposal: Proposal) -> list[str]:
    """The columns of which a proposal takes one, unless they have NULLs."""
    others = (one.column for one in proposal.candidates if one.kind == "updated" and proposal.declared is None)
    columns = dict.fromkeys([*filter(None, [proposal.replication_key]), *others])
    return [column for column in columns if column not in proposal.keys]


def _print(proposals: Sequence[Proposal]) -> None:
    rows = [
        [each.stream, ", ".join(each.keys) or "none", _method(each), each.load_method, each.reason]
        for each in proposals
    ]
    columns = ["stream", "key", "replication", "load method", "why"]
    print_table(columns, rows, folds=["why"], less=["load method"])


def _method(proposal: Proposal) -> str:
    return f"{proposal.method} by {proposal.replication_key}" if proposal.replication_key else proposal.method


def _ask_one(proposal: Proposal) -> Proposal:
    """Ask for the replication column of one stream, or whether to read all of it, or the log."""
    columns = [candidate.column for candidate in proposal.candidates]
    if not columns and not proposal.has_log:
        return proposal
    default = _LOG if proposal.method == "LOG_BASED" else proposal.replication_key or _FULL
    kind = click.Choice(list(dict.fromkeys([*columns, *([_LOG] if proposal.has_log else []), default, _FULL])))
    answer = click.prompt(plain(f"{proposal.stream}: replicate by"), type=kind, default=default)
    if answer == default:
        return proposal
    if answer == _FULL:
        return replace(proposal, method="FULL_TABLE", replication_key=None, load_method="auto", reason=_CHOSEN)
    if answer == _LOG:
        return replace(proposal, method="LOG_BASED", replication_key=None, load_method=UPSERT, reason=_CHOSEN)
    incremental = replace(proposal, method="INCREMENTAL", replication_key=answer, reason=_CHOSEN)
    if proposal.keys:
        return replace(incremental, load_method=UPSERT)
    return replace(incremental, load_method=APPEND_ONLY)


def lines_of(proposals: Sequence[Proposal]) -> list[str]:
    """The proposals as lines for `streams:`, those of one reason together below it, on a line of its own."""
    reasons = dict.fromkeys(proposal.reason for proposal in proposals)
    return [
        line
        for reason in reasons
        for line in (f"## {' '.join(reason.splitlines())}", *(p.line() for p in proposals if p.reason == reason))
    ]


def print_unknown(source: Source, catalog: Catalog, name: str) -> None:
    """Print proposals, as lines to paste, for streams without a replication method.

    `catalog` has the settings' overrides in it; `name` is what is typed to choose the pipeline.
    """
    pipeline = source.pipeline
    loaded = loaded_streams(catalog, pipeline.source.select)
    open_ = {one for one in loaded if not replication_method(catalog, one) and pipeline.load_method(one) == "auto"}
    unknown, ready = _proposals(source, catalog, open_)
    if not unknown:
        return
    what = f"{count_of(len(unknown), 'stream')} without a replication method"
    note("proposal", "yellow", f"{what}; choose one in bridge.yaml, under pipelines.{name}:")
    for line in ["streams:", *(f"  {line}" for line in lines_of(unknown))]:
        console().print(f"    {line}", markup=False, soft_wrap=True)
    if ready:
        for key, value in ready.settings.items():
            note("for LOG_BASED", "yellow", f"below source.config: {key}: {dumps(value).decode().strip()}")
        print_statement(ready)


def print_statement(ready: LogReady) -> None:
    """Print what somebody has to type in the database before the first run from its log."""
    if ready.statement:
        text = "type it in the database, before the first run; the slot keeps the server's log until the pipeline runs"
        console().print(f"first: {ready.statement}", markup=False, soft_wrap=True)
        console().print(f"  {text}", soft_wrap=True)
