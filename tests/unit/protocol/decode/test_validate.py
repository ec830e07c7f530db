"""`rejects.validate: full`: a record is held against every rule of its SCHEMA, as the tap wrote it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from bridge.errors import DataError
from bridge.load.write.validation import decode_valid
from bridge.protocol.decode.validate import Rules, rules_text
from bridge.protocol.schema.table_schema import from_singer
from tests.support.shelf import Shelf, record, schema, state, wire


def verdict(schema: dict[str, Any], value: str) -> tuple[str, str] | None:
    """What is said of a record whose `c` is this JSON: reason and pointer, None if nothing."""
    rules = Rules(rules_text(schema, "s"), "s")
    found = rules.rejects(b'{"type":"RECORD","stream":"s","record":{"c":' + value.encode() + b"}}\n")
    return (found[0].reason, found[0].pointer) if found else None


def of(**rules: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"c": rules}}


BROKEN: list[tuple[dict[str, Any], str, str]] = [
    (of(type="string"), "1", "not valid: type"),
    (of(type=["null", "integer"]), "1.5", "not valid: type"),
    (of(maxLength=2), '"abc"', "not valid: maxLength"),
    (of(pattern="^a"), '"b"', "not valid: pattern"),
    (of(enum=["a", None]), '"c"', "not valid: enum"),
    (of(maximum=5), "6", "not valid: maximum"),
    (of(format="date-time"), '"2024-02-31T00:00:00Z"', "not valid: format date-time"),
    (of(format="date"), '"2024-13-01"', "not valid: format date"),
    (of(format="uuid"), '"x"', ""),
    (of(format="ipv4"), '"1.2.3"', "not valid: format ipv4"),
    (of(format="email"), '"x"', "not valid: format email"),
    (of(format="uri"), '"no uri"', "not valid: format uri"),
    (of(multipleOf=0.1), "0.30000000000000004", "not valid: multipleOf"),
    (of(multipleOf=3), "1e400000000", "not valid: multipleOf"),
    (of(type="integer"), "NaN", "not valid: type"),
    (of(multipleOf=1), "NaN", "not valid: multipleOf"),
    (of(exclusiveMaximum=True, maximum=5), "5", "not valid: maximum"),
    (
        {"$ref": "#/definitions/a", "definitions": {"a": {"properties": {"c": {"type": "null"}}}}},
        "1",
        "not valid: type",
    ),
]


@pytest.mark.parametrize(("schema", "value", "reason"), BROKEN, ids=lambda each: str(each)[:60])
def test_a_broken_rule(schema: dict[str, Any], value: str, reason: str) -> None:
    """The reason is the rule's name, in constant words, and the pointer says where."""
    assert verdict(schema, value) == ((reason, "/c") if reason else None)


KEPT: list[tuple[dict[str, Any], str]] = [
    (of(multipleOf=0.1), "0.3"),
    (of(multipleOf=1e-38), "12345678901234567890123456789.123456789"),
    (of(multipleOf=0.01, maximum=10**30), "99999999999999999999999999999.99"),
    (of(multipleOf=2), "1e400000000"),
    (of(multipleOf=0.5), "0"),
    (of(type="integer"), "1.0"),
    (of(type="integer"), str(10**30)),
    (of(type="number"), "1e400"),
    (of(minimum=0.1, maximum=0.5), "NaN"),
    (of(exclusiveMinimum=0.1), "NaN"),
    ({"$schema": "http://json-schema.org/draft-04/schema#"} | of(minimum=0.1, exclusiveMinimum=True), "NaN"),
    (of(const=Decimal("1.10")), "1.1"),
    (of(format="date-time"), '"2024-02-29T00:00:00.123456789+02:00"'),
    (of(format="singer.decimal"), '"1.5"'),
    (of(anyOf=[{"type": "null"}, {"type": "string"}]), "null"),
]


@pytest.mark.parametrize(("schema", "value"), KEPT, ids=lambda each: str(each)[:60])
def test_a_rule_kept(schema: dict[str, Any], value: str) -> None:
    """Numbers are compared digit by digit, as they were written."""
    assert verdict(schema, value) is None


