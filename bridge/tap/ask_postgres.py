"""What PostgreSQL's own catalog says of the tables that a tap's catalog names. Needs the extra `postgres`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from bridge.settings.options import Pipeline
from bridge.singer.catalog import StreamEntry, root_facts, stream_id
from bridge.tap.slot_source import SlotSource, slot_source

Place = tuple[str, str]
"""The schema and the name of a table."""

_PATIENCE = 10
"""Seconds for connecting."""
_EXTRA = "pip install 'singer-bridge[postgres]'"
_COLUMNS = """
select n.nspname::text, c.relname::text, a.attname::text
from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
where a.attnum > 0 and not a.attisdropped
  and (n.nspname::text, c.relname::text) in (select * from unnest(%s::text[], %s::text[]))
"""


class NotAsked(Exception):
    """Why the database was not asked."""


def place(entry: StreamEntry) -> Place:
    """Where a stream's table is."""
    schema = str(root_facts(entry).get("schema-name") or "public")
    return schema, str(entry.get("table_name") or stream_id(entry).partition("-")[2])


def ask(source: SlotSource, sql: str, entries: Collection[StreamEntry]) -> list[tuple[Any, ...]]:
    """The rows of a statement whose parameters are the schemas and names of the streams' tables. Raises `NotAsked`."""
    if not source.parameters or source.tunnel:
        raise NotAsked("set source.replication_slot.url to an address of the database")
    try:
        import psycopg
    except ImportError:
        raise NotAsked(_EXTRA) from None
    places = [place(entry) for entry in entries]
    parameters: dict[str, Any] = {"connect_timeout": _PATIENCE, **source.parameters}
    try:
        with psycopg.connect(autocommit=True, **parameters) as connection:
            values = [schema for schema, _ in places], [table for _, table in places]
            return list(connection.execute(sql, values).fetchall())
    except psycopg.Error as error:
        raise NotAsked((str(error).strip().splitlines() or [type(error).__name__])[0]) from None


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
    return {stream_id(entry): columns.get(place(entry), set()) for entry in entries}
