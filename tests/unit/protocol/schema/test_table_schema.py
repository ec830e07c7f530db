"""The types DESIGN.md promises, the names columns keep, and what a table may become."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest

from bridge.errors import CorruptLake, DataError
from bridge.protocol.schema.json_schema import EXTRA, source
from bridge.protocol.schema.merging import Evolution
from bridge.protocol.schema.table_schema import TableSchema, from_singer, merge, with_extra

VARIANT, FAIL = Evolution("variant"), Evolution("fail")
FREEZE, DISCARD = Evolution(schema_policy="freeze"), Evolution(schema_policy="discard")
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
        ({"enum": ["a", "b", None]}, pa.string()),
        ({"enum": [1, 2.5]}, pa.float64()),
        ({"const": True}, pa.bool_()),
        ({"type": "array", "items": {"enum": [1, 2]}}, pa.list_(pa.int64())),
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
        {"const": {"a": 1}},
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
        ({"properties": {"a": {"$ref": "#/definitions/none"}}}, "/properties/a"),
        ({"properties": {"a": {"$ref": "https://example.com/a.json"}}}, "/properties/a"),
        ({"properties": {"a": {"$ref": "#none"}}}, "/properties/a"),
    ],
)
def test_a_reference_that_leads_nowhere(schema: Any, pointer: str) -> None:
    """It is refused with its place: what the column is, nobody knows."""
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


def test_merge_ignores_a_change_of_case() -> None:
    """A property that differs in case alone from one that left is that column, inside objects and lists too."""
    inner = {"type": "object", "properties": {"Zip": {"type": "string"}}}
    lower = {"type": "object", "properties": {"zip": {"type": "string"}}}
    old = table(("Id",), Id={"type": "integer"}, O=inner, l={"type": "array", "items": inner})
    new = table(("id",), id={"type": "integer"}, o=lower, l={"type": "array", "items": lower})
    merged = merge(old, new).arrow
    struct = pa.struct([("Zip", pa.string())])
    assert merged == pa.schema([pa.field("Id", pa.int64(), False), ("O", struct), ("l", pa.list_(struct))])
    assert [source(field) for field in merged] == ["id", "o", "l"]
    assert source(merged.field("O").type.field(0)) == source(merged.field("l").type.value_field.type.field(0)) == "zip"
    back = merge(TableSchema(merged), old).arrow
    assert back.names == ["Id", "O", "l"]
    assert [source(field) for field in back] == ["Id", "O", "l"]


def test_merge_with_a_change_of_case_keeps_variants() -> None:
    """Both columns of a property whose type has changed follow it, and no policy calls it a new column."""
    old = merge(table(c={"type": "integer"}), table(c={"type": "string"}), VARIANT)
    merged = merge(old, table(C={"type": "string"}), VARIANT).arrow
    assert merged.names == ["c", "c__string"]
    assert {source(field) for field in merged} == {"C"}
    assert merge(table(c={"type": "integer"}), table(C={"type": "integer"}), FREEZE).arrow.names == ["c"]


def test_merge_of_a_source_that_minds_the_case() -> None:
    """Where the table or the SCHEMA has both names, each stays its own column."""
    both = table(id={"type": "integer"}, ID={"type": "integer"})
    assert merge(both, table(Id={"type": "integer"})).arrow.names == ["id", "ID_2", "Id_3"]
    assert merge(table(Id={"type": "integer"}), both).arrow.names == ["Id", "id_2", "ID_3"]


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
BESIDE = ("int64", "decimal(38,0)")
"""The one widening that needs no file written anew."""


@pytest.mark.parametrize("old", NODES)
@pytest.mark.parametrize("new", NODES)
def test_type_change(old: str, new: str) -> None:
    """What a column does not take is one error with both types under `fail`, a variant, or a wider type that stays."""
    before, after = table(c=NODES[old]), table(c=NODES[new])
    wider = merge(before, after)
    assert wider.reading is None
    assert merge(wider, after).to_json() == wider.to_json()
    if old == "float64" and new.startswith("decimal"):  # exact from now on; a number of any digits is text then
        assert merge(wider, before).arrow.field("c").type == pa.string()
    else:
        assert merge(wider, before).to_json() == wider.to_json()
    if wider.to_json() == before.to_json() or (old, new) == BESIDE:
        assert merge(before, after, VARIANT).to_json() == merge(before, after, FAIL).to_json() == wider.to_json()
        return
    with pytest.raises(DataError, match="column changes its type column=c") as caught:
        merge(before, after, FAIL)
    assert f"from={old} to={new}" in caught.value.message
    assert "on_type_change" in caught.value.hint
    variant = merge(before, after, VARIANT)
    assert variant.arrow.names == ["c", "c__string"]
    assert [source(field) for field in variant.fields] == ["c"]
    assert variant.fields[0].type == pa.string()
    back = merge(variant.stored, before, VARIANT)
    assert (back.arrow, back.fields) == (variant.arrow, list(before.arrow))
    assert merge(variant.stored, after, VARIANT).to_json() == variant.to_json()


def test_type_change_inside() -> None:
    """A change deep inside is named by its path; its variant is a field beside it, in lists of objects, too."""
    deep = {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}}
    old = table(o=NODES["struct"], l={"type": "array", "items": NODES["struct"]})
    new = table(o=deep["items"], l=deep)
    with pytest.raises(DataError, match=r"column=o\.a from=int64 to=string"):
        merge(old, new, FAIL)
    found = merge(old, new, VARIANT)
    assert found.arrow.field("o").type == pa.struct([("a", pa.int64()), ("a__string", pa.string())])
    assert found.arrow.field("l").type.value_type == found.arrow.field("o").type
    assert found.fields[0].type.names == ["a__string"]
    assert merge(old, new).arrow.field("l").type.value_type == pa.struct([("a", pa.string())])


def test_items_of_a_list_have_no_variant() -> None:
    """Where the items change, the whole list is the text of the variant."""
    lists = [{"type": "array", "items": {"type": name}} for name in ("integer", "string")]
    assert merge(table(c=lists[0]), table(c=lists[1]), VARIANT).arrow.names == ["c", "c__string"]


def test_a_key_has_no_variant() -> None:
    """A key's column gets the wider type even then: in two columns it would be none."""
    old, new = (table(("id",), id={"type": name}) for name in ("integer", "string"))
    how = Evolution("variant", keys=("id",))
    assert merge(old, new, how).arrow == pa.schema([pa.field("id", pa.string(), nullable=False)])


