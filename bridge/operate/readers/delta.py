"""The statement, or the code, by which an engine reads a Delta table, each by its own reader of Delta's log.

Guarantee: each name is quoted as the engine reads it. None of these lists the folder, which still has files that the
table has removed. An engine that reads Parquet but not Delta takes the manifest: `tables ddl --manifest`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from bridge.errors import SettingsError
from bridge.operate.readers.code import text, variable
from bridge.operate.readers.ddl import duckdb_view, stage_uri
from bridge.operate.readers.engines import ATHENA, BIGQUERY, DUCKDB, SNOWFLAKE, SPARK, TRINO
from bridge.operate.readers.stores import store_of
from bridge.operate.readers.table import Table, file_uri


@dataclass(frozen=True, slots=True)
class _DeltaReader:
    """How one engine reads Delta: as a table, or as a view if it has such a thing; `first` is what it needs."""

    table: Callable[[Table], str]
    view: Callable[[Table], str] | None = None
    first: str = ""
    store: tuple[str, ...] = ()
    """The only places it reads from."""
    comment: str = "--"


def delta_statement(table: Table, dialect: str, *, view: bool = False) -> str:
    """The text to run. Raises `SettingsError` if the engine has no such thing."""
    reader = _READERS[dialect]
    write = reader.view if view else reader.table
    if write is None:
        raise SettingsError("no --view here", hint=f"{dialect} reads the table: leave the flag out", dialect=dialect)
    notes = [reader.first] if reader.first else []
    if reader.store and not table.bucket.startswith(reader.store):
        notes.append(f"copy the bucket, with _delta_log, to where {dialect} reads: --location {reader.store[0]}...")
    elif store := store_of(table.bucket):
        notes += [note.replace("first:", "and:", 1) for note in store.notes(table, dialect)]
    return "".join(f"{reader.comment} {note}\n" for note in notes) + write(table) + "\n"


def _uri(table: Table) -> str:
    return file_uri(table.path)


def _options(table: Table) -> str:
    """The argument that says where the bucket is; the library itself looks for keys."""
    store = store_of(table.bucket)
    options = store.storage_options(table) if store else {}
    return f", storage_options={json.dumps(options)}" if options else ""


def _duckdb(table: Table) -> str:
    return f"SELECT *\nFROM delta_scan({DUCKDB.text(_uri(table))});"


def _duckdb_view(table: Table) -> str:
    return duckdb_view(table, f"FROM delta_scan({DUCKDB.text(_uri(table))});")


def _polars(table: Table) -> str:
    return f"import polars as pl\n\n{variable(table.name)} = pl.scan_delta({text(table.path)}{_options(table)})"


def _pyarrow(table: Table) -> str:
    opened = f"DeltaTable({text(table.path)}{_options(table)})"
    return f"from deltalake import DeltaTable\n\n{variable(table.name)} = {opened}.to_pyarrow_dataset()"


def _spark(table: Table) -> str:
    return f"CREATE TABLE IF NOT EXISTS {SPARK.name(table.name)}\nUSING DELTA\nLOCATION {SPARK.text(table.path)};"


def _spark_view(table: Table) -> str:
    return (
        f"CREATE OR REPLACE TEMPORARY VIEW {SPARK.name(table.name)} AS\nSELECT * FROM delta.{SPARK.name(table.path)};"
    )


def _athena(table: Table) -> str:
    location = f"LOCATION {ATHENA.text(table.path + '/')}"
    return f"CREATE EXTERNAL TABLE {ATHENA.name(table.name)}\n{location}\nTBLPROPERTIES ('table_type' = 'DELTA');"


def _trino(table: Table) -> str:
    arguments = f"schema_name => 'default', table_name => {TRINO.text(table.name)}"
    return f"CALL delta.system.register_table(\n  {arguments}, table_location => {TRINO.text(_uri(table))}\n);"


def _bigquery(table: Table) -> str:
    options = f"OPTIONS (format = 'DELTA_LAKE', uris = [{BIGQUERY.text(_uri(table))}]);"
    return f"CREATE OR REPLACE EXTERNAL TABLE {BIGQUERY.name(table.name)}\nWITH CONNECTION DEFAULT\n{options}"


def _snowflake(table: Table) -> str:
    stage, name = SNOWFLAKE.name(f"{table.name}_files"), SNOWFLAKE.name(table.name)
    columns = [
        f"  {SNOWFLAKE.name(entry['name'])} {type_} AS (VALUE:{SNOWFLAKE.name(entry['name'])}::{type_})"
        for entry in table.columns
        if (type_ := SNOWFLAKE.type(entry["type"]))
    ]
    return (
        f"CREATE STAGE IF NOT EXISTS {stage} URL = {SNOWFLAKE.text(stage_uri(table))};\n"
        f"CREATE OR REPLACE EXTERNAL TABLE {name} (\n" + ",\n".join(columns) + "\n)\n"
        f"LOCATION = @{stage}\nREFRESH_ON_CREATE = FALSE\nAUTO_REFRESH = FALSE\n"
        "FILE_FORMAT = (TYPE = PARQUET)\nTABLE_FORMAT = DELTA;\n"
        f"-- after each run: ALTER EXTERNAL TABLE {name} REFRESH;"
    )


_READERS = {
    "duckdb": _DeltaReader(_duckdb, _duckdb_view, "first: INSTALL delta; LOAD delta;"),
    "polars": _DeltaReader(_polars, first="needs the package deltalake", comment="#"),
    "pyarrow": _DeltaReader(_pyarrow, first="needs the package deltalake", comment="#"),
    "spark": _DeltaReader(
        _spark, _spark_view, "needs delta-spark, its extension and its catalog; without it: --manifest"
    ),
    "athena": _DeltaReader(_athena, store=("s3://",)),
    "trino": _DeltaReader(_trino, first="in a catalog of Trino's Delta Lake connector, here called delta"),
    "bigquery": _DeltaReader(
        _bigquery, first="its project needs a default Cloud resource connection", store=("gs://",)
    ),
    "snowflake": _DeltaReader(
        _snowflake,
        first="a private bucket needs a STORAGE_INTEGRATION in the stage",
        store=("s3://", "gs://", "az://", "abfss://"),
    ),
}
