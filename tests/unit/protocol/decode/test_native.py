"""The compiled reader against the exact path, line by line: what it reads, it reads exactly; the rest it leaves."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal

import pyarrow as pa
import pytest

from bridge.protocol.decode import exact, native
from bridge.protocol.decode.exact import RecordLayout
from bridge.protocol.decode.native import NativeReader
from bridge.protocol.schema.table_schema import TableSchema, from_singer
from tests.unit.protocol.decode.test_fuzz import PIECES
from tests.unit.protocol.decode.test_reference import TOKENS

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="the compiled reader is not installed")

PREFIX = b'{"type":"RECORD","stream":"a","record":'
INTEGERS = ["0", "7", "-12", "-0", "007", "1.0", "1e3", '"12"', str(2**63), str(-(2**63)), str(2**63 - 1), "9" * 19]
NUMBERS = [
    *(
        "0.1",
        "8.5",
        "-0.0",
        "1e22",
        "1e23",
        "1E-7",
        "4.35",
        "0.30000000000000004",
        "123456789.123456789",
        "1e308",
        "1e309",
    ),
    *(
        "5e-324",
        "1e-400",
        "9007199254740993",
        "1.7976931348623159e308",
        "2.2250738585072011e-308",
        "NaN",
        "Infinity",
        "-Infinity",
        '"NaN"',
        '"1e5"',
        '"-0"',
        "-Inf",
        "1.",
        ".5",
    ),
    *("9007199254740993.0", "100.00", "1.50000", "12345678901234567890.12", '"1.5"', "0.1234567890123456789"),
]
TEXTS = [
    *('""', '"ä€😀"', '"a \\"quoted\\" \\\\ \\/ \\b\\f\\n\\r\\t"', '"\\u00e4\\u20ac"', '"\\ud83d\\ude00"', '"\\ud800"'),
    *(
        "5",
        "-0",
        "true",
        "false",
        "1.50",
        "9" * 30,
        '"x"',
        '"\\u0000"',
        '"\\ud800\\u0041"',
        '"\\x"',
        '"12345678"',
        '"1234567\\""',
        '"' + "long " * 30 + '"',
    ),
]
TIMES = [
    *(
        '"2024-02-29"',
        '"2000-01-31T00:00:00+05:00"',
        '"1969-12-31"',
        '"2023-02-29"',
        '"1900-02-29"',
        '"2000-02-29T23:59:59.999999Z"',
        '"2024-01-01T12"',
        '"0001-01-01"',
    ),
    *(
        '"2024-01-01T12:30"',
        '"2024-01-01t12:30:15z"',
        '"2024-01-01 12:30:15.1234567+05:30"',
        '"2024-13-01"',
        '"infinity"',
    ),
    *('"2024-01-01T00:00:00.0000000"', '"2024-01-01T00:00:00.0000001"', '"2024-01-01T00:00:00-0130"', '"2024-04-31"'),
    *(
        '"0001-01-01T00:00:00+00:01"',
        '"9999-12-31T23:59:59.9999999-00:00"',
        '"9999-12-31T23:59:59-00:01"',
        '"1969-12-31T23:59:59.5"',
    ),
    *(
        '"2024-01-01T12:30:15."',
        '"2024-01-01T12:30Z"',
        '"2024-01-01T12+1"',
        '"2024-01-01T12.5"',
        '"2024-1-1"',
        '"٢024-01-01"',
    ),
    *(
        '"1850-01-01T00:00:00+00:53:28"',
        '"1850-01-01 00:00:00.5-005328"',
        '"2024-01-01 00:00:00 +05:30"',
        '"2024-01-01 00:00:00 UTC"',
        '"2024-01-01T00:00UTC"',
        '"2024-01-01T12:30:15,1234567Z"',
        '"2024-01-01T00:00:00,000 -0330"',
    ),
    *(
        '"2024-01-01T00:00:00+00:00:60"',
        '"2024-01-01T00:00:00+01:0000"',
        '"2024-01-01T00:00:00+0100:00"',
        '"2024-01-01T00:00:00+01:00:"',
        '"2024-01-01T00:00:00  Z"',
        '"2024-01-01T00:00:00 "',
        '"2024-01-01 UTC"',
        '"2024-01-01T00:00:00 utc"',
        '"2024-01-01T00:00:00 CET"',
        '"2024-01-01T00:00:00,Z"',
        '"2024-01-01T00:00,5Z"',
        '"2024-01-01T00:00:00+:00"',
        '"2024-01-01T00:00:00+0"',
        '"2024-01-01T00:00:00+010"',
    ),
    *('"2024-01-01T24:00:00"', '"2016-12-31T23:59:60Z"', '"2024-01-01T00:00:00 Z"', '"2024-01-01\\u0054"', "5"),
]
OTHERS = ["null", "true", "false", "{}", "[]", "[1,]", '{"a":1,"a":2}', "[null]", '[{"a":1.0}]', "tru", "nullx"]
ANY = [*TOKENS, *INTEGERS, *NUMBERS, *TEXTS, *TIMES, *OTHERS]
LEAVES = {
    "int": ({"type": ["null", "integer"]}, INTEGERS),
    "num": ({"type": ["null", "number"]}, NUMBERS + INTEGERS),
    "cents": ({"type": ["null", "number"], "multipleOf": 0.01}, NUMBERS + INTEGERS),
    "dec": ({"type": ["null", "string"], "format": "singer.decimal", "precision": 38, "scale": 10}, NUMBERS + INTEGERS),
    "flag": ({"type": ["null", "boolean"]}, ["true", "false", "true", "0", "1", "1.0", "-0", "2", '"true"', '"0"']),
    "text": ({"type": ["null", "string"]}, TEXTS),
    "at": ({"type": ["null", "string"], "format": "date-time"}, TIMES),
    "day": ({"type": ["null", "string"], "format": "date"}, TIMES),
    "any": ({}, ANY),
    "none": ({"type": "null"}, ["null"]),
}
# Names that JSON cannot hold as they are, and one that a key may be written as.
NAMES = ['q"t', '"', 'x":1,"int', "b\\s", "\\", "u\\u0041", "uA", "n\0l", "t\tb", "l\nf", "\x1f", "d\x7fl"]


def nested(dice: random.Random) -> str:
    """A value of the column `deep`, more or less."""
    items = [written(dice, {"int": LEAVES["int"], "ä b": LEAVES["text"]}) for _ in range(dice.randrange(3))]
    return dice.choice(
        ["[" + ",".join(items) + "]", "[" + ",".join([*items, *(["null"] * dice.randrange(2))]) + "]", "null"]
        if dice.random() < 0.98
        else ['["x"]', "{}"]
    )


def value(dice: random.Random, leaf: tuple[dict[str, object], list[str]]) -> str:
    """Mostly what the column takes as it is: a line with one odd value tells nothing of the others."""
    if dice.random() < 0.04:
        return "null"
    return dice.choice(ANY if dice.random() < 0.01 else leaf[1] if dice.random() < 0.05 else leaf[1][:3])


def written(dice: random.Random, leaves: dict[str, tuple[dict[str, object], list[str]]]) -> str:
    """An object as taps write it, and as they should not."""
    names = [name for name in leaves if dice.random() < 0.97]
    if dice.random() < 0.2:
        dice.shuffle(names)
    names += [dice.choice([*leaves, "new", "a\\u0062", "new"])] if dice.random() < 0.1 else []
    colon, comma = dice.choice([(":", ","), (":", ","), (": ", ", "), (" :\t", " ,\r")])
    members = []
    for name in names:
        text = value(dice, leaves.get(name, ({}, ANY)))
        members.append(json.dumps(name, ensure_ascii=False).replace("\\\\", "\\") + colon + text)
    return "{" + comma.join(members) + "}"


def message(dice: random.Random, *, known: bool) -> bytes:
    record = written(dice, LEAVES | {"deep": ({}, [nested(dice)]), "skipped": ({}, ANY)})
    around = ['"time_extracted":' + value(dice, ({}, TIMES))] if dice.random() < 0.7 else []
    around += ['"version":' + value(dice, ({}, INTEGERS))] if dice.random() < 0.5 else []
    around += [dice.choice(['"x":[1]', '"type":"RECORD"', '"stream":"b"', '"version":5', '"record":{}'])] * (
        dice.random() < 0.05
    )
    dice.shuffle(around)
    if known:
        return PREFIX + (record + "".join("," + each for each in around) + "}").encode()
    all_of = ['"type":"RECORD"', '"stream":"a"', f'"record":{record}', *around]
    dice.shuffle(all_of)
    return ("{" + ", ".join(all_of) + "}").encode()


def mutated(dice: random.Random, line: bytes) -> bytes:
    start = dice.randrange(len(line))
    end = min(len(line), start + dice.choice([0, 1, 1, 5]))
    return (line[:start] + dice.choice([b"", *PIECES, line[start:end] * 2]) + line[end:]).replace(b"\n", b" ")


def table(more: Sequence[str] = ()) -> TableSchema:
    """`more`: names of columns for integers before the others, also inside of `deep`."""
    integers = dict.fromkeys(more, LEAVES["int"][0])
    properties = integers | {name: node for name, (node, _) in LEAVES.items()}
    members = integers | {"int": LEAVES["int"][0], "ä b": LEAVES["text"][0]}
    item = {"type": ["null", "object"], "properties": members}
    deep = {"type": ["null", "array"], "items": item}
    return from_singer({"type": "object", "properties": {**properties, "deep": deep}}, ["int"])


def disagreements(seed: int, lines: int) -> Iterator[bytes]:
    """The lines of which the two make something else; lines that both leave to the exact path are compared, too."""
    dice, fields = random.Random(seed), list(table().arrow)
    skipped = [pa.field("skipped", pa.string())]
    for number in range(-(-lines // 200)):
        known = number % 2 == 0
        batch = [message(dice, known=known) for _ in range(200)]
        batch = [mutated(dice, line) if dice.random() < 0.2 else line for line in batch]
        prefix = PREFIX if known else None
        if known:
            batch = [line if line.startswith(PREFIX) else PREFIX + line for line in batch]
        layout = RecordLayout(fields, prefix, envelope=True, skipped=["skipped"])
        reader = NativeReader(fields, skipped, layout, prefix)
        if not agree(b"\n".join(batch), reader, layout):
            yield from (line for line in batch if not agree(line, reader, layout))


def agree(data: bytes, reader: NativeReader, layout: RecordLayout) -> bool:
    ours, judge = reader.read(data), exact.read(data, layout)
    return ours is None or facts(ours) == facts(judge)


def facts(batch: exact.DecodedLines) -> str:
    for array in batch.arrays:
        array.validate(full=True)
    arrays = [array.to_pylist() for array in (*batch.arrays, batch.version, batch.extracted)]
    place = list(LEAVES).index("any") - len(LEAVES) - 3  # `deep`, version and time are behind them
    arrays[place] = list(map(meaning, arrays[place]))
    extra = [] if batch.extra is None else list(map(meaning, batch.extra.to_pylist()))
    counts = batch.rows, batch.lines, batch.versions, batch.unversioned, sorted(batch.outside.items())
    return repr((arrays, extra if any(extra) else [], counts, batch.rejects))


_EVERY_DIGIT = Context(prec=999, Emax=MAX_EMAX, Emin=MIN_EMIN)


def meaning(text: str | None) -> object:
    """What JSON text says: the exact path may write 1e2 as 100.0, or as 1E+2 beside a number that is no double."""

    def number(digits: str) -> Decimal:
        return Decimal(digits).normalize(_EVERY_DIGIT)

    return None if text is None else json.loads(text, parse_int=number, parse_float=number)


def test_each_text_in_each_column() -> None:
    """Alone on its line, as a tap writes it, and in a list."""
    fields = list(table().arrow)
    layout = RecordLayout(fields, PREFIX, envelope=True)
    reader = NativeReader(fields, [], layout, PREFIX)
    for text in ANY:
        lines = [f'{{"int":{text}}}', *(f'{{"int":1,"{name}":{text}}}' for name in [*LEAVES, "new"])]
        lines += [f'{{"int":1,"deep":[{{"int":{text}}},{{"ä b":{text}}}]}}', f'{{"int":1}},"version":{text}']
        messages = [PREFIX + line.encode() + b"}" for line in lines]
        assert agree(b"\n".join(messages), reader, layout), [m for m in messages if not agree(m, reader, layout)]


def keys(name: str) -> set[str]:
    """Ways to write a name: as it is, which may be no JSON, as JSON, and with an escape for each character."""
    return {f'"{name}"', json.dumps(name), '"' + "".join(f"\\u{ord(each):04x}" for each in name) + '"'}


@pytest.mark.parametrize("prefix", [PREFIX, None], ids=["known", "unknown"])
@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_names_that_json_escapes(name: str, prefix: bytes | None) -> None:
    """A key is the column's only if it is JSON and says the name; this holds inside of values, too."""
    for names in ([name], [name, *(each for each in NAMES if each != name)]):
        fields = list(table(names).arrow)
        layout = RecordLayout(fields, prefix, envelope=True)
        reader = NativeReader(fields, [], layout, prefix)
        for key in sorted(keys(name)):
            for record in (f'{{{key}:2,"int":1}}', f'{{"int":1,{key}:2}}', f'{{"int":1,"deep":[{{{key}:2}}]}}'):
                line = PREFIX + record.encode() + b"}"
                ours, judge = reader.read(line), exact.read(line, layout)
                assert ours is not None
                assert facts(ours) == facts(judge), line
                if key == json.dumps(name) and "deep" not in record:
                    assert ours.arrays[0].to_pylist() == [2], line


def test_lines_are_read_as_the_exact_path_reads_them() -> None:
    """Six thousand lines at random, right and wrong: the same rows, rejects, versions and fields outside."""
    assert list(disagreements(1, 6_000)) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_million_lines_are_read_as_the_exact_path_reads_them() -> None:
    """The same for a million."""
    assert list(disagreements(2, 1_000_000)) == []
