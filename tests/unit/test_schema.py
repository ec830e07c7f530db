"""The types DESIGN.md promises, the names columns keep, and what a table may become."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from bridge.errors import CorruptLake, DataError
from bridge.schema import EXTRA, TableSchema, from_singer, merge, with_extra

JSON = {b"kind": b"json"}
TIMESTAMP = pa.timestamp("us", "UTC")


def table(keys: tuple[str, ...] = (), **properties: Any) -> TableSchema:
    """The schema of a stream with these properties."""
    return from_singer({"type": "object", "properties": properties}, keys)


def column(node: Any, **root: Any) -> pa.Field:
    """The column that one property becomes."""
    return from_singer({"type": "object", "properties": {"c": node}, **root}, []).arrow.field("c")


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({"type": "integer"}, pa.int64()),
        ({"type": ["null", "integer"], "minimum": -(2**63), "maximum": 2**63 - 1}, pa.int64()),
        ({"type": ["integer", "null"], "maximum": 2**64 - 1}, pa.decimal128(38, 0)),
        ({"type": "integer", "exclusiveMaximum": 2**63}, pa.int64()),
        ({"type": "integer", "maximum": 2**63, "exclusiveMaximum": True}, pa.int64()),
        ({"type": "number"}, pa.float64()),
        ({"type": ["integer", "null", "number"]}, pa.float64()),
        ({"type": "number", "multipleOf": 0.01}, pa.decimal128(38, 2)),
        ({"type": "number", "multipleOf": 1e-9}, pa.decimal128(38, 9)),
        ({"type": "number", "multipleOf": 1e-38, "maximum": 1e62, "exclusiveMaximum": True}, pa.string()),
        ({"type": "number", "precision": 12, "scale": 4}, pa.decimal128(12, 4)),
        ({"type": ["string", "null"], "format": "singer.decimal"}, pa.decimal128(38, 9)),
        ({"type": "string", "format": "x-singer.decimal", "precision": 10, "scale": 2}, pa.decimal128(10, 2)),
        ({"type": "boolean"}, pa.bool_()),
        ({"type": "string"}, pa.string()),
        ({"type": ["null", "string"], "format": "date-time"}, TIMESTAMP),
        ({"type": ["string", "null"], "format": "date"}, pa.date32()),
        ({"type": "string", "format": "time"}, pa.string()),
        ({"type": "string", "format": "uuid"}, pa.string()),
        ({"type": "array", "items": {"type": ["null", "integer"]}}, pa.list_(pa.int64())),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, pa.int64()),
        ({"oneOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]}, TIMESTAMP),
        ({"anyOf": [{"type": "string", "format": "date-time"}, {"type": ["null", "string"]}]}, pa.string()),
        ({"allOf": [{"type": "string"}, {"format": "date"}]}, pa.date32()),
        ({"$ref": "#/definitions/id"}, pa.int64()),
    ],
)
def test_type(node: Any, expected: pa.DataType) -> None:
    """One type besides null becomes the Arrow type that keeps its values."""
    found = column(node, definitions={"id": {"type": ["null", "integer"]}})
    assert found.type == expected
    assert found.nullable
    assert not found.metadata


@pytest.mark.parametrize(
    "node",
    [
        {},
        True,
        {"type": ["string", "integer"]},
        {"type": "object"},
        {"type": ["null", "object"], "properties": {}},
        {"type": "array"},
        {"type": "array", "items": {}},
        {"type": "array", "items": [{"type": "integer"}, {"type": "string"}]},
        {"anyOf": [{"type": "integer"}, {"type": "object", "properties": {"a": {"type": "string"}}}]},
        {"allOf": [{"type": "string"}, {"type": "integer"}]},
        {"enum": ["a", 1]},
        {"const": "a"},
    ],
)
def test_json_text(node: Any) -> None:
    """What is not one type is kept as JSON text, and marked as such."""
    found = column(node)
    assert found.type == pa.string()
    assert found.metadata == JSON


def test_objects_and_arrays_nest() -> None:
    """Objects become structs and arrays lists, the marks of inner JSON text kept."""
    node = {
        "type": ["null", "object"],
        "properties": {
            "zip": {"type": "string"},
            "tags": {"type": "array", "items": {"type": "object"}},
            "lines": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        },
    }
    found = column(node).type
    assert found.field("zip").type == pa.string()
    assert found.field("tags").type.value_field.metadata == JSON
    assert found.field("lines").type.value_type == pa.struct([("n", pa.int64())])


def test_recursive_reference() -> None:
    """A schema that contains itself ends as JSON text at the second turn, not in a loop."""
    tree = {"type": "object", "properties": {"n": {"type": "integer"}, "next": {"$ref": "#/$defs/tree"}}}
    found = column({"$ref": "#/$defs/tree"}, **{"$defs": {"tree": tree}}).type
    assert found.field("n").type == pa.int64()
    assert found.field("next").metadata == JSON


def test_only_keys_are_required() -> None:
    """A declared key is not nullable even if its schema allows null; all else is."""
    found = table(("id",), id={"type": ["null", "integer"]}, name={"type": "string"}).arrow
    assert [field.nullable for field in found] == [False, True]


def test_unknown_key() -> None:
    """A key that is not a property is an error that names it, not a table without its key."""
    with pytest.raises(DataError, match="key=uid") as caught:
        table(("uid",), id={"type": "integer"})
    assert caught.value.hint


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"properties": {"a": {"type": "whatever"}}}, "/properties/a/type"),
        ({"properties": {"a": {"properties": {"b": {"type": 5}}}}}, "/properties/a/properties/b/type"),
        ({"properties": {"a": {"$ref": "#/definitions/none"}}}, "/properties/a"),
        ({"properties": {"a": {"$ref": "https://example.com/a.json"}}}, "/properties/a"),
        ({"properties": {"a": "string"}}, "/properties/a"),
    ],
)
def test_invalid_schema(schema: Any, pointer: str) -> None:
    """An invalid schema is refused with the place in it."""
    with pytest.raises(DataError, match=f"pointer={pointer}( |$)") as caught:
        from_singer(schema, [])
    assert caught.value.hint


@pytest.mark.parametrize("top", [{}, {"type": "date-time"}, {"type": ["null", "object"]}, {"required": True}])
def test_sloppy_top(top: Any) -> None:
    """What taps get wrong at the top of a schema does not matter where the properties are there."""
    assert from_singer({**top, "properties": {"a": {"type": "integer"}}}, []).arrow == pa.schema([("a", pa.int64())])


def test_no_properties() -> None:
    """A stream without properties still has a column that can hold its records."""
    assert from_singer({"type": "object"}, []).arrow.names == [EXTRA]


def test_case_twins() -> None:
    """Columns that differ in case only get a suffix, nested too, and remember the property's name."""
    inner = {"type": "object", "properties": {"a": {"type": "string"}, "A": {"type": "string"}}}
    found = table(id={"type": "integer"}, ID={"type": "string"}, Id={"type": "string"}, o=inner).arrow
    assert found.names == ["id", "ID_2", "Id_3", "o"]
    assert found.field("ID_2").metadata == {b"singer": b"ID"}
    assert found.field("o").type.field(1).name == "A_2"


