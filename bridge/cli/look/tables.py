"""`tables`: what is in the lake, by the commit log."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from bridge.cli.listing import Listing
from bridge.cli.options import json_option, limit_option, pipeline_verb, stream_option
from bridge.cli.plain import echo, plain, plain_json
from bridge.cli.selection import ChosenPipeline, Selection, committed
from bridge.cli.show import as_json, console, count, moment, print_table, size
from bridge.cli.survey import one_or_all
from bridge.errors import SettingsError, did_you_mean
from bridge.lake.log import Log
from bridge.lake.records import TableState
from bridge.lake.storage import Storage

if TYPE_CHECKING:
    from bridge.operate.readers.history import Version
    from bridge.settings.options import Pipeline

_NO_KEY = "key: not certain, rows from before rows were merged may be there twice; run --full makes it certain"
_DIALECTS = ("spark", "duckdb", "polars", "pyarrow", "athena", "trino", "bigquery", "snowflake")


@click.group(cls=Listing)
def tables() -> None:
    """List tables, show their columns and rows, and print how to query them."""


@tables.command("list")
@pipeline_verb
@json_option()
def list_(selection: Selection, json_output: bool) -> int:
    """List tables with their rows, files and bytes: of NAME, or of all pipelines of the file or bucket.

    \b
    singer-bridge tables list flights
    singer-bridge tables list --to ./lake --name x --json
    """
    chosen, code = one_or_all(selection)
    several = len(chosen) > 1
    facts = [fact for each in chosen for fact in _facts(each, several=several)]
    if json_output:
        as_json(facts)
        return code
    rows = [
        [
            fact["pipeline"],
            fact["stream"],
            fact["kind"],
            fact["folder"],
            *map(count, (fact["rows"], fact["files"])),
            size(fact["bytes"]),
        ]
        for fact in facts
    ]
    columns = ["pipeline", "stream", "kind", "folder", "rows", "files", "size"]
    without = ([] if several else ["pipeline"]) + ([] if any(fact["kind"] == "view" for fact in facts) else ["kind"])
    print_table(columns, rows, right=["rows", "files", "size"], less=["files", "folder"], without=without)
    return code


def _facts(chosen: ChosenPipeline, *, several: bool) -> list[dict[str, Any]]:
    """The facts of each table of a pipeline; of several pipelines, one without a commit has none."""
    from bridge.read.query.status import table_facts

    _, snapshot = committed(chosen.pipeline, required=not several)
    return [{"pipeline": chosen.pipeline.name, **facts} for facts in table_facts(snapshot)]


_one_stream = stream_option("Which table; not needed if there is only one.")


@dataclass(frozen=True, slots=True)
class _ListedTable:
    """A table of a pipeline as of its last commit."""

    pipeline: Pipeline
    storage: Storage
    stream: str
    live: TableState
    head: int

    @property
    def columns(self) -> list[dict[str, Any]]:
        """The stored columns, without a view's hidden ones; none if the table was taken back by a rollback."""
        from bridge.lake.table_columns import visible_columns

        return visible_columns(self.storage, self.pipeline.name, self.live)


def _table(selection: Selection, stream: str | None) -> _ListedTable:
    """The table that the arguments mean. Raises `SettingsError` if they mean none, or several."""
    pipeline = selection.pipeline(source=False).pipeline
    storage, snapshot = committed(pipeline)
    if stream is None and len(snapshot.tables) == 1:
        (stream,) = snapshot.tables
    if stream in snapshot.tables:
        return _ListedTable(pipeline, storage, stream, snapshot.tables[stream], snapshot.n)
    existing = f"there are: {', '.join(sorted(snapshot.tables))}" if snapshot.tables else "nothing was loaded yet"
    if stream is None:
        text = "which table? there are several" if snapshot.tables else "this pipeline has no table yet"
        raise SettingsError(
            text, hint=f"give --stream; {existing}" if snapshot.tables else existing, pipeline=pipeline.name
        )
    raise SettingsError("no such table", hint=did_you_mean(stream, snapshot.tables) or existing, stream=stream)


