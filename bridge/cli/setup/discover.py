"""`discover`: ask the tap which streams it has."""

from __future__ import annotations

from typing import Any

import click

from bridge.cli.options import json_option, pipeline_verb
from bridge.cli.selection import Selection, typed
from bridge.cli.setup.propose import print_unknown
from bridge.cli.show import as_json, console, count_of, note, print_table
from bridge.errors import SettingsError
from bridge.lake.log import Snapshot
from bridge.load.run.streams import Streams
from bridge.load.tap.source import Source
from bridge.protocol.singer.catalog import Catalog, is_system, stream_id
from bridge.protocol.singer.selection import loaded_streams


@click.command()
@pipeline_verb
@click.option("--tap", metavar="COMMAND", help="Tap to ask, with its flags; needs --to.")
@click.option("--tap-config", metavar="FILE|JSON", help="The tap's settings: a file, or JSON.")
@click.option("--diff", is_flag=True, help="Print what changed since the last discovery, and store nothing.")
@json_option("Print the plain Singer catalog; with --diff the changes.")
def discover(selection: Selection, diff: bool, json_output: bool) -> int:
    """Ask the tap which streams it has, and store its catalog: later runs pass it to the tap.

    Your edits of the last catalog are kept.

    \b
    singer-bridge discover flights
    singer-bridge discover flights --diff --json
    """
    chosen = selection.pipeline()
    source = Source(chosen.pipeline, chosen.home)
    catalog = source.discover(keep=not diff)
    if catalog is None:
        console(err=True).print("this tap has no --discover: it started to extract. It runs without a catalog.")
        return 1
    if json_output:
        as_json(_changes(source) if diff else catalog)
        return 0
    if not diff:
        print_unknown(source, _streams(source, catalog), typed(source.pipeline))
    _print_changes(source, catalog, diff=diff)
    return 0


def _changes(source: Source) -> dict[str, Any]:
    discovery = source.discovery
    assert discovery
    facts = {"first": discovery.first, **discovery.changes.to_json(), "overruled": discovery.overruled}
    return {"format": 1, "pipeline": source.pipeline.name, **facts}


def _streams(source: Source, catalog: Catalog) -> Catalog:
    """Print what a run would load; what is wrong with choices and overrides is said below it. Return the catalog as
    the settings have it, where they fit.
    """
    loaded, wrong = loaded_streams(catalog, source.pipeline.source.select), None
    try:
        catalog = source.narrowed(catalog)
    except SettingsError as error:
        wrong = error
    own = [entry for entry in catalog["streams"] if not is_system(entry) or stream_id(entry) in loaded]
    shown = [stream_id(entry) for entry in own or catalog["streams"]]
    plans = Streams(source.pipeline, catalog, Snapshot())
    rows = [
        [
            stream,
            "yes" if stream in loaded else "",
            plans[stream].replication or "",
            plans[stream].each_run,
        ]
        for stream in shown
    ]
    print_table(["stream", "selected", "replication method", "each run"], rows, folds=["each run"])
    if hidden := len(catalog["streams"]) - len(shown):
        note("not shown", "dim", f"{count_of(hidden, 'stream')} of the database's own schemas; --json has all")
    for text in source.notes:
        note("warning", "yellow", text)
    if wrong:
        note("warning", "yellow", f"a run would end with: {wrong.message}. {wrong.hint}")
    return catalog


def _print_changes(source: Source, catalog: Catalog, *, diff: bool) -> None:
    discovery, loaded = source.discovery, loaded_streams(catalog, source.pipeline.source.select)
    assert discovery
    for line in discovery.lines():
        stream = line.removeprefix("new stream: ")
        note("changed", "yellow", line if stream == line or stream in loaded else f"{line}, not selected")
    if diff and not discovery.lines():
        console().print("nothing was discovered before" if discovery.first else "nothing changed")
    if not diff:
        console().print(f"[dim]kept in {source.catalogs.file}[/]", soft_wrap=True)
