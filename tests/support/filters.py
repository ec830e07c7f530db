"""Filters over a table by each engine that people use, and how many rows each of them finds.

An engine is held to itself: it filters the rows in memory, where no statistics are, and then reads the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable, QueryBuilder
from pyiceberg import expressions as iceberg
from pyiceberg.table import Table as IcebergTable

from tests.support.iceberg_lake import polars_scan

OPERATORS = ("==", "!=", "<", ">", ">=", "in", "null", "valid")


@dataclass(frozen=True, slots=True)
class Asked:
    """One filter: `column`, one of `OPERATORS`, and the value, of Arrow's type `kind`, that it compares with."""

    column: str
    operator: str
    value: Any
    kind: pa.DataType

    def build(self, field: Any, value: Any, isin: Callable[[Any, Any], Any], null: Callable[[Any], Any]) -> Any:
        """Write the filter with an engine's own words for a column and for a value."""
        made = {
            "==": lambda: field == value,
            "!=": lambda: field != value,
            "<": lambda: field < value,
            ">": lambda: field > value,
            ">=": lambda: field >= value,
            "in": lambda: isin(field, value),
            "null": lambda: null(field),
            "valid": lambda: ~null(field),
        }
        return made[self.operator]()


@dataclass(frozen=True, slots=True)
class Places:
    """Where a table is: its data files, the folder of a Delta table, an Iceberg table."""

    files: list[str]
    delta: str | None = None
    iceberg: IcebergTable | None = None


Count = Callable[[Asked], int]


def _arrow(asked: Asked) -> Any:
    value = pa.scalar(asked.value, asked.kind)
    return asked.build(pc.field(asked.column), value, lambda f, v: f.isin(pa.array([v.as_py()], v.type)), pc.is_null)


def _polars(asked: Asked) -> Any:
    value: Any = pl.from_arrow(pa.array([asked.value], asked.kind))
    value = pl.lit(value).first()
    return asked.build(pl.col(asked.column), value, lambda f, v: f == v, lambda f: f.is_null())


def _sql(asked: Asked, literal: str) -> str:
    name = '"' + asked.column.replace('"', '""') + '"'
    sql = {"==": f"= {literal}", "!=": f"<> {literal}", "<": f"< {literal}"}
    sql |= {">": f"> {literal}", ">=": f">= {literal}"}
    sql |= {"in": f"in ({literal})", "null": "is null", "valid": "is not null"}
    return f"{name} {sql[asked.operator]}"


def by_dataset(rows: pa.Table, places: Places) -> tuple[Count, Count]:
    """deltalake's pyarrow dataset, or Arrow's own over the files."""
    where = DeltaTable(places.delta).to_pyarrow_dataset() if places.delta else ds.dataset(places.files, rows.schema)
    return lambda a: rows.filter(_arrow(a)).num_rows, lambda a: where.to_table(filter=_arrow(a)).num_rows


def by_polars(rows: pa.Table, places: Places) -> tuple[Count, Count]:
    """Polars' own scan of the format."""
    memory: Any = pl.from_arrow(rows)
    if places.delta:
        there = pl.scan_delta(places.delta)
    elif places.iceberg is not None:
        there = polars_scan(places.iceberg)
    else:
        there = pl.scan_parquet(places.files, schema=memory.schema, missing_columns="insert")
    return lambda a: len(memory.filter(_polars(a))), lambda a: len(there.filter(_polars(a)).collect())


def by_duckdb(rows: pa.Table, places: Places) -> tuple[Count, Count]:
    """DuckDB over the files, and over deltalake's dataset where there is one."""
    connection = duckdb.connect()
    connection.execute("set TimeZone = 'UTC'")
    connection.register("memory", rows)
    if places.delta:
        connection.register("there", DeltaTable(places.delta).to_pyarrow_dataset())
    else:
        connection.from_parquet(places.files, union_by_name=True).create_view("there")

    def counting(table: str) -> Count:
        def count(asked: Asked) -> int:
            kind = _DUCK.get(str(asked.kind)) or f"decimal({asked.kind.precision}, {asked.kind.scale})"
            # A literal, where its bytes can be one: a parameter is no reason to leave out row groups.
            literal = isinstance(asked.value, (bool, int, float, Decimal))
            value = f"'{asked.value}'::{kind}" if literal else f"?::{kind}"
            values = [] if literal or asked.operator in ("null", "valid") else [asked.value]
            found = connection.execute(f"select count(*) from {table} where {_sql(asked, value)}", values)
            (number,) = found.fetchone() or (0,)
            return int(number)

        return count

    return counting("memory"), counting("there")