def test_property_named_like_the_extra_column() -> None:
    """A tap's own `_sdc_extra` never mixes with ours."""
    found = with_extra(from_singer({"properties": {EXTRA: {"type": "integer"}}}, [])).arrow
    assert found.names == [f"{EXTRA}_2", EXTRA]


def test_with_extra_twice() -> None:
    """The column for extra fields is nullable, last, and there once."""
    once = with_extra(table(a={"type": "integer"}))
    assert with_extra(once) is once
    assert once.arrow.names == ["a", EXTRA]
    assert once.arrow.field(EXTRA).nullable


EVERYTHING = table(
    ("id",),
    id={"type": "integer"},
    ID={"type": "number", "multipleOf": 0.001},
    when={"type": "string", "format": "date-time"},
    day={"type": "string", "format": "date"},
    ok={"type": "boolean"},
    any={},
    none={"type": "null"},
    x={"type": "number"},
    nested={"type": "array", "items": {"type": "object", "properties": {"a": {}, "A": {"type": "string"}}}},
)


def test_json_round_trip() -> None:
    """A schema read back from the log is the one written, its marks included."""
    back = TableSchema.from_json(EVERYTHING.to_json())
    assert back.arrow.equals(EVERYTHING.arrow, check_metadata=True)
    assert back.hash == EVERYTHING.hash


def test_hash_is_stable() -> None:
    """The hash depends on the content alone: it names schemas in logs that later versions read."""
    assert table(("id",), id={"type": "integer"}, a={}).hash == "760933c0ce959b77"
    assert table(id={"type": "integer"}, a={}).hash != table(("id",), id={"type": "integer"}, a={}).hash


