"""`discover`: ask the tap for its catalog."""

from __future__ import annotations

from pathlib import Path

import click

from bridge.catalog import replication_method, selected_streams, stream_ids
from bridge.cli.choose import choose, options
from bridge.cli.show import as_json, console, note, print_table
from bridge.source import Source, catalog_file

__all__ = ["discover"]


@click.command(short_help="Ask the tap for its catalog.")
@options
@click.option("--tap", metavar="COMMAND", help="Tap to ask, with its flags; needs --to.")
@click.option("--tap-config", metavar="FILE|JSON", help="The tap's settings: a file, or JSON.")
@click.option("--json", "json_output", is_flag=True, help="Print the plain Singer catalog.")
def discover(
    name: str | None,
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    tap: str | None,
    tap_config: str | None,
    json_output: bool,
) -> int:
    """Ask the tap for its catalog and keep it: later runs pass it to the tap.

    \b
    singer-bridge discover flights
    singer-bridge discover flights --json > catalog.json
    """
    chosen = choose(name, file, to, pipeline_name, tap=tap, tap_config=tap_config)
    catalog = Source(chosen.pipeline, chosen.home).discover()
    if catalog is None:
        console(err=True).print("this tap does not discover: it started to extract. It runs without a catalog.")
        return 1
    if json_output:
        as_json(catalog)
        return 0
    selected = selected_streams(catalog)
    rows = [
        [stream, "yes" if stream in selected else "", replication_method(catalog, stream) or ""]
        for stream in stream_ids(catalog)
    ]
    print_table(["stream", "selected", "replication method"], rows)
    if chosen.pipeline.source.catalog:
        note("note", "yellow", f"runs use source.catalog, not this one: {chosen.pipeline.source.catalog}")
    else:
        console().print(f"[dim]kept in {catalog_file(chosen.home, chosen.pipeline.name)}[/]", soft_wrap=True)
    return 0