_DUCK = {
    "int64": "bigint",
    "double": "double",
    "bool": "boolean",
    "string": "varchar",
    "date32[day]": "date",
    "timestamp[us, tz=UTC]": "timestamptz",
}


def by_datafusion(rows: pa.Table, places: Places) -> tuple[Count, Count]:
    """delta-rs' own queries, whose file skipping is Delta's kernel."""
    table = DeltaTable(places.delta)
    texts = {
        "double": lambda v: f"'{v}'::double",
        "string": lambda v: "'" + v.replace("'", "''") + "'",
        "date32[day]": lambda v: f"'{v.isoformat()}'::date",
        "timestamp[us, tz=UTC]": lambda v: f"arrow_cast('{v.isoformat()}', 'Timestamp(Microsecond, Some(\"UTC\"))')",
        "bool": lambda v: str(v).lower(),
        "int64": str,
    }

    def read(asked: Asked, query: str) -> list[Any]:
        text = texts.get(str(asked.kind), lambda v: f"'{v:f}'::decimal({asked.kind.precision},{asked.kind.scale})")
        sql = query.format(_sql(asked, text(asked.value)))
        found = pa.table(QueryBuilder().register("t", table).execute(sql).read_all())
        return list(found.column(0).to_pylist())

    # It filters no rows in memory that it has not read itself; a condition that is no filter is as good.
    return lambda a: read(a, "select {} from t").count(True), lambda a: len(read(a, "select 1 from t where {}"))


def by_pyiceberg(rows: pa.Table, places: Places) -> tuple[Count, Count]:
    """pyiceberg's scan."""

    def filter_of(asked: Asked) -> Any:
        column, value = asked.column, asked.value
        if asked.operator in ("null", "valid"):
            null = iceberg.IsNull(column)
            return null if asked.operator == "null" else ~null
        if isinstance(value, float) and math.isnan(value):
            return iceberg.IsNaN(column)
        kinds = {"==": iceberg.EqualTo, "!=": iceberg.NotEqualTo, "<": iceberg.LessThan, "in": iceberg.In}
        kinds |= {">": iceberg.GreaterThan, ">=": iceberg.GreaterThanOrEqual}
        text = value.isoformat() if hasattr(value, "isoformat") else value
        made = kinds[asked.operator](column, {text} if asked.operator == "in" else text)
        return made & iceberg.NotNull(column)  # it counts null as unequal, but only where it filters no rows

    table = places.iceberg
    assert table is not None
    return (
        lambda a: rows.filter(_arrow(a)).num_rows,
        lambda a: table.scan(row_filter=filter_of(a)).to_arrow().num_rows,
    )


ENGINES = {
    "parquet": (by_dataset, by_polars, by_duckdb),
    "delta": (by_dataset, by_polars, by_duckdb, by_datafusion),
    "iceberg": (by_polars, by_pyiceberg),
}


def _applies(engine: Any, asked: Asked, rows: pa.Table) -> bool:
    """Whether an engine has words for a filter; else it fails, with an error."""
    if engine is by_pyiceberg:
        return "." not in asked.column and asked.value == asked.value
    return engine is not by_datafusion or asked.value != "a\x00b"


def wrong(format_: str, rows: pa.Table, places: Places, asked: list[Asked]) -> Iterator[str]:
    """Yield the filters by which an engine finds another number of rows in the table than in memory."""
    for engine in ENGINES[format_]:
        memory, there = engine(rows, places)
        for one in asked:
            if not _applies(engine, one, rows):
                continue
            if (expected := memory(one)) != (found := there(one)):
                value = repr(one.value)[:40]
                yield f"{engine.__name__}: {one.column} {one.operator} {value}: {found} of {expected} rows"
