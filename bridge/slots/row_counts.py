"""How many rows the tables of a source have: a cheap question to PostgreSQL or MySQL, which may stay without an answer.

A table's count takes at most a second, all of them together some seconds; with `exact` a minute, and ten. Beyond a
million rows, by the server's estimate, only the estimate is taken unless `exact`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from bridge.errors import DatabaseUnreachable, SlotError
from bridge.settings.options import Pipeline
from bridge.slots.binlog import ask_server, reads_mysql
from bridge.slots.database import Database, connect
from bridge.tap.slot_source import SlotSource, slot_source, tap_settings

Place = tuple[str, str]
"""The schema and the name of a table."""
Query = tuple[str, list[Any]]
"""A statement and its values."""
Answer = list[Sequence[Any]] | None
"""The rows; None: the server gave none in time."""

_COUNTED = 1_000_000
"""Up to so many rows, by the server's estimate, a table is counted."""
_POSTGRES_TABLES = """
select n.nspname::text, c.relname::text,
  case when c.relkind = 'r' and not c.relhassubclass and c.reltuples > 0 and c.relpages > 0
  then (c.reltuples / c.relpages * (pg_relation_size(c.oid) / current_setting('block_size')::int))::bigint end
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'm') and not c.relrowsecurity
  and (n.nspname::text, c.relname::text) in (select * from unnest(%s::text[], %s::text[]))
"""
_MYSQL_TABLES = """
select table_schema, table_name, table_rows from information_schema.tables
where table_type in ('BASE TABLE', 'SYSTEM VERSIONED') and (table_schema, table_name) in ({})
"""


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


@dataclass(frozen=True, slots=True)
class _Server:
    """How to ask a kind of server. `ask` answers each query in so many seconds, and all of them in so many."""

    quote: str
    tables: Callable[[Sequence[Place]], Query]
    ask: Callable[[Sequence[Query], int, int], list[Answer]]

    def quoted(self, name: str) -> str:
        """An identifier; drivers take a lone % for a value."""
        return self.quote + name.replace(self.quote, self.quote * 2).replace("%", "%%") + self.quote


def can_ask(pipeline: Pipeline, argv: Sequence[str]) -> bool:
    """Whether the tap is one of a database that we know how to ask."""
    source = slot_source(pipeline, argv)
    return reads_mysql(argv) or (source is not None and source.kind != "other")


def row_counts(
    pipeline: Pipeline, argv: Sequence[str], questions: Mapping[Place, Mark | None]
) -> dict[Place, RowCount] | str:
    """The tables that were counted in time; a text says why the database was not asked. Raises nothing of its own."""
    try:
        server = _server(pipeline, argv)
        return _counted(server, questions, is_exact=pipeline.source.check_counts == "exact")
    except SlotError as error:
        return "; ".join(filter(None, (error.message, error.hint)))


def _counted(server: _Server, questions: Mapping[Place, Mark | None], *, is_exact: bool) -> dict[Place, RowCount]:
    each, whole = (60, 600) if is_exact else (1, 5)
    if not questions:
        return {}
    tables = server.ask([server.tables(list(questions))], 5, 5)[0] or []
    sizes: dict[Place, int | None] = {(str(schema), str(name)): rows for schema, name, rows in tables}
    estimated = {place for place, rows in sizes.items() if not is_exact and (rows or 0) > _COUNTED}
    counted = sorted((place for place in sizes.keys() - estimated if place in questions), key=lambda p: sizes[p] or 0)
    result = {place: RowCount(int(sizes[place] or 0), is_estimate=True) for place in estimated if place in questions}
    answers = server.ask([_count(server, place, questions[place]) for place in counted], each, whole)
    for place, answer in zip(counted, answers, strict=True):
        if answer:
            rows, *others = map(int, answer[0])
            result[place] = RowCount(rows, False, *others)
    return result


def _count(server: _Server, place: Place, mark: Mark | None) -> Query:
    table = ".".join(map(server.quoted, place))
    if mark is None:
        return f"select count(*) from {table}", []
    column = server.quoted(mark.key)
    parts = ", ".join(f"count(case when {column} {sign} %s then 1 end)" for sign in "<=>")
    return f"select count(*), {parts} from {table}", [mark.value] * 3


def _server(pipeline: Pipeline, argv: Sequence[str]) -> _Server:
    if reads_mysql(argv):
        return _Server("`", _mysql_tables, lambda *asked: ask_mysql(pipeline, argv[0], *asked))
    source = slot_source(pipeline, argv)
    if source is None or source.kind == "other":
        raise SlotError("the tap is none of a database that can be asked")
    return _Server('"', _postgres_tables, lambda *asked: _ask_postgres(source, *asked))


def _postgres_tables(places: Sequence[Place]) -> Query:
    return _POSTGRES_TABLES, [[schema for schema, _ in places], [table for _, table in places]]


def _mysql_tables(places: Sequence[Place]) -> Query:
    return _MYSQL_TABLES.format(", ".join(["(%s, %s)"] * len(places))), [name for place in places for name in place]


def _ask_postgres(source: SlotSource, queries: Sequence[Query], each: int, whole: int) -> list[Answer]:
    with connect(source) as database:
        database.query("set timezone to 'UTC'")
        database.limit(timedelta(seconds=each))
        end = time.monotonic() + whole
        return [_answer(database, query) if time.monotonic() < end else None for query in queries]


def _answer(database: Database, query: Query) -> Answer:
    sql, values = query
    try:
        # A text has no type of its own, so the server reads it as the column's.
        return [*database.query(sql, *(value if isinstance(value, list) else str(value) for value in values))]
    except DatabaseUnreachable:
        raise
    except SlotError:
        return None


def ask_mysql(pipeline: Pipeline, program: str, queries: Sequence[Query], each: int, whole: int) -> list[Answer]:
    """The answer of each query, in so many seconds. Raises `SlotError` if the server cannot be asked at all."""
    asked = [(sql, list(map(_for_mysql, values))) for sql, values in queries]
    limits = {"each": each, "whole": whole}
    facts = ask_server(program, {"config": tap_settings(pipeline), "queries": asked} | limits)
    if "error" in facts:
        raise SlotError(str(facts["error"]))
    return list(facts["answers"])


def _for_mysql(value: Any) -> Any:
    """A time as MySQL and MariaDB compare it with a column, in UTC; anything else as it is."""
    if isinstance(value, str) and "T" in value:
        with suppress(ValueError):
            at = datetime.fromisoformat(value.replace("Z", "+00:00"))
            at = at.astimezone(timezone.utc) if at.tzinfo else at
            return at.replace(tzinfo=None).isoformat(" ")
    return value
