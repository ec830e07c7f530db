"""The code, or the statement, by which an engine reads an Iceberg table through its catalog.

Guarantee: each name is quoted as the engine reads it, and no secret is printed. None of these lists the folder, which
still has files that the table has removed. An engine that cannot read Iceberg takes the manifest.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from bridge.errors import SettingsError
from bridge.lake.formats.iceberg.catalog import CatalogFacts
from bridge.operate.readers.code import text, variable
from bridge.operate.readers.engines import DUCKDB, SPARK, TRINO
from bridge.operate.readers.stores import store_of
from bridge.operate.readers.table import Table

_QUOTES: dict[str, Callable[[str], str]] = {"duckdb": DUCKDB.name, "spark": SPARK.name, "trino": TRINO.name}
_FIRST = {
    "duckdb": "needs its extension iceberg, and a REST catalog: ATTACH ... AS {name} (TYPE iceberg, ENDPOINT ...)",
    "spark": "needs iceberg-spark-runtime, and the same catalog in the session: spark.sql.catalog.{name}",
    "trino": "needs the same catalog, as one of its Iceberg connector, here called {name}",
}


def iceberg_statement(table: Table, facts: CatalogFacts, dialect: str, *, view: bool = False) -> str:
    """The statement to run. Raises `SettingsError` if the engine has no such thing."""
    path = (*facts.namespace.split("."), table.folder.rpartition("/")[2])
    if view and dialect != "spark":
        raise SettingsError("no --view here", hint=f"{dialect} reads the table: leave the flag out", dialect=dialect)
    if dialect in ("polars", "pyarrow"):
        return _code(table, facts, dialect, path)
    if dialect == "duckdb" and facts.properties.get("type", "sql" if "://" in _uri(facts) else "") == "sql":
        hint = "read its tables in Python (--dialect pyarrow, then duckdb.sql), or by --manifest"
        raise SettingsError("DuckDB cannot read a catalog in a database", hint=hint, catalog=facts.name)
    if dialect not in _QUOTES:
        hint = f"let {dialect} use the catalog {facts.name}: the table is {'.'.join(path)}; or --manifest"
        raise SettingsError("there is no statement for Iceberg here", hint=hint, dialect=dialect)
    quoted = ".".join(_QUOTES[dialect](part) for part in (facts.name, *path))
    select = f"SELECT * FROM {quoted};"
    if view:
        select = f"CREATE OR REPLACE TEMPORARY VIEW {SPARK.name(table.name)} AS\n{select}"
    return f"-- {_FIRST[dialect].format(name=facts.name)}\n{select}\n"


def _uri(facts: CatalogFacts) -> str:
    uri = facts.properties.get("uri", "")
    return "" if uri.startswith(("http:", "https:")) else uri


def _code(table: Table, facts: CatalogFacts, dialect: str, path: tuple[str, ...]) -> str:
    name, properties = variable(table.name), facts.properties | _files(table)
    catalog = f"load_catalog({text(facts.name)}, **{json.dumps(properties, ensure_ascii=False)})"
    where = ", ".join(map(text, path))
    lines = ["from pyiceberg.catalog import load_catalog", "", f"catalog = {catalog}"]
    if dialect == "polars":
        lines = ["import polars as pl", *lines, f"{name} = pl.scan_iceberg(catalog.load_table(({where})))"]
    else:
        lines.append(f"{name} = catalog.load_table(({where})).scan().to_arrow()")
    return "\n".join(lines) + "\n"


def _files(table: Table) -> dict[str, str]:
    """The properties that say where the bucket is; the library itself looks for keys."""
    store = store_of(table.bucket)
    return store.catalog_properties(table) if store else {}
