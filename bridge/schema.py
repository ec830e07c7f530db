"""A table's columns: from a SCHEMA message, from the commit log, and from both together.

A schema only ever grows: `merge` adds columns and struct fields, keeps what left, and keeps the wider of two types
where the table already has it. A change of type that would need older files rewritten is an error before anything is
stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from bridge.errors import CorruptLake, DataError
from bridge.types.typemap import EXTRA, INT64_DIGITS, TIMESTAMP, is_json, is_null_only, record_fields, source, unique

__all__ = ["EXTRA", "TableSchema", "from_singer", "merge", "with_extra"]

_EXTRA_FIELD = pa.field(EXTRA, pa.string(), metadata={b"kind": b"extra"})
_SCALARS = {
    "int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "date32": pa.date32(),
    "timestamp[us, UTC]": TIMESTAMP,
}
_NAMES = {type_: name for name, type_ in _SCALARS.items()}


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns of one table, in order, as they are in the lake."""

    arrow: pa.Schema
    """Field metadata, nested too: `singer` is the property's name where it differs, `kind` what a string holds
    (`json`, `null`: JSON text; `extra`: the fields outside the SCHEMA)."""

    def to_json(self) -> bytes:
        """One canonical text: equal schemas give equal bytes, in every process and version of Arrow."""
        return orjson.dumps([_describe(field) for field in self.arrow])

    @classmethod
    def from_json(cls, text: bytes) -> TableSchema:
        """The schema that `to_json` wrote; raises CorruptLake for anything else."""
        try:
            return cls(pa.schema([_field(entry) for entry in orjson.loads(text)]))
        except (ValueError, KeyError, TypeError) as error:
            hint = "written by a newer version, or damaged; use the version that wrote it"
            raise CorruptLake("stored schema cannot be read", hint=hint, cause=error) from error

    @property
    def hash(self) -> str:
        """16 hex digits of the content, stable across processes."""
        return hashlib.sha256(self.to_json()).hexdigest()[:16]


def from_singer(schema: Mapping[str, Any], key_properties: Sequence[str]) -> TableSchema:
    """The table that one SCHEMA message describes. A schema without properties keeps whole records in `EXTRA`."""
    return TableSchema(pa.schema(record_fields(schema, key_properties) or [_EXTRA_FIELD]))


def with_extra(schema: TableSchema) -> TableSchema:
    """The schema with the nullable column for fields outside the SCHEMA, added last if it is not there."""
    return schema if EXTRA in schema.arrow.names else TableSchema(schema.arrow.append(_EXTRA_FIELD))


def merge(table: TableSchema | None, incoming: TableSchema) -> TableSchema:
    """The table after a SCHEMA message: the table's columns in their order and under their names, then new ones.

    Raises DataError where a column's new type holds values that its type in the table cannot.
    """
    if table is None:
        return incoming
    return TableSchema(pa.schema(_merge_fields(list(table.arrow), list(incoming.arrow), "")))


def _merge_fields(ours: list[pa.Field], theirs: list[pa.Field], at: str) -> list[pa.Field]:
    """Fields matched by the property's name, so that a column keeps its name whatever twins come later."""
    waiting = {source(field): field for field in theirs}
    result = [_merge_field(field, waiting.pop(source(field), None), at) for field in ours]
    for name, field in waiting.items():
        column = unique(name, [field.name for field in result])
        metadata = {key: value for key, value in (field.metadata or {}).items() if key != b"singer"}
        if column != name:
            metadata[b"singer"] = name.encode()
        result.append(pa.field(column, field.type, nullable=True, metadata=metadata or None))
    return result


def _merge_field(ours: pa.Field, theirs: pa.Field | None, at: str) -> pa.Field:
    if theirs is None:
        return ours.with_nullable(True)
    nullable = ours.nullable or theirs.nullable
    if is_null_only(ours) and not is_null_only(theirs):
        ours = ours.with_metadata({**ours.metadata, b"kind": b"json"})
    return pa.field(ours.name, _wider(ours, theirs, f"{at}{ours.name}"), nullable=nullable, metadata=ours.metadata)


def _wider(ours: pa.Field, theirs: pa.Field, column: str) -> pa.DataType:
    """The type that holds both, where files of the older one can be read beside it."""
    old, new = ours.type, theirs.type
    if old == pa.string() or is_null_only(theirs):
        return old
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return pa.struct(_merge_fields(list(old), list(new), f"{column}."))
    if pa.types.is_list(old) and pa.types.is_list(new):
        return pa.list_(_merge_field(old.value_field, new.value_field, f"{column}[]."))
    if old == new or _narrower(new, old):
        return old
    if old == pa.int64() and new == pa.decimal128(38, 0):
        return new
    raise _type_change(column, ours, theirs)


def _narrower(new: pa.DataType, old: pa.DataType) -> bool:
    """True where every value of `new` fits `old`; an integer beyond 2**53 becomes the nearest double."""
    if pa.types.is_decimal(old):
        whole = old.precision - old.scale
        if pa.types.is_decimal(new):
            return bool(new.scale <= old.scale and new.precision - new.scale <= whole)
        return bool(new == pa.int64() and whole >= INT64_DIGITS)
    return (old, new) in ((pa.float64(), pa.int64()), (TIMESTAMP, pa.date32()))


def _type_change(column: str, ours: pa.Field, theirs: pa.Field) -> DataError:
    hint = (
        "changing the type of a column that has data is not available yet; rows up to the tap's last STATE are kept. "
        "Keep the old type in the tap's settings or catalog, load the stream with --full, or use a new path"
    )
    return DataError(
        "column changes its type", hint=hint, column=column, **{"from": _label(ours), "to": _label(theirs)}
    )


def _label(field: pa.Field) -> str:
    """The type in a reader's words."""
    if is_json(field):
        return "json"
    if pa.types.is_struct(field.type):
        return "struct"
    if pa.types.is_list(field.type):
        return f"list<{_label(field.type.value_field)}>"
    return str(_NAMES.get(field.type, field.type)).replace("decimal128", "decimal").replace(", ", ",")


def _describe(field: pa.Field) -> dict[str, Any]:
    """A field as plain data; keys in fixed order, absent when they say nothing."""
    entry: dict[str, Any] = {"name": field.name, "type": _describe_type(field.type)}
    if not field.nullable:
        entry["required"] = True
    for key, value in sorted((field.metadata or {}).items()):
        entry[key.decode()] = value.decode()
    return entry


def _describe_type(type_: pa.DataType) -> Any:
    if pa.types.is_struct(type_):
        return {"struct": [_describe(field) for field in type_]}
    if pa.types.is_list(type_):
        return {"list": _describe(type_.value_field)}
    if pa.types.is_decimal(type_):
        return {"decimal": [type_.precision, type_.scale]}
    return _NAMES[type_]


def _field(entry: Mapping[str, Any]) -> pa.Field:
    metadata = {key: value for key, value in entry.items() if key not in ("name", "type", "required")}
    required = entry.get("required", False)
    return pa.field(entry["name"], _read_type(entry["type"]), nullable=not required, metadata=metadata or None)


def _read_type(described: Any) -> pa.DataType:
    if isinstance(described, str):
        return _SCALARS[described]
    ((word, value),) = described.items()
    if word == "struct":
        return pa.struct([_field(entry) for entry in value])
    if word == "list":
        return pa.list_(_field(value))
    if word == "decimal":
        return pa.decimal128(*value)
    raise ValueError(word)
