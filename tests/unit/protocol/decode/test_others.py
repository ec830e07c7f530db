"""Fields outside the SCHEMA, where Arrow reads a whole piece: the same column and counts as of the exact path."""

from __future__ import annotations

import json
import random

import pytest

from bridge.protocol.decode import exact
from bridge.protocol.decode.decoder import _FastPath
from bridge.protocol.decode.exact import DecodedLines, RecordLayout
from bridge.protocol.schema.table_schema import from_singer
from tests.unit.protocol.decode.test_native import PREFIX, mutated

TEXT = {"type": ["null", "string"]}
PROPERTIES = {
    "id": {"type": "integer"},
    "name": TEXT,
    "amount": {"type": ["null", "number"]},
    "at": {**TEXT, "format": "date-time"},
    "address": {"type": ["null", "object"], "properties": {"city": TEXT}},
    "tags": {"type": ["null", "array"], "items": TEXT},
}
FIELDS = list(from_singer({"type": "object", "properties": PROPERTIES}, ["id"]).arrow)
NEW = ["surprise", "ü", 'with"quote', "record", "stream", "version"]
VALUES = [
    *("1", "1", "2", "-7", '"x"', '"surprise"', '"a \\"surprise\\" b"', "true", "{}", "[]", "[1,2]", '{"a":1}', "1.5"),
    *(
        "null",
        '{"surprise":2}',
        '{"record":{"id":1}}',
        "1e30",
        "123456789012345678901",
        "0.30000000000000000001",
        "NaN",
    ),
    *('"\\ud800"', '{"a":1,"a":2}', "1e2", "01"),
]


def line(dice: random.Random, odd: float) -> bytes:
    members = {
        "id": str(dice.randrange(10**12)),
        "name": json.dumps(f"name {dice.random()}"),
        "amount": repr(dice.random()),
        "at": dice.choice(['"2024-01-01T00:00:00"', "null"]),
        "address": dice.choice(['{"city":"x"}', "null"] + ['{"city":"x","new":1}'] * (dice.random() < odd / 5)),
        "tags": '["a",null]',
    }
    texts = [f"{json.dumps(name)}:{text}" for name, text in members.items() if name == "id" or dice.random() < 0.9]
    while dice.random() < 0.3:
        name = dice.choice(NEW[:2]) if dice.random() > odd else dice.choice(NEW)
        if not odd and any(name in text for text in texts):
            continue
        text = dice.choice(VALUES if dice.random() < odd else VALUES[:3])
        written = json.dumps(name, ensure_ascii=dice.random() < odd)
        texts.insert(dice.randrange(len(texts) + 1), f"{written}:{text}")
    end = ',"time_extracted":"2024-01-01T00:00:00Z"' * (dice.random() < 0.5) + ',"version":5' * (dice.random() < 0.5)
    return PREFIX + b"{" + ",".join(texts).encode() + b"}" + end.encode() + b"}"


def facts(batch: DecodedLines) -> str:
    arrays = [array.to_pylist() for array in (*batch.arrays, batch.version, batch.extracted)]
    extra = [None] * batch.rows if batch.extra is None else batch.extra.to_pylist()
    return repr((arrays, extra, batch.rows, batch.lines, batch.versions, batch.unversioned, dict(batch.outside)))


@pytest.mark.parametrize("prefix", [PREFIX, None], ids=["prefix", "no prefix"])
@pytest.mark.parametrize("odd", [0.0, 0.1, 0.5])
def test_unknown_fields_are_what_the_exact_path_finds(prefix: bytes | None, odd: float) -> None:
    """Whatever pieces Arrow answers for, right and broken lines among them; it answers for all plain ones."""
    dice, answered = random.Random(int(odd * 10)), 0
    layout = RecordLayout(FIELDS, prefix, envelope=True)
    for _ in range(400):
        lines = [line(dice, odd) for _ in range(8)]
        lines = [mutated(dice, each) if dice.random() < odd / 10 else each for each in lines]
        data = b"\n".join(each if each.startswith(PREFIX) else PREFIX + each for each in lines)
        fast = _FastPath(FIELDS, prefix, envelope=True).read(data)
        answered += fast is not None
        if fast is not None:
            judge = exact.read(data, layout)
            assert judge.rejects == []
            assert facts(fast) == facts(judge), data
    assert answered == 400 if not odd else answered > 20


def test_a_message_inside_another_is_not_taken_for_a_row() -> None:
    """A line that the next one completes, and a line of two messages: as many rows as lines, and none in its place."""
    first = PREFIX + b'{"id":1,"new":'
    second = PREFIX + b'{"id":2}}}}'
    third = (PREFIX + b'{"id":3}}') * 2
    data = b"\n".join([PREFIX + b'{"id":0,"new":1}}', first, second, third]) + b"\n"
    assert _FastPath(FIELDS, PREFIX).read(data) is None
