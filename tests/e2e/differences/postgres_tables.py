"""How a script reads all tables of a PostgreSQL, each value as the server writes it."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.postgresql import PostgreSql

from .oracle import Table, comparable

_KINDS = {
    "smallint": "number", "integer": "number", "bigint": "number", "numeric": "number", "money": "number",
    "double precision": "float", "real": "float", "boolean": "bool", "json": "json", "jsonb": "json",
    "timestamp without time zone": "moment", "timestamp with time zone": "moment", "date": "moment",
    "time without time zone": "clock", "time with time zone": "clock", "bytea": "bytes", "ARRAY": "items",
    "interval": "clock", "inet": "inet",
}  # fmt: skip
_COLUMNS = """
select table_name, jsonb_agg(jsonb_build_array(column_name, data_type)),
  (select coalesce(jsonb_agg(a.attname), '[]') from pg_index i join pg_attribute a on a.attrelid = i.indrelid
    and a.attnum = any(i.indkey) where i.indisprimary and i.indrelid = format('public.%I', table_name)::regclass)
from information_schema.columns where table_schema = 'public' group by table_name
"""


def read_tables(server: PostgreSql) -> dict[str, Table]:
    """Every table of the schema `public`, all values as the server writes them."""
    types, keys, queries = {}, {}, ["set timezone = 'UTC'"]
    for name, columns, key in server.sql(_COLUMNS):
        types[name], keys[name] = dict(json.loads(columns)), tuple(json.loads(key))
        cells = ", ".join(_cell(column, kind) for column, kind in types[name].items())
        quoted = name.replace('"', '""')
        queries.append(f"select '{name}', json_build_array({cells}) from public.\"{quoted}\"")
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in types}
    kinds = {name: {c: _KINDS.get(kind, "text") for c, kind in columns.items()} for name, columns in types.items()}
    for name, line in server.sql(";\n".join(queries)):
        pairs = zip(kinds[name].items(), json.loads(line), strict=True)
        rows[name].append({column: comparable(kind, text) for (column, kind), text in pairs})
    return {name: Table(name, kinds[name], keys[name], tuple(rows[name])) for name in types}


def _cell(column: str, kind: str) -> str:
    name = '"' + column.replace('"', '""') + '"'
    if kind.startswith("timestamp") or kind == "date":
        micros = f"(extract(epoch from {name}) * 1000000)::bigint::text"
        return f"case when isfinite({name}) then {micros} else {name}::text end"
    if kind == "ARRAY":
        return f"to_json({name})::text"
    return f"encode({name}, 'hex')" if kind == "bytea" else f"{name}::text"
