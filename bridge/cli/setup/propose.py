"""Propose how to replicate the streams of a catalog: as a table, as questions, and as lines for bridge.yaml."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import click

from bridge.cli.plain import echo, plain
from bridge.cli.show import console, count_of, note, print_table
from bridge.singer.catalog import Catalog, is_system, replication_method, root_facts, stream_id
from bridge.singer.replication import Proposal, propose
from bridge.singer.selection import loaded_streams, unmatched
from bridge.tap.database.columns import columns_with_nulls
from bridge.tap.source import Source

_FULL = "full"
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


def ask_proposals(source: Source, catalog: Catalog, streams: Collection[str]) -> list[Proposal]:
    """Show how these streams could be replicated, and return the proposals that the user accepts."""
    proposals = _proposals(source, catalog, streams)
    _print(proposals)
    answer = click.prompt(
        "replicate them so?", type=click.Choice(["yes", "each", "no"]), default="yes", show_choices=True
    )
    if answer == "no":
        return []
    return proposals if answer == "yes" else [_ask_one(proposal) for proposal in proposals]


def _proposals(source: Source, catalog: Catalog, streams: Collection[str]) -> list[Proposal]:
    """Propose for these streams; a database that can be asked says which columns have NULLs."""
    entries = [entry for entry in catalog["streams"] if stream_id(entry) in streams]
    first = [propose(entry) for entry in entries]
    doubtful = {each.stream: _doubtful(each) for each in first if each.method == "INCREMENTAL"}
    nulls, notes = columns_with_nulls(source.database, catalog, doubtful)
    for text in notes:
        note("warning", "yellow", source.redact.text(text))
    return [propose(entry, nulls.get(stream_id(entry), ())) for entry in entries] if nulls else first


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
    """Ask for the replication column of one stream."""
    columns = [candidate.column for candidate in proposal.candidates]
    if not columns:
        return proposal
    default = proposal.replication_key or _FULL
    kind = click.Choice(list(dict.fromkeys([*columns, default, _FULL])))
    answer = click.prompt(plain(f"{proposal.stream}: replicate by"), type=kind, default=default)
    if answer == default:
        return proposal
    if answer == _FULL:
        return replace(proposal, method="FULL_TABLE", replication_key=None, load_method="auto")
    incremental = replace(proposal, method="INCREMENTAL", replication_key=answer)
    if proposal.keys:
        return replace(incremental, load_method="upsert")
    return replace(incremental, load_method="append-only")


def lines_of(proposals: Sequence[Proposal]) -> list[str]:
    """The proposals as lines for `streams:`, each with its reason above it."""
    return [line for proposal in proposals for line in (f"## {proposal.reason}", proposal.line())]


def print_unknown(source: Source, catalog: Catalog, name: str) -> None:
    """Print proposals, as lines to paste, for streams without a replication method.

    `catalog` has the settings' overrides in it; `name` is what is typed to choose the pipeline.
    """
    pipeline = source.pipeline
    loaded = loaded_streams(catalog, pipeline.source.select)
    open_ = {one for one in loaded if not replication_method(catalog, one) and pipeline.load_method(one) == "auto"}
    unknown = _proposals(source, catalog, open_)
    if not unknown:
        return
    what = f"no replication method is known of {count_of(len(unknown), 'stream')}"
    note("proposal", "yellow", f"{what}; choose in bridge.yaml, under pipelines.{name}:")
    for line in ["streams:", *(f"  {line}" for line in lines_of(unknown))]:
        console().print(f"    {line}", markup=False, soft_wrap=True)