@pytest.mark.parametrize("text", [b"", b"{", b'[{"name":"a"}]', b'[{"name":"a","type":"int128"}]', b"5"])
def test_damaged_json(text: bytes) -> None:
    """A stored schema that cannot be read is an error, never a guess."""
    with pytest.raises(CorruptLake):
        TableSchema.from_json(text)


def test_merge_first() -> None:
    """The first SCHEMA is the table."""
    assert merge(None, EVERYTHING) is EVERYTHING


def test_merge_is_idempotent() -> None:
    """The same SCHEMA again changes nothing."""
    assert merge(EVERYTHING, EVERYTHING).to_json() == EVERYTHING.to_json()


def test_merge_adds_and_keeps() -> None:
    """New columns come last and nullable, those that left stay and become nullable, in structs and lists too."""
    struct = {"type": "object", "properties": {"a": {"type": "string"}}}
    wider = {"type": "object", "properties": {"b": {"type": "string"}}}
    old = table(("id",), id={"type": "integer"}, o=struct, l={"type": "array", "items": struct})
    new = table(("key",), key={"type": "integer"}, l={"type": "array", "items": wider}, o=wider)
    merged = merge(old, new).arrow
    both = pa.struct([("a", pa.string()), ("b", pa.string())])
    assert merged == pa.schema([("id", pa.int64()), ("o", both), ("l", pa.list_(both)), ("key", pa.int64())])


def test_merge_keeps_names() -> None:
    """A column keeps its name whatever order its twins come in later."""
    old = table(id={"type": "integer"})
    merged = merge(old, table(ID={"type": "string"}, id={"type": "integer"}))
    assert merged.arrow.names == ["id", "ID_2"]
    again = merge(merged, table(iD={"type": "string"}, ID={"type": "string"}))
    assert again.arrow.names == ["id", "ID_2", "iD_3"]
    assert again.arrow.field("ID_2").metadata == {b"singer": b"ID"}


NODES: dict[str, Any] = {
    "int64": {"type": "integer"},
    "float64": {"type": "number"},
    "bool": {"type": "boolean"},
    "string": {"type": "string"},
    "date32": {"type": "string", "format": "date"},
    "timestamp[us,UTC]": {"type": "string", "format": "date-time"},
    "decimal(38,2)": {"type": "number", "multipleOf": 0.01},
    "decimal(38,9)": {"type": "number", "multipleOf": 1e-9},
    "decimal(10,2)": {"type": "number", "precision": 10, "scale": 2},
    "decimal(38,0)": {"type": "integer", "maximum": 2**64},
    "struct": {"type": "object", "properties": {"a": {"type": "integer"}}},
    "list<int64>": {"type": "array", "items": {"type": "integer"}},
    "json": {},
}
WIDE_ENOUGH = {
    ("float64", "int64"),
    ("decimal(38,2)", "int64"),
    ("decimal(38,9)", "int64"),
    ("decimal(38,0)", "int64"),
    ("decimal(38,2)", "decimal(10,2)"),
    ("decimal(38,9)", "decimal(10,2)"),
    ("timestamp[us,UTC]", "date32"),
}


@pytest.mark.parametrize("old", NODES)
@pytest.mark.parametrize("new", NODES)
def test_type_change(old: str, new: str) -> None:
    """A narrower type keeps the wider one, int64 may become decimal, any other change is an error with both types."""
    before, after = table(c=NODES[old]), table(c=NODES[new])
    if (old, new) == ("int64", "decimal(38,0)"):
        assert merge(before, after).arrow.field("c").type == pa.decimal128(38, 0)
    elif old in (new, "string", "json") or (old, new) in WIDE_ENOUGH:
        assert merge(before, after).to_json() == before.to_json()
    else:
        with pytest.raises(DataError, match="column changes its type column=c") as caught:
            merge(before, after)
        assert f"from={old} to={new}" in caught.value.message
        assert "not available yet" in caught.value.hint


def test_type_change_inside() -> None:
    """A change deep inside is named by its path."""
    old = table(o=NODES["struct"])
    new = table(o={"type": "object", "properties": {"a": {"type": "string"}}})
    with pytest.raises(DataError, match=r"column=o\.a from=int64 to=string"):
        merge(old, new)


def test_null_only_fits_everywhere() -> None:
    """A tap that saw only nulls this time does not change a column; one that saw a value later makes it JSON text."""
    known, nothing = table(c={"type": "integer"}), table(c={"type": "null"})
    assert merge(known, nothing).to_json() == known.to_json()
    assert merge(nothing, known).arrow.field("c").metadata == JSON
