"""A table's columns after one more SCHEMA: those that it had, under their names and in their order, then new ones.

The result is two lists: the columns in the lake, and those that RECORDs under this SCHEMA are read into. They differ
where RECORDs are read into a column's variant, and where new columns are left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from bridge.errors import DataError
from bridge.protocol.schema.json_schema import EXTRA, LEFT_OUT, SCALARS, Names, is_json, is_null_only, source
from bridge.protocol.schema.widening import fits, stands_beside, wider

_NAMES = {type_: name for name, type_ in SCALARS.items()}
_VARIANT = b"variant"
_EXTRA = b"extra"
_Both = tuple[pa.Field, pa.Field]
"""A field as it is in the lake, and as it is read."""


@dataclass(frozen=True, slots=True)
class Evolution:
    """How a table may change."""

    on_type_change: Literal["rewrite", "variant", "fail"] = "rewrite"
    """Older files get the wider type; or new values go to `<column>__string`; or it is an error."""
    schema_policy: Literal["evolve", "freeze", "discard"] = "evolve"
    """New columns are added; or they and changed types are an error; or they are left out, and types stay."""
    keys: tuple[str, ...] = ()
    """Properties that get no variant: a key split in two would not be a key."""


def merged(
    current: Sequence[pa.Field], incoming: Sequence[pa.Field], evolution: Evolution
) -> tuple[pa.Schema, pa.Schema]:
    """The columns in the lake, and those to read. Raises `DataError` for what `evolution` does not allow."""
    lake, reading = _SchemaMerging(evolution).fields(current, incoming, "")
    return pa.schema(lake), pa.schema(reading)


def without_variants(fields: Sequence[pa.Field]) -> list[pa.Field]:
    """The fields to read RECORDs into where no SCHEMA tells a field from its variant."""
    return [_first_type(field) for field in fields if not is_variant(field)]


def _first_type(field: pa.Field) -> pa.Field:
    if pa.types.is_struct(field.type):
        return field.with_type(pa.struct(without_variants(list(field.type))))
    if pa.types.is_list(field.type):
        return field.with_type(pa.list_(_first_type(field.type.value_field)))
    return field


def left_out(fields: Sequence[pa.Field], at: str = "") -> list[str]:
    """The dotted names of the fields that are read and not kept."""
    names: list[str] = []
    for field in fields:
        if _kind(field) == LEFT_OUT:
            names.append(at + source(field))
        elif pa.types.is_struct(field.type):
            names += left_out(list(field.type), f"{at}{field.name}.")
        elif pa.types.is_list(field.type):
            names += left_out([field.type.value_field.with_name("[]")], f"{at}{field.name}")
    return names


class _SchemaMerging:
    def __init__(self, evolution: Evolution) -> None:
        self.evolve = evolution.schema_policy == "evolve"
        self.freeze = evolution.schema_policy == "freeze"
        self.on_type_change = evolution.on_type_change
        self.keys = evolution.keys

    def fields(
        self, current: Sequence[pa.Field], incoming: Sequence[pa.Field], at: str
    ) -> tuple[list[pa.Field], list[pa.Field]]:
        """Match fields by the property's name, so that a column keeps its name whatever twins come later."""
        current = _in_case_of(current, incoming)
        waiting = {source(field): field for field in incoming if _kind(field) != _EXTRA}
        variants = {source(field): field for field in current if is_variant(field)}
        lake: list[pa.Field] = []
        reading: list[pa.Field] = []
        more: list[pa.Field] = []
        names = Names([*(field.name for field in current), *([] if at else [EXTRA])])
        for field in current:
            if is_variant(field) or _kind(field) == _EXTRA:
                lake.append(field)
                continue
            new = waiting.pop(source(field), None)
            both = self.field(field, new, at)
            if both is None:
                assert new is not None
                variant = variants.get(source(field)) or self.variant(field, names)
                more += [] if source(field) in variants else [variant]
                both = field.with_nullable(True), variant
            lake.append(both[0])
            reading.append(both[1])
        lake += more
        for new in waiting.values():
            self.add(new, lake, reading, names, at)
        lake += [
            field for field in incoming if _kind(field) == _EXTRA and EXTRA not in (other.name for other in current)
        ]
        return lake, reading

    def field(self, current: pa.Field, incoming: pa.Field | None, at: str) -> _Both | None:
        """One field after the change; None where the new values need a variant."""
        if incoming is None:
            return current.with_nullable(True), _first_type(current).with_nullable(True)
        nullable = current.nullable or incoming.nullable
        if is_null_only(current) and not is_null_only(incoming):
            current = current.with_metadata({**current.metadata, b"kind": b"json"})
        name = f"{at}{current.name}"
        both = self.nested(current, incoming, name)
        if both is None:
            return None
        return both[0].with_nullable(nullable), both[1].with_nullable(nullable)

    def nested(self, current: pa.Field, incoming: pa.Field, name: str) -> _Both | None:
        old, new = current.type, incoming.type
        if old == pa.string() or is_null_only(incoming):
            return current, _first_type(current)
        if pa.types.is_struct(old) and pa.types.is_struct(new):
            lake, reading = self.fields(list(old), list(new), f"{name}.")
            return current.with_type(pa.struct(lake)), current.with_type(pa.struct(reading))
        if pa.types.is_list(old) and pa.types.is_list(new):
            item = self.field(old.value_field, new.value_field, f"{name}[].")
            return item and (current.with_type(pa.list_(item[0])), current.with_type(pa.list_(item[1])))
        if fits(new, old):
            return current, current
        return self.changed(current, incoming, name)

    def changed(self, current: pa.Field, incoming: pa.Field, name: str) -> _Both | None:
        """A field whose type cannot hold all values of the new one."""
        if self.freeze:
            raise _refused(name, current, incoming, _FROZEN)
        if not self.evolve:
            return current, _first_type(current)  # what does not fit is rejected, value by value
        type_, kind = wider(current, incoming)
        if not stands_beside(current.type, type_):
            if self.on_type_change == "fail":
                raise _refused(name, current, incoming, _FAIL)
            if self.on_type_change == "variant" and not (name == current.name and source(current) in self.keys):
                return None
        metadata = {**(current.metadata or {}), **(kind or {})}
        field = pa.field(current.name, type_, nullable=current.nullable, metadata=metadata or None)
        return field, field

    def variant(self, field: pa.Field, names: Names) -> pa.Field:
        """The column for the values, as text, that do not fit the other one."""
        name = names.take(f"{field.name}__string")
        return pa.field(name, pa.string(), metadata={b"kind": _VARIANT, b"singer": source(field).encode()})

    def add(self, field: pa.Field, lake: list[pa.Field], reading: list[pa.Field], names: Names, at: str) -> None:
        """Add a property that the table has no column for."""
        name = source(field)
        if self.freeze:
            raise DataError("a column is new", hint=_FROZEN, column=f"{at}{name}", type=label(field))
        column = names.take(_new_name(field))
        metadata = {key: value for key, value in (field.metadata or {}).items() if key != b"singer"}
        if column != name:
            metadata[b"singer"] = name.encode()
        if not self.evolve:
            type_ = pa.string() if at else field.type  # at the top the declared type reads fast; inside it is JSON
            reading.append(pa.field(column, type_, metadata={**metadata, b"kind": LEFT_OUT}))
            return
        added = pa.field(column, field.type, nullable=True, metadata=metadata or None)
        lake.append(added)
        reading.append(added)


