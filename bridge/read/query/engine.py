"""DuckDB over the tables of a lake. It reads what we hand it, and nothing else: no file, no network, no extension."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from bridge.errors import BridgeError, DataError, SettingsError
from bridge.lake.storage.parallel import parallel_map
from bridge.read.query.dataset import LazyRows
from bridge.read.query.snapshot import TablesAt
from bridge.read.query.system import COLUMNS, system_table

SYSTEM = "bridge"
"""The schema of the system tables."""
_READING = ("SELECT", "EXPLAIN", "PRAGMA")
_BATCH = 65_536
"""Rows."""
_LISTED = 10
"""Tables that a hint names."""
_LISTS = re.compile(r"\bshow\b|\bdescribe\b|\bpragma\b|information_schema|duckdb_|pg_|sqlite_")
"""Matches words by which a statement may list tables."""
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class _SqlTable:
    """A table by its name in SQL."""

    at: TablesAt
    name: str
    stream: str

    @property
    def pipeline(self) -> str:
        return self.at.log.pipeline

    def __str__(self) -> str:
        return f"{quoted(self.pipeline)}.{quoted(self.name)}"


@contextmanager
def answer(sql: str, pipelines: Sequence[TablesAt]) -> Iterator[pa.RecordBatchReader]:
    """Run one statement. Its rows come in batches while it runs, so that memory need not hold all of them.

    A table is called `pipeline.stream`; if there is one pipeline, also `stream`. Raises `SettingsError` for SQL that
    DuckDB does not understand or that changes something, `DataError` for values that do not allow the question,
    `LakeError` for a file that is gone.
    """
    duckdb = _library()
    tables = [_SqlTable(at, name, stream) for at in pipelines for name, stream in at.names.items()]
    connection = duckdb.connect(":memory:", config={"python_enable_replacements": "false"})
    system: list[LazyRows] = []
    try:
        _expect_reading(connection, sql)
        system = _register(connection, sql, pipelines, tables)
        yield connection.sql(sql).to_arrow_reader(_BATCH)
    except (duckdb.Error, pa.ArrowException) as error:
        for at in pipelines:
            at.raise_failed()
        for rows in system:
            rows.raise_failed()
        raise _explained(duckdb, error, tables) from error
    finally:
        connection.close()


def quoted(name: str) -> str:
    """A name as SQL has it: in quotes where it needs them."""
    return name if _PLAIN.fullmatch(name) else _literal(name)


def _library() -> Any:
    try:
        import duckdb
    except ImportError as error:
        hint = 'install it: pip install "singer-bridge[sql]"'
        raise SettingsError("SQL needs DuckDB, which is not installed", hint=hint) from error
    return duckdb


def _expect_reading(connection: Any, sql: str) -> None:
    """Raise `SettingsError` unless this is one statement that only reads."""
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise SettingsError("this is not one SQL statement", hint='give one, such as "SELECT count(*) FROM orders"')
    kind = statements[0].type.name
    if kind not in _READING:
        hint = "the lake is only read here; --output FILE.parquet keeps the answer to a SELECT"
        raise SettingsError(f"{kind} is no question", hint=hint)


def _register(connection: Any, sql: str, pipelines: Sequence[TablesAt], tables: Sequence[_SqlTable]) -> list[LazyRows]:
    """Give DuckDB the tables that the statement reads, and the system tables, whose rows are read at need.

    Where the statement may list tables, or names one that does not exist, it gets all of them.
    """
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    names = {table.name if len(pipelines) == 1 else str(table): table for table in tables}
    read = _names_in(connection, sql)
    chosen = {bare: table for bare, table in names.items() if read & {bare.casefold(), table.name.casefold()}}
    existing = {name.casefold() for bare, table in chosen.items() for name in (bare, table.name)} | COLUMNS.keys()
    if not read or not read <= existing or _LISTS.search(sql.casefold()):
        chosen = names
    for at in pipelines:
        mine = [(bare, table) for bare, table in chosen.items() if table.at is at]
        rows = parallel_map(at.log.storage, at.dataset, [table.stream for _, table in mine])
        for (bare, table), dataset in zip(mine, rows, strict=True):
            _view(connection, table.pipeline, table.name, bare, dataset)
    system = {name: LazyRows.of(schema, partial(system_table, name, pipelines)) for name, schema in COLUMNS.items()}
    for name, rows in system.items():
        if (bare := f"{SYSTEM}.{name}") not in names:
            _view(connection, SYSTEM, name, bare, rows)
    return list(system.values())


def _names_in(connection: Any, sql: str) -> set[str]:
    """The names of the tables that a statement reads, their case folded; none if DuckDB cannot tell them yet."""
    try:
        return {name.casefold() for name in connection.get_table_names(sql)}
    except _library().Error:  # a PIVOT; a name that is checked before its table is looked up
        return set()


def _view(connection: Any, schema: str, name: str, bare: str, rows: Any) -> None:
    """Make rows known as `schema.name`, and as `bare`."""
    connection.register(bare, rows)
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_literal(schema)}")
    connection.execute(
        f"CREATE VIEW IF NOT EXISTS {_literal(schema)}.{_literal(name)} AS FROM temp.main.{_literal(bare)}"
    )


def _literal(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def _explained(duckdb: Any, error: Exception, tables: Sequence[_SqlTable]) -> BridgeError:
    """DuckDB's words, and what to do."""
    text = str(error).rstrip()
    if isinstance(error, duckdb.OutOfMemoryException):
        return DataError(text, hint="ask for less at once, or with a LIMIT")
    if isinstance(error, duckdb.CatalogException) and tables:
        system = [f"{SYSTEM}.{name}" for name in COLUMNS]
        listed = ", ".join(map(str, tables[:_LISTED])) + (" ..." if len(tables) > _LISTED else "")
        return SettingsError(text, hint=f"tables: {listed}; and {', '.join(system)}")
    if isinstance(error, duckdb.PermissionException):
        return SettingsError(text, hint="SQL reads tables of the lake, and nothing else: no files and no extensions")
    if isinstance(error, duckdb.ProgrammingError):
        return SettingsError(text, hint="DuckDB's documentation has its SQL")
    return DataError(text, hint="the values of the tables do not allow this; try_cast(...) makes such values null")
