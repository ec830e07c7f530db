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
from bridge.schema.json_schema import EXTRA, LEFT_OUT, SCALARS, Names, is_json, is_null_only, source
from bridge.schema.widening import fits, stands_beside, wider

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


def merged(ours: Sequence[pa.Field], theirs: Sequence[pa.Field], evolution: Evolution) -> tuple[pa.Schema, pa.Schema]:
    """The columns in the lake, and those to read. Raises `DataError` for what `evolution` does not allow."""
    lake, reading = _Merging(evolution).fields(ours, theirs, "")
    return pa.schema(lake), pa.schema(reading)


def without_variants(fields: Sequence[pa.Field]) -> list[pa.Field]:
    """The fields to read RECORDs into where no SCHEMA tells a field from its variant."""
    return [_first_type(field) for field in fields if not _is_variant(field)]


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


class _Merging:
    def __init__(self, evolution: Evolution) -> None:
        self.evolve = evolution.schema_policy == "evolve"
        self.freeze = evolution.schema_policy == "freeze"
        self.on_type_change = evolution.on_type_change
        self.keys = evolution.keys

    def fields(
        self, ours: Sequence[pa.Field], theirs: Sequence[pa.Field], at: str
    ) -> tuple[list[pa.Field], list[pa.Field]]:
        """Match fields by the property's name, so that a column keeps its name whatever twins come later."""
        waiting = {source(field): field for field in theirs if _kind(field) != _EXTRA}
        variants = {source(field): field for field in ours if _is_variant(field)}
        lake: list[pa.Field] = []
        reading: list[pa.Field] = []
        more: list[pa.Field] = []
        names = Names([*(field.name for field in ours), *([] if at else [EXTRA])])
        for field in ours:
            if _is_variant(field) or _kind(field) == _EXTRA:
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
        lake += [field for field in theirs if _kind(field) == _EXTRA and EXTRA not in (other.name for other in ours)]
        return lake, reading

    def field(self, ours: pa.Field, theirs: pa.Field | None, at: str) -> _Both | None:
        """One field after the change; None where the new values need a variant."""
        if theirs is None:
            return ours.with_nullable(True), _first_type(ours).with_nullable(True)
        nullable = ours.nullable or theirs.nullable
        if is_null_only(ours) and not is_null_only(theirs):
            ours = ours.with_metadata({**ours.metadata, b"kind": b"json"})
        name = f"{at}{ours.name}"
        both = self.nested(ours, theirs, name)
        if both is None:
            return None
        return both[0].with_nullable(nullable), both[1].with_nullable(nullable)

    def nested(self, ours: pa.Field, theirs: pa.Field, name: str) -> _Both | None:
        old, new = ours.type, theirs.type
        if old == pa.string() or is_null_only(theirs):
            return ours, _first_type(ours)
        if pa.types.is_struct(old) and pa.types.is_struct(new):
            lake, reading = self.fields(list(old), list(new), f"{name}.")
            return ours.with_type(pa.struct(lake)), ours.with_type(pa.struct(reading))
        if pa.types.is_list(old) and pa.types.is_list(new):
            item = self.field(old.value_field, new.value_field, f"{name}[].")
            return item and (ours.with_type(pa.list_(item[0])), ours.with_type(pa.list_(item[1])))
        if fits(new, old):
            return ours, ours
        return self.changed(ours, theirs, name)

    def changed(self, ours: pa.Field, theirs: pa.Field, name: str) -> _Both | None:
        """A field whose type cannot hold all values of the new one."""
        if self.freeze:
            raise _refused(name, ours, theirs, _FROZEN)
        if not self.evolve:
            return ours, _first_type(ours)  # what does not fit is rejected, value by value
        type_, kind = wider(ours, theirs)
        if not stands_beside(ours.type, type_):
            if self.on_type_change == "fail":
                raise _refused(name, ours, theirs, _FAIL)
            if self.on_type_change == "variant" and not (name == ours.name and source(ours) in self.keys):
                return None
        metadata = {**(ours.metadata or {}), **(kind or {})}
        field = pa.field(ours.name, type_, nullable=ours.nullable, metadata=metadata or None)
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


def _new_name(field: pa.Field) -> str:
    """The name for a new column: the property's, or one that the settings gave it; not that of a twin."""
    name = source(field)
    return name if re.fullmatch(re.escape(name) + r"_[0-9]+", field.name) else str(field.name)


def _kind(field: pa.Field) -> bytes | None:
    kind: bytes | None = (field.metadata or {}).get(b"kind")
    return kind


def _is_variant(field: pa.Field) -> bool:
    return _kind(field) == _VARIANT


_FROZEN = (
    "nothing of this SCHEMA was stored; the stream's schema_policy is freeze: set it to evolve for one run to take the "
    "change in, or to discard to go on without it"
)
_FAIL = (
    "rows up to the tap's last STATE are kept. Set the stream's on_type_change to variant or, unless the table is "
    "shared, to rewrite; keep the old type in the tap's settings or catalog; or load the stream with --full"
)


def _refused(column: str, ours: pa.Field, theirs: pa.Field, hint: str) -> DataError:
    return DataError("column changes its type", hint=hint, column=column, **{"from": label(ours), "to": label(theirs)})


def label(field: pa.Field) -> str:
    """The type in a reader's words."""
    if is_json(field):
        return "json"
    if pa.types.is_struct(field.type):
        return "struct"
    if pa.types.is_list(field.type):
        return f"list<{label(field.type.value_field)}>"
    return str(_NAMES.get(field.type, field.type)).replace("decimal128", "decimal").replace(", ", ",")