@tables.command("show")
@pipeline_verb
@_one_stream
@json_option()
def show(selection: Selection, stream: str | None, json_output: bool) -> None:
    """Show a table's columns and files.

    \b
    singer-bridge tables show flights -s public-flights
    singer-bridge tables show --to ./lake --name x -s users --json
    """
    from bridge.lake.table_columns import words

    table = _table(selection, stream)
    live = table.live
    columns = [
        {"column": entry["name"], "type": words(entry["type"]), "nullable": not entry.get("required", False)}
        for entry in table.columns
    ]
    if json_output:
        facts: dict[str, Any] = {
            "stream": table.stream,
            "folder": live.folder,
            "format": live.format,
            "columns": columns,
        }
        facts |= {"key": live.key, "upserts": live.upserts}
        as_json(facts | {"files": to_builtins(live.files)})
        return
    print_table(
        ["column", "type", ""],
        [[c["column"], c["type"], "" if c["nullable"] else "not null"] for c in columns],
        folds=["type"],
    )
    console().print()
    if live.key:
        echo(f"key: {', '.join(live.key)}")
    elif live.upserts:
        echo(_NO_KEY)
    rows = [[name, count(file.rows), size(file.size)] for name, file in sorted(live.files.items())]
    print_table(["file", "rows", "size"], rows, right=["rows", "size"], less=["size"])


@tables.command("head")
@pipeline_verb
@_one_stream
@limit_option(10, "How many rows.")
@json_option("Print one JSON object a row.")
def head(selection: Selection, stream: str | None, limit: int, json_output: bool) -> None:
    """Print the newest rows of a table, the latest first.

    \b
    singer-bridge tables head flights -s public-flights
    singer-bridge tables head --to ./lake --name x -s users -n 3 --json
    """
    from bridge.read.query.head import newest_rows

    table = _table(selection, stream)
    rows = newest_rows(table.storage, table.live, limit)
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
    """A value for people; nested ones as JSON."""
    if isinstance(value, (dict, list)):
        import json

        return json.dumps(value, default=str, ensure_ascii=False)
    return "" if value is None else str(value)


@tables.command("history")
@pipeline_verb
@_one_stream
@click.option("--diff", is_flag=True, help="Print each column that was added, changed or removed.")
@json_option()
def history(selection: Selection, stream: str | None, diff: bool, json_output: bool) -> None:
    """List the schemas that a table has had. The oldest comes first, each with the commit that brought it.

    \b
    singer-bridge tables history flights -s public-flights --diff
    singer-bridge tables history --to ./lake --name x -s users --json
    """
    from bridge.lake.table_columns import read_columns
    from bridge.operate.readers.history import schema_history

    table = _table(selection, stream)
    storage, name, live = table.storage, table.pipeline.name, table.live

    def visible(key: str) -> list[dict[str, Any]]:
        return [entry for entry in read_columns(storage, name, key) if not live.hides(entry["name"])]

    records = reversed(list(Log(storage, name).history(table.head)))
    versions = list(schema_history(records, table.stream, visible))
    if json_output:
        as_json([version.to_json() for version in versions])
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
    """Describe a change in one line."""
    if len(version.added) == len(version.columns) and not version.removed:
        return "first schema" if version.columns else "taken back"
    words = [f"+{name}" for name in version.added]
    words += [f"{name}: {old} -> {new}" for name, (old, new) in version.changed.items()]
    words += [f"-{name}" for name in version.removed]
    return ", ".join(words) or "what its text means, or which columns may be null"


def _print_diff(versions: list[Version]) -> None:
    for version in versions:
        echo(f"commit {version.n}  {moment(version.at)}  {version.kind}  {count(version.rows)} rows", bold=True)
        for name, type_ in version.removed.items():
            echo(f"  - {name}  {type_}", fg="red")
        for name, (old, new) in version.changed.items():
            echo(f"  ~ {name}  {old} -> {new}", fg="yellow")
        for name, type_ in version.added.items():
            echo(f"  + {name}  {type_}", fg="green")


@tables.command("ddl")
@pipeline_verb
@_one_stream
@click.option("--dialect", required=True, type=click.Choice(_DIALECTS), help="The engine that reads.")
@click.option("--view", is_flag=True, help="Make a view: DuckDB, and Spark for its session.")
@click.option("--manifest", is_flag=True, help="Read what the last commit lists, instead of what the folder holds.")
@click.option("--location", metavar="URI", help="The bucket as that engine sees it, such as s3://lake.")
def ddl(
    selection: Selection, stream: str | None, dialect: str, view: bool, manifest: bool, location: str | None
) -> None:
    """Print the statement that reads a table in another engine.

    For Polars, for pyarrow, and for Spark with --manifest it is code.

    \b
    singer-bridge tables ddl flights -s public-flights --dialect duckdb --view
    singer-bridge tables ddl flights -s public-flights --dialect athena --manifest --location s3://lake
    """
    from bridge.operate.readers.choice import reading_statement

    table = _table(selection, stream)
    log, server = Log(table.storage, table.pipeline.name), table.pipeline.destination.store_options
    text = reading_statement(log, table.stream, table.live, dialect, server, view, manifest, location)
    _print_statement(text)


def _print_statement(text: str) -> None:
    """Print a statement. A program gets it byte for byte, since names may hold any character."""
    click.echo(plain(text) if sys.stdout.isatty() else text, nl=False)
