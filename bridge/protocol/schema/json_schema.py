"""JSON Schema to Arrow fields: the type of a column loses nothing of its values.

| JSON Schema | Arrow |
|---|---|
| `integer` | int64; decimal128(38, 0) where its bounds leave int64 |
| `number` | float64 (the nearest double); decimal where `multipleOf`, `precision` / `scale`, `singer.decimal` say so |
| `string` | string; `date-time` timestamp[us, UTC], `date` date32, `time` string, `singer.decimal` decimal |
| `boolean`, `array`, `object` with properties | bool, list, struct |
| everything that is not one type | JSON text: a string field with `kind: json`, real JSON, compact |

Not one type: several non-null types, untyped, boolean schemas, recursive `$ref`, objects without properties, arrays
whose items are untyped (the whole array), `allOf` that contradicts itself. `null` may stand anywhere and never counts.
An `enum` or `const` without a type has that of its values. Unions of string formats are a string, `integer | number` is
a number. A decimal has the precision and scale that it declares, 38 and 9 where it declares none. A number that needs
more than 38 digits is kept as text, digit by digit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from sys import float_info
from typing import Any

import pyarrow as pa

from bridge.errors import DataError
from bridge.protocol.schema.references import References
from bridge.protocol.schema.valid import INT64_DIGITS, MAX_DIGITS, SAYS_TYPE, undeclared, valid_schema

EXTRA = "_sdc_extra"
"""The column for fields outside the SCHEMA; a property of that name gets a suffix."""

DELETED_AT = "_sdc_deleted_at"
"""The column in which a tap marks a row as deleted, with the time."""

VERSION_COLUMN = "_sdc_table_version"
"""The column that says of which Singer version a row is."""

LEFT_OUT = b"left out"
"""The kind of a field that may hold anything, and is not kept."""

NULL_TIMES = {b"bad_time": b"null"}
"""Metadata of a field in which a text that is no time becomes null, also where it is inside of objects and lists."""


class VersionColumn:
    """The columns of a history table that say from when to when a version is, up to but without the end, and whether
    it is the one of now."""

    START, END, CURRENT = "__START_AT", "__END_AT", "__CURRENT"
    KIND = "version"
    """Tells them from a tap's own of these names."""

    @classmethod
    def fields(cls, type_: pa.DataType, sequence: str | None = None) -> list[pa.Field]:
        """The columns where a start is of this type, and a value of this property."""
        types = {cls.START: type_, cls.END: type_, cls.CURRENT: pa.bool_()}
        kind, of_start = {b"kind": cls.KIND.encode()}, {b"sequence": sequence.encode()} if sequence else {}
        return [
            pa.field(name, of, metadata=kind | (of_start if name == cls.START else {})) for name, of in types.items()
        ]

    @classmethod
    def has(cls, field: pa.Field) -> bool:
        """Whether a column is one of them."""
        return (field.metadata or {}).get(b"kind") == cls.KIND.encode()


TIMESTAMP = pa.timestamp("us", "UTC")
SCALARS = {
    "int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "date32": pa.date32(),
    "timestamp[us, UTC]": TIMESTAMP,
}
"""Types by their names in stored schemas; decimals, structs and lists are written out."""
DEFAULT_SCALE = 9
DEEPEST = 32
"""Levels of nested objects and lists: Delta's log, pyiceberg and Arrow's Parquet reader fail at about 40 to 80."""
INT64 = range(-(2**63), 2**63)

Shape = tuple[pa.DataType, dict[bytes, bytes] | None]
"""The type of a schema, and the field metadata that says what the type does not."""

JSON_TEXT: Shape = (pa.string(), {b"kind": b"json"})
NULL_ONLY: Shape = (pa.string(), {b"kind": b"null"})
STRING: Shape = (pa.string(), None)
DECIMAL_FORMATS = frozenset({"singer.decimal", "x-singer.decimal"})
STRING_FORMATS = {"date-time": TIMESTAMP, "date": pa.date32()}
STRING_LIKE = (pa.string(), TIMESTAMP, pa.date32())
_HINT = "nothing was stored; correct this stream's schema in the tap's catalog, or deselect the stream"


