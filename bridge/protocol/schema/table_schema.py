"""A table's columns: from a SCHEMA message, from the commit log, and from both.

A schema only grows: `merge` adds columns and struct fields, keeps those that a SCHEMA no longer has, and keeps the
wider of two types. The stream's `Evolution` decides what a change of type does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa

from bridge.errors import CorruptLake
from bridge.protocol.schema.json_schema import EXTRA, SCALARS, record_fields
from bridge.protocol.schema.merging import Evolution, left_out, merged

_GROW = Evolution()

_EXTRA_FIELD = pa.field(EXTRA, pa.string(), metadata={b"kind": b"extra"})
_NAMES = {type_: name for name, type_ in SCALARS.items()}


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns of one table, in order, as they are in the lake."""

    arrow: pa.Schema
    """Field metadata, nested too: `singer` is the property's name where it differs, `kind` what a string holds (`json`,
    `null`: JSON text; `variant`: values that do not fit another column; `extra`: the fields outside the SCHEMA)."""
    reading: pa.Schema | None = None
    """The columns into which RECORDs are read, where they differ: one of a column and its variant, and fields to leave
    out. Only a run needs it; the bucket keeps the columns alone."""
    _json: bytes = field(default=b"", init=False, repr=False, compare=False)
    """The last result of `to_json`: a commit asks each table for it and its hash several times."""

    @property
    def fields(self) -> list[pa.Field]:
        """The columns into which RECORDs are read, without the column for fields outside the SCHEMA."""
        return [field for field in (self.arrow if self.reading is None else self.reading) if field.name != EXTRA]

    @property
    def left_out(self) -> list[str]:
        """The properties of the SCHEMA that are not kept."""
        return left_out(self.fields)

    @property
    def stored(self) -> TableSchema:
        """The columns alone, as the bucket keeps them."""
        return self if self.reading is None else TableSchema(self.arrow)

    @property
    def types(self) -> str:
        """16 hex digits, equal for files with the same columns, whether or not they have the one for other fields."""
        if EXTRA not in self.arrow.names:
            return self.stored.hash
        return TableSchema(pa.schema([field for field in self.arrow if field.name != EXTRA])).hash

    def to_json(self) -> bytes:
        """Canonical: equal schemas give equal bytes, in every process and version of Arrow."""
        if not self._json:
            columns = [_describe(field) for field in self.arrow]
            reading = {} if self.reading is None else {"reading": [_describe(field) for field in self.reading]}
            text = orjson.dumps({"columns": columns, **reading} if reading else columns)
            object.__setattr__(self, "_json", text)
        return self._json

    @classmethod
    def from_json(cls, text: bytes) -> TableSchema:
        """Read what `to_json` wrote. Raises `CorruptLake` for anything else."""
        try:
            data = orjson.loads(text)
            columns, reading = (data["columns"], data["reading"]) if isinstance(data, dict) else (data, None)
            lake = pa.schema([_field(entry) for entry in columns])
            return cls(lake, None if reading is None else pa.schema([_field(entry) for entry in reading]))
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
            hint = "written by a newer version, or damaged; use the version that wrote it"
            raise CorruptLake("stored schema cannot be read", hint=hint, cause=error) from error

    @property
    def hash(self) -> str:
        """16 hex digits of the content, stable across processes."""
        return hashlib.sha256(self.to_json()).hexdigest()[:16]


def from_singer(schema: Mapping[str, Any], key_properties: Sequence[str]) -> TableSchema:
    """The table of one SCHEMA message. A schema without properties keeps whole records in `EXTRA`."""
    return TableSchema(pa.schema(record_fields(schema, key_properties) or [_EXTRA_FIELD]))


def with_extra(schema: TableSchema) -> TableSchema:
    """Add the nullable column for fields outside the SCHEMA, as the last one, unless it exists."""
    return schema if EXTRA in schema.arrow.names else TableSchema(schema.arrow.append(_EXTRA_FIELD), schema.reading)


def merge(table: TableSchema | None, incoming: TableSchema, evolution: Evolution = _GROW) -> TableSchema:
    """The table after a SCHEMA message: its columns in their order and under their names, then new ones.

    Files whose type cannot be read beside the new one have to be rewritten. Raises `DataError` for what `evolution`
    does not allow.
    """
    if table is None:
        return incoming
    lake, reading = merged(list(table.arrow), list(incoming.arrow), evolution)
    same = [field for field in lake if field.name != EXTRA] == list(reading)
    return TableSchema(lake, None if same else reading)


def _describe(field: pa.Field) -> dict[str, Any]:
    """A field as plain data; keys in fixed order, absent for a default."""
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
        return SCALARS[described]
    ((word, value),) = described.items()
    if word == "struct":
        return pa.struct([_field(entry) for entry in value])
    if word == "list":
        return pa.list_(_field(value))
    if word == "decimal":
        return pa.decimal128(*value)
    raise ValueError(word)
