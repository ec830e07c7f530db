"""`tables`: what is in the lake, as the commit log says it."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from bridge.cli.listing import Listing
from bridge.cli.plain import echo, plain, plain_json
from bridge.cli.selection import choose, committed, options
from bridge.cli.show import as_json, console, count, moment, print_table, size
from bridge.cli.survey import one_or_all, readable
from bridge.errors import CorruptLake, SettingsError
from bridge.lake.log import Log, View
from bridge.lake.records import TableState
from bridge.settings.values.s3options import S3Options
from bridge.storage import Storage, lake_of

if TYPE_CHECKING:
    import pyarrow as pa

    from bridge.maintain.readers.history import Version
    from bridge.settings.options import Pipeline

_DIALECTS = ("spark", "duckdb", "polars", "pyarrow", "athena", "trino", "bigquery", "snowflake")


@click.group(cls=Listing, short_help="What is in the lake.")
def tables() -> None:
    """Look at a pipeline's tables."""


@tables.command("list")
@options
@click.option("--json", "json_output", is_flag=True, help="Print JSON.")
def list_(name: str | None, file: Path | None, to: str | None, pipeline_name: str | None, json_output: bool) -> int:
    """List the tables of NAME, or of all pipelines of the file or bucket, with their rows, files and bytes.

    \b
    singer-bridge tables list flights
    singer-bridge tables list --to ./lake --name x --json
    """
    chosen, code = readable(one_or_all(name, file, to, pipeline_name))
    several = len(chosen) > 1
    facts = [fact for each in chosen for fact in _facts(each.pipeline, several=several)]
    if json_output:
        as_json(facts)
        return code
    rows = [
        [
            fact["pipeline"],
            fact["stream"],
            fact["folder"],
            *map(count, (fact["rows"], fact["files"])),
            size(fact["bytes"]),
        ]
        for fact in facts
    ]
    columns = ["pipeline", "stream", "folder", "rows", "files", "size"]
    if not several:
        columns, rows = columns[1:], [row[1:] for row in rows]
    print_table(columns, rows, right=["rows", "files", "size"], less=["files", "folder"])
    return code


def _facts(pipeline: Pipeline, *, several: bool) -> list[dict[str, Any]]:
    """Return what is known of each table of a pipeline; of several pipelines, one without a commit has none."""
    log = Log(lake_of(pipeline.destination), pipeline.name)
    view = log.view(log.latest()) if several else committed(pipeline)[1]
    return [
        {
            "pipeline": pipeline.name,
            "stream": stream,
            "folder": live.folder,
            "format": live.format,
            "rows": live.rows,
            "files": len(live.files),
            "bytes": sum(file.size for file in live.files.values()),
        }
        for stream, live in sorted(view.tables.items())
    ]


def _stream_option(function: Any) -> Any:
    text = "Which table; needless where there is one."
    return click.option("-s", "--stream", metavar="STREAM", help=text)(function)


def _table(
    name: str | None, file: Path | None, to: str | None, pipeline_name: str | None, stream: str | None
) -> tuple[Pipeline, Storage, str, TableState, View]:
    """Return the table that the arguments mean. Raises SettingsError when they mean none, or several."""
    pipeline = choose(name, file, to, pipeline_name, look=True).pipeline
    storage, view = committed(pipeline)
    if stream is None and len(view.tables) == 1:
        (stream,) = view.tables
    if stream in view.tables:
        return pipeline, storage, stream, view.tables[stream], view
    there = f"there are: {', '.join(sorted(view.tables))}" if view.tables else "nothing was loaded yet"
    if stream is None:
        text = "which table? there are several" if view.tables else "this pipeline has no table yet"
        raise SettingsError(text, hint=f"give --stream; {there}" if view.tables else there, pipeline=pipeline.name)
    from bridge.errors import did_you_mean

    raise SettingsError("no such table", hint=did_you_mean(stream, view.tables) or there, stream=stream)


