"""What DuckDB, pyarrow, Polars and Spark read of a table with the statement that we print, as JSON that all share."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from bridge.lake.log import Log
from bridge.lake.storage import open_storage
from bridge.lake.table_columns import read_columns
from bridge.operate.readers.ddl import statement
from bridge.operate.readers.table import Table
from bridge.read.query.snapshot import TablesAt
from tests.support.tables import Shop

Rows = list[dict[str, str]]
_EPOCH = datetime(1970, 1, 1)


def table_of(shop: Shop, stream: str) -> Table:
    """Return the table as `tables ddl` knows it."""
    log = Log(shop.storage, "shop")
    live = log.snapshot(log.head()).tables[stream]
    assert live.schema
    columns = read_columns(shop.storage, "shop", live.schema)
    return Table(live.folder, columns, shop.storage.uri, shop.storage.uri, partitioned=bool(live.partition_by))


def _run(code: str, name: str) -> Any:
    names: dict[str, Any] = {}
    exec(compile(code, "code", "exec"), names)
    return names[name]


def _by_duckdb(asked: Table) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.sql(statement(asked, "duckdb")).to_arrow_table()


def _by_polars(asked: Table) -> pa.Table:
    return _run(statement(asked, "polars"), asked.name).collect().to_arrow()


def _by_pyarrow(asked: Table) -> pa.Table:
    return _run(statement(asked, "pyarrow"), asked.name).to_table()


def by_spark(spark: Any, asked: Table) -> pa.Table:
    """Read by Spark's SQL."""
    spark.sql(statement(asked, "spark", view=True).rstrip().removesuffix(";"))
    return spark.table(asked.name).toArrow()


def _by_lake(asked: Table) -> pa.Table:
    """Read by `bridge.Lake`."""
    tables = TablesAt.of(Log(open_storage(asked.bucket), "shop"), None)
    (stream,) = [stream for stream, table in tables.snapshot.tables.items() if table.folder == asked.folder]
    return tables.dataset(stream).to_table()


IN_PROCESS: dict[str, Callable[[Table], pa.Table]] = {
    "duckdb": _by_duckdb,
    "polars": _by_polars,
    "pyarrow": _by_pyarrow,
    "lake": _by_lake,
}


def shown(table: pa.Table) -> Rows:
    """Return the rows, each value as JSON: numbers digit by digit, instants in UTC."""
    columns = [[_json(value) for value in _plain(column.combine_chunks())] for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _plain(array: Any) -> list[Any]:
    """Return Python's values; instants as their own type of text, which no library makes another zone of."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    type_ = array.type
    if pa.types.is_struct(type_):
        columns = [_plain(child) for child in array.flatten()]
        rows = [dict(zip([field.name for field in type_], row, strict=True)) for row in zip(*columns, strict=True)]
        return [row if there else None for row, there in zip(rows, array.is_valid().to_pylist(), strict=True)]
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        lists = [array[at].values for at in range(len(array))]
        return [None if items is None else _plain(items) for items in lists]
    if pa.types.is_timestamp(type_):
        assert type_.unit == "us", type_
        ticks = array.cast(pa.int64()).to_pylist()
        return [None if tick is None else (_EPOCH + timedelta(microseconds=tick)).isoformat() + "Z" for tick in ticks]
    return list(array.to_pylist())


def _json(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_json(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    if isinstance(value, Decimal):
        return format(value, "f")
    return json.dumps(value.isoformat() if isinstance(value, date) else value, ensure_ascii=False)
