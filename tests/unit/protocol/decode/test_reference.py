"""The decoder against a slow and obvious one: the same rows and the same rejects, whatever schema and records."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from bridge.protocol.decode.decoder import decode
from bridge.protocol.schema.table_schema import from_singer
from tests.support.reference import Reject, parsed, stored

NAMES = st.sampled_from(["a", "b", "record", "ä b"])
SCALARS: list[dict[str, Any]] = [
    {"type": "integer"},
    {"type": ["null", "number"]},
    {"type": ["number", "null"], "multipleOf": 0.01},
    {"type": "boolean"},
    {"type": "string"},
    {"type": "string", "format": "date-time"},
    {"type": ["null", "string"], "format": "date"},
    {"type": ["string", "integer"]},
    {"type": "object"},
    {},
]
NODES = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: (
        st.fixed_dictionaries({"type": st.just("array"), "items": inner})
        | st.fixed_dictionaries({"type": st.just("object"), "properties": st.dictionaries(NAMES, inner, min_size=1)})
    ),
    max_leaves=5,
)
TOKENS = [
    *("0", "1", "-7", "1.0", "1.50", "1e2", "1E-7", "0.001", "-0.0", "9007199254740993", "9223372036854775807"),
    *("-9223372036854775808", "9223372036854775808", "123456789012345678901234567890.12", "1e30", "1e400", "0.1"),
    *('"12"', '"1.5"', '"012"', '"+1"', '"many"', '"true"', "true", "false", "null", '""', '"ä\\u0000\\n"', '"😀"'),
    *('"2024-02-29"', '"2024-02-31"', '"2024-01-01T10:00:00"', '"2024-01-01 10:00:00.123456789Z"'),
    *('"2024-01-01T00:00:00+02:00"', '"0001-01-01T00:00:00+00:01"', '"9999-12-31T23:59:59.999999Z"'),
    *('"1850-01-01T00:00:00+00:53:28"', '"2024-01-01 00:00:00 -0530"', '"2024-01-01 00:00:00,5 UTC"'),
    *('"2024-01-01T24:00:00Z"', '"0000-01-01"', '"2016-12-31T23:59:60Z"', '"2024-01-01T00:00:00+24:00"'),
]


def _joined(pairs: dict[str, str]) -> str:
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in pairs.items()) + "}"


VALUES = st.recursive(
    st.sampled_from(TOKENS),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda texts: "[" + ",".join(texts) + "]")
        | st.dictionaries(NAMES, inner, max_size=3).map(_joined)
    ),
    max_leaves=5,
)


def fitting(node: dict[str, Any]) -> st.SearchStrategy[str]:
    """Mostly values of the node's own shape: else everything would be a reject."""
    if node.get("items"):
        return st.lists(fitting(node["items"]), max_size=3).map(lambda texts: "[" + ",".join(texts) + "]")
    if node.get("properties"):
        members = {name: fitting(member) for name, member in node["properties"].items()}
        return st.fixed_dictionaries({}, optional=members).map(_joined)
    return st.sampled_from(TOKENS) | VALUES


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_the_decoder_says_what_the_docs_say(data: st.DataObject) -> None:
    """Row by row the same values or a reject, on the wire with a prefix and without, keys and extra fields included."""
    properties = data.draw(st.dictionaries(NAMES, NODES, min_size=1, max_size=3))
    schema = {"type": "object", "properties": properties}
    keys = tuple(name for name in properties if data.draw(st.booleans()))[:1]
    records = fitting(schema) | st.dictionaries(NAMES | st.just("new"), VALUES, max_size=3).map(_joined)
    check(schema, keys, data.draw(st.lists(records, min_size=1, max_size=5)))


def check(schema: dict[str, Any], keys: tuple[str, ...], texts: list[str]) -> None:
    wanted: list[Any] = []
    for text in texts:
        try:
            wanted.append(stored(schema, parsed(text), keys))
        except Reject:
            wanted.append(None)
    for prefix, start in ((b'{"type":"RECORD","stream":"s","record":', b""), (None, b'{"type":"RECORD","record":')):
        lines = b"".join((prefix or start) + text.encode() + b"}\n" for text in texts)
        decoded = decode(lines, from_singer(schema, keys), prefix)
        rows = iter(decoded.table.to_pylist())
        rejected = {reject.line for reject in decoded.rejects}
        found = [None if number in rejected else next(rows) for number in range(len(texts))]
        for one in found:
            if one and one.get("_sdc_extra", "") is None:
                del one["_sdc_extra"]
        assert found == wanted, (texts, schema)
        assert next(rows, None) is None


@settings(max_examples=1, deadline=None)
@example(["1.0", '{"a":1}', "[]"])
@given(st.lists(st.sampled_from(TOKENS), min_size=1, max_size=40))
def test_every_token_in_every_column(texts: list[str]) -> None:
    """Each value of the list in a column of each scalar type."""
    for node in SCALARS:
        for text in [*TOKENS, *texts]:
            check({"type": "object", "properties": {"a": node}}, (), [_joined({"a": text})])
