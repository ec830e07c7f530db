"""A table's columns as Spark is to have them: all, those of the option `columns`, or those of a user's own schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import ArrayType, StructField, StructType

from bridge.errors import SettingsError, did_you_mean
from bridge.load.spark.types import spark_schema


def selected(columns: pa.Schema, names: Sequence[str] | None, table: str) -> list[pa.Field]:
    """The columns with these names, in their order, nullable as Spark has them; None: all.

    Raises `SettingsError` for one that the table does not have.
    """
    own = {field.name: field.with_nullable(True) for field in columns}
    if names is None:
        return list(own.values())
    for name in names:
        if name not in own:
            hint = did_you_mean(name, own) or f"there are: {', '.join(own)}"
            raise SettingsError("no such column", hint=hint, table=table, column=name)
    return [own[name] for name in names]


def fields_of(schema: StructType, columns: pa.Schema, table: str, more: Sequence[str] = ()) -> list[pa.Field]:
    """The columns of a schema that Spark has, but for `more`, as the table has them.

    Raises `SettingsError` for one that the table does not have, or has with another type.
    """
    fields = selected(columns, [field.name for field in schema if field.name not in more], table)
    types = {field.name: field.dataType for field in as_spark(fields)}
    for field in schema:
        if field.name in types and plain(field.dataType) != plain(types[field.name]):
            hint = f"it is {types[field.name].simpleString()}; leave out the schema, or start the query again"
            raise SettingsError("a column has another type", hint=hint, table=table, column=field.name)
    return fields


def as_spark(fields: Sequence[pa.Field]) -> StructType:
    """The columns for Spark, without what only we need to know of them."""
    result: StructType = plain(spark_schema(pa.schema(fields)))
    return result


def plain(type_: Any) -> Any:
    """A type of Spark without metadata, and nullable wherever that can be said."""
    if isinstance(type_, StructType):
        return StructType([StructField(each.name, plain(each.dataType), True) for each in type_])
    if isinstance(type_, ArrayType):
        return ArrayType(plain(type_.elementType), True)
    return type_


def record_batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Its rows as Spark takes them: no empty batches."""
    return (batch for batch in table.to_batches() if batch.num_rows)
