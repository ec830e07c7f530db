"""jsonschema-rs passes no record that jsonschema would reject, whatever the SCHEMA; and its formats are as before."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
import simplejson
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from bridge.errors import DataError
from bridge.protocol.decode.validate import Rules, draft_of, rules_text
from bridge.protocol.schema.quick_rules import formats_of, quick_check

DRAFTS = (
    "http://json-schema.org/draft-03/schema#",
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
)
TEXTS = [
    "", "a", "ab", "é", "\u0661", "a\n", "😀", "\ud800", "2024-02-29", "0000-01-01", "12:00:00Z", "12:00:00",
    "23:59:60Z", "2024-02-29T12:00:00Z", "2024-02-29t12:00:00.123456789+02:00", "2024-02-29T12:00:00",
    "2024-02-30T00:00:00Z", "a@b", "@", "1.2.3.4", "01.2.3.4", "::1", "fe80::1%eth0", "http://a/b", "no uri",
    "/a", "a/{b}", "{", "P1D", "P", "-a-", "xn--a", "(", "123e4567-e89b-12d3-a456-426614174000",
    "{123e4567e89b12d3a456426614174000}", "1/a", "0#", "0", "1",
]  # fmt: skip
NUMBERS = [
    0, 1, -1, 3, 2**53 + 1, 2**63, 10**30, Decimal("0.1"), Decimal("0.3"), Decimal("0.30000000000000004"),
    Decimal("1.0"),
    Decimal("-0.0"), Decimal("1.10"), Decimal("1E+400"), Decimal("1E-400"), Decimal("1E+400000000"), Decimal("1E-38"),
    Decimal("12345678901234567890123456789.123456789"), Decimal("1.00000000000000000000000001"),
]  # fmt: skip
FORMATS = [
    "date", "date-time", "time", "duration", "email", "idn-email", "ipv4", "ipv6", "ip-address", "uri", "uri-reference",
    "iri", "iri-reference", "uri-template", "hostname", "host-name", "idn-hostname", "json-pointer",
    "relative-json-pointer",
    "regex", "uuid", "color", "singer.decimal", "unknown",
]  # fmt: skip
PATTERNS = [
    "^a",
    r"^\w+$",
    r"^\W$",
    r"^\d$",
    "a$",
    "b|é",
    r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$",
    r"\Aa\Z",
    r"\s",
    "(?i)A",
    "[^a]",
]
NAMES = ["a", "b", "id", "pattern", "$ref"]

numbers = st.sampled_from(NUMBERS) | st.integers(-5, 5) | st.decimals(-10, 10, places=2)
scalars = st.none() | st.booleans() | numbers | st.sampled_from(TEXTS) | st.text(max_size=3) | st.just(float("nan"))
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
counts = st.integers(0, 3)


def keywords(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A schema of some keywords, most of them with a value that means something."""
    many, by_name = st.lists(inner, min_size=1, max_size=2), st.dictionaries(st.sampled_from(NAMES), inner, max_size=2)
    names = st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True)
    of: dict[str, st.SearchStrategy[Any]] = {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "format": st.sampled_from(FORMATS),
        "pattern": st.sampled_from(PATTERNS),
        "enum": st.lists(values, min_size=1, max_size=3),
        "const": values,
        "properties": by_name,
        "items": inner | many,
        "dependencies": st.dictionaries(st.sampled_from(NAMES), inner | names, max_size=1),
        "required": names,
        "uniqueItems": st.booleans(),
        "exclusiveMinimum": numbers,
        "exclusiveMaximum": numbers,
        "contentEncoding": st.just("base64"),
        "contentMediaType": st.just("application/json"),
        "$ref": st.sampled_from(["#/definitions/a", "#/definitions/%61"]),
        "dependentRequired": st.dictionaries(st.sampled_from(NAMES), names, max_size=1),
        **dict.fromkeys(["minimum", "maximum"], numbers),
        **dict.fromkeys(["multipleOf", "divisibleBy"], st.sampled_from([n for n in NUMBERS if n > 0])),
        **dict.fromkeys(["maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties"], counts),
        **dict.fromkeys(["minContains", "maxContains"], counts),
        **dict.fromkeys(["allOf", "anyOf", "oneOf", "prefixItems"], many),
        **dict.fromkeys(["not", "if", "then", "else", "contains", "propertyNames", "additionalItems"], inner),
        **dict.fromkeys(["additionalProperties", "unevaluatedProperties", "unevaluatedItems"], inner),
        "dependentSchemas": by_name,
    }  # fmt: skip
    return st.sets(st.sampled_from(sorted(of)), max_size=4).flatmap(
        lambda chosen: st.fixed_dictionaries({name: of[name] for name in sorted(chosen)})
    )