def record_fields(schema: Mapping[str, Any], keys: Sequence[str]) -> list[pa.Field]:
    """The columns of one SCHEMA message in its order; only declared keys are not nullable.

    An object or a list deeper than `DEEPEST` is JSON text, and so is what has no valid type: `valid_schema` says where.
    Raises `DataError` for a `$ref` without a target, and a key that is not a property.
    """
    root, _ = valid_schema(schema)
    reader = _SchemaReader(root)
    top = reader.resolve(root, "", ())
    properties = (top[0].get("properties") if top else None) or {}
    for key in keys:
        if key not in properties:
            raise DataError("key property is not in the schema", hint=undeclared(keys, properties), key=key)
    fields = reader.fields(properties, "/properties", top[1] if top else (), keys=frozenset(keys), taken={EXTRA})
    return [_cut(field, DEEPEST) for field in fields]


def _cut(field: pa.Field, levels: int) -> pa.Field:
    """The field with at most so many levels of objects and lists."""
    type_ = field.type
    if pa.types.is_nested(type_) and not levels:
        return field.with_type(JSON_TEXT[0]).with_metadata({**(field.metadata or {}), **(JSON_TEXT[1] or {})})
    if pa.types.is_struct(type_):
        return field.with_type(pa.struct([_cut(child, levels - 1) for child in type_]))
    if pa.types.is_list(type_):
        return field.with_type(pa.list_(_cut(type_.value_field, levels - 1)))
    return field


def source(field: pa.Field) -> str:
    """The property's name in the tap's records, which differs from the column's if it has a twin."""
    name = (field.metadata or {}).get(b"singer")
    return name.decode() if name is not None else str(field.name)


def is_json(field: pa.Field) -> bool:
    """Whether a string field holds JSON text."""
    return (field.metadata or {}).get(b"kind") in (b"json", b"null", LEFT_OUT)


def has_json(field: pa.Field) -> bool:
    """Whether a field holds JSON text, itself or inside, that is not always null."""
    return any(map(has_json, children(field.type))) or (is_json(field) and not is_null_only(field))


def children(type_: pa.DataType) -> list[pa.Field]:
    """The fields of an object, the item of a list; none of a scalar."""
    if pa.types.is_struct(type_):
        return list(type_)
    return [type_.value_field] if pa.types.is_list(type_) else []


def path_of(name: str, field: pa.Field, child: pa.Field) -> str:
    """The dotted name of a field inside of the field `name`; `[]` for the items of a list."""
    return f"{name}[]" if pa.types.is_list(field.type) else f"{name}.{child.name}"


def is_left_out(field: pa.Field) -> bool:
    """Whether a field may hold anything and is not kept; its type is only the probable one."""
    return (field.metadata or {}).get(b"kind") == LEFT_OUT


def nulls_bad_times(field: pa.Field) -> bool:
    """Whether a text that is no time becomes null instead of a reject."""
    return NULL_TIMES.items() <= (field.metadata or {}).items()


def is_null_only(field: pa.Field) -> bool:
    """Whether a field may only be null, as taps that infer types say before they see a value."""
    return (field.metadata or {}).get(b"kind") == b"null"


