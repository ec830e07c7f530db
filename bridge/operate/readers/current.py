"""The view of the versions that are current, for engines in which the table has a name."""

from __future__ import annotations

import re

from bridge.operate.readers.engines import ATHENA, BIGQUERY, DUCKDB, SNOWFLAKE, SPARK, TRINO, SqlEngine
from bridge.operate.readers.table import Table
from bridge.protocol.schema.json_schema import VersionColumn

_ENGINES: dict[str, tuple[SqlEngine, SqlEngine]] = {
    "spark": (SPARK, SPARK),
    "duckdb": (DUCKDB, DUCKDB),
    "athena": (ATHENA, TRINO),  # its views are Trino's
    "trino": (TRINO, TRINO),
    "bigquery": (BIGQUERY, BIGQUERY),
    "snowflake": (SNOWFLAKE, SNOWFLAKE),
}
"""By dialect, how the statement for the table writes its name, and how one for a view does."""


def with_current(table: Table, dialect: str, text: str) -> str:
    """The statement for a table, and one more for a view of its current rows if it keeps versions."""
    if not any(entry.get("kind") == VersionColumn.KIND for entry in table.columns) or dialect not in _ENGINES:
        return text
    own, engine = _ENGINES[dialect]
    if not (made := re.search(rf"^CREATE .*?(TEMPORARY )?\w+ {re.escape(own.name(table.name))}", text, re.MULTILINE)):
        return text
    names = [entry["name"] for entry in table.columns if engine.can_name(entry["name"]) and engine.type(entry["type"])]
    columns = ",\n".join(
        f"  {engine.name(name)}" for name in names if name not in (VersionColumn.CURRENT, VersionColumn.END)
    )
    view = f"CREATE OR REPLACE {made[1] or ''}VIEW {engine.name(f'{table.name}_current')} AS\nSELECT\n{columns}"
    return f"{text}\n{view}\nFROM {engine.name(table.name)}\nWHERE {engine.name(VersionColumn.CURRENT)};\n"
