"""The SCHEMA of masked records: rows that are masked as it says fit it."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.protocol.mask.masks import Masks
from bridge.protocol.schema.table_schema import from_singer

MASKS = {
    "*.email": "hash",
    "*.phone": "redact",
    "*.iban": "last4",
    "*.note": "drop",
    "*.birth": "year",
}
TEXT = {"type": ["null", "string"]}


def schema(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    whole = {"type": "object", "properties": properties, **more}
    return Masks(MASKS, "k" * 16).schema(["users"], whole)


@pytest.mark.parametrize(
    ("declared", "stored"),
    [
        ({"email": {"type": "integer"}}, {"email": {"type": ["string"]}}),
        ({"email": {"type": ["integer", "null"], "maximum": 9}}, {"email": {"type": ["null", "string"]}}),
        ({"email": {}}, {"email": {"type": ["null", "string"]}}),
        ({"email": {"enum": ["SECRET"]}}, {"email": {"type": ["null", "string"]}}),
        ({"birth": {"type": "string", "format": "date"}}, {"birth": {"type": ["null", "integer"]}}),
        ({"note": TEXT, "id": TEXT}, {"id": TEXT}),
        (
            {"email": {"type": ["null", "array"], "items": TEXT}},
            {"email": {"type": ["null", "array"], "items": {"type": ["null", "string"]}}},
        ),
        (
            {"email": {"anyOf": [{"type": "array"}, {"type": "integer"}, {"type": "null"}]}},
            {
                "email": {
                    "anyOf": [
                        {"type": ["null", "array"], "items": {"type": ["null", "string"]}},
                        {"type": ["null", "string"]},
                    ]
                }
            },
        ),
        ({"email": {"type": "string", "title": "E"}}, {"email": {"type": ["string"], "title": "E"}}),
        (
            {"contact": {"type": "object", "properties": {"email": {"type": "string"}, "note": TEXT, "x": TEXT}}},
            {"contact": {"type": "object", "properties": {"email": {"type": ["string"]}, "x": TEXT}}},
        ),
        (
            {"all": {"type": "array", "items": {"type": "object", "properties": {"phone": {"type": "integer"}}}}},
            {"all": {"type": "array", "items": {"type": "object", "properties": {"phone": {"type": ["string"]}}}}},
        ),
        (
            {"c": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"phone": {"type": "integer"}}}]}},
            {"c": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"phone": {"type": ["string"]}}}]}},
        ),
    ],
)
def test_a_property(declared: dict[str, Any], stored: dict[str, Any]) -> None:
    """Each kind of property; what is not masked is as it was."""
    assert schema(declared)["properties"] == stored


def test_a_property_that_is_dropped_is_not_required() -> None:
    """Otherwise no record would be valid."""
    assert schema({"id": TEXT, "note": TEXT}, required=["note", "id"])["required"] == ["id"]


def test_references() -> None:
    """A definition that is used twice, and one that contains itself."""
    person = {"type": "object", "properties": {"email": {"type": "integer"}, "boss": {"$ref": "#/$defs/person"}}}
    whole = {"properties": {"a": {"$ref": "#/$defs/person"}, "email": {"$ref": "#/$defs/id"}}}
    whole["$defs"] = {"person": person, "id": {"type": ["integer", "null"]}}
    stored = Masks(MASKS, "k" * 16).schema(["users"], whole)["properties"]
    assert stored["a"]["properties"]["email"] == {"type": ["string"]}
    assert stored["a"]["properties"]["boss"] == {"$ref": "#/$defs/person"}
    assert stored["email"] == {"type": ["null", "string"]}


def test_a_schema_without_masked_fields_is_the_same() -> None:
    """So that nothing of such a stream changes."""
    whole = {"properties": {"id": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}}}
    assert Masks(MASKS, "k" * 16).schema(["users"], whole) == whole
    assert Masks({"orders.x": "hash"}, "k" * 16).schema(["users"], whole) is whole


@pytest.mark.parametrize("odd", [True, [], {"properties": []}, {"properties": {"a": True, "note": 1}}, {"items": 3}])
def test_odd_schemas_do_not_end_it(odd: Any) -> None:
    """Other checks say what is wrong with them."""
    schema({"a": odd, "email": odd})


def test_columns() -> None:
    """Masked columns are text, and a year is a number."""
    declared = {"id": {"type": "integer"}, "email": {"type": "integer"}, "birth": {"type": "string", "format": "date"}}
    columns = from_singer(schema(declared), ["id"]).arrow
    assert {field.name: str(field.type) for field in columns if not field.name.startswith("_")} == {
        "id": "int64",
        "email": "string",
        "birth": "int64",
    }