schemas = st.recursive(st.booleans() | st.just({}), keywords, max_leaves=8)
columns = st.dictionaries(st.sampled_from(NAMES), schemas, min_size=1, max_size=2)
roots = st.builds(
    lambda found, part, again, draft: {
        **found,
        "properties": part,
        "definitions": {"a": again},
        **({"$schema": draft} if draft else {}),
    },
    keywords(schemas),
    columns,
    schemas,
    st.sampled_from((*DRAFTS, None)),
)
records = st.dictionaries(st.sampled_from(NAMES), values, max_size=3)


def line_of(record: Any) -> bytes:
    message = {"type": "RECORD", "stream": "s", "record": record}
    return simplejson.dumps(message, use_decimal=True, allow_nan=True).encode()


def verdicts(schema: dict[str, Any], *records: Any) -> list[tuple[bool, bool]]:
    """For each record: Rust passes it, jsonschema passes it. Nothing if only jsonschema is asked."""
    text = rules_text(schema, "s")
    rules, alone = Rules(text, "s"), Rules(text, "s")
    quick, alone._accepts = rules._accepts, None
    lines = [line_of(record) for record in records] if quick else []
    return [(quick(line), not alone.rejects(line)) for line in lines] if quick else []


@given(roots, records)
@settings(max_examples=300, deadline=None)
def test_any_schema(schema: dict[str, Any], record: Any) -> None:
    """What only Rust rejects, jsonschema still passes; what Rust passes is not looked at again."""
    try:
        found = verdicts(schema, record)
    except DataError:
        reject()
    assert (True, False) not in found


RULES = [*({"format": name} for name in FORMATS), *({"pattern": each} for each in PATTERNS)]


@pytest.mark.parametrize("draft", DRAFTS[1:])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_texts(draft: str, rule: dict[str, Any]) -> None:
    """Formats and patterns mean the same to both, also behind a `not`."""
    for part in (rule, {"not": rule}):
        found = verdicts({"$schema": draft, "properties": {"c": part}}, *({"c": text} for text in TEXTS))
        for text, (quick, valid) in zip(TEXTS, found, strict=bool(found)):
            assert quick == valid or text == "\ud800", (part, text)


@pytest.mark.parametrize("draft", DRAFTS[1:])
def test_numbers(draft: str) -> None:
    """Numbers are compared digit by digit; those that no double is as good as, by jsonschema alone."""
    for limit in NUMBERS:
        rules = [{"minimum": limit}, {"maximum": limit}, {"enum": [limit, [limit]]}, {"type": "integer"}]
        for rule in [*rules, {"multipleOf": limit}] if limit > 0 else rules:
            found = verdicts({"$schema": draft, "properties": {"c": rule}}, *({"c": number} for number in NUMBERS))
            for number, (quick, valid) in zip(NUMBERS, found, strict=bool(found)):
                is_short = isinstance(number, int) or ("E" not in str(number) and len(str(number)) <= 16)
                assert quick == (valid and is_short), (rule, number)


SLOW: list[dict[str, Any]] = [
    {"$schema": DRAFTS[0], "divisibleBy": 2},
    {"patternProperties": {r"^\W$": False}},
    {"properties": {"c": {"$ref": "#"}}},
    {"properties": {"c": {"$ref": "#/definitions/a"}}, "definitions": {"a": {"allOf": [{"$ref": "#/definitions/a"}]}}},
    {"properties": {"c": {"$ref": "other.json"}}},
    {"properties": {"c": {"$id": "http://example.com/a", "$ref": "#/definitions/a"}}},
    {"$schema": DRAFTS[5], "properties": {"c": {"$dynamicRef": "#node"}}},
]