def test_where_it_broke() -> None:
    """A pointer goes down to the value, its names escaped; of a rule about the whole record it is empty."""
    nested = of(properties={"a/b~": {"items": {"type": "string"}}})
    assert verdict(nested, '{"a/b~": ["x", 1]}') == ("not valid: type", "/c/a~1b~0/1")
    assert verdict({"required": ["d"]}, "1") == ("not valid: required", "")
    assert verdict({"properties": {"c": {"items": False}}}, "[1]") == ("not valid: nothing is allowed here", "/c")
    assert verdict({"properties": {"c": {"anyOf": [{"type": "null"}, {"maxLength": 1}]}}}, '"ab"') is not None


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (of(type="intger"), "intger"),
        (of(pattern="("), "regex"),
        ({"properties": []}, "not of type"),
    ],
)
def test_a_schema_that_is_none(schema: dict[str, Any], why: str) -> None:
    """It is refused before any record, with the way out."""
    with pytest.raises(DataError, match="records cannot be validated by this SCHEMA") as caught:
        rules = Rules(rules_text(schema, "s"), "s")
        rules.rejects(b'{"type":"RECORD","record":{"c":"x"}}\n')
    assert why in str(caught.value)
    assert "validate: types" in caught.value.hint


def test_nothing_outside_is_fetched() -> None:
    """A `$ref` to somewhere else is an error, never a request."""
    with pytest.raises(DataError, match=r"http://127\.0\.0\.1:9/x\.json cannot be found"):
        verdict({"properties": {"c": {"$ref": "http://127.0.0.1:9/x.json"}}}, "1")


def test_deep_nesting_is_a_reject() -> None:
    """A record too deep for the validator is set aside, and the process lives."""
    deep = {
        "properties": {"c": {"$ref": "#/definitions/t"}},
        "definitions": {"t": {"items": {"$ref": "#/definitions/t"}}},
    }
    assert verdict(deep, "[" * 900 + "]" * 900) == ("nested too deep to be validated", "")


def test_line_numbers_stay() -> None:
    """Rejects of both kinds count the lines of the segment, in order; rows and rejects are all lines."""
    lines = [record(1), record(2, 6), {"type": "RECORD", "stream": "s"}, record(4, "x"), record(5, 7), record(6)]
    said = {"properties": {"id": {"type": "integer"}, "n": {"type": ["null", "integer", "string"], "maximum": 5}}}
    columns = from_singer({"properties": {"id": {"type": "integer"}, "n": {"type": ["null", "integer"]}}}, [])
    found = decode_valid(wire(*lines), columns, None, Rules(rules_text(said, "s"), "s"))
    assert [(r.line, r.reason) for r in found.rejects] == [
        (1, "not valid: maximum"),
        (2, "record is not an object"),
        (3, "not an integer"),
        (4, "not valid: maximum"),
    ]
    assert found.table.column("id").to_pylist() == [1, 6]


def test_in_a_run(shelf: Shelf) -> None:
    """Rules change with the SCHEMA, also where no column does; the rest loads, and what broke one can be replayed."""
    loose, strict = {"type": "integer"}, {"type": "integer", "maximum": 5}
    messages = [schema(n=strict), record(1, 5), record(2, 6), schema(n=loose), record(3, 6), state(3)]
    found = shelf.say(*messages, rejects={"validate": "full"})
    assert [row["id"] for row in found.rows("s")] == [1, 3]
    [kept] = shelf.kept()
    assert (kept["offset"], kept["reason"], kept["pointer"]) == (2, "not valid: maximum", "/n")
    assert shelf.replay().fit == 1


def test_types_asks_for_types_only(shelf: Shelf) -> None:
    """Without `full` a rule that no column needs is not looked at."""
    found = shelf.say(schema(n={"type": "integer", "maximum": 5}), record(1, 6), state(1))
    assert [row["id"] for row in found.rows("s")] == [1]
