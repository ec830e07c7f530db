"""`dbt`: what dbt needs to read the lake."""

from __future__ import annotations

from pathlib import Path

import click

from bridge.cli.options import output_option, pipeline_verb
from bridge.cli.plain import plain
from bridge.cli.selection import Selection
from bridge.cli.show import count_of
from bridge.cli.survey import one_or_all
from bridge.errors import SettingsError
from bridge.lake.storage.local.folders import draft_of


@click.group()
def dbt() -> None:
    """Let dbt read the lake."""


@dbt.command("sources")
@pipeline_verb
@click.option(
    "--adapter",
    type=click.Choice(["duckdb", "spark"]),
    default="duckdb",
    show_default=True,
    help="The adapter of dbt that reads.",
)
@click.option("--live", is_flag=True, help="For DuckDB: read the last commit when dbt begins, by our plugin.")
@click.option("--loaded-at", metavar="COLUMN", help="The column of times that says how fresh a table is.")
@output_option("FILE.yml", "Write or replace this file, such as models/sources.yml.")
def sources(selection: Selection, adapter: str, live: bool, loaded_at: str | None, output: Path | None) -> int:
    """Write the tables and views as sources of dbt: of NAME, or of all pipelines of the file or bucket.

    Without --live, DuckDB reads exactly the files of the last commit: write it again before each `dbt run`.

    \b
    singer-bridge dbt sources -o models/sources.yml
    singer-bridge dbt sources flights --adapter spark
    """
    from bridge.read.query.snapshot import TablesAt
    from bridge.serve.orchestrate import dbt as written

    if output and output.exists() and not _is_ours(output):
        hint = "give another name to -o; or delete it, if you do not need it"
        raise SettingsError("this file was not written by `dbt sources`, so it stays", hint=hint, file=output)
    chosen, code = one_or_all(selection)
    whole = {each.pipeline.name: each for each in selection.siblings()}  # with their source, which names the catalog
    chosen = [whole.get(each.pipeline.name, each) for each in chosen]
    lakes = [written.DbtLake(each.pipeline, each.home, TablesAt.of(each.log, None)) for each in chosen]
    text = written.sources(lakes, written.DbtOptions("spark" if adapter == "spark" else "duckdb", live, loaded_at))
    if output is None:
        click.echo(plain(text), nl=False)
        return code
    try:
        with draft_of(output) as draft:
            draft.write_text(text, encoding="utf-8")
    except OSError as error:
        hint = "look at its folder: it must exist, and you must have the right to write there"
        raise SettingsError(f"cannot write the sources: {error.strerror}", hint=hint, file=output) from error
    tables = sum(len(lake.tables) for lake in lakes)
    click.echo(f"{count_of(tables, 'table')} of {count_of(len(lakes), 'pipeline')} written to {output}", err=True)
    return code


def _is_ours(file: Path) -> bool:
    from bridge.serve.orchestrate.dbt import HEADER

    try:
        return file.read_text(encoding="utf-8").startswith(HEADER) or not file.stat().st_size
    except (OSError, ValueError):
        return False
