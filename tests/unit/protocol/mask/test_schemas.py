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
    return masked(whole)


def masked(whole: Any, masks: dict[str, str] | None = None) -> Any:
    return Masks(masks or MASKS, "k" * 16).masked_schema(["users"], whole)[0]


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
        ({"email": {"type": "string", "title": "SECRET"}}, {"email": {"type": ["string"]}}),
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
    stored = masked(whole)["properties"]
    assert stored["a"]["properties"]["email"] == {"type": ["string"]}
    assert stored["a"]["properties"]["boss"] == {"$ref": "#/$defs/person"}
    assert stored["email"] == {"type": ["null", "string"]}


def test_a_schema_without_masked_fields_is_the_same() -> None:
    """So that nothing of such a stream changes."""
    whole = {"properties": {"id": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}}}
    assert masked(whole) == whole
    assert masked(whole, {"orders.x": "hash"}) is whole


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


def test_values_that_a_schema_shows() -> None:
    """Examples and rules of raw values go: of masked fields, of objects that have them, and in definitions."""
    person = {"properties": {"email": {"enum": ["SECRET"]}, "city": {"enum": ["Ulm"]}}, "default": {"email": "SECRET"}}
    whole = {
        "properties": {"a": {"$ref": "#/definitions/person"}, "email": {"const": "SECRET"}, "city": {"enum": ["Ulm"]}},
        "definitions": {"person": person},
        "examples": [{"email": "SECRET"}],
        "not": {"properties": {"email": {"const": "SECRET"}}},
    }
    assert "SECRET" not in str(masked(whole))
    assert masked(whole)["properties"]["city"] == {"enum": ["Ulm"]}


def test_rules_for_names_that_are_not_declared() -> None:
    """They were made for raw values, which nobody sees any more; whether there may be such names stays."""
    assert "additionalProperties" not in masked({"properties": {"id": {}}, "additionalProperties": {"type": "integer"}})
    assert masked({"properties": {"id": {}}, "additionalProperties": False})["additionalProperties"] is False
