"""A table's columns as Iceberg has them: each with a number that stays its own, and never becomes another column's.

Files carry no numbers: readers find a column in them by its name (`schema.name-mapping.default`). If a column gets
another type, its name leads to the new column only. Snapshots from before the change are dropped in the same step:
their readers would find nulls in place of the old values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from bridge.errors import DataError
from bridge.protocol.schema.table_schema import TableSchema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.name_mapping import MappedField, NameMapping
    from pyiceberg.types import IcebergType, NestedField


def columns(schema: TableSchema, old: Schema | None, free: Iterator[int], schema_id: int) -> Schema:
    """The columns. Those of the present table, `old`, keep their numbers, others get the next free one.

    A column that is new in an existing table, or was ever nullable, is nullable. Raises `DataError` for types and names
    that Iceberg does not have.
    """
    from pyiceberg.schema import Schema

    before = None if old is None else {field.name: field for field in old.fields}
    try:
        made = Schema(*_fields(schema.arrow, before, free), schema_id=schema_id)
        made.find_field(made.fields[0].field_id)
    except ValueError as error:  # such as a column whose name is another's path
        hint = "give one of them another name by `rename`, or use format: parquet"
        raise DataError(f"Iceberg has no such columns: {str(error).splitlines()[0]}", hint=hint) from error
    else:
        return made


def _fields(
    arrow: Iterable[pa.Field], before: dict[str, NestedField] | None, free: Iterator[int]
) -> Iterator[NestedField]:
    from pyiceberg.types import NestedField

    for field in arrow:
        old = before.get(field.name) if before else None
        type_ = _type(field.type, old.field_type if old else None, free)
        same = old is not None and _goes_on(old.field_type, type_)
        required = not field.nullable and (before is None or (old is not None and same and old.required))
        number = old.field_id if old and same else next(free)
        yield NestedField(number, field.name, type_, required=required, doc=old.doc if old else None)


def _type(arrow: pa.DataType, old: IcebergType | None, free: Iterator[int]) -> IcebergType:
    import pyarrow as pa
    from pyiceberg import types as iceberg

    if pa.types.is_struct(arrow):
        inside = {field.name: field for field in old.fields} if isinstance(old, iceberg.StructType) else None
        return iceberg.StructType(*_fields(arrow, inside, free))
    if pa.types.is_list(arrow):
        was = old if isinstance(old, iceberg.ListType) else None
        element = _type(arrow.value_type, was.element_type if was else None, free)
        same = was is not None and _goes_on(was.element_type, element)
        number = was.element_id if was and same else next(free)
        required = not arrow.value_field.nullable and (was is None or was.element_required)
        return iceberg.ListType(number, element, element_required=required)
    if pa.types.is_decimal(arrow):
        return iceberg.DecimalType(arrow.precision, arrow.scale)
    kinds: dict[str, type[IcebergType]] = {
        "int64": iceberg.LongType,
        "double": iceberg.DoubleType,
        "bool": iceberg.BooleanType,
        "string": iceberg.StringType,
        "date32[day]": iceberg.DateType,
        "timestamp[us, tz=UTC]": iceberg.TimestamptzType,
    }
    if str(arrow) not in kinds:
        raise ValueError(f"type {arrow}")
    return kinds[str(arrow)]()


def _goes_on(old: IcebergType, new: IcebergType) -> bool:
    """Whether a column of type `old` is still the same column with type `new`."""
    from pyiceberg.types import DecimalType, ListType, StructType

    for kind in (StructType, ListType):  # inner fields have numbers of their own
        if isinstance(old, kind):
            return isinstance(new, kind)
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        return old.scale == new.scale and old.precision <= new.precision
    return old == new


def mapping(metadata: TableMetadata | None, schema: Schema) -> NameMapping:
    """The name mapping: the present columns, then earlier ones whose names are free."""
    from pyiceberg.table.name_mapping import NameMapping, create_mapping_from_schema

    new = create_mapping_from_schema(schema)
    old = metadata.name_mapping() if metadata else None
    return NameMapping(_joined(list(new), list(old or ())))


def _joined(new: list[MappedField], old: list[MappedField]) -> list[MappedField]:
    from pyiceberg.table.name_mapping import MappedField

    taken = {name: field for field in new for name in field.names}
    retained = [field for field in old if not taken.keys() & set(field.names)]
    inside = {field.field_id: list(field.fields) for field in old}
    made: list[dict[str, Any]] = [
        {
            "field-id": field.field_id,
            "names": field.names,
            "fields": _joined(list(field.fields), inside.get(field.field_id, [])),
        }
        for field in new
    ]
    return [MappedField(**one) for one in made] + retained


def ids_of(fields: Iterable[Any]) -> set[int]:
    """The numbers in a name mapping."""
    return {number for field in fields for number in ({field.field_id} | ids_of(field.fields))}
