"""The statement by which an engine reads a table; for Polars, pyarrow, and Spark by the manifest, it is Python code.

Guarantee: every name and path is quoted as the engine reads it. The columns are those of the commit log, in their
order, so a file that is older than a column has nulls in it. A column whose name an engine does not accept is left out,
and a comment says so. For DuckDB 1.1, Polars 1.31, Spark 3.5, Athena 3, and newer ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bridge.errors import SettingsError
from bridge.lake.table_columns import holds_json
from bridge.operate.readers import code
from bridge.operate.readers.engines import ATHENA, BIGQUERY, DUCKDB, SNOWFLAKE, SPARK, TRINO, SqlEngine
from bridge.operate.readers.stores import store_of
from bridge.operate.readers.table import Table, file_uri


def statement(table: Table, dialect: str, *, view: bool = False, manifest: bool = False) -> str:
    """The text to run. Raises `SettingsError` if the engine has no such thing."""
    engine = DIALECTS[dialect]
    plain, listed = (engine.view, engine.manifest_view) if view else (engine.folder, engine.manifest)
    write = listed if manifest else plain
    if write is None:
        refused = " and ".join(flag for flag, given in (("--view", view), ("--manifest", manifest)) if given)
        can = [flag for flag, has in (("--view", engine.view), ("--manifest", engine.manifest)) if has]
        hint = f"{dialect} takes {' or '.join(can)}" if can else "it reads the folder: leave the flag out"
        raise SettingsError(f"no {refused} here", hint=hint, dialect=dialect)
    comment = "#" if dialect == "spark" and manifest else engine.comment  # that one is Python
    notes = "".join(f"{comment} {note}\n" for note in _notes(table, dialect, manifest=manifest))
    return f"{notes}{write(table)}\n"


def _notes(table: Table, dialect: str, *, manifest: bool) -> Iterator[str]:
    """Notes that the reader of the statement has to know first."""
    engine = DIALECTS[dialect]
    if engine.store and "://" not in table.bucket:
        hint = f"copy the bucket, and give --location {engine.store}://..."
        yield f"{dialect} cannot read a folder of this machine: {hint}"
    if store := store_of(table.bucket):
        yield from store.notes(table, dialect)
    if manifest and table.bucket != table.own:
        yield f"the manifest names files under {table.own}, whatever --location says"
    sql = ATHENA if engine.sql is TRINO and manifest else engine.sql
    if table.partitioned and dialect == "trino" and not manifest:
        yield "needs hive.recursive-directories=true in the catalog's settings, as the table has partitions"
    if sql and (left_out := list(sql.left_out(table.columns))):
        yield f"left out, as {dialect} has no such names or types: {', '.join(map(repr, left_out))}"


def _columns(table: Table, engine: SqlEngine, form: str = "{name} {type}") -> str:
    """The columns of a CREATE TABLE, a line each."""
    lines = []
    for entry in table.columns:
        type_ = engine.type(entry["type"])
        if type_ and engine.can_name(entry["name"]):
            text = form.replace("{type}", type_).replace("{name}", engine.name(entry["name"]))
            lines.append((text, " -- JSON text" if holds_json(entry) else ""))
    last = len(lines) - 1
    return "\n".join(f"  {text}{',' if at < last else ''}{note}" for at, (text, note) in enumerate(lines))


def _duckdb_select(table: Table, source: str, *, view: bool) -> str:
    folders = ", hive_partitioning = false" if table.partitioned else ""
    read = f"FROM read_parquet({source}, union_by_name = true{folders});"
    if not view:
        return f"SELECT *\n{read}"
    return duckdb_view(table, read)


def duckdb_view(table: Table, source: str) -> str:
    """A view that names its columns: with `*` it would fail at the first new one."""
    columns = ",\n".join(f"  {DUCKDB.name(entry['name'])}" for entry in table.columns)
    return f"CREATE OR REPLACE VIEW {DUCKDB.name(table.name)} AS\nSELECT\n{columns}\n{source}"


def _duckdb_glob(path: str) -> str:
    return re.sub(r"([\[*?])", r"[\1]", path)


def _duckdb(table: Table, *, view: bool = False) -> str:
    below = "**/" if table.partitioned else ""
    return _duckdb_select(table, DUCKDB.text(f"{_duckdb_glob(table.path)}/{below}*.parquet"), view=view)


def _duckdb_by_manifest(table: Table, *, view: bool = False) -> str:
    """Two statements: a table function takes a variable, but no subquery."""
    lines = f"FROM read_text({DUCKDB.text(_duckdb_glob(table.manifest))})"
    variable = f"SET VARIABLE files = (SELECT regexp_extract_all(content, '[^\\n]+') {lines});"
    return variable + "\n" + _duckdb_select(table, "getvariable('files')", view=view)


def _spark(table: Table) -> str:
    options = f"OPTIONS ({code.SPARK_FOLDERS} 'true')\n" if table.partitioned else ""
    return (
        f"CREATE TABLE IF NOT EXISTS {SPARK.name(table.name)} (\n{_columns(table, SPARK)}\n)\n"
        f"USING parquet\n{options}LOCATION {SPARK.text(code.spark_glob(table.path))};"
    )


def _spark_view(table: Table) -> str:
    folders = f", {code.SPARK_FOLDERS} 'true'" if table.partitioned else ""
    return (
        f"CREATE OR REPLACE TEMPORARY VIEW {SPARK.name(table.name)} (\n{_columns(table, SPARK)}\n)\n"
        f"USING parquet\nOPTIONS (path {SPARK.text(code.spark_glob(table.path))}{folders});"
    )


def _hive(table: Table, stored: str, path: str) -> str:
    return (
        f"CREATE EXTERNAL TABLE IF NOT EXISTS {ATHENA.name(table.name)} (\n{_columns(table, ATHENA)}\n)\n"
        f"{stored}\nLOCATION {ATHENA.text(file_uri(path) + '/')};"
    )


def _athena(table: Table) -> str:
    return _hive(table, "STORED AS PARQUET", table.path)


def _symlinks(table: Table) -> str:
    """For Hive and Athena: each file in the location lists data files."""
    hive = "org.apache.hadoop.hive.ql.io"
    stored = (
        f"ROW FORMAT SERDE '{hive}.parquet.serde.ParquetHiveSerDe'\n"
        f"STORED AS INPUTFORMAT '{hive}.SymlinkTextInputFormat'\n"
        f"OUTPUTFORMAT '{hive}.HiveIgnoreKeyTextOutputFormat'"
    )
    return _hive(table, stored, table.symlinks)


def _trino(table: Table) -> str:
    return (
        f"CREATE TABLE IF NOT EXISTS {TRINO.name(table.name)} (\n{_columns(table, TRINO)}\n)\n"
        f"WITH (external_location = {TRINO.text(file_uri(table.path))}, format = 'PARQUET');"
    )


def _trino_by_manifest(table: Table) -> str:
    return f"-- trino reads such a table and cannot create it: run this in Hive or Athena\n{_symlinks(table)}"


def _bigquery(table: Table, *options: str) -> str:
    options = options or (f"uris = [{BIGQUERY.text(file_uri(table.path) + '/*.parquet')}]",)
    text = ",\n  ".join(("format = 'PARQUET'", *options, "enable_list_inference = true"))
    return (
        f"CREATE OR REPLACE EXTERNAL TABLE {BIGQUERY.name(table.name)} (\n{_columns(table, BIGQUERY)}\n)\n"
        f"OPTIONS (\n  {text}\n);"
    )


def _bigquery_by_manifest(table: Table) -> str:
    uris = f"uris = [{BIGQUERY.text(file_uri(table.manifest))}]"
    return _bigquery(table, uris, "file_set_spec_type = 'NEW_LINE_DELIMITED_MANIFEST'")


def stage_uri(table: Table) -> str:
    """The table's folder as the URL of a stage; Snowflake has a word of its own for Google's store."""
    url = file_uri(table.path)
    return f"{f'gcs://{url[5:]}' if url.startswith('gs://') else url}/"


def _snowflake(table: Table) -> str:
    """A stage for the table's folder alone, so that LOCATION has no path to quote; then the table."""
    stage, name = SNOWFLAKE.name(f"{table.name}_files"), SNOWFLAKE.name(table.name)
    columns = _columns(table, SNOWFLAKE, "{name} {type} AS (VALUE:{name}::{type})")
    return (
        "-- a private bucket needs a STORAGE_INTEGRATION in the stage\n"
        f"CREATE STAGE IF NOT EXISTS {stage} URL = {SNOWFLAKE.text(stage_uri(table))};\n"
        f"CREATE OR REPLACE EXTERNAL TABLE {name} (\n{columns}\n)\n"
        f"LOCATION = @{stage}\nAUTO_REFRESH = FALSE\nPATTERN = '.*[.]parquet'\n"
        "FILE_FORMAT = (TYPE = PARQUET USE_LOGICAL_TYPE = TRUE);\n"
        f"-- after each run: ALTER EXTERNAL TABLE {name} REFRESH;"
    )