class Names:
    """Unique names of columns: Spark refuses a table whose columns differ only in case."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._folded = {name.casefold() for name in taken}

    def take(self, name: str) -> str:
        """Take `name`, or `name_2`, `name_3`, ...

        `_` replaces an empty name, NUL, which ends a name for Arrow, and the prefix of our hidden columns.
        """
        name = re.sub("^\x1f|\x00", "_", name) or "_"
        candidate, number = name, 1
        while candidate.casefold() in self._folded:
            number += 1
            candidate = f"{name}_{number}"
        self._folded.add(candidate.casefold())
        return candidate


class _SchemaReader:
    """Reads one schema document; local references start from its root."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._references = References(root)

    def fields(
        self,
        properties: Mapping[str, Any],
        at: str,
        seen: tuple[str, ...],
        *,
        keys: frozenset[str] = frozenset(),
        taken: Iterable[str] = (),
    ) -> list[pa.Field]:
        """One field a property. Twins that differ in case are renamed; the metadata keeps their names."""
        names = Names(taken)
        result = []
        for name, node in properties.items():
            type_, metadata = self.shape(node, f"{at}/{name}", seen)
            column = names.take(name)
            if column != name:
                metadata = {**(metadata or {}), b"singer": name.encode()}
            result.append(pa.field(column, type_, nullable=name not in keys, metadata=metadata))
        return result

    def shape(self, node: Any, at: str, seen: tuple[str, ...]) -> Shape:
        """The type of one schema; JSON text if it is not one type."""
        resolved = self.resolve(node, at, seen)
        if resolved is None:
            return JSON_TEXT
        node, seen = resolved
        for word in ("anyOf", "oneOf"):
            if word in node:
                return self.union(node, word, at, seen)
        if (names := _type_names(node)) == {"null"}:
            return NULL_ONLY
        names -= {"null"}
        if node.get("format") in DECIMAL_FORMATS and names and names <= {"string", "number", "integer"}:
            return _declared_decimal(node)
        if "number" in names:
            names -= {"integer"}
        if len(names) != 1:
            return JSON_TEXT
        return self.single(names.pop(), node, at, seen)

    def single(self, name: str, node: Mapping[str, Any], at: str, seen: tuple[str, ...]) -> Shape:
        """The type of a schema that allows one type besides null."""
        if name == "object":
            properties = node.get("properties")
            return (pa.struct(self.fields(properties, f"{at}/properties", seen)), None) if properties else JSON_TEXT
        if name == "array":
            return self.array(node.get("items"), at, seen)
        if name == "string":
            return STRING_FORMATS.get(node.get("format", ""), pa.string()), None
        if name == "boolean":
            return pa.bool_(), None
        return _integer(node) if name == "integer" else _number(node)

    def array(self, items: Any, at: str, seen: tuple[str, ...]) -> Shape:
        """A list; JSON text as a whole where the schema does not give the type of its items."""
        if not isinstance(items, dict) or not (SAYS_TYPE | {"enum", "const"}).intersection(items):
            return JSON_TEXT
        type_, metadata = self.shape(items, f"{at}/items", seen)
        return pa.list_(pa.field("item", type_, metadata=metadata)), None

    def union(self, node: Mapping[str, Any], word: str, at: str, seen: tuple[str, ...]) -> Shape:
        """The one type of all branches that are not null."""
        base = {key: value for key, value in node.items() if key != word}
        shapes: list[Shape] = []
        for index, branch in enumerate(node[word]):
            if not isinstance(branch, dict):
                return JSON_TEXT
            shape = self.shape({**base, **branch}, f"{at}/{word}/{index}", seen)
            if shape[1] != NULL_ONLY[1]:
                shapes.append(shape)
        return _common(shapes)

    def resolve(self, node: Any, at: str, seen: tuple[str, ...]) -> tuple[dict[str, Any], tuple[str, ...]] | None:
        """Follow `$ref` and `allOf`; return the schema and the references followed, None where it is not one type."""
        while isinstance(node, dict) and "$ref" in node:
            reference = node["$ref"]
            if reference in seen:
                return None
            seen = (*seen, reference)
            node = self.target(reference, at)
        if not isinstance(node, dict):
            return None
        if "allOf" not in node:
            return node, seen
        merged = {key: value for key, value in node.items() if key != "allOf"}
        for index, part in enumerate(node["allOf"]):
            resolved = self.resolve(part, f"{at}/allOf/{index}", seen)
            if resolved is None or not _add(merged, resolved[0]):
                return None
            seen = resolved[1]
        return merged, seen

    def target(self, reference: str, at: str) -> Any:
        """The target of a reference into this document."""
        node = self._references.target(reference)
        if node is None:
            raise DataError("schema reference leads nowhere", hint=_HINT, ref=reference, pointer=at or "/")
        return node


