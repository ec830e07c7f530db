"""Which tables and columns a database has, and which columns have NULLs, which a catalog does not say."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bridge.load.tap.database.connection import NotAsked, Query
from bridge.load.tap.database.source_database import NO_DATABASE, Place, SourceDatabase
from bridge.protocol.singer.catalog import Catalog, StreamEntry, root_facts, stream_id

_SECONDS = 5
"""How long a question may take. As long takes a look for a NULL in a table of some ten million rows."""
_ALTOGETHER = 30
"""Seconds for all columns in which NULLs are looked for: what is not asked by then is not known."""
_TABLES = {
    "postgres": (
        "select n.nspname::text, c.relname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where c.relkind in ('r', 'p', 'v', 'm', 'f') and has_any_column_privilege(c.oid, 'select')"
        " and left(n.nspname::text, 3) <> 'pg_' and n.nspname <> 'information_schema'"
    ),
    "mysql": (
        "select table_schema, table_name from information_schema.tables"
        " where table_schema not in ('information_schema', 'performance_schema', 'mysql', 'sys')"
    ),
}
"""The tables and views that a tap lists: those that its user may read."""
_COLUMNS = {
    "postgres": (
        "select n.nspname::text, c.relname::text, a.attname::text, a.attnotnull"
        " from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace"
        " where a.attnum > 0 and not a.attisdropped and (n.nspname::text, c.relname::text) in "
    ),
    "mysql": (
        "select table_schema, table_name, column_name, is_nullable = 'NO' from information_schema.columns"
        " where (table_schema, table_name) in "
    ),
}
"""The columns of some tables, and whether they are declared to have no NULL."""


@dataclass(frozen=True, slots=True)
class SourceTables:
    """The columns of tables, by the id of the stream that each is."""

    existing: dict[str, set[str]]
    """Of the streams that were asked for; none of a table that the database does not have."""
    new: dict[str, set[str]]
    """Of tables that the tap did not have."""

    @property
    def new_entries(self) -> Catalog:
        """The new tables as the tap would discover them, as far as names go."""
        return {"streams": [_entry(name, columns) for name, columns in self.new.items()]}


def table_of(entry: StreamEntry) -> Place:
    """The schema and the name of a stream's table; MySQL has databases for schemas."""
    facts = root_facts(entry)
    schema = str(facts.get("schema-name") or facts.get("database-name") or "public")
    return schema, str(entry.get("table_name") or stream_id(entry).partition("-")[2])


def read_tables(
    database: SourceDatabase, entries: Collection[StreamEntry], before: Collection[str] | None
) -> SourceTables:
    """The tables of these streams, and those of no stream of `before`. None: new tables are not looked for.

    Raises `NotAsked`.
    """
    if database.kind is None:
        raise NotAsked(NO_DATABASE)
    if database.kind == "postgres":  # whose other databases the tap may read, too, and we do not
        entries = [one for one in entries if root_facts(one).get("database-name") in (None, "", database.name)]
    places = {stream_id(entry): table_of(entry) for entry in entries}
    new = {} if before is None else _new_tables(database, {*before, *places})
    columns: dict[Place, set[str]] = {}
    for schema, table, column, _ in _columns(database, {*places.values(), *new.values()}):
        columns.setdefault((str(schema), str(table)), set()).add(str(column))
    existing, fresh = ({name: columns.get(place, set()) for name, place in one.items()} for one in (places, new))
    return SourceTables(existing, fresh)


def columns_with_nulls(
    database: SourceDatabase, catalog: Catalog, columns: Mapping[str, Collection[str]]
) -> tuple[dict[str, set[str]], list[str]]:
    """Which of these columns have NULLs, by the id of each stream, and notes for people.

    Nothing of a database that we do not know; a column that takes too long, or may not be read, counts as without.
    """
    entries = {stream_id(entry): entry for entry in catalog["streams"] if columns.get(stream_id(entry))}
    if database.kind is None or not entries:
        return {}, []
    try:
        nulls, unknown = _nulls(database, {name: table_of(entry) for name, entry in entries.items()}, columns)
    except NotAsked as reason:
        return {}, [f"whether replication keys have NULLs is not known: {reason}"]
    text = "the database did not say in time whether these have NULLs; an incremental run does not see such rows again"
    return nulls, [f"{text}: {', '.join(unknown)}"] if unknown else []


def _nulls(
    database: SourceDatabase, places: Mapping[str, Place], columns: Mapping[str, Collection[str]]
) -> tuple[dict[str, set[str]], list[str]]:
    """The columns that have NULLs, and those of which the database does not say it in time."""
    with database:
        # Older servers would read all of the table, and MySQL takes a day of zero for a NULL.
        declared = {
            (schema, table, column) for schema, table, column, strict in _columns(database, places.values()) if strict
        }
        doubtful = [
            (name, column)
            for name, place in places.items()
            for column in columns[name]
            if (*place, column) not in declared
        ]
        queries: list[Query] = []
        for name, column in doubtful:
            table = database.quoted(*places[name])
            queries.append((f"select 1 from {table} where {database.quoted(column)} is null limit 1", []))
        answers = database.ask(queries, each=_SECONDS, whole=_ALTOGETHER)
    nulls: dict[str, set[str]] = {}
    for (name, column), answer in zip(doubtful, answers, strict=True):
        if answer:
            nulls.setdefault(name, set()).add(column)
    unknown = [f"{name}.{column}" for (name, column), answer in zip(doubtful, answers, strict=True) if answer is None]
    return nulls, unknown


def _new_tables(database: SourceDatabase, existing: Collection[str]) -> dict[str, Place]:
    """The tables that the tap would discover under another id than these."""
    settings = database.settings
    listed = settings.get("filter_schemas") or settings.get("filter_dbs") or ()
    schemas = {one.strip() for one in (listed.split(",") if isinstance(listed, str) else listed)}
    rows = database.rows(_TABLES[str(database.kind)], [], seconds=_SECONDS)
    places = {f"{schema}-{table}": (str(schema), str(table)) for schema, table in rows}
    return {
        name: place for name, place in places.items() if name not in existing and (not schemas or place[0] in schemas)
    }


def _columns(database: SourceDatabase, places: Collection[Place]) -> list[Sequence[Any]]:
    """Schema, table, column, and whether it is declared to have no NULL."""
    if not places:
        return []
    among, values = database.among(list(places))
    return database.rows(f"{_COLUMNS[str(database.kind)]}{among}", values, seconds=_SECONDS)


def _entry(name: str, columns: Collection[str]) -> StreamEntry:
    return {"tap_stream_id": name, "stream": name, "schema": {"properties": {column: {} for column in columns}}}