@tables.command("show")
@options
@_stream_option
@click.option("--json", "json_output", is_flag=True, help="Print JSON.")
def show(
    name: str | None,
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    stream: str | None,
    json_output: bool,
) -> None:
    """Show a table's columns and files.

    \b
    singer-bridge tables show flights -s public-flights
    singer-bridge tables show --to ./lake --name x -s users --json
    """
    from bridge.lake.table_columns import read_columns, words

    pipeline, storage, stream, live, _ = _table(name, file, to, pipeline_name, stream)
    entries = read_columns(storage, pipeline.name, live.schema) if live.schema else []
    columns = [
        {"column": entry["name"], "type": words(entry["type"]), "nullable": not entry.get("required", False)}
        for entry in entries
    ]
    if json_output:
        facts = {"stream": stream, "folder": live.folder, "format": live.format, "columns": columns}
        as_json(facts | {"files": to_builtins(live.files)})
        return
    print_table(
        ["column", "type", ""],
        [[c["column"], c["type"], "" if c["nullable"] else "not null"] for c in columns],
        folds=["type"],
    )
    console().print()
    rows = [[name, count(file.rows), size(file.size)] for name, file in sorted(live.files.items())]
    print_table(["file", "rows", "size"], rows, right=["rows", "size"], less=["size"])


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
    stream: str | None,
    limit: int,
    json_output: bool,
) -> None:
    """Print the newest rows of a table, the latest first.

    \b
    singer-bridge tables head flights -s public-flights
    singer-bridge tables head --to ./lake --name x -s users -n 3 --json
    """
    _, storage, _, live, _ = _table(name, file, to, pipeline_name, stream)
    rows = _rows(storage, live, limit)
    if json_output:
        import json

        for row in rows:
            click.echo(plain_json(json.dumps(row, default=str, ensure_ascii=False)))
        return
    if rows:
        columns = list(dict.fromkeys(column for row in rows for column in row))
        texts = {key for row in rows for key, value in row.items() if isinstance(value, (str, dict, list))}
        numbers = {key for row in rows for key, value in row.items() if isinstance(value, (int, float))} - texts
        right = [column for column in columns if column in numbers]
        folds = [column for column in columns if column in texts]
        print_table(columns, [[_cell(row.get(column)) for column in columns] for row in rows], right=right, folds=folds)
        if console().is_terminal and len(rows) > 1:
            console().print("[dim]newest rows first[/]")
    else:
        click.echo("the table has no rows")


def _cell(value: Any) -> str:
    """Return a value for people; nested ones as JSON."""
    if isinstance(value, (dict, list)):
        import json

        return json.dumps(value, default=str, ensure_ascii=False)
    return "" if value is None else str(value)


def _rows(storage: Storage, live: TableState, limit: int) -> list[dict[str, Any]]:
    """Return the last rows of the newest files, newest file first."""
    rows: list[dict[str, Any]] = []
    for file in sorted(live.files, reverse=True):
        rows += _last_rows(storage, f"{live.folder}/{file}", limit - len(rows))
        if len(rows) >= limit:
            break
    return rows


def _last_rows(storage: Storage, key: str, limit: int) -> list[dict[str, Any]]:
    """Return the last rows of a file, the latest first; of a file far away only their row groups are fetched."""
    import pyarrow.parquet as pq

    if storage.size(key) is None:
        hint = "files of the lake were moved or deleted by somebody else"
        raise CorruptLake("a file of the table is gone", hint=hint, file=f"{storage.uri}/{key}")
    rows: list[dict[str, Any]] = []
    with storage.open(key) as file, pq.ParquetFile(file) as parquet:
        for group in reversed(range(parquet.num_row_groups)):
            # Arrow's threads may still be starting when a command as short as this ends, which then aborts.
            last = parquet.read_row_group(group, use_threads=False)
            rows += reversed(_dicts(last.slice(max(0, last.num_rows - (limit - len(rows))))))
            if len(rows) >= limit:
                break
    return rows


