"""Systems that read the records from PostgreSQL: singer-bridge with a tap from PyPI, dlt, sling, ingestr and OLake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

from bridge import __version__

from .counting import read, read_table
from .duckdb_extensions import ExtendedDuckdb
from .others import DltFiles, DltMerge
from .ours import Ours
from .source import STREAM, PostgresSource, Source
from .system import System


def _postgres(source: Source) -> PostgresSource:
    assert isinstance(source, PostgresSource)
    return source


class BridgePostgres(Ours):
    """`singer-bridge run` with MeltanoLabs' tap. It sends the row of its bookmark again, so rows are merged by key."""

    name = "bridge-postgres"
    label = f"singer-bridge {__version__}, `run`, tap-postgres 0.10.0, `upsert`"
    source = PostgresSource
    table = f"public-{STREAM}"
    requirements = ("meltanolabs-tap-postgres==0.10.0",)
    keys: ClassVar[dict[str, Any]] = {
        "replication_method": "INCREMENTAL",
        "replication_key": "id",
        "load_method": "upsert",
    }
    tap_settings: ClassVar[dict[str, Any]] = {}

    def set_up(self, source: Source) -> None:
        """As `singer-bridge add` writes it, with commits every second."""
        login = _postgres(source).login
        config = {"host": login["PGHOST"], "port": int(login["PGPORT"]), "database": login["PGDATABASE"]}
        config |= {"user": login["PGUSER"], "password": login["PGPASSWORD"], "filter_schemas": ["public"]}
        config |= self.tap_settings
        assert self.environment
        tap = {"tap": str(self.environment.program("tap-postgres")), "config": config, "select": [self.table]}
        streams = {self.table: self.keys}
        self.write_pipeline(source, {"source": tap, "destination": {"bucket": "lake"}, "streams": streams})

    def line(self, source: Source) -> str:
        return self.run_line


class BridgeLog(BridgePostgres):
    """The same from PostgreSQL's log, through a slot that its user makes first."""

    name = "bridge-log"
    label = f"singer-bridge {__version__}, `run`, tap-postgres 0.10.0, LOG_BASED, `upsert`"
    keys: ClassVar[dict[str, Any]] = {"replication_method": "LOG_BASED"}
    tap_settings: ClassVar[dict[str, Any]] = {
        "replication_slot_name": "proof",
        "replication_idle_exit_seconds": 4,
        "auto_bootstrap_log_based": True,
        "log_based_single_connection": True,
    }

    def set_up(self, source: Source) -> None:
        """The slot, then the pipeline."""
        if not (source.folder / "bridge.yaml").exists():
            _postgres(source).server.sql("select pg_create_logical_replication_slot('proof', 'wal2json')")
        super().set_up(source)


class DltSqlFiles(DltFiles):
    """dlt's own source `sql_table`, with its incremental cursor, appended to Parquet files."""

    name = "dlt-sql-append"
    label = "dlt 1.31.0, sql_database to filesystem, `append`"
    source = PostgresSource
    requirements = ("dlt[duckdb,filesystem,parquet,sql-database]==1.31.0", "psycopg2-binary==2.9.11")

    def line(self, source: Source) -> str:
        return f"python {Path(__file__).parent / 'programs' / 'dlt_sql.py'} {self.arguments}"

    def set_up(self, source: Source) -> None:
        """The program reads the URL of the database from a file, as from dlt's secrets."""
        (source.folder / "url.txt").write_text(_postgres(source).url("postgresql+psycopg2"), encoding="utf-8")


class DltSqlMerge(DltSqlFiles):
    """The same, merged by the primary key into DuckDB."""

    name = "dlt-sql-merge"
    label = "dlt 1.31.0, sql_database to DuckDB, `merge` by key"
    arguments = DltMerge.arguments

    def numbers(self, folder: Path) -> list[int | None]:
        return read_table(folder / "lake.duckdb", f"proof.{STREAM}")