_JSON_TYPES = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
    Decimal: "number",
    type(None): "null",
}


def _type_names(node: Mapping[str, Any]) -> set[str]:
    """The types that a schema names, or that its values have; object where it only has properties; none if untyped."""
    names = node.get("type", "object" if node.get("properties") else ())
    if not names:
        values = [node["const"]] if "const" in node else node.get("enum", [])
        types = {_JSON_TYPES[type(value)] for value in values}
        return types if len(types - {"null"}) < 2 or types <= {"null", "integer", "number"} else set()
    return {names} if isinstance(names, str) else set(names)


def _add(merged: dict[str, Any], part: Mapping[str, Any]) -> bool:
    """Add one `allOf` part; False where two parts contradict each other about the type."""
    for key, value in part.items():
        before = merged.setdefault(key, value)
        if key == "properties" and before != value:
            if any(before.get(name, node) != node for name, node in value.items()):
                return False
            merged[key] = {**before, **value}
        elif before != value and key in SAYS_TYPE | {"format", "items", "multipleOf", "minimum", "maximum"}:
            return False
    return True


def _common(shapes: list[Shape]) -> Shape:
    """The type for all branches of a union, without loss, or JSON text."""
    if not shapes:
        return NULL_ONLY
    first = shapes[0]
    if all(first[1] == other[1] and first[0].equals(other[0], check_metadata=True) for other in shapes):
        return first
    types = [type_ for type_, metadata in shapes if metadata is None]
    if len(types) == len(shapes) and all(type_ in STRING_LIKE for type_ in types):
        return STRING
    if len(types) == len(shapes) and set(types) == {pa.int64(), pa.float64()}:
        return pa.float64(), None
    return JSON_TEXT


def _declared_decimal(node: Mapping[str, Any]) -> Shape:
    """The decimal that `precision` and `scale` declare."""
    precision, scale = node.get("precision"), node.get("scale")
    if not isinstance(precision, int) or precision < 1:
        precision = MAX_DIGITS
    if not isinstance(scale, int) or scale < 0:
        scale = min(DEFAULT_SCALE, precision) if "precision" not in node else 0
    if precision > MAX_DIGITS or scale > precision:
        return STRING
    return pa.decimal128(precision, scale), None


def _integer(node: Mapping[str, Any]) -> Shape:
    digits = _bound_digits(node)
    if digits > MAX_DIGITS:
        return STRING
    return pa.decimal128(MAX_DIGITS, 0) if digits else pa.int64(), None


def _number(node: Mapping[str, Any]) -> Shape:
    """A double, unless the schema says how many digits it has."""
    if isinstance(node.get("precision"), int) and isinstance(node.get("scale"), int):
        return _declared_decimal(node)
    if "multipleOf" not in node:
        return pa.float64(), None
    exponent = Decimal(str(node["multipleOf"])).normalize().as_tuple().exponent
    scale = max(0, -exponent) if isinstance(exponent, int) else 0
    whole = _bound_digits(node) or INT64_DIGITS
    return (pa.decimal128(MAX_DIGITS, scale), None) if whole + scale <= MAX_DIGITS else STRING


def _bound_digits(node: Mapping[str, Any]) -> int:
    """Digits before the point that bounds or values allow beyond int64; 0 where int64 holds them all.

    A bound beyond what a double holds, such as 1e400, bounds nothing.
    """
    digits = 0
    for word in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        bound: Any = node.get(word)
        is_number = isinstance(bound, (int, float, Decimal)) and not isinstance(bound, bool)
        if not is_number or not abs(bound) <= float_info.max:
            continue
        inside = int(bound)
        if word.startswith("exclusive") or node.get(f"exclusive{word.capitalize()}") is True:
            inside -= 1 if inside > 0 else -1
        digits = max(digits, _beyond_int64(inside))
    values = [node["const"]] if "const" in node else node.get("enum", ())
    return max([digits, *(_beyond_int64(value) for value in values if type(value) is int)])


def _beyond_int64(value: int) -> int:
    return 0 if value in INT64 else len(str(abs(value)))