def _dicts(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows as pyarrow's `to_pylist` does, without pandas, which it loads for times: more than half a second."""
    import pyarrow as pa

    columns = []
    for column in rows.columns:
        if column.type in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
            epoch = datetime(1970, 1, 1, tzinfo=timezone.utc if column.type.tz else None)
            ticks = column.cast(pa.int64()).to_pylist()
            columns.append([None if tick is None else epoch + timedelta(microseconds=tick) for tick in ticks])
        else:
            columns.append(column.to_pylist())
    return [dict(zip(rows.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


@tables.command("history")
@options
@_stream_option
@click.option("--diff", is_flag=True, help="Print each column that came, changed or went, a line each.")
@click.option("--json", "json_output", is_flag=True, help="Print JSON.")
def history(
    name: str | None,
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    stream: str | None,
    diff: bool,
    json_output: bool,
) -> None:
    """List the schemas that a table had.

    Oldest first, each with the commit that brought it.

    \b
    singer-bridge tables history flights -s public-flights --diff
    singer-bridge tables history --to ./lake --name x -s users --json
    """
    from dataclasses import asdict

    from bridge.lake.table_columns import read_columns
    from bridge.maintain.readers.history import schema_history

    pipeline, storage, stream, _, view = _table(name, file, to, pipeline_name, stream)
    records = reversed(list(Log(storage, pipeline.name).history(view.n)))
    versions = list(schema_history(records, stream, lambda key: read_columns(storage, pipeline.name, key)))
    if json_output:
        as_json([{"commit": version.n} | asdict(version) for version in versions])
    elif diff:
        _print_diff(versions)
    else:
        rows = [[str(v.n), moment(v.at), str(len(v.columns)), count(v.rows), _summary(v)] for v in versions]
        print_table(
            ["commit", "time", "columns", "rows", "change"],
            rows,
            right=["commit", "columns", "rows"],
            folds=["change"],
            less=["columns"],
        )


def _summary(version: Version) -> str:
    """Say a change in one line; the first schema has no change worth naming."""
    if len(version.added) == len(version.columns) and not version.gone:
        return "first schema" if version.columns else "taken back"
    words = [f"+{name}" for name in version.added]
    words += [f"{name}: {old} -> {new}" for name, (old, new) in version.changed.items()]
    words += [f"-{name}" for name in version.gone]
    return ", ".join(words) or "what its text means, or which columns may be null"


def _print_diff(versions: list[Version]) -> None:
    for version in versions:
        echo(f"commit {version.n}  {moment(version.at)}  {version.kind}  {count(version.rows)} rows", bold=True)
        for name, type_ in version.gone.items():
            echo(f"  - {name}  {type_}", fg="red")
        for name, (old, new) in version.changed.items():
            echo(f"  ~ {name}  {old} -> {new}", fg="yellow")
        for name, type_ in version.added.items():
            echo(f"  + {name}  {type_}", fg="green")


def _reached(pipeline: Pipeline) -> S3Options:
    """Return where the S3 server is: as the settings say, else as the environment does, which not every engine asks."""
    said = pipeline.destination.s3_options or S3Options()
    if said.endpoint_url or not pipeline.destination.bucket.startswith("s3://"):
        return said
    server = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return replace(said, endpoint_url=server or None)


@tables.command("ddl")
@options
@_stream_option
@click.option("--dialect", required=True, type=click.Choice(_DIALECTS), help="Which engine reads.")
@click.option("--view", is_flag=True, help="Make a view: DuckDB, and Spark for its session.")
@click.option("--manifest", is_flag=True, help="Read what the last commit lists, instead of what the folder holds.")
@click.option("--location", metavar="URI", help="The bucket as that engine sees it, such as s3://lake.")
def ddl(
    name: str | None,
    file: Path | None,
    to: str | None,
    pipeline_name: str | None,
    stream: str | None,
    dialect: str,
    view: bool,
    manifest: bool,
    location: str | None,
) -> None:
    """Print what reads a table in an engine.

    A statement; for Polars and pyarrow, and for Spark by the manifest, the code.

    \b
    singer-bridge tables ddl flights -s public-flights --dialect duckdb --view
    singer-bridge tables ddl flights -s public-flights --dialect athena --manifest --location s3://lake
    """
    from bridge.lake.formats.iceberg.catalog import read_catalog
    from bridge.lake.table_columns import read_columns
    from bridge.maintain.readers.ddl import Table, statement
    from bridge.maintain.readers.delta import delta_statement
    from bridge.maintain.readers.iceberg import iceberg_statement

    pipeline, storage, stream, live, _ = _table(name, file, to, pipeline_name, stream)
    if not live.schema:
        raise SettingsError("the table was taken back", hint="run the pipeline again", stream=stream)
    columns = read_columns(storage, pipeline.name, live.schema)
    bucket = (location or storage.uri).rstrip("/")
    table = Table(live.folder, columns, bucket, storage.uri, _reached(pipeline), bool(live.partition_by))
    if live.format == "delta" and not manifest:  # its folder holds files that are not of the table any more
        _print_statement(delta_statement(table, dialect, view=view))
        return
    if live.format == "iceberg" and not manifest:
        if location:
            raise SettingsError("--location is of no use here", hint="an Iceberg table says itself where its files are")
        _print_statement(iceberg_statement(table, read_catalog(storage, pipeline.name), dialect, view=view))
        return
    _print_statement(statement(table, dialect, view=view, manifest=manifest))


def _print_statement(text: str) -> None:
    """Print a statement: to a program byte for byte, as names may hold any character."""
    click.echo(plain(text) if sys.stdout.isatty() else text, nl=False)
