"""Asks the PostgreSQL that a tap reads what its catalog does not say: columns that are new, columns with NULLs.

psycopg comes with the extra `postgres`. A question is bounded in time, as somebody waits for the answer.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from bridge.settings.options import Pipeline
from bridge.singer.catalog import Catalog, StreamEntry, root_facts, stream_id
from bridge.tap.slot_source import SlotSource, slot_source

Place = tuple[str, str]
"""The schema and the name of a table."""

_PATIENCE = 10
"""Seconds for connecting."""
_LIMIT = "5s"
"""How long the server may look for a NULL in one column: a table of some ten million rows takes as long."""
_ALTOGETHER = 30
"""Seconds for all columns: what is not asked by then is not known."""
_EXTRA = "pip install 'singer-bridge[postgres]'"
_NOT_NULL = "SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = %s AND attnotnull"


_COLUMNS = """
select n.nspname::text, c.relname::text, a.attname::text
from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
where a.attnum > 0 and not a.attisdropped
  and (n.nspname::text, c.relname::text) in (select * from unnest(%s::text[], %s::text[]))
"""


class NotAsked(Exception):
    """Why the database was not asked."""


def table_of(entry: StreamEntry) -> Place:
    """The schema and the name of a stream's table; MySQL has databases for schemas."""
    facts = root_facts(entry)
    schema = str(facts.get("schema-name") or facts.get("database-name") or "public")
    return schema, str(entry.get("table_name") or stream_id(entry).partition("-")[2])


@contextmanager
def asked(source: SlotSource) -> Iterator[Any]:
    """A connection in which each statement is its own transaction. Raises `NotAsked`, also for errors in it."""
    if not source.parameters or source.tunnel:
        raise NotAsked("set source.replication_slot.url to an address of the database")
    try:
        import psycopg
    except ImportError:
        raise NotAsked(_EXTRA) from None
    parameters: dict[str, Any] = {"connect_timeout": _PATIENCE, **source.parameters}
    try:
        with psycopg.connect(autocommit=True, **parameters) as connection:
            yield connection
    except psycopg.Error as error:
        raise NotAsked((str(error).strip().splitlines() or [type(error).__name__])[0]) from None


def ask(source: SlotSource, sql: str, entries: Collection[StreamEntry]) -> list[tuple[Any, ...]]:
    """The rows of a statement whose parameters are the schemas and names of the streams' tables. Raises `NotAsked`."""
    places = [table_of(entry) for entry in entries]
    with asked(source) as connection:
        values = [schema for schema, _ in places], [table for _, table in places]
        return list(connection.execute(sql, values).fetchall())


def table_columns(pipeline: Pipeline, argv: Sequence[str], entries: Collection[StreamEntry]) -> dict[str, set[str]]:
    """The columns of each stream's table that is in the database; none for a table that is not. Raises `NotAsked`."""
    source = slot_source(pipeline, argv)
    if source is None or source.kind == "other":
        raise NotAsked("only a PostgreSQL below a tap that is known is asked for columns")
    database = source.database
    entries = [one for one in entries if str(root_facts(one).get("database-name") or database) == database]
    columns: dict[Place, set[str]] = {}
    for schema, table, column in ask(source, _COLUMNS, entries):
        columns.setdefault((schema, table), set()).add(column)
    return {stream_id(entry): columns.get(table_of(entry), set()) for entry in entries}


def columns_with_nulls(
    pipeline: Pipeline, argv: Sequence[str], catalog: Catalog, columns: Mapping[str, Collection[str]]
) -> tuple[dict[str, set[str]], list[str]]:
    """Which of these columns have NULLs, by the id of each stream, and notes for people.

    Nothing of a database that we do not know; a column that takes too long, or may not be read, counts as without.
    """
    source = slot_source(pipeline, argv)
    entries = [entry for entry in catalog["streams"] if columns.get(stream_id(entry))]
    if source is None or source.kind == "other" or not entries:
        return {}, []
    nulls, silent = dict[str, set[str]](), list[str]()
    try:
        with asked(source) as connection:
            until = time.monotonic() + _ALTOGETHER
            connection.execute(f"SET statement_timeout = '{_LIMIT}'")
            for entry in entries:
                for column in columns[stream_id(entry)]:
                    in_time = time.monotonic() < until
                    has_null = _has_null(connection, table_of(entry), column) if in_time else None
                    if has_null:
                        nulls.setdefault(stream_id(entry), set()).add(column)
                    silent += [f"{stream_id(entry)}.{column}"] if has_null is None else []
    except NotAsked as reason:
        return {}, [f"whether replication keys have NULLs is not known: {reason}"]
    text = "the database did not say in time whether these have NULLs, which an incremental run does not see again"
    return nulls, [f"{text}: {', '.join(silent)}"] if silent else []


def _has_null(connection: Any, table: Place, column: str) -> bool | None:
    """Whether a column has a NULL; None if the server does not say."""
    import psycopg
    from psycopg import sql

    name, question = sql.Identifier(*table), sql.SQL("SELECT 1 FROM {} WHERE {} IS NULL LIMIT 1")
    try:
        if connection.execute(_NOT_NULL, (name.as_string(connection), column)).fetchone():
            return False  # older servers would read all of the table
        return connection.execute(question.format(name, sql.Identifier(column))).fetchone() is not None
    except psycopg.Error:
        if connection.closed:
            raise
        return None
