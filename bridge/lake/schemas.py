"""The columns of a pipeline's tables as the bucket keeps them, by their hash."""

from __future__ import annotations

import orjson
import pyarrow as pa

from bridge.errors import CorruptLake
from bridge.lake.paths import pipeline_key
from bridge.lake.records import TableState
from bridge.lake.storage import Storage
from bridge.protocol.schema.table_schema import TableSchema


def read_schema(storage: Storage, pipeline: str, name: str) -> TableSchema:
    """A table's columns by their hash. Raises `CorruptLake` if they are not there."""
    key = pipeline_key(pipeline, "schemas", f"{name}.json")
    data = storage.read(key)
    try:
        return TableSchema.from_json(orjson.dumps(orjson.loads(data or b"")["columns"]))
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise CorruptLake("a table's schema is unreadable", hint="restore it from a backup", file=key) from error


def columns_of(storage: Storage, pipeline: str, table: TableState) -> pa.Schema:
    """The columns of a table, without a view's hidden ones; none if a rollback took them back."""
    columns = read_schema(storage, pipeline, table.schema).arrow if table.schema else ()
    return pa.schema([field for field in columns if not table.hides(field.name)])


def keep_schema(storage: Storage, pipeline: str, schema: TableSchema) -> str:
    """Keep a table's columns in the bucket under their hash, and return it."""
    key = pipeline_key(pipeline, "schemas", f"{schema.hash}.json")
    if storage.size(key) is None:
        storage.put_if_absent(key, b'{"format":1,"columns":' + schema.to_json() + b"}")
    return schema.hash
