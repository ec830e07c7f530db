"""Both paths of decoding at random: against each other, and against what the values mean."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.protocol.decode.decoder import decode
from bridge.protocol.decode.exact import RecordLayout, read
from bridge.protocol.schema.table_schema import from_singer, with_extra

PREFIX = b'{"type":"RECORD","stream":"s","record":'
UTC = timezone.utc
CENTS = {"type": "number", "multipleOf": 0.01}


def line(record: str) -> bytes:
    """One RECORD message, `record` being JSON as it stands on the wire."""
    return PREFIX + record.encode() + b"}\n"


# Each kind: its schema, and its values as written beside what they mean, said in the plainest way.
_INTS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-9, 9))
_CENTS = st.integers(-(10**20), 10**20).map(lambda number: Decimal(number).scaleb(-2))
_INSTANTS = st.tuples(
    st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31)), st.sampled_from(["", "Z", "+00:00", "-05:30"])
)


def _instant(pair: tuple[datetime, str]) -> tuple[str, datetime]:
    at, zone = pair
    offset = timedelta(hours=-5, minutes=-30) if zone == "-05:30" else timedelta(0)
    return f'"{at.isoformat()}{zone}"', (at - offset).replace(tzinfo=UTC)


_ANY = st.recursive(
    st.none() | st.booleans() | _INTS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
).filter(lambda value: value is not None)


def _json(pair: tuple[Any, bool]) -> tuple[str, str]:
    """What a tap writes with or without blanks and escapes, and the text that is kept."""
    value, airy = pair
    kept = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return (json.dumps(value) if airy else kept), kept


SCALARS: list[tuple[Any, st.SearchStrategy[tuple[str, Any]]]] = [
    ({"type": "integer"}, _INTS.map(lambda number: (str(number), number))),
    (
        {"type": "number"},
        st.floats(allow_nan=False).map(lambda number: (json.dumps(number), number)),
    ),
    (CENTS, _CENTS.map(lambda number: (str(number), number))),
    ({"type": "boolean"}, st.booleans().map(lambda flag: (json.dumps(flag), flag))),
    (
        {"type": "string"},
        st.tuples(st.text(), st.booleans()).map(lambda it: (json.dumps(it[0], ensure_ascii=it[1]), it[0])),
    ),
    ({"type": "string", "format": "date-time"}, _INSTANTS.map(_instant)),
    ({"type": "string", "format": "date"}, st.dates().map(lambda day: (f'"{day}"', day))),
    ({"type": ["boolean", "integer", "string", "array", "object"]}, st.tuples(_ANY, st.booleans()).map(_json)),
]
Kind = tuple[Any, st.SearchStrategy[tuple[str, Any]]]


def _struct(kinds: list[Kind]) -> Kind:
    """An object of these kinds, any field of which may be missing."""
    names = [f"f{index}" for index in range(len(kinds))]
    fields = [st.none() | values for _, values in kinds]

    def write(found: tuple[tuple[str, Any] | None, ...]) -> tuple[str, Any]:
        there = {name: pair for name, pair in zip(names, found, strict=True) if pair is not None}
        text = "{" + ",".join(f'"{name}":{written}' for name, (written, _) in there.items()) + "}"
        return text, {name: there[name][1] if name in there else None for name in names}

    node = {"type": "object", "properties": dict(zip(names, (node for node, _ in kinds), strict=True))}
    return node, st.tuples(*fields).map(write)


def _nullable(kind: Kind) -> Kind:
    node, values = kind
    return node, st.just(("null", None)) | values


def _array(kind: Kind) -> Kind:
    node, values = _nullable(kind)
    lists = st.lists(values, max_size=3)
    return {"type": "array", "items": node}, lists.map(
        lambda pairs: ("[" + ",".join(text for text, _ in pairs) + "]", [meaning for _, meaning in pairs])
    )


KINDS = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: inner.map(_array) | st.lists(inner.map(_nullable), min_size=1, max_size=3).map(_struct),
    max_leaves=4,
)
STREAMS = st.lists(KINDS.map(_nullable), min_size=1, max_size=4).map(_struct)


@pytest.mark.heavy
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_paths_agree(data: st.DataObject) -> None:
    """For records that fit their schema, `decode` gives the same table as the exact path: what the values mean."""
    node, records = data.draw(STREAMS)
    pairs = data.draw(st.lists(records, min_size=1, max_size=5))
    table = from_singer(node, [])
    lines = b"".join(line(text) for text, _ in pairs)
    fields = list(table.arrow)
    exact = pa.Table.from_arrays(read(lines, RecordLayout(fields)).arrays, schema=table.arrow)
    assert exact.to_pylist() == [meaning for _, meaning in pairs]
    for prefix in (PREFIX, None):
        assert decode(lines, table, prefix).table.equals(exact)


TOKENS = [
    "null",
    "1",
    "1.0",
    "1e2",
    '"1"',
    "true",
    '"x"',
    "{}",
    "[]",
    '{"f0":1}',
    "[1,null]",
    '"2024-01-01"',
    "NaN",
    '"\\ud800"',
]


@pytest.mark.heavy
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_gaits_agree(data: st.DataObject) -> None:
    """What happens to a record does not depend on its neighbours: together, alone, and by either path."""
    node, records = data.draw(STREAMS)
    odd = st.sampled_from(TOKENS).map(lambda token: '{"f0":' + token + "}")
    texts = data.draw(st.lists(records.map(lambda pair: pair[0]) | odd, min_size=1, max_size=6))
    table = with_extra(from_singer(node, []))
    together = decode(b"".join(map(line, texts)), table, PREFIX)
    alone = [decode(line(text), table, PREFIX) for text in texts]
    assert repr(together.table.to_pylist()) == repr([row for each in alone for row in each.table.to_pylist()])
    rejects = [(number, each.rejects[0].reason) for number, each in enumerate(alone) if each.rejects]
    assert [(reject.line, reject.reason) for reject in together.rejects] == rejects


def test_a_mark_of_deletion_of_another_type() -> None:
    """A SCHEMA that gives `_sdc_deleted_at` another type: what does not fit is a reject, as in any column."""
    mark = {"type": ["null", "array"], "items": {"type": "integer"}}
    schema = from_singer({"properties": {"_sdc_deleted_at": mark}}, [])
    line = b'{"type":"RECORD","stream":"t","record":{"_sdc_deleted_at":true}}\n'
    assert [reject.reason for reject in read(line, RecordLayout(schema.fields)).rejects] == ["not an array"]