class Sling(ExtendedDuckdb, System):
    """`incremental` with a primary key and an update key, which its docs name "new data upsert", into DuckDB.

    1.4.11 is the newest whose program PyPI has; later ones are downloaded from GitHub when they are first called.
    """

    name = "sling"
    label = "sling 1.4.11, DuckDB, `incremental` by key"
    promise = "a run loads into a temporary table, then merges"
    source = PostgresSource
    extensions = ("httpfs",)
    requirements = ("sling-linux-amd64==1.4.11", "duckdb-cli==1.5.5", "duckdb-extension-httpfs==1.5.5")

    def set_up(self, source: Source) -> None:
        """A replication file; JSON is YAML."""
        super().set_up(source)
        keys = {"mode": "incremental", "primary_key": ["id"], "update_key": "id", "object": "main.{stream_table}"}
        replication = {"source": "SOURCE", "target": "LAKE", "defaults": keys, "streams": {f"public.{STREAM}": {}}}
        (source.folder / "replication.yaml").write_text(json.dumps(replication), encoding="utf-8")

    def line(self, source: Source) -> str:
        """Connections are variables."""
        url = _postgres(source).url(options="?sslmode=disable")
        assert self.environment
        package = "import sling_linux_amd64; print(sling_linux_amd64.SLING_BIN)"
        variables = f"SOURCE='{url}' LAKE='duckdb://{source.folder}/lake.duckdb'"
        return f"{variables} $(python -c '{package}') run -r replication.yaml"

    def environ(self, folder: Path) -> dict[str, str]:
        """DuckDB's program and extensions are installed, so that it downloads none; no telemetry."""
        assert self.environment
        installed = {"DUCKDB_PATH": str(self.environment.program("duckdb")), "DUCKDB_USE_INSTALLED_EXTENSIONS": "true"}
        return super().environ(folder) | installed | {"SLING_DISABLE_TELEMETRY": "true"}

    def numbers(self, folder: Path) -> list[int | None]:
        return read_table(folder / "lake.duckdb", f"main.{STREAM}")


class Olake(System):
    """Its driver for PostgreSQL, `incremental` by the key into local Parquet files, as its README says."""

    name = "olake"
    label = "OLake 0.9.4, local Parquet, `incremental`"
    promise = "cursor value greater than or equal to the saved position"
    source = PostgresSource
    released = "olake-postgres"
    update_method: ClassVar[dict[str, Any]] = {}

    def set_up(self, source: Source) -> None:
        """The settings, and the destination."""
        login = _postgres(source).login
        config = {"host": login["PGHOST"], "port": int(login["PGPORT"]), "database": login["PGDATABASE"]}
        config |= {"username": login["PGUSER"], "password": login["PGPASSWORD"], "ssl": {"mode": "disable"}}
        config |= {"max_threads": 2, "retry_count": 2}
        (source.folder / "config.json").write_text(json.dumps(config | self.update_method), encoding="utf-8")
        lake = {"type": "PARQUET", "writer": {"local_path": "lake"}}
        (source.folder / "destination.json").write_text(json.dumps(lake), encoding="utf-8")

    def line(self, source: Source) -> str:
        """`discover` once, as it writes it; the state is the file that a sync leaves beside the settings."""
        return f"[ -e streams.json ] || olake-postgres discover --config config.json || exit\n{self.command('sync')}"

    def command(self, verb: str) -> str:
        """One of its verbs, with all of its files."""
        files = "--config config.json --catalog streams.json --destination destination.json"
        return f"olake-postgres {verb} {files} $([ -e state.json ] && echo --state state.json)"

    def environ(self, folder: Path) -> dict[str, str]:
        """Without this variable it sends what it did to its makers."""
        return super().environ(folder) | {"TELEMETRY_DISABLED": "true"}

    def numbers(self, folder: Path) -> list[int | None]:
        return read(sorted((folder / "lake").rglob("*.parquet")), "read_parquet(?)")


class OlakeCdc(Olake):
    """The same from PostgreSQL's log, through a slot and a publication that its user makes first."""

    name = "olake-cdc"
    label = "OLake 0.9.4, local Parquet, `cdc`"
    promise = "incremental changes from the log"
    update_method: ClassVar[dict[str, Any]] = {
        "update_method": {"replication_slot": "olake", "publication": "olake", "initial_wait_time": 120}
    }

    def set_up(self, source: Source) -> None:
        """`discover` proposes `cdc` where there is a slot."""
        if not (source.folder / "config.json").exists():
            _postgres(source).server.sql(
                "create publication olake for all tables;select pg_create_logical_replication_slot('olake', 'pgoutput')"
            )
        super().set_up(source)

    def line_again(self, source: Source) -> str:
        """As its message says if the slot is ahead of the state: "please proceed with clear destination"."""
        return f"{self.command('clear-destination')}\n{self.line(source)}"
