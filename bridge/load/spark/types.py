"""Arrow's types and Spark's, as far as tables have them. What a string holds goes along as metadata of its column."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark_types

from bridge.errors import SettingsError
from bridge.protocol.schema.json_schema import TIMESTAMP

_REQUIRED = "required"
_SCALARS: dict[pa.DataType, spark_types.DataType] = {
    pa.int64(): spark_types.LongType(),
    pa.float64(): spark_types.DoubleType(),
    pa.bool_(): spark_types.BooleanType(),
    pa.string(): spark_types.StringType(),
    pa.binary(): spark_types.BinaryType(),
    pa.date32(): spark_types.DateType(),
    TIMESTAMP: spark_types.TimestampType(),
}
_ARROW = {"ByteType": pa.int64(), "ShortType": pa.int64(), "IntegerType": pa.int64(), "StringType": pa.string()}
_ARROW |= {type(spark).__name__: arrow for arrow, spark in _SCALARS.items() if arrow != pa.binary()}
_CASTS = {
    "FloatType": "double",
    "TimestampNTZType": "timestamp",
    "BinaryType": "string",
    "NullType": "the type it is to have",
}


def spark_schema(schema: pa.Schema) -> spark_types.StructType:
    """Columns as Spark has them; nullable, as Spark trusts what it is told."""
    return spark_types.StructType([_spark_field(field) for field in schema])


def _spark_field(field: pa.Field) -> spark_types.StructField:
    metadata = {key.decode(): value.decode() for key, value in (field.metadata or {}).items() if key == b"kind"}
    if not field.nullable:
        metadata[_REQUIRED] = "true"
    return spark_types.StructField(field.name, _spark_type(field.type), True, metadata or None)


def _spark_type(type_: pa.DataType) -> spark_types.DataType:
    if pa.types.is_struct(type_):
        return spark_types.StructType([_spark_field(field) for field in type_])
    if pa.types.is_list(type_):
        return spark_types.ArrayType(_spark_type(type_.value_type), True)
    if pa.types.is_decimal(type_):
        return spark_types.DecimalType(type_.precision, type_.scale)
    return _SCALARS[type_]


def arrow_field(made: Any, stream: str) -> pa.Field:
    """A column of Spark's as tables have it. Raises `SettingsError` for a type that they do not have."""
    properties = made.metadata or {}
    metadata = {b"kind": properties["kind"].encode()} if "kind" in properties else None
    type_ = _arrow_type(made.dataType, made.name, stream)
    if metadata and type_ != pa.string():
        metadata = None
    return pa.field(made.name, type_, nullable=_REQUIRED not in properties, metadata=metadata)


def _arrow_type(type_: Any, column: str, stream: str) -> pa.DataType:
    if isinstance(type_, spark_types.StructType):
        return pa.struct([arrow_field(each, stream).with_nullable(True) for each in type_])
    if isinstance(type_, spark_types.ArrayType):
        return pa.list_(pa.field("item", _arrow_type(type_.elementType, column, stream)))
    if isinstance(type_, spark_types.DecimalType):
        return pa.decimal128(type_.precision, type_.scale)
    name = type(type_).__name__
    if name not in _ARROW:
        hint = f"cast it: CAST(... AS {_CASTS.get(name, 'string')})"
        if name == "MapType":
            hint = "make it JSON text: to_json(...), or select its values one by one"
        text = type_.simpleString()
        raise SettingsError("tables have no such type", hint=hint, stream=stream, column=column, type=text)
    return _ARROW[name]
