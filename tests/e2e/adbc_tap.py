"""A tap as a user would write it with the Singer SDK 0.55: tables of PostgreSQL by ADBC, as RECORDs or as Arrow.

`by`: `arrow` gives the SDK the driver's record batches, `rows` gives it records, of which it makes Arrow itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import adbc_driver_postgresql.dbapi as postgres
import pyarrow as pa
from singer_sdk import Stream, Tap
from singer_sdk import typing as th

NULL = "null"
KEYS = """
select c.relname::text, a.attname::text from pg_index i join pg_class c on c.oid = i.indrelid
join pg_attribute a on a.attrelid = c.oid and a.attnum = any(i.indkey) where i.indisprimary
and c.relnamespace = 'public'::regnamespace
"""


def property_of(field: pa.Field) -> dict[str, Any]:
    """The JSON Schema of a column."""
    type_, name = field.type, (field.metadata or {}).get(b"ADBC:postgresql:typname", b"")
    if isinstance(type_, pa.BaseExtensionType):
        name, type_ = str(type_).encode(), type_.storage_type
    if b"numeric" in name:
        return {"type": [NULL, "string"], "format": "singer.decimal"}
    if b"json" in name:
        return {}
    if pa.types.is_integer(type_):
        return {"type": [NULL, "integer"]}
    if pa.types.is_floating(type_):
        return {"type": [NULL, "number"]}
    if pa.types.is_boolean(type_):
        return {"type": [NULL, "boolean"]}
    if pa.types.is_timestamp(type_):
        return {"type": [NULL, "string"], "format": "date-time"}
    if pa.types.is_date(type_):
        return {"type": [NULL, "string"], "format": "date"}
    if pa.types.is_list(type_):
        return {"type": [NULL, "array"], "items": property_of(type_.value_field)}
    return {"type": [NULL, "string"]}


class Table(Stream):
    """One table."""

    def __init__(self, tap: Tap, name: str, columns: pa.Schema, keys: list[str]) -> None:
        super().__init__(tap, schema={"properties": {each.name: property_of(each) for each in columns}}, name=name)
        self.primary_keys = keys

    @property
    def is_sorted(self) -> bool:
        return bool(self.replication_key)

    def get_record_batches(self, context: Any) -> Iterable[pa.RecordBatch] | None:
        return self._batches(context) if self.config["by"] == "arrow" else None

    def get_records(self, context: Any) -> Iterable[dict[str, Any]]:
        for batch in self._batches(context):
            yield from batch.to_pylist()

    def _batches(self, context: Any) -> Iterable[pa.RecordBatch]:
        query = 'select * from "{}"'.format(self.name.replace('"', '""'))
        if key := self.replication_key:
            since = self.get_starting_replication_key_value(context)
            query += (f" where {key} >= '{since}'" if since is not None else "") + f" order by {key}"
        with postgres.connect(self.config["uri"]) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            yield from cursor.fetch_record_batch()


class TapAdbc(Tap):
    """All tables of the schema `public`."""

    name = "tap-adbc"
    config_jsonschema = th.PropertiesList(
        th.Property("uri", th.StringType, required=True), th.Property("by", th.StringType, default="arrow")
    ).to_dict()

    def discover_streams(self) -> list[Table]:
        with postgres.connect(self.config["uri"]) as connection, connection.cursor() as cursor:
            cursor.execute("select table_name from information_schema.tables where table_schema = 'public'")
            names = sorted(name for (name,) in cursor.fetchall())
            cursor.execute(KEYS)
            keys = cursor.fetchall()
            return [
                Table(self, name, connection.adbc_get_table_schema(name), [key for table, key in keys if table == name])
                for name in names
            ]


if __name__ == "__main__":
    TapAdbc.cli()
