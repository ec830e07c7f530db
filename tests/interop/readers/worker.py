"""Runs in a reader's own venv: statements come on stdin, rows leave on stdout. It imports nothing of the project."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

Read = Callable[[dict[str, str]], list[dict[str, Any]]]


def plain(value: Any) -> Any:
    """A value as JSON has it: times in UTC, numbers of decimals as text."""
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, datetime):
        return (value.astimezone(timezone.utc) if value.tzinfo else value).replace(tzinfo=None).isoformat()
    return str(value) if isinstance(value, Decimal) or hasattr(value, "isoformat") else value


def duckdb_reader(settings: dict[str, Any]) -> Read:
    """DuckDB with its extensions from PyPI; `attach` reaches a catalog."""
    import duckdb
    from duckdb_extensions import import_extension

    connection = duckdb.connect()
    for name in settings.get("extensions", ()):
        import_extension(name, con=connection)
        connection.execute(f"LOAD {name}")
    for statement in settings.get("first", ()):
        connection.execute(statement)

    def read(question: dict[str, str]) -> list[dict[str, Any]]:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.execute(question["statement"])
        if name := question.get("name"):
            found = connection.execute(f"SELECT * FROM {name}")
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    return read


def scanned(rows: Any) -> dict[str, int]:
    """How many rows a query of one Iceberg table has, and how many files its scan opened."""
    count = len(rows.collect())
    metrics = rows._jdf.queryExecution().executedPlan().collectLeaves().head().metrics()
    return {"rows": count, "opened": metrics.apply("resultDataFiles").value()}


def spark_reader(settings: dict[str, Any]) -> Read:
    """Spark with the connectors of the formats."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]")
    for name, value in settings["spark"].items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()

    def read(question: dict[str, str]) -> list[dict[str, Any]]:
        found = None
        for statement in filter(str.strip, question["statement"].split(";\n")):
            found = session.sql(statement.rstrip("; \n"))
        name = question.get("name")
        if question.get("scan"):
            return [scanned(found)]
        rows = (session.table(name) if name else found).collect()
        if name:
            session.sql(f"DROP TABLE IF EXISTS {name}")
        return [row.asDict(recursive=True) for row in rows]

    return read


def clickhouse_reader(settings: dict[str, Any]) -> Read:
    """ClickHouse, in this process."""
    import chdb

    def read(question: dict[str, str]) -> list[dict[str, Any]]:
        said = chdb.query(question["statement"], "JSONEachRow")
        return [json.loads(line) for line in str(said).splitlines()]

    return read


def main() -> None:
    asked = json.loads(sys.stdin.read())
    read = {"duckdb": duckdb_reader, "spark": spark_reader, "clickhouse": clickhouse_reader}[sys.argv[1]](
        asked["settings"]
    )
    results: list[Any] = []
    for question in asked["questions"]:
        try:
            results.append([plain(row) for row in read(question)])
        except Exception as error:
            results.append(f"{type(error).__name__}: {error}"[:800])
    print("\n" + json.dumps(results))


if __name__ == "__main__":
    main()