def test_variant_beside_a_column_of_its_name() -> None:
    """A tap's own `c__string` and the variant never share a column, whichever came first."""
    old, new = table(c=NODES["int64"], c__string=NODES["bool"]), table(c=NODES["string"], c__string=NODES["bool"])
    assert merge(old, new, VARIANT).arrow.names == ["c", "c__string", "c__string_2"]
    first = merge(table(c=NODES["int64"]), table(c=NODES["string"]), VARIANT).stored
    assert merge(first, new, VARIANT).arrow.names == ["c", "c__string", "c__string_2"]
    assert merge(first, new, VARIANT).arrow.field("c__string_2").type == pa.bool_()


def test_freeze() -> None:
    """A new column, a new field and a wider type are errors; what is narrower, gone or only required is none."""
    old = table(("id",), id=NODES["int64"], x=NODES["float64"], o=NODES["struct"])
    for changed in (
        {"new": NODES["int64"]},
        {"x": NODES["string"]},
        {"o": {"type": "object", "properties": {"b": NODES["int64"]}}},
        {"id": NODES["decimal(38,0)"]},
    ):
        with pytest.raises(DataError, match=r"is new|changes its type") as caught:
            merge(old, table(**changed), FREEZE)
        assert "schema_policy" in caught.value.hint
    assert merge(old, table(x=NODES["int64"]), FREEZE).arrow.equals(merge(old, table(x=NODES["int64"])).arrow)


def test_discard() -> None:
    """New columns and fields are read and left out, by name; a column keeps its type."""
    old = table(x=NODES["int64"], l={"type": "array", "items": NODES["struct"]})
    items = {"type": "object", "properties": {"a": NODES["string"], "b": NODES["bool"]}}
    found = merge(old, table(x=NODES["string"], l={"type": "array", "items": items}, new={}), DISCARD)
    assert found.stored.to_json() == old.to_json()
    assert found.left_out == ["l[].b", "new"]
    assert TableSchema.from_json(found.to_json()).left_out == found.left_out


def test_null_only_fits_everywhere() -> None:
    """A tap that saw only nulls this time does not change a column; one that saw a value later makes it JSON text."""
    known, nothing = table(c={"type": "integer"}), table(c={"type": "null"})
    assert merge(known, nothing).to_json() == known.to_json()
    assert merge(nothing, known).arrow.field("c").metadata == JSON


@pytest.mark.heavy
def test_ten_thousand_columns() -> None:
    """A SCHEMA of a wide table is read, and merged, in time that grows with its columns and not with their square."""
    before = time.process_time()
    few = from_singer({"properties": {f"a{number}": {"type": "string"} for number in range(3_000)}}, [])
    names = [*(f"a{number}" for number in range(3_000)), *(f"A{number}" for number in range(10_000))]
    many = from_singer({"properties": {name: {"type": "string"} for name in names}}, [])
    columns = merge(few, many).arrow.names
    assert len(columns) == len({name.casefold() for name in columns}) == 13_000
    assert columns[3_000] == "A0_2"
    assert time.process_time() - before < 20