@pytest.mark.parametrize("schema", SLOW, ids=str)
def test_left_to_jsonschema(schema: dict[str, Any]) -> None:
    """Where the two might differ, Rust is not asked."""
    assert quick_check(schema, draft_of(schema)) is None


COMMON: list[dict[str, Any]] = [
    {"properties": {"id": {"type": "integer"}, "$ref": {"type": "string"}, "pattern": {"pattern": "^a"}}},
    {"properties": {"c": {"$ref": "#/definitions/a~1b"}}, "definitions": {"a/b": {"type": ["null", "string"]}}},
    {
        "$schema": DRAFTS[1],
        "id": "http://example.com/root",
        "properties": {"c": {"maximum": 1, "exclusiveMaximum": True}},
    },
    {"$schema": DRAFTS[5], "$defs": {"a": {"type": "null"}}, "properties": {"c": {"$ref": "#/$defs/a"}}},
]


@pytest.mark.parametrize("schema", COMMON, ids=str)
def test_common_schemas_are_quick(schema: dict[str, Any]) -> None:
    """A column may be named as a keyword."""
    assert verdicts(schema, {"id": 1}) == [(True, True)]


ODD = ["NaN", r'"\ud800"', "[" * 900 + "]" * 900, "9" * 5000, "1e99999999999999999999", r'{"a": 1, "a": "x"}', '"\xff"']


@pytest.mark.parametrize("value", ODD, ids=lambda value: value[:20])
def test_odd_records(value: str) -> None:
    """Whatever cannot be read at once is read by the exact path."""
    line = b'{"type":"RECORD","stream":"s","record":{"c":' + value.encode("latin-1") + b"}}"
    for rule in ({"type": "null"}, {"type": ["number", "string", "array", "object"]}):
        rules = Rules(rules_text({"properties": {"c": rule}}, "s"), "s")
        found = [(each.reason, each.pointer) for each in rules.rejects(line)]
        rules._accepts = None
        assert found == [(each.reason, each.pointer) for each in rules.rejects(line)]


BEFORE = {
    "date-time": {"2016-12-31T23:59:60Z": True, "2016-12-31T24:00:00Z": False, "2024-02-29T12:00:00+24:00": False},
    "time": {"23:59:60Z": True, "12:00:00.5-01:00": True, "25:00:00Z": False},
    "duration": {"P1Y2M3DT4H5M6.5S": True, "-P1W": True, "P": False, "PT": False, "P1S": False},
    "uri": {"http://[::1]": True, "urn:a:b": True, "http://a b": False, "a:\n": False},
    "uri-reference": {"//a/b": True, "#f": True, "\\": False, "a\n": False},
    "uri-template": {"a/{b,c*}{+d}": True, "a b": False, "{": False, "{a}}": False},
    "hostname": {"a.b-c": True, "xn--mnchen-3ya.de": True, "a.": False, "-a": False, "a_b": False, "xn--a": True},
    "idn-hostname": {"m\u00fcnchen.de": True, "-": False, "a..b": False},
    "json-pointer": {"/a~0b": True, "": True, "a": False, "/~2": False},
    "relative-json-pointer": {"1/a": True, "0#": True, "101": True, "01": False, "/a": False},
}
NEW = {"2016-12-31T23:59:60Z", "23:59:60Z", "101", "a.", "a:\n", "a\n", "a b"}
"""Where Rust knows better than the packages: leap seconds; a text that ends in a dot or a line end, or has a blank."""


@pytest.mark.parametrize("name", BEFORE)
def test_formats_without_packages(name: str) -> None:
    """The verdicts are those that jsonschema has from seven packages, but for a few that those get wrong."""
    for text, valid in BEFORE[name].items():
        assert formats_of(Draft202012Validator).conforms(text, name) is valid, text
        assert (Draft202012Validator.FORMAT_CHECKER.conforms(text, name) == valid) is (text not in NEW), text
