"""The demo's source in a PostgreSQL server of its own: New York's flights of 2013, and the catalog of their tap.

    python flights.py          # load the tables and write catalog.json; what is there already is kept
    python flights.py change   # insert and correct some flights, as an application would

Finds the server by the variables PGHOST and PGPASSWORD, the project's folder is the current one. Repeatable: a load
that was cut off is started afresh.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psycopg
from psycopg import sql
from rich.console import Console

from bridge.operate.demo import flights
from bridge.operate.demo.command import DemoProject
from bridge.operate.demo.database import DemoServer
from bridge.operate.demo.project import choose_replication


def server() -> DemoServer:
    """Return where the server is; libpq and SQLAlchemy take a host name wherever a socket's folder may stand."""
    return DemoServer(socket_folder=Path(os.environ["PGHOST"]), pid=0)


def load() -> None:
    """Fill the database unless it is full, and give its reader the password of the pipeline."""
    if not _loaded():
        with _connect("postgres") as owner:
            owner.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(flights.DATABASE)))
            owner.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(flights.READER)))
        flights.create(server())
    with _connect("postgres") as owner:
        change = sql.SQL("ALTER ROLE {} PASSWORD {}")
        owner.execute(change.format(sql.Identifier(flights.READER), sql.Literal(os.environ["READER_PASSWORD"])))
    _tell(flights.count(server()))


def _loaded() -> bool:
    """All tables are loaded in one transaction: if one is there, all are, with all of their rows."""
    with _connect("postgres") as owner:
        if not owner.execute("SELECT 1 FROM pg_database WHERE datname = %s", [flights.DATABASE]).fetchone():
            return False
    with _connect(flights.DATABASE) as owner:
        return owner.execute("SELECT 1 FROM pg_tables WHERE tablename = 'flights'").fetchone() is not None


def _connect(database: str) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(server().conninfo(database), autocommit=True)


def _tell(rows: dict[str, int]) -> None:
    Console().print(", ".join(f"{count:,} {table}" for table, count in rows.items()))


def main(words: list[str]) -> None:
    """Do what the words say."""
    if words == ["change"]:
        change = flights.change(server())
        Console().print(f"{change.inserted:,} flights inserted, {change.updated:,} corrected")
        return
    load()
    choose_replication(DemoProject(Path.cwd(), Console()))
    Console().print("catalog.json is written")


if __name__ == "__main__":
    main(sys.argv[1:])
