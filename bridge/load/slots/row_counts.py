"""How many rows the tables of a source have: a cheap question to PostgreSQL or MySQL, which may stay without an answer.

A table's count takes at most a second, all of them together some seconds; with `exact` a minute, and ten. Beyond a
million rows, by the server's estimate, only the estimate is taken unless `exact`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bridge.load.tap.database.connection import Query
from bridge.load.tap.database.source_database import Place, SourceDatabase

_COUNTED = 1_000_000
"""Up to so many rows, by the server's estimate, a table is counted."""
_TABLES = {
    "postgres": """
select n.nspname::text, c.relname::text,
  case when c.relkind = 'r' and not c.relhassubclass and c.reltuples > 0 and c.relpages > 0
  then (c.reltuples / c.relpages * (pg_relation_size(c.oid) / current_setting('block_size')::int))::bigint end
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'm') and not c.relrowsecurity and (n.nspname::text, c.relname::text) in """,
    "mysql": """
select table_schema, table_name, table_rows from information_schema.tables
where table_type in ('BASE TABLE', 'SYSTEM VERSIONED') and (table_schema, table_name) in """,
}
"""Tables, without views, and how many rows the server takes them to have."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A replication key and its bookmark."""

    key: str
    value: str | int


@dataclass(frozen=True, slots=True)
class RowCount:
    """A table's rows; with a mark also how many are below it, at it and above it, rows without a key left out."""

    rows: int
    is_estimate: bool = False
    below: int = 0
    at: int = 0
    above: int = 0


def row_counts(
    database: SourceDatabase, questions: Mapping[Place, Mark | None], *, is_exact: bool
) -> dict[Place, RowCount]:
    """The tables that were counted in time. Raises `NotAsked`."""
    if not questions or database.kind is None:
        return {}
    each, whole = (60, 600) if is_exact else (1, 5)
    among, values = database.among(list(questions))
    with database:
        tables = database.rows(f"{_TABLES[database.kind]}{among}", values, seconds=5)
        sizes: dict[Place, int | None] = {(str(schema), str(name)): rows for schema, name, rows in tables}
        estimated = {place for place, rows in sizes.items() if not is_exact and (rows or 0) > _COUNTED}
        counted = sorted(
            (place for place in sizes.keys() - estimated if place in questions), key=lambda p: sizes[p] or 0
        )
        result = {
            place: RowCount(int(sizes[place] or 0), is_estimate=True) for place in estimated if place in questions
        }
        answers = database.ask([_count(database, one, questions[one]) for one in counted], each=each, whole=whole)
    for place, answer in zip(counted, answers, strict=True):
        if answer:
            rows, *others = map(int, answer[0])
            result[place] = RowCount(rows, False, *others)
    return result


def _count(database: SourceDatabase, place: Place, mark: Mark | None) -> Query:
    table = database.quoted(*place)
    if mark is None:
        return f"select count(*) from {table}", []
    column = database.quoted(mark.key)
    parts = ", ".join(f"count(case when {column} {sign} %s then 1 end)" for sign in "<=>")
    return f"select count(*), {parts} from {table}", [mark.value] * 3
