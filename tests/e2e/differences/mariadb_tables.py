"""How a script reads all tables of a MariaDB, each value as the server writes it."""

from __future__ import annotations

from typing import Any

from tests.e2e.realtaps import MariaDb

from .oracle import Table, comparable

BEFORE = "create database shop character set utf8mb4; set global sql_mode = ''; set global time_zone = '+00:00'"

_KINDS = dict.fromkeys(("tinyint", "smallint", "int", "bigint", "decimal", "year", "bit"), "number")
_KINDS |= dict.fromkeys(("date", "datetime", "timestamp"), "moment") | {
    "double": "float",
    "float": "float",
    "time": "clock",
}
_KINDS |= dict.fromkeys(("varbinary", "binary", "blob"), "bytes")
_COLUMNS = """
select table_name, column_name, data_type, column_key, column_type,
  (select count(*) from information_schema.check_constraints c where c.table_name = columns.table_name
    and constraint_schema = 'shop' and c.constraint_name = column_name and check_clause like 'json_valid%')
from information_schema.columns where table_schema = 'shop' order by table_name, ordinal_position
"""


def read_tables(server: MariaDb) -> dict[str, Table]:
    """Every table of the database `shop`, all values as the server writes them."""
    kinds: dict[str, dict[str, str]] = {}
    keys: dict[str, list[str]] = {}
    cells: dict[str, list[str]] = {}
    for name, column, kind, key, full, is_json in server.sql(_COLUMNS):
        assert name and column and kind
        meant = "json" if is_json != "0" else "bool" if full in ("tinyint(1)", "bit(1)") else _KINDS.get(kind, "text")
        kinds.setdefault(name, {})[column] = meant
        keys.setdefault(name, []).extend([column] if key == "PRI" else [])
        cells.setdefault(name, []).append(_cell(column, kind))
    queries = [f"select '{name}', concat_ws(',', {', '.join(made)}) from shop.`{name}`" for name, made in cells.items()]
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in kinds}
    for name, line in server.sql("set time_zone = '+00:00';" + ";".join(queries)):
        assert name and line
        values = [None if one == "-" else bytes.fromhex(one).decode() for one in line.split(",")]
        pairs = zip(kinds[name].items(), values, strict=True)
        rows[name].append({column: comparable(kind, text) for (column, kind), text in pairs})
    return {name: Table(name, kinds[name], tuple(keys[name]), tuple(rows[name])) for name in kinds}


def _cell(column: str, kind: str) -> str:
    name = f"`{column}`"
    if kind in ("varbinary", "binary", "blob"):
        return f"ifnull(hex(hex({name})), '-')"
    if kind == "bit":
        name = f"{name} + 0"
    return f"ifnull(hex(convert(cast({name} as char) using utf8mb4)), '-')"
