"""How many digits the columns of a database have, written into a discovered catalog: a plain `number` is a double.

A tap's own word stands. Where it says only `number`, the catalog's `sql-datatype` or PostgreSQL itself tells precision
and scale, and the column gets `multipleOf`; with more digits than that promises, `precision` and `scale` as well. Where
PostgreSQL was asked, its columns of the type `numeric` get their `sql-datatype`, which some taps leave out.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from bridge.load.tap.database.columns import table_of
from bridge.load.tap.database.connection import NotAsked
from bridge.load.tap.database.source_database import Place, SourceDatabase
from bridge.protocol.schema.valid import INT64_DIGITS, MAX_DIGITS
from bridge.protocol.singer.catalog import Catalog, StreamEntry, column_facts, stream_id, write

Digits = dict[str, tuple[int, int]]
"""Precision and scale by column."""

_SQL_TYPE = re.compile(r"(?:numeric|decimal|dec|fixed|number)\s*\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\)", re.IGNORECASE)
_WORDS = ("multipleOf", "precision", "scale")
_COLUMNS = """
select n.nspname::text, c.relname::text, a.attname::text, m.type = 'numeric'::regtype,
  case when m.typmod >= 4 then ((m.typmod - 4) >> 16) & 65535 end,
  case when m.typmod >= 4 then (((m.typmod - 4) & 2047) # 1024) - 1024 end
from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace
  join pg_type t on t.oid = a.atttypid
  cross join lateral (select case when t.typtype = 'd' then t.typbasetype else t.oid end as type,
                      case when t.typtype = 'd' then t.typtypmod else a.atttypmod end as typmod) m
where a.attnum > 0 and not a.attisdropped and m.type in ('numeric'::regtype, 'numeric[]'::regtype)
  and (n.nspname::text, c.relname::text) in """
_SECONDS = 5
"""How long the database may take."""


def with_digits(database: SourceDatabase, catalog: Catalog) -> tuple[Catalog, list[str]]:
    """The catalog with the digits that are known, and notes for people. A database that cannot be asked is a note."""
    doubtful = [entry for entry in catalog["streams"] if any(_doubles(entry))]
    if not doubtful:
        return catalog, []
    catalog = copy.deepcopy(catalog)
    entries = {stream_id(entry): entry for entry in catalog["streams"]}
    doubtful = [entries[stream_id(entry)] for entry in doubtful]
    for entry in doubtful:
        _write(entry, dict(_declared(entry)))
    if database.kind != "postgres" or not any(map(any, map(_doubles, doubtful))):
        return catalog, []
    try:
        types = _of_postgres(database, doubtful)
    except NotAsked as reason:
        return catalog, [f"the digits of numeric columns are not known, so these are doubles: {reason}"]
    for entry in doubtful:
        own, facts = types.get(table_of(entry), {}), column_facts(entry)
        unsaid = [column for column in own if (column,) in facts and "sql-datatype" not in facts[column,]]
        write(entry, {(column,): {"sql-datatype": own[column]} for column in unsaid})
        _write(entry, {column: digits for column, kind in own.items() if (digits := digits_of(kind))})
    return catalog, []


def with_new_digits(
    database: SourceDatabase, catalog: Catalog, columns: Mapping[str, Collection[str]]
) -> tuple[Catalog, list[str]]:
    """As `with_digits` for these columns of these streams only: what is loaded already keeps its type."""
    fresh = [
        {**entry, "schema": {"properties": {name: of for name, of in _properties(entry).items() if name in names}}}
        for entry in catalog["streams"]
        if (names := columns.get(stream_id(entry)))
    ]
    exact, notes = with_digits(database, {"streams": fresh})
    digits = {stream_id(entry): _properties(entry) for entry in exact["streams"]}
    catalog = copy.deepcopy(catalog)
    for entry in catalog["streams"]:
        _properties(entry).update(digits.get(stream_id(entry), {}))
    return catalog, notes


def with_known_digits(before: Catalog | None, now: Catalog) -> Catalog:
    """The catalog of now with the digits of the one before, where the tap says none: a run need not ask for them."""
    earlier = {stream_id(entry): entry for entry in (before or {"streams": []})["streams"]}
    if not any(any(_doubles(entry)) for entry in now["streams"] if stream_id(entry) in earlier):
        return now
    now = copy.deepcopy(now)
    for entry in now["streams"]:
        properties = _properties(earlier.get(stream_id(entry), {}))
        for name in list(_doubles(entry)):
            schema, former = _number(_properties(entry)[name]), _innermost(properties.get(name))
            if schema is not None:
                schema |= {word: former[word] for word in _WORDS if word in former}
    return now


def _properties(entry: StreamEntry) -> dict[str, Any]:
    return (entry.get("schema") or {}).get("properties") or {}


def _innermost(schema: Any) -> dict[str, Any]:
    """The schema of a column, or of the items of its lists."""
    while isinstance(schema, dict) and isinstance(schema.get("items"), dict):
        schema = schema["items"]
    return schema if isinstance(schema, dict) else {}


def _number(schema: Any) -> dict[str, Any] | None:
    """The schema of a column, or of its items, that is a number of any digits."""
    schema = _innermost(schema)
    types = schema.get("type") or ()
    is_number = "number" in ([types] if isinstance(types, str) else types)
    return schema if is_number and not {*_WORDS, "format"} & set(schema) else None


def _doubles(entry: StreamEntry) -> Iterator[str]:
    for name, schema in _properties(entry).items():
        if _number(schema) is not None:
            yield name


def _declared(entry: StreamEntry) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the digits of each column whose database type the catalog's metadata names."""
    for path, facts in column_facts(entry).items():
        if len(path) == 1 and (digits := digits_of(str(facts.get("sql-datatype") or ""))):
            yield path[0], digits


def digits_of(sql_type: str) -> tuple[int, int] | None:
    """Precision and scale of a type such as `numeric(10,2)`; None if it does not say them."""
    match = _SQL_TYPE.match(sql_type)
    return (int(match[1]), int(match[2] or 0)) if match else None


def _write(entry: StreamEntry, digits: Digits) -> None:
    properties = _properties(entry)
    for name in list(_doubles(entry)):
        if name in digits:
            precision, scale = digits[name][0], max(digits[name][1], 0)
            schema = _number(properties[name])
            assert schema is not None
            schema["multipleOf"] = Decimal(1).scaleb(-scale) if scale else 1
            if INT64_DIGITS + scale > MAX_DIGITS or precision > MAX_DIGITS:
                schema |= {"precision": max(precision, scale), "scale": scale}


def _of_postgres(database: SourceDatabase, entries: Sequence[StreamEntry]) -> dict[Place, dict[str, str]]:
    """By table the types of its columns that are numeric, or lists of it."""
    result: dict[Place, dict[str, str]] = {}
    among, values = database.among([table_of(entry) for entry in entries])
    rows = database.rows(f"{_COLUMNS}{among}", values, seconds=_SECONDS)
    for schema, table, column, is_plain, precision, scale in rows:
        digits = "" if precision is None else f"({precision},{scale})"
        result.setdefault((schema, table), {})[column] = f"numeric{digits}{'' if is_plain else '[]'}"
    return result
