"""`sql`: questions to the lake, in DuckDB's SQL."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.cli.options import json_option, limit_option, output_option, question_verb
from bridge.cli.plain import plain_json
from bridge.cli.selection import Selection
from bridge.cli.show import count_of, note, print_table
from bridge.cli.survey import one_or_all
from bridge.errors import SettingsError
from bridge.exact_json import dumps
from bridge.lake.storage.local.folders import draft_of
from bridge.read.query.values import cell, json_value, values

if TYPE_CHECKING:
    import pyarrow as pa

    from bridge.read.query.snapshot import TablesAt

_EXAMPLE = 'singer-bridge sql "SELECT count(*) FROM orders"'


@click.command()
@question_verb
@click.option("--at", type=click.IntRange(0), metavar="COMMIT", help="Read the tables as they were after this commit.")
@limit_option(50, "How many rows of the answer to print as a table.")
@json_option("Print all rows, one JSON object a row.")
@click.option("--csv", "csv_output", is_flag=True, help="Print all rows as CSV.")
@output_option("FILE.parquet", "Write all rows to a Parquet file.")
def sql(
    selection: Selection,
    query: str | None,
    at: int | None,
    limit: int,
    json_output: bool,
    csv_output: bool,
    output: Path | None,
) -> int:
    """Ask the lake in SQL: DuckDB's, over tables at a commit: of pipeline NAME, or of all. QUERY may come on stdin.

    A table is called pipeline.stream, or stream if there is one pipeline. System tables: bridge.runs, bridge.commits,
    bridge.bookmarks, bridge.streams, bridge.files, bridge.rejects. It only reads.

    \b
    singer-bridge sql 'SELECT count(*) FROM "public-flights"' flights
    singer-bridge sql "SELECT * FROM bridge.runs" --to ./lake --csv
    """
    from bridge.read.query.engine import answer

    if sum((json_output, csv_output, output is not None)) > 1:
        raise SettingsError("--json, --csv and --output exclude each other", hint="give one of them")
    if query and selection.word and " " in selection.word and " " not in query:  # NAME came first, as elsewhere
        selection, query = selection.of(query), selection.word
    text = _text(query)
    tables, code = _tables(selection, at)
    with answer(text, tables) as reader:
        if output is not None:
            _write(reader, output)
        elif json_output:
            names = _distinct(reader.schema.names)
            for row in _rows(reader):
                document = dumps(dict(zip(names, map(json_value, row), strict=True)), ascii_only=False)
                click.echo(plain_json(document.decode()))
        elif csv_output:
            _print_csv(reader)
        else:
            _print_table(reader, limit)
    return code


def _text(query: str | None) -> str:
    """The statement: QUERY, or stdin if QUERY is absent or `-`."""
    if query in (None, "-"):
        if sys.stdin.isatty():
            raise SettingsError("what is the question?", hint=f"such as: {_EXAMPLE}")
        query = sys.stdin.read()
    if not (text := (query or "").strip()):
        raise SettingsError("the question is empty", hint=f"such as: {_EXAMPLE}")
    return text


def _tables(selection: Selection, at: int | None) -> tuple[list[TablesAt], int]:
    """The tables of each pipeline that is asked, and the exit code of those that cannot be read."""
    from bridge.read.query.snapshot import TablesAt

    chosen, code = one_or_all(selection)
    if at is not None and len(chosen) > 1:
        hint = "commit numbers belong to one pipeline: give its NAME after QUERY"
        raise SettingsError("--at needs one pipeline", hint=hint)
    return [TablesAt.of(each.log, at) for each in chosen], code


def _distinct(names: list[str]) -> list[str]:
    """Names of a JSON object: `select a, a` has a name twice, so the second is called `a_1`."""
    earlier = (names[:place].count(name) for place, name in enumerate(names))
    return [f"{name}_{same}" if same else name for name, same in zip(names, earlier, strict=True)]


def _rows(reader: pa.RecordBatchReader) -> Iterator[tuple[Any, ...]]:
    for batch in reader:
        yield from zip(*(values(column) for column in batch.columns), strict=True)


def _print_csv(reader: pa.RecordBatchReader) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(reader.schema.names)
    for row in _rows(reader):
        writer.writerow(map(cell, row))


def _print_table(reader: pa.RecordBatchReader, limit: int) -> None:
    from pyarrow import types

    rows = list(islice(_rows(reader), limit + 1))
    names = reader.schema.names
    numbers = types.is_integer, types.is_floating, types.is_decimal
    right = [field.name for field in reader.schema if any(is_number(field.type) for is_number in numbers)]
    print_table(names, [[cell(value) for value in row] for row in rows[:limit]], right=right, folds=names)
    if len(rows) > limit:
        note("not shown", "dim", f"more rows; -n {limit * 10} shows more, --csv and --json all")


def _write(reader: pa.RecordBatchReader, path: Path) -> None:
    """Write the answer beside the file, and put it in place when it is whole."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from bridge.lake.formats.file_notes import MissingStats
    from bridge.lake.formats.footer import FooterSink

    rows = 0
    try:
        with draft_of(path) as draft, draft.open("wb") as file:
            sink = FooterSink(file)
            writer = pq.ParquetWriter(sink, reader.schema, compression="zstd")
            for batch in filter(len, reader):
                table = pa.Table.from_batches([batch])
                writer.write_table(table, row_group_size=len(table))
                sink.add_row_group(MissingStats().observe(table))
                rows += len(table)
            sink.finish(writer.close)
    except OSError as error:
        raise SettingsError(f"cannot write the answer: {error}", hint="look at its folder", file=path) from error
    click.echo(f"{count_of(rows, 'row')} written to {path}", err=True)
