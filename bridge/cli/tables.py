"""`tables`: what is in the lake, as the commit log says it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bridge.cli.choose import choose, committed, options
from bridge.cli.later import Verbs
from bridge.cli.show import as_json, console, count, print_table, size
from bridge.errors import CorruptLake, SettingsError
from bridge.log import LiveTable, View
from bridge.storage import Storage

__all__ = ["tables"]


@click.group(cls=Verbs, later=("ddl", "history"), short_help="What is in the lake.")
def tables() -> None:
    """Look at a pipeline's tables."""


def _live(view: View, stream: str) -> LiveTable:
    if stream not in view.tables:
        hint = f"it has: {', '.join(sorted(view.tables))}" if view.tables else "nothing was loaded yet"
        raise SettingsError("no such table", hint=hint, stream=stream)
    return view.tables[stream]


@tables.command("list")
@options
@click.option("--json", "json_output", is_flag=True, help="Print JSON.")
def list_(name: str | None, file: Path | None, to: str | None, pipeline_name: str | None, json_output: bool) -> None:
    """List the tables with their rows, files and bytes.

    \b
    singer-bridge tables list flights
    singer-bridge tables list --to ./lake --name x --json
    """
    _, view = committed(choose(name, file, to, pipeline_name).pipeline)
    facts: list[dict[str, Any]] = [
        {
            "stream": stream,
            "folder": live.folder,
            "rows": live.rows,
            "files": len(live.files),
            "bytes": sum(entry["size"] for entry in live.files.values()),
        }
        for stream, live in sorted(view.tables.items())
    ]
    if json_output:
        as_json(facts)
        return
    rows = [
        [fact["stream"], fact["folder"], count(fact["rows"]), count(fact["files"]), size(fact["bytes"])]
        for fact in facts
    ]
    print_table(["stream", "folder", "rows", "files", "size"], rows, right=["rows", "files", "size"])


def _stream_option(function: Any) -> Any:
    return click.option("-s", "--stream", required=True, metavar="STREAM", help="Which table.")(function)


@tables.command("show")
@options
@_stream_option
@click.option("--json", "json_output", is_flag=True, help="Print JSON.")
def show(
    name: str | None, file: Path | None, to: str | None, pipeline_name: str | None, stream: str, json_output: bool
) -> None:
    """Show a table's columns and files.

    \b
    singer-bridge tables show flights -s public-flights
    singer-bridge tables show --to ./lake --name x -s users --json
    """
    from bridge.placement import read_schema

    pipeline = choose(name, file, to, pipeline_name).pipeline
    storage, view = committed(pipeline)
    live = _live(view, stream)
    fields = read_schema(storage, pipeline.name, live.schema).arrow if live.schema else []
    columns = [{"column": f.name, "type": str(f.type), "nullable": f.nullable} for f in fields]
    if json_output:
        as_json({"stream": stream, "folder": live.folder, "columns": columns, "files": live.files})
        return
    print_table(
        ["column", "type", ""], [[c["column"], c["type"], "" if c["nullable"] else "not null"] for c in columns]
    )
    console().print()
    rows = [[name, count(entry["rows"]), size(entry["size"])] for name, entry in sorted(live.files.items())]
    print_table(["file", "rows", "size"], rows, right=["rows", "size"])


@tables.command("head")
@options
@_stream_option
@click.option("-n", "--limit", type=click.IntRange(1), default=10, show_default=True, help="How many rows.")
@click.option("--json", "json_output", is_flag=True, help="Print one JSON object a row.")
def head(
    name: str | None,
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    stream: str,
    limit: int,
    json_output: bool,
) -> None:
    """Print the newest rows of a table.

    \b
    singer-bridge tables head flights -s public-flights
    singer-bridge tables head --to ./lake --name x -s users -n 3 --json
    """
    storage, view = committed(choose(name, file, to, pipeline_name).pipeline)
    rows = _rows(storage, _live(view, stream), limit)
    if json_output:
        import json

        for row in rows:
            click.echo(json.dumps(row, default=str, ensure_ascii=False))
        return
    if rows:
        print_table(list(rows[0]), [["" if v is None else str(v) for v in row.values()] for row in rows])
    else:
        click.echo("the table has no rows")


def _rows(storage: Storage, live: LiveTable, limit: int) -> list[dict[str, Any]]:
    """Return the last rows of the newest files, newest file first."""
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = []
    for file in sorted(live.files, reverse=True):
        path = Path(storage.uri) / live.folder / file
        try:
            parquet = pq.ParquetFile(path)
        except FileNotFoundError as error:
            hint = "files of the lake were moved or deleted by somebody else"
            raise CorruptLake("a file of the table is gone", hint=hint, file=path) from error
        for group in reversed(range(parquet.num_row_groups)):
            last = parquet.read_row_group(group)
            rows += reversed(last.slice(max(0, last.num_rows - (limit - len(rows)))).to_pylist())
            if len(rows) >= limit:
                return rows
    return rows
