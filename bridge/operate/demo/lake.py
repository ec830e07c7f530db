"""The lake from a reader's side: folders of Parquet files, and DuckDB, which knows nothing of singer-bridge."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.filesize import decimal
from rich.tree import Tree

from bridge.errors import CorruptLake, SettingsError
from bridge.operate.demo.flights import TABLES, Airline
from bridge.operate.demo.project import PIPELINE, SCHEMA

MARKER = ".made-by-singer-bridge-demo"

QUESTION = f"""\
SELECT name, count(*) AS flights, round(avg(arr_delay), 1) AS minutes_late
FROM (
  SELECT * FROM '{{lake}}/{PIPELINE}/{SCHEMA}-flights/*.parquet'
  QUALIFY row_number() OVER (PARTITION BY id ORDER BY updated_at DESC) = 1)
JOIN '{{lake}}/{PIPELINE}/{SCHEMA}-airlines/*.parquet' USING (carrier)
GROUP BY name ORDER BY flights DESC"""


def clear(lake: Path) -> None:
    """Empty the lake of an earlier demo; a folder that holds anything else is refused, and stays as it is."""
    foreign = next(_foreign(lake), None) if lake.exists() else None
    if foreign is not None:
        hint = "give the demo a folder of its own; it removes only what an earlier demo made"
        raise SettingsError("the folder for the demo's lake holds something else", hint=hint, lake=lake, found=foreign)
    lake.mkdir(parents=True, exist_ok=True)
    (lake / MARKER).write_text("The next demo of singer-bridge empties this folder. Remove this file to keep it.\n")
    for name in (PIPELINE, ".bridge"):
        if (lake / name).exists():
            shutil.rmtree(lake / name)


def _foreign(lake: Path) -> Iterator[str]:
    """Yield what no demo made: files, tables and pipelines of other names; everything if the demo's marker is gone."""
    if not lake.is_dir() or not (lake / MARKER).is_file():
        yield from (entry.name for entry in lake.iterdir()) if lake.is_dir() else (lake.name,)
        return
    tables = {_table(lake, table).name for table in TABLES}
    own = {lake: {MARKER, ".bridge", PIPELINE}, lake / PIPELINE: tables}
    for folder in filter(Path.is_dir, own):
        yield from (str(entry.relative_to(lake)) for entry in folder.iterdir() if entry.name not in own[folder])
    logs = (commits.parent for commits in lake.glob(".bridge/*/commits"))
    yield from (str(log.relative_to(lake)) for log in logs if log.name != PIPELINE)


def _table(lake: Path, table: str) -> Path:
    return lake / PIPELINE / f"{SCHEMA}-{table}"


def _ask(question: str) -> list[tuple[Any, ...]]:
    import duckdb  # an extra: imported only when the demo runs

    try:
        with duckdb.connect() as connection:
            rows: list[tuple[Any, ...]] = connection.execute(question).fetchall()
            return rows
    except duckdb.Error as error:
        hint = "look at the run's log; the lake's folder remains"
        raise CorruptLake(f"DuckDB cannot read the lake: {error}", hint=hint) from error


def _number(lake: Path, table: str, expression: str) -> int:
    files = str(_table(lake, table) / "*.parquet").replace("'", "''")
    rows = _ask(f"SELECT {expression} FROM '{files}'")
    return int(rows[0][0])


def counts(lake: Path) -> dict[str, int]:
    """Rows of each table, counted in its files."""
    return {table: _number(lake, table, "count(*)") for table in TABLES}


def distinct_flights(lake: Path) -> int:
    """Flights, each counted once, however many versions of it the lake holds."""
    return _number(lake, "flights", "count(DISTINCT id)")


def punctuality(lake: Path) -> list[Airline]:
    """The answer to the demo's question, from the files alone: the latest version of each flight counts."""
    rows = _ask(QUESTION.format(lake=str(lake).replace("'", "''")))
    return [Airline(*row) for row in rows]


def files_tree(lake: Path) -> Tree:
    """The lake as a reader sees it: every table with its files and their sizes; the bookkeeping in one line."""
    tree = Tree(f"[bold]{lake.name}/[/]")
    pipeline = tree.add(f"{PIPELINE}/")
    for table in TABLES:
        branch = pipeline.add(f"{SCHEMA}-{table}/")
        for file in sorted(_table(lake, table).glob("*.parquet")):
            branch.add(f"{_short(file.name)}  [dim]{decimal(file.stat().st_size)}[/]")
    tree.add(".bridge/  [dim]commits, state.json, run records: the truth, in plain JSON[/]")
    return tree


def _short(name: str) -> str:
    """A file name with a shortened uuid, so that a line of the tree fits a narrow terminal."""
    stem, dot, suffix = name.rpartition(".")
    return f"{stem[:34]}...{dot}{suffix}" if len(stem) > 37 else name