def _in_case_of(current: Sequence[pa.Field], incoming: Sequence[pa.Field]) -> list[pa.Field]:
    """The fields, each with the property of the SCHEMA that differs from its own in upper and lower case alone.

    A source that has `id` beside `ID` minds the case: where either side has both, a name is as it is written.
    """
    own, new = (_by_folded_name(fields) for fields in (current, incoming))
    renamed = {
        min(before): min(after)
        for name, before in own.items()
        if before != (after := new.get(name, before)) and len(before) == len(after) == 1
    }
    return [_reading(field, renamed[source(field)]) if source(field) in renamed else field for field in current]


def _by_folded_name(fields: Sequence[pa.Field]) -> dict[str, set[str]]:
    names: dict[str, set[str]] = {}
    for name in map(source, fields):
        names.setdefault(name.casefold(), set()).add(name)
    return names


def _reading(field: pa.Field, name: str) -> pa.Field:
    """The field, filled from the property of that name."""
    metadata = {key: value for key, value in (field.metadata or {}).items() if key != b"singer"}
    if name != field.name:
        metadata[b"singer"] = name.encode()
    return field.with_metadata(metadata or None)


def _new_name(field: pa.Field) -> str:
    """The name for a new column: the property's, or one that the settings gave it; not that of a twin."""
    name = source(field)
    return name if re.fullmatch(re.escape(name) + r"_[0-9]+", field.name) else str(field.name)


def _kind(field: pa.Field) -> bytes | None:
    kind: bytes | None = (field.metadata or {}).get(b"kind")
    return kind


def is_variant(field: pa.Field) -> bool:
    """Whether a column holds the values that another one cannot hold."""
    return _kind(field) == _VARIANT


_FROZEN = (
    "nothing of this SCHEMA was stored; the stream's schema_policy is freeze: set it to evolve for one run to take the "
    "change in, or to discard to go on without it"
)
_FAIL = (
    "rows up to the tap's last STATE are kept. Set the stream's on_type_change to variant or, unless the table is "
    "shared, to rewrite; keep the old type in the tap's settings or catalog; or load the stream with --full"
)


def _refused(column: str, current: pa.Field, incoming: pa.Field, hint: str) -> DataError:
    return DataError(
        "column changes its type", hint=hint, column=column, **{"from": label(current), "to": label(incoming)}
    )


def label(field: pa.Field) -> str:
    """The type in a reader's words."""
    if is_json(field):
        return "json"
    if pa.types.is_struct(field.type):
        return "struct"
    if pa.types.is_list(field.type):
        return f"list<{label(field.type.value_field)}>"
    return str(_NAMES.get(field.type, field.type)).replace("decimal128", "decimal").replace(", ", ",")