_Write = Callable[[Table], str]


@dataclass(frozen=True, slots=True)
class _Dialect:
    """A dialect's statements. `sql` is None if it names no columns; `store` is the only place it can read from."""

    folder: _Write
    manifest: _Write | None = None
    view: _Write | None = None
    manifest_view: _Write | None = None
    sql: SqlEngine | None = None
    store: str = ""
    comment: str = "--"


DIALECTS = {
    "spark": _Dialect(_spark, code.spark_by_manifest, _spark_view),
    "duckdb": _Dialect(
        _duckdb,
        _duckdb_by_manifest,
        lambda table: _duckdb(table, view=True),
        lambda table: _duckdb_by_manifest(table, view=True),
    ),
    "polars": _Dialect(code.polars, code.polars_by_manifest, comment="#"),
    "pyarrow": _Dialect(code.pyarrow, code.pyarrow_by_manifest, comment="#"),
    "athena": _Dialect(_athena, _symlinks, sql=ATHENA, store="s3"),
    "trino": _Dialect(_trino, _trino_by_manifest, sql=TRINO),
    "bigquery": _Dialect(_bigquery, _bigquery_by_manifest, sql=BIGQUERY, store="gs"),
    "snowflake": _Dialect(_snowflake, sql=SNOWFLAKE, store="s3"),
}
"""By the name that `--dialect` takes."""
