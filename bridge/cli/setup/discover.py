"""`discover`: ask the tap which streams it has."""

from __future__ import annotations

from typing import Any

import click

from bridge.cli.options import json_option, pipeline_verb
from bridge.cli.plain import echo
from bridge.cli.selection import Selection, typed
from bridge.cli.setup.propose import print_unknown
from bridge.cli.show import as_json, console, count_of, note, print_table
from bridge.errors import SettingsError
from bridge.exact_json import dumps
from bridge.lake.log import Snapshot
from bridge.load.run.streams import Streams
from bridge.load.tap.source import Source
from bridge.protocol.mask.masks import Masks
from bridge.protocol.singer.catalog import Catalog, is_system, key_properties, record_name, stream_id
from bridge.protocol.singer.selection import loaded_streams

_SAMPLE, _SAMPLE_SECONDS = 200, 30.0
"""Records of each stream that `--sample` reads at most, and seconds."""


@click.command()
@pipeline_verb
@click.option("--tap", metavar="COMMAND", help="Tap to ask, with its flags; needs --to.")
@click.option("--tap-config", metavar="FILE|JSON", help="The tap's settings: a file, or JSON.")
@click.option("--diff", is_flag=True, help="Print what changed since the last discovery, and store nothing.")
@click.option("--sample", is_flag=True, help="Read some records, to see which fields look personal. Stores none.")
@json_option("Print the plain Singer catalog; with --diff the changes.")
def discover(selection: Selection, diff: bool, sample: bool, json_output: bool) -> int:
    """Ask the tap which streams it has, and store its catalog: later runs pass it to the tap.

    Your edits of the last catalog are kept. Fields that look personal are listed with masks for them.

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
        catalog = _streams(source, catalog)
        print_unknown(source, catalog, typed(source.pipeline))
        _print_personal(source, catalog, _samples(source) if sample else {})
    _print_changes(source, catalog, diff=diff)
    return 0


def _samples(source: Source) -> dict[str, list[dict[str, Any]]]:
    """Some records of each selected stream, by the name that they give it."""
    from bridge.load.run.stop import Stop
    from bridge.operate.smoke.trial import Trial

    records: dict[str, list[dict[str, Any]]] = {}
    with Stop() as stop, console(err=True).status("reading some records") as status:
        trial = Trial(source, (), _SAMPLE, _SAMPLE_SECONDS, static=False, tick=stop.tick, stage=status.update)
        for stream, record in trial.sample():
            records.setdefault(stream, []).append(record)
    return records


def _print_personal(source: Source, catalog: Catalog, samples: dict[str, list[dict[str, Any]]]) -> None:
    """Print masks for the fields of loaded streams that look personal, as lines for bridge.yaml."""
    pipeline, masks = source.pipeline, dict[str, str]()
    decided = Masks(pipeline.mask, pipeline.mask_key or "")
    loaded = loaded_streams(catalog, pipeline.source.select)
    for entry in catalog["streams"]:
        name = record_name(entry)
        if stream_id(entry) in loaded:
            keys = pipeline.stream(name).key_properties or key_properties(entry) or ()
            names = (stream_id(entry), name)
            masks |= decided.proposed(names, entry.get("schema"), keys, samples.get(name, ()))
    if masks:
        note("personal?", "yellow", f"{count_of(len(masks), 'field')} may hold personal data. Masks for bridge.yaml:")
        hashed = ["mask_key: ${MASK_KEY}"] if "hash" in masks.values() and not pipeline.mask_key else []
        lines = ["mask:", *(f"  {dumps(field, ascii_only=False).decode()}: {mask}" for field, mask in masks.items())]
        echo("\n".join([*lines, *hashed]))


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
