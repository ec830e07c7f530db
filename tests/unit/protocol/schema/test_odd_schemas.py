"""SCHEMAs as real taps send them: a keyword that is wrong ends no run, and loses nothing."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from bridge.protocol.schema import valid
from bridge.protocol.schema.table_schema import from_singer
from bridge.protocol.schema.valid import valid_schema
from bridge.protocol.singer.messages import parse

INTEGER, TEXT, FLAG = pa.int64(), pa.string(), pa.bool_()
DECIMAL = pa.decimal128(38, 0)
HUGE = "1267650600228229401496703205376"
KEYWORDS = sorted({*Draft7Validator.META_SCHEMA["properties"], "of_nobody"})
TYPES = ["array", "boolean", "integer", "null", "number", "object", "string", "any", "String"]
ODD: list[Any] = [None, True, -0.0, 1.0, -1, 0, 0.5, 1e300, 2**63, *TYPES, "", "#", "date-time", "("]
SCHEMAS = st.recursive(
    st.sampled_from(ODD),
    lambda part: st.lists(part | st.sampled_from(TYPES), max_size=3) | st.dictionaries(st.sampled_from(KEYWORDS), part),
    max_leaves=12,
)


def read(node: str, **root: Any) -> tuple[pa.Field, list[str]]:
    """The column of one property, given as the tap wrote it, and the notes."""
    message = {"type": "SCHEMA", "stream": "s", "schema": {"properties": {"a": "@"}, **root}}
    parsed = parse(json.dumps(message).replace('"@"', node).encode())
    assert parsed
    return from_singer(parsed["schema"], []).arrow.field(0), valid_schema(parsed["schema"])[1]


@pytest.mark.parametrize(
    ("node", "type_"),
    [
        ('{"type": "string", "maxLength": -1}', TEXT),
        ('{"type": "string", "minLength": "5", "pattern": 5}', TEXT),
        ('{"type": "string", "description": null, "title": null, "format": null, "default": null}', TEXT),
        ('{"type": "string", "examples": 5, "$comment": [], "readOnly": "no"}', TEXT),
        ('{"type": ["null", "integer"], "minimum": null, "maximum": null}', INTEGER),
        ('{"type": "string", "anyOf": null, "enum": null}', TEXT),
        ('{"type": ["string", "string", "null"]}', TEXT),
        ('{"type": "string", "required": true}', TEXT),
        ('{"type": "integer", "maximum": 9223372036854775808, "exclusiveMaximum": true}', INTEGER),
        ('{"type": "array", "items": {"type": "string", "maxLength": -1}}', pa.list_(TEXT)),
        ('{"type": "object", "required": null, "properties": {"q": {"type": "string"}}}', pa.struct([("q", TEXT)])),
        (
            '{"type": "object", "dependencies": {"q": 5}, "properties": {"q": {"type": "string"}}}',
            pa.struct([("q", TEXT)]),
        ),
        (
            '{"type": "object", "properties": {"type": {"type": "string"}, "properties": {"type": "integer"}}}',
            pa.struct([("type", TEXT), ("properties", INTEGER)]),
        ),
        ('{"type": "integer", "maximum": 1e400}', INTEGER),
        ('{"type": "number", "multipleOf": 1e-400}', TEXT),
        ('{"type": "number", "multipleOf": 0.01}', pa.decimal128(38, 2)),
        (f'{{"enum": [{HUGE}, null]}}', DECIMAL),
        (f'{{"type": "integer", "const": {HUGE}}}', DECIMAL),
        (f'{{"const": {HUGE}{HUGE}}}', TEXT),
    ],
)
def test_what_decides_no_type(node: str, type_: pa.DataType) -> None:
    """It changes nothing, without a word: the type is that of the other keywords."""
    field, notes = read(node)
    assert (field.type, field.metadata, notes) == (type_, None, [])


@pytest.mark.parametrize(
    ("node", "at"),
    [
        *((f'{{"type": "{name}"}}', "/type") for name in ("date-time", "any", "float", "String", "int")),
        ('{"type": []}', "/type"),
        ('{"type": null}', "/type"),
        ('{"type": {"a": 1}}', "/type"),
        ('{"type": ["null", "String"]}', "/type"),
        ("null", ""),
        ('"string"', ""),
        ("5", ""),
        ('{"anyOf": []}', "/anyOf"),
        ('{"anyOf": ["string", {"type": "null"}]}', "/anyOf/0"),
        ('{"type": "array", "items": {"type": "strin"}}', "/items/type"),
        ('{"type": "object", "properties": ["a"]}', "/properties"),
    ],
)
def test_what_was_to_decide_a_type(node: str, at: str) -> None:
    """It makes the column JSON text, which loses nothing; the run says where the SCHEMA is wrong."""
    field, notes = read(node)
    assert (field.type, field.metadata) == (TEXT, {b"kind": b"json"})
    assert [note.split()[4] for note in notes] == [f"/properties/a{at}"]


@pytest.mark.parametrize("node", ['{"enum": []}', '{"$ref": null}', '{"type": "array", "items": null}', "{}", "true"])
def test_what_says_nothing(node: str) -> None:
    """It is JSON text as well, and no fault."""
    field, notes = read(node)
    assert (field.metadata, notes) == ({b"kind": b"json"}, [])


@pytest.mark.parametrize("node", ['{"type": "integer", "maximum": "many"}', '{"type": "integer", "minimum": [1]}'])
def test_a_bound_that_is_none(node: str) -> None:
    """It bounds nothing, and the run says so."""
    field, (note,) = read(node)
    assert field.type == INTEGER
    assert "means nothing there and is ignored" in note


@pytest.mark.parametrize(
    ("reference", "type_"),
    [
        ("#/definitions/x%20y", INTEGER),
        ("#/definitions/x y", INTEGER),
        ("#/definitions/a~1b/anyOf/1", FLAG),
        ("#foo", INTEGER),
        ("#bar", FLAG),
        ("https://example.com/s.json#/definitions/x%20y", INTEGER),
        ("https://example.com/s.json#foo", INTEGER),
        ("s.json#bar", FLAG),
        ("other.json", FLAG),
    ],
)
def test_where_a_reference_leads(reference: str, type_: pa.DataType) -> None:
    """To an anchor, never to the root for it; pointers are percent-decoded and index arrays; `$id` is this document."""
    definitions = {
        "x y": {"type": "integer"},
        "a/b": {"anyOf": [{"type": "null"}, {"type": "boolean"}]},
        "anchor of draft 7": {"$id": "#foo", "type": "integer"},
        "anchor of 2019": {"$anchor": "bar", "type": "boolean"},
        "by its id": {"$id": "https://example.com/other.json", "type": "boolean"},
    }
    node = json.dumps({"$ref": reference})
    field, notes = read(node, definitions=definitions, **{"$id": "https://example.com/s.json"})
    assert (field.type, notes) == (type_, [])


@given(schema=SCHEMAS)
@settings(max_examples=500, deadline=None)
def test_what_rust_takes_jsonschema_takes(schema: Any) -> None:
    """What it does not take, jsonschema judges itself."""
    assert not valid._in_rust().is_valid(schema) or Draft7Validator(Draft7Validator.META_SCHEMA).is_valid(schema)
