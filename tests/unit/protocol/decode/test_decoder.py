"""Lines in, rows and rejects out: each hazard of a tap's JSON once."""

from __future__ import annotations

import json
import math
import random
from datetime import date, datetime, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import orjson
import pytest

from bridge.protocol.decode.decoder import Decoded, decode
from bridge.protocol.schema.json_schema import EXTRA
from bridge.protocol.schema.table_schema import TableSchema, from_singer, with_extra

PREFIX = b'{"type":"RECORD","stream":"s","record":'
UTC = timezone.utc
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
CENTS = {"type": "number", "multipleOf": 0.01}
STRUCT = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}


def schema(keys: tuple[str, ...] = (), **properties: Any) -> TableSchema:
    return from_singer({"properties": properties}, keys)


def line(record: str, tail: str = "") -> bytes:
    """One RECORD message, `record` being JSON as it stands on the wire."""
    return PREFIX + record.encode() + tail.encode() + b"}\n"


def checked(data: bytes, table: TableSchema, prefix: bytes | None = PREFIX) -> Decoded:
    """What `decode` says, after the promises that hold for any input."""
    found = decode(data, table, prefix)
    wanted = with_extra(table) if found.extra else table
    assert found.table.schema.equals(wanted.arrow, check_metadata=True)
    assert found.table.num_rows + len(found.rejects) == data.count(b"\n")
    found.table.validate(full=True)
    lines = data.split(b"\n")
    assert all(lines[reject.line] == reject.raw for reject in found.rejects)
    return found


def value(node: Any, text: str) -> Any:
    """The stored value of a column `c` for one JSON value, or the reason of its reject."""
    found = checked(line('{"c":' + text + "}"), schema(c=node))
    if found.rejects:
        assert found.rejects[0].pointer.startswith("/c")
        return found.rejects[0].reason
    return found.table.column("c")[0].as_py()


@pytest.mark.parametrize(
    ("node", "text", "expected"),
    [
        ("integer", "1.0", 1),
        ("integer", "1e3", 1000),
        ("integer", "0e-82", 0),
        ("integer", "-0E+99", 0),
        ("integer", '"12"', 12),
        ("integer", "9007199254740993.0", 9007199254740993),
        ("integer", "-9223372036854775808", -(2**63)),
        ("integer", "9223372036854775808", "integer beyond 64 bits"),
        ("integer", "1e30", "not an integer"),
        ("integer", "1.5", "not an integer"),
        ("integer", '"012"', "not an integer"),
        ("integer", "true", "not an integer"),
        ("integer", "NaN", "not an integer"),
        ("number", "1", 1.0),
        ("number", "9007199254740993", 9007199254740992.0),
        ("number", "123456789012345678901234567890", 1.2345678901234568e29),
        ("number", '"1.5"', 1.5),
        ("number", "Infinity", math.inf),
        ("number", "-Infinity", -math.inf),
        ("number", "1e400", "number beyond a double"),
        ("number", "1.7976931348623159e308", "number beyond a double"),
        ("number", "-1.8e308", "number beyond a double"),
        ("number", "9" * 400, "number beyond a double"),
        ("number", "true", "not a number"),
        ("number", '"x"', "not a number"),
        ("boolean", "0", False),
        ("boolean", '"true"', True),
        ("boolean", "2", "not a boolean"),
        ("string", "1.10", "1.10"),
        ("string", "true", "true"),
        ("string", '{"b": 1, "a": [0.10]}', '{"b":1,"a":[0.10]}'),
        ("string", r'"\u0000"', "\0"),
        ("string", r'"\ud83d\ude00"', "😀"),
        ("string", r'"\ud800"', "lone surrogate, which no UTF-8 text can hold"),
        (CENTS, "1.1", Decimal("1.10")),
        (CENTS, "1e2", Decimal("100.00")),
        (CENTS, "9007199254740993e1", Decimal("90071992547409930.00")),
        (CENTS, '"1.50"', Decimal("1.50")),
        (CENTS, "1.005", "number has more digits than decimal(38,2)"),
        (CENTS, '"1e99999999999999999999"', "number has more digits than decimal(38,2)"),
        (CENTS, "1e-41", "number has more digits than decimal(38,2)"),
        (CENTS, '"5E-61"', "number has more digits than decimal(38,2)"),
        (CENTS, '"0.00000000000000000000000000000000000000001"', "number has more digits than decimal(38,2)"),
        (CENTS, "0e-41", Decimal("0.00")),
        (CENTS, '"1.000000000000000000000000000000000000000000000"', Decimal("1.00")),
        ({"type": "array", "items": CENTS}, "[1, 1e-41]", "number has more digits than decimal(38,2)"),
        (
            {"type": "integer", "maximum": 2**64},
            "0.11111111111111111111111111111111111110e-1",
            "number has more digits than decimal(38,0)",
        ),
        (CENTS, "1e36", "number has more digits than decimal(38,2)"),
        (CENTS, "123456789012345678901234567890123456.78", Decimal("123456789012345678901234567890123456.78")),
        (CENTS, "NaN", "not a number"),
        ({"type": "integer", "maximum": 2**64}, "18446744073709551616", Decimal(2**64)),
        ({"type": "number", "multipleOf": 1e-38}, "0.1234567890123456789012345", "0.1234567890123456789012345"),
        (STRUCT, '{"b":"x"}', {"a": None, "b": "x"}),
        (STRUCT, '{"a":"7","b":null}', {"a": 7, "b": None}),
        (STRUCT, "[]", "not an object"),
        (STRUCT, '{"a":"x"}', "not an integer"),
        ({"type": "array", "items": {"type": "integer"}}, "[1,null,2.0]", [1, None, 2]),
        ({"type": "array", "items": {"type": "integer"}}, "[]", []),
        ({"type": "array", "items": {"type": "integer"}}, "1", "not an array"),
        ({"type": "array", "items": {"type": "integer"}}, '"{1,NULL,-3}"', [1, None, -3]),
        ({"type": "array", "items": {"type": "integer"}}, '"[0:1]={1,2}"', [1, 2]),
        ({"type": "array", "items": {"type": "integer"}}, '"{}"', []),
        ({"type": "array", "items": {"type": "integer"}}, '"{1,x}"', "not an integer"),
        ({"type": "array", "items": {"type": "integer"}}, '"{{1,2},{3,4}}"', "not an integer"),
        *(
            ({"type": "array", "items": {"type": "string"}}, f'"{text}"', "not an array")
            for text in ("", "{", "}", "{,}", "{1,}", "{,1}", "{1 2", "1", "{1}}", "{1}{2}", "{{1}2}", "{1},", "[1]")
        ),
        ({"type": "array", "items": {"type": "boolean"}}, '"{t,f,NULL}"', [True, False, None]),
        ({"type": "array", "items": CENTS}, '"{1.50,NULL}"', [Decimal("1.50"), None]),
        ({"type": "array", "items": {"type": "string", "format": "date"}}, '"{2024-02-29}"', [date(2024, 2, 29)]),
        (
            {"type": "array", "items": {"type": "string"}},
            r'"{a b,\"b,c\",\"\",NULL,\"NULL\",\"q\\\"\\\\\"}"',
            ["a b", "b,c", "", None, "NULL", 'q"\\'],
        ),
        (
            {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
            '"{{1,2},{3,NULL}}"',
            [[1, 2], [3, None]],
        ),
        ({"type": "array", "items": {"type": ["string", "object"]}}, r'"{\"{\\\"a\\\":1}\"}"', ['{"a":1}']),
        ({"type": "null"}, "null", None),
        ({"type": "null"}, '{"a": 1}', '{"a":1}'),
    ],
)
def test_value(node: Any, text: str, expected: Any) -> None:
    """A value is stored where nothing of it is lost, and rejected with a reason where something would be."""
    found = value({"type": node} if isinstance(node, str) else node, text)
    assert found == expected
    assert type(found) is type(expected)


def test_nan_is_a_number() -> None:
    """Bare NaN, which some taps write, is a double like any other."""
    assert math.isnan(value({"type": "number"}, "NaN"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-01-01T12:00:00Z", NOON),
        ("2024-01-01T12:00:00", NOON),
        ("2024-01-01 12:00:00z", NOON),
        ("2024-01-01t13:30:00+01:30", NOON),
        ("2024-01-01T02:00:00-1000", NOON),
        ("2024-01-01T12:00:00.1234567Z", NOON.replace(microsecond=123456)),
        ("1969-12-31T23:59:59.999999999", datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)),
        ("2024-01-01", NOON.replace(hour=0)),
        ("9999-12-31T23:59:59.999999Z", datetime.max.replace(tzinfo=UTC)),
        ("0001-01-01T00:00:00Z", datetime.min.replace(tzinfo=UTC)),
        ("2024-01-01 12:00:00+00", NOON),  # PostgreSQL
        ("2024-01-01 17:30:00 +0530", NOON),  # Ruby
        ("2024-01-01 12:00:00 UTC", NOON),
        ("1850-01-01T00:53:28+00:53:28", datetime(1850, 1, 1, tzinfo=UTC)),  # a local mean time, from Python
        ("1850-01-01 00:00:00.5-005328", datetime(1850, 1, 1, 0, 53, 28, 500000, UTC)),
        ("2024-01-01 12:00:00,000001999", NOON.replace(microsecond=1)),
        ("2024-01-01 12:00:00 CET", "not a date-time"),
        ("2024-01-01 12:00:00  +00:00", "not a date-time"),
        ("2024-01-01 12:00:00+00:00:60", "not a date-time"),
        ("20240101T120000Z", "not a date-time"),
        ("9999-12-31T23:59:59-10:00", "not a date-time"),
        ("0000-01-01T00:00:00Z", "not a date-time"),
        ("2024-02-31T00:00:00Z", "not a date-time"),
        ("2024-01-01T24:00:00Z", "not a date-time"),
        ("2024-01-01T00:00:60Z", "not a date-time"),
        ("2024-01-01T00:00:00+25:00", "not a date-time"),
        ("infinity", datetime.max.replace(tzinfo=UTC)),
        ("-infinity", datetime.min.replace(tzinfo=UTC)),
        ("Infinity", "not a date-time"),
        ("1704067200", "not a date-time"),
        ("", "not a date-time"),
    ],
)
def test_timestamp(text: str, expected: Any) -> None:
    """A date-time is an instant in UTC with microseconds, whatever offset and fraction the tap writes."""
    assert value({"type": "string", "format": "date-time"}, f'"{text}"') == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"2024-01-31"', date(2024, 1, 31)),
        ('"2024-01-31T00:00:00Z"', date(2024, 1, 31)),
        ('"2024-01-31T00:00:00.000+02:00"', date(2024, 1, 31)),
        ('"0001-01-01"', date(1, 1, 1)),
        ('"infinity"', date.max),
        ('"-infinity"', date.min),
        ('"0000-01-01"', "not a date"),
        ('"2024-02-31"', "not a date"),
        ('"2024-01-31T00:00:01"', "not a date"),
        ('"20240131"', "not a date"),
        ('"2024-W01-1"', "not a date"),
        ("19753", "not a date"),
    ],
)
def test_date(text: str, expected: Any) -> None:
    """A date is a day as written; a number is none, though Arrow would take it."""
    assert value({"type": "string", "format": "date"}, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"b": 1, "a": null}', '{"b":1,"a":null}'),
        ('"text"', '"text"'),
        ("0.1000000000000000055511151231257827", "0.1000000000000000055511151231257827"),
        ("[18446744073709551616, 0.30000000000000004]", "[18446744073709551616,0.30000000000000004]"),
        ("[9007199254740993e1, 1]", "[9.007199254740993E+16,1]"),
        ('"é\\n\\u00e9"', '"é\\né"'),
        (r'"\ud800"', r'"\ud800"'),
        ("[NaN]", "NaN and Infinity are not JSON"),
        ("[" * 300 + "]" * 300, "[" * 300 + "]" * 300),
        ("[" * 50_000 + "]" * 50_000, "nested too deep"),
    ],
)
def test_json_text(text: str, expected: str) -> None:
    """JSON text is real JSON: compact, keys in their order, numbers digit by digit."""
    found = checked(line('{"c":' + text + "}"), schema(c={}))
    assert (found.table.column("c").to_pylist() or [found.rejects[0].reason]) == [expected]


TOO_LONG = "number of more than 4,300 digits, or of a larger exponent than any type has"


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "not a JSON line"),
        (b"null", "not a RECORD message"),
        (b"[1]", "not a RECORD message"),
        (b'{"type":"STATE","value":{}}', "not a RECORD message"),
        (b'{"type":"RECORD","stream":"s","record":null}', "record is not an object"),
        (b'{"type":"RECORD","stream":"s","record":{"id":1}', "not a JSON line"),
        (b'{"type":"RECORD","stream":"s","record":{"id":1}}}', "not a JSON line"),
        (b'{"type":"RECORD","stream":"s","record":{"id":1}}null', "not a JSON line"),
        (line('{"id":1}').strip() * 2, "not a JSON line"),
        (line('{"id":1,"name":' + "9" * 4400 + "}").strip(), TOO_LONG),
        (line('{"id":1,"other":1e999999999999999999999}').strip(), TOO_LONG),
        (b'{"type":"RECORD","stream":"s","record":{"id":1,"name":"\xff"}}', "not UTF-8"),
        (b'{"type":"RECORD","stream":"s","record":{"id":null}}', "key is null"),
        (b'{"type":"RECORD","stream":"s","record":{}}', "key is missing"),
    ],
)
def test_bad_line(raw: bytes, reason: str) -> None:
    """A bad line is one reject with its number and bytes; its neighbours are rows."""
    good = line('{"id":1,"name":"x"}')
    table = schema(("id",), id={"type": "integer"}, name={"type": "string"})
    for prefix in (PREFIX, None) if raw.startswith(PREFIX) else (None,):
        found = checked(good + raw + b"\n" + good, table, prefix)
        assert [(reject.line, reject.reason, reject.raw) for reject in found.rejects] == [(1, reason, raw)]
        assert found.table.column("id").to_pylist() == [1, 1]
        assert checked(raw + b"\n", table, prefix).rejects[0].reason == reason


@pytest.mark.parametrize(
    "raw",
    [
        b'{"type":"RECORD","stream":"s","record":null}',
        b'{"type":"STATE","stream":"s","record":{"id":1}}',
        b'{"stream":"s","record":{"id":1}}',
    ],
)
def test_not_a_record(raw: bytes) -> None:
    """A message that only looks like a RECORD is a reject, even where the table would take a row of nulls."""
    good = line('{"id":1}')
    for prefix in (PREFIX, None) if raw.startswith(PREFIX) else (None,):
        found = checked(good + raw + b"\n" + good, schema(id={"type": "integer"}), prefix)
        assert [reject.line for reject in found.rejects] == [1]


ANY = {"type": ["string", "number", "integer", "array", "object", "boolean", "null"]}
LSN = {"type": ["integer", "null"]}


@pytest.mark.parametrize("odd", ["1", '"one"'])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r'"{\"a\": [1, 2.50]}"', '{"a":[1,2.5]}'),
        (r'"[0.1000000000000000055511151231257827]"', "[0.1000000000000000055511151231257827]"),
        (r'"\"text\""', '"text"'),
        (r'"\"{\\\"q\\\":1}\""', r'"{\"q\":1}"'),
        ('"5"', "5"),
        ('"null"', None),
        ("null", None),
        ('"no JSON"', '"no JSON"'),
        ('"NaN"', '"NaN"'),
        ('""', '""'),
        (f'"{"[" * 300}{"]" * 300}"', "[" * 300 + "]" * 300),
        ('{"a": 1}', '{"a":1}'),
        ("12", "12"),
        (r'"\ud800"', r'"\ud800"'),
    ],
)
def test_json_of_a_row_from_the_log(text: str, expected: str | None, odd: str) -> None:
    """In rows that say their place in PostgreSQL's log, JSON as text is that JSON; in others, and in text, it is text.

    `odd` sends the lines along the exact path.
    """
    table = schema(c=ANY, t={"type": "string"}, n={"type": "integer"}, _sdc_lsn=LSN)
    data = b"".join(line(f'{{"c":{text},"t":"5","n":1,"_sdc_lsn":{at}}}') for at in (7, "null"))
    data += line(f'{{"c":1,"n":{odd}}}')
    found = checked(data, table)
    queried = checked(line('{"c":' + text + "}"), schema(c=ANY)).table.column("c")[0].as_py()
    assert found.table.column("c").to_pylist()[:2] == [expected, queried]
    assert found.table.column("t").to_pylist()[:2] == ["5", "5"]
    assert len(found.rejects) == (odd != "1")


def test_the_position_of_other_taps_changes_no_json() -> None:
    """A `_sdc_lsn` that is text is that of a tap which passes values on."""
    table = schema(c=ANY, _sdc_lsn={"type": ["null", "string"]})
    assert checked(line('{"c":"5","_sdc_lsn":"7"}'), table).table.column("c").to_pylist() == ['"5"']


def test_json_text_beside_others() -> None:
    """Such columns, and values that differ from their column's type, beside plain ones."""
    properties = {
        "id": {"type": "integer"},
        "o": STRUCT,
        "j": {},
        "n": {"type": "array", "items": {"type": ["string", "integer"]}},
    }
    table = schema(("id",), **properties)
    rows = ['{"id":1,"j":[1, {"a":1,"a":2.50}],"n":[1,"x"]}', '{"id":2,"o":{"a":1},"j":"\\u00e9","n":null}', '{"id":3}']
    found = checked(b"".join(map(line, rows)), table).table.to_pydict()
    assert (found["id"], found["j"]) == ([1, 2, 3], ['[1,{"a":2.5}]', '"é"', None])
    assert (found["o"], found["n"]) == ([None, {"a": 1, "b": None}, None], [["1", '"x"'], None, None])


@pytest.mark.parametrize(
    ("record", "tail", "kept"),
    [
        ('{"id":1,"z":5,"j":{"z":1}}', "", {"j": '{"z":1}', EXTRA: '{"z":5}'}),
        ('{"id":1,"o":{"a":1,"w":2},"j":1}', "", {"o": {"a": 1, "b": None}, EXTRA: '{"o":{"a":1,"w":2}}'}),
        ('{"id":1,"l":[{"a":1,"w":2}]}', "", {"l": [{"a": 1, "b": None}], EXTRA: '{"l":[{"a":1,"w":2}]}'}),
        ('{"id":1,"\\u006a":3}', "", {"j": "3"}),
        ('{"id":1,"j":1,"j":2}', "", {"j": "2"}),
        ('{"id":1,"j":2}', ',"more":{"j":3}', {"j": "2"}),
        ('{"id":1,"j":2}', ',"record":{"id":9}', {"id": 9, "j": None}),
        ('{"id":1,"j":tru}', "", "not a JSON line"),
        ('{"id":1,"j":"\\udc00"}', "", {"j": '"\\udc00"'}),
        ('{"id":1,"j":12345678901234567890.5}', "", {"j": "12345678901234567890.5"}),
        ('{"id":null,"j":1}', "", "key is null"),
    ],
)
def test_oddities_beside_json_text(record: str, tail: str, kept: dict[str, Any] | str) -> None:
    """What is cut out of a line is no way past the rules: alone and among others, with prefix and without."""
    items = {"type": "array", "items": STRUCT}
    table = schema(("id",), id={"type": "integer"}, o=STRUCT, l=items, j={})
    for data in (line(record, tail), line('{"id":7,"j":{}}') + line(record, tail) + line('{"id":8}')):
        for prefix in (PREFIX, None):
            found = checked(data, table, prefix)
            if isinstance(kept, str):
                assert [reject.reason for reject in found.rejects] == [kept]
                continue
            row = next(row for row in found.table.to_pylist() if row["id"] not in (7, 8))
            assert {name: row[name] for name in kept} == kept


def test_two_streams_beside_json_text() -> None:
    """Where all lines are promised to be of one stream, one that names another as well is a reject."""
    data = line('{"j":2}') + line('{"j":2}', ',"stream":"t"')
    assert [(reject.line, reject.reason) for reject in checked(data, schema(j={})).rejects] == [
        (1, "names two streams")
    ]


def test_a_name_that_cannot_be_looked_for() -> None:
    """A column whose name has a quote in it, or none at all, has its values like any other."""
    found = checked(line('{"a\\"b":1,"j":[1]}') + line('{"j":{}}'), schema(**{'a"b': {"type": "integer"}}, j={}))
    assert found.table.to_pylist() == [{'a"b': 1, "j": "[1]"}, {'a"b': None, "j": "{}"}]
    found = checked(line('{"":[1 ]}'), schema(**{"": {}}))
    assert found.table.column(0).to_pylist() == ["[1]"]


def test_digits_beside_json_text() -> None:
    """A decimal keeps every digit beside JSON text, too."""
    table = schema(c={"type": "number", "multipleOf": 1e-18}, j={})
    found = checked(line('{"c":1234567890.123456789012345678,"j":1}') + line('{"c":0.5,"j":[1]}'), table)
    assert found.table.column("c").to_pylist() == [Decimal("1234567890.123456789012345678"), Decimal("0.5")]
    assert found.table.column("j").to_pylist() == ["1", "[1]"]
    tiny = checked(line('{"c":1e-41,"new":1}') + line('{"c":"1e-41","j":1}') + line('{"c":1,"j":1}'), table)
    assert [reject.line for reject in tiny.rejects] == [0, 1]
    sixteen = checked(line('{"c":9007199254740993E1,"j":1,"new":1}') + line('{"c":1}'), table)
    assert sixteen.table.column("c").to_pylist() == [Decimal(90071992547409930), Decimal(1)]


def test_a_decimal_is_the_number_that_was_written_or_a_reject() -> None:
    """Of any length, scale and exponent, bare or as text: no digit is lost, none is made up."""
    dice = random.Random(7)
    for _ in range(2000):
        precision = dice.choice([38, 38, 20, 10])
        scale = dice.choice([0, 2, 9, 19, precision]) if precision == 38 else dice.choice([0, 2, precision // 2])
        digits = "".join(dice.choices("0123456789", k=dice.randrange(1, 80 if dice.random() < 0.2 else 40)))
        text = dice.choice(["", "-"]) + (digits.lstrip("0") or "0")
        text += "." + "".join(dice.choices("0123456789", k=dice.randrange(1, 12))) if dice.random() < 0.4 else ""
        text += f"{dice.choice('eE')}{dice.choice(['', '+', '-'])}{dice.randrange(80)}" if dice.random() < 0.2 else ""
        assert_decimal(text, precision, scale, quoted=dice.random() < 0.4)


@pytest.mark.parametrize("number", [str(2**250), f"{2**240}e9", "1" * 38, "9" * 36 + ".99", "1e36", "7480652e32"])
@pytest.mark.parametrize("scale", [0, 2, 9, 38])
def test_a_decimal_that_overflows_in_arrow(number: str, scale: int) -> None:
    """128 bits make other digits of a number that is too long, 256 bits make 0 of a large power of two."""
    assert_decimal(number, 38, scale, quoted=False)
    assert_decimal(number, 38, scale, quoted=True)


def assert_decimal(text: str, precision: int, scale: int, *, quoted: bool) -> None:
    node = {"type": ["null", "string"], "format": "singer.decimal", "precision": precision, "scale": scale}
    exact = Fraction(text) * 10**scale
    fits = exact.denominator == 1 and abs(exact) < 10**precision
    found = value(node, f'"{text}"' if quoted else text)
    assert fits == isinstance(found, Decimal), (text, precision, scale, found)
    assert not fits or Fraction(found) == Fraction(text), (text, precision, scale, found)


def test_json_text_follows_from_the_value_alone() -> None:
    """Not from its line's other values, nor from its neighbours: each path writes a number alike."""
    texts = ['{"b":1.50,"c":[1e2,-0.0,1E+16]}', '"\u2028"', "0.1234567890123456789", '{"a":[2.50,1e400]}', "7.10"]
    wanted = ['{"b":1.5,"c":[100.0,-0.0,1e+16]}', '"\u2028"', "0.1234567890123456789", '{"a":[2.50,1E+400]}', "7.1"]
    table = schema(j={}, i={"type": "integer"})
    plain = [line(f'{{"j":{text},"i":{number}}}') for number, text in enumerate(texts * 8)]
    odd = [line(f'{{"j":{text},"i":"{number}"}}') for number, text in enumerate(texts)]
    extra = [line(f'{{"j":1,"i":1,"new":{text}}}') for text in texts]
    for data in (plain, plain[:5] + odd, odd, plain + odd + plain, plain + extra):
        found = checked(b"".join(data), table)
        assert not found.rejects
        kept = [text for text in found.table.column("j").to_pylist() if text != "1"]
        assert kept == [wanted[place % 5] for place in range(len(kept))]
    assert found.table.column(EXTRA).drop_null().to_pylist() == [f'{{"new":{text}}}' for text in wanted]


def test_nothing_but_nulls() -> None:
    """A field that may only be null, in an array and as a key."""
    items = {"type": "array", "items": {"type": "null"}}
    found = checked(line('{"l":[null,null],"c":1}') + line('{"l":[],"c":2}'), schema(l=items, c={"type": "integer"}))
    assert found.table.column("c").to_pylist() == [1, 2]
    assert [len(each) for each in found.table.column("l").to_pylist()] == [2, 0]
    found = checked(line('{"k":null}') + line('{"k":1}'), schema(("k",), k={"type": "null"}))
    assert ([reject.line for reject in found.rejects], found.table.to_pylist()) == ([0], [{"k": "1"}])


def test_half_messages_never_make_a_whole_one() -> None:
    """A line completed by the next one and a line with two messages do not cancel out."""
    table = schema(a={"type": "object", "properties": {"record": {"type": "integer"}, "type": {"type": "string"}}})
    halves = b'{"type":"RECORD","record":{"a":\n{"type":"x","record":5}}}\n'
    double = b'{"type":"RECORD","record":{}}{"type":"RECORD","record":{}}\n'
    found = checked(halves + double, table, None)
    assert [reject.line for reject in found.rejects] == [0, 1, 2]
    prefix = b'{"record":'
    halves = b'{"record":{"a":\n{"record":5}}}\n'
    assert len(checked(halves + b'{"record":{}}{"record":{}}\n', table, prefix).rejects) == 3


def test_extra_fields() -> None:
    """Fields outside the SCHEMA are kept whole, counted by name, and the rest of the record is stored as usual."""
    data = line('{"id":1}') + line('{"id":2,"z":0.10,"y":[1]}') + line('{"id":3,"o":{"a":1,"w":{"v":1}}}')
    found = checked(data, schema(id={"type": "integer"}, o=STRUCT))
    assert found.table.column("id").to_pylist() == [1, 2, 3]
    assert found.table.column("o").to_pylist() == [None, None, {"a": 1, "b": None}]
    kept = [text and json.loads(text) for text in found.table.column(EXTRA).to_pylist()]
    assert kept == [None, {"z": 0.1, "y": [1]}, {"o": {"a": 1, "w": {"v": 1}}}]
    assert found.extra == {"z": 1, "y": 1, "o.w": 1}
    found = checked(line('{"id":1,"\\ud800":2}'), schema(id={"type": "integer"}))
    assert found.table.column(EXTRA).to_pylist() == ['{"\\ud800":2}']
    assert orjson.loads(orjson.dumps(found.extra)) == {r"\ud800": 1}  # as executors report it


def test_table_with_extra_column() -> None:
    """A table that has the column for extra fields gets it from every segment, null where nothing is extra."""
    table = with_extra(schema(id={"type": "integer"}))
    assert checked(line('{"id":1}'), table).table.to_pylist() == [{"id": 1, EXTRA: None}]
    assert checked(line("{}"), from_singer({"type": "object"}, [])).table.to_pylist() == [{EXTRA: None}]


def test_versions() -> None:
    """The range of `version` and the number of rows without one are those of the rows."""
    tails = [',"version":7.0', "", ',"version":3', ',"version":null']
    data = b"".join(line('{"id":1}', tail) for tail in tails)
    for bad in (b"", line('{"id":"x"}', ',"version":99')):
        found = checked(data + bad, schema(id={"type": "integer"}))
        assert (found.versions, found.unversioned) == ((3, 7), 2)
    assert checked(line("{}"), schema(id={"type": "integer"})).versions is None


@pytest.mark.parametrize("prefix", [PREFIX, None])
def test_empty_and_line_ends(prefix: bytes | None) -> None:
    """No bytes are an empty table of the schema; CRLF is a line end."""
    table = schema(id={"type": "integer"})
    assert checked(b"", table, prefix).table.num_rows == 0
    crlf = line('{"id":1}').replace(b"\n", b"\r\n") * 2
    assert checked(crlf, table, prefix).table.num_rows == 2


def test_unusual_message() -> None:
    """Spacing, key order and fields around the record do not matter."""
    raw = b'{"time_extracted": "2024-01-01T00:00:00Z", "record": {"id": 1}, "n": 1, "stream": "s", "type": "RECORD"}\n'
    assert checked(raw * 3, schema(id={"type": "integer"}), None).table.num_rows == 3


def test_renamed_columns() -> None:
    """Case twins land under the names of the table, nested too, on both paths."""
    inner = {"type": "object", "properties": {"a": {"type": "string"}, "A": {"type": "string", "format": "date"}}}
    table = schema(id={"type": "integer"}, ID={"type": "string"}, o={"type": "array", "items": inner})
    good = line('{"ID":"x","id":1,"o":[{"A":"2024-01-01","a":"y"},null]}')
    expected = {"id": 1, "ID_2": "x", "o": [{"a": "y", "A_2": date(2024, 1, 1)}, None]}
    assert checked(good, table).table.to_pylist() == [expected]
    odd = line('{"ID":"x","id":"1","o":[{"A":"2024-01-01","a":"y"},null]}')
    assert checked(odd, table).table.to_pylist() == [expected]


def test_order_across_many_pieces() -> None:
    """Rows keep the order of their lines, and rejects their numbers, through divided pieces and both paths."""
    records = [f'{{"id":{number},"note":"{"x" * 200}"}}' for number in range(30_000)]
    for number in (0, 7, 12_345, 29_999):
        records[number] = records[number].replace(f":{number},", ':"bad",')
    for number in range(20_000, 20_600):
        records[number] = records[number].replace(f":{number},", f':"{number}",')
    table = schema(id={"type": "integer"}, note={"type": "string"})
    found = checked(b"".join(map(line, records)), table)
    assert [reject.line for reject in found.rejects] == [0, 7, 12_345, 29_999]
    assert found.table.column("id").to_pylist() == sorted({*range(30_000)} - {0, 7, 12_345, 29_999})


def test_long_line() -> None:
    """A line longer than a piece is a row like any other."""
    data = line('{"id":1}') + line('{"id":2,"note":"' + "x" * 5_000_000 + '"}') + line('{"id":3}')
    found = checked(data, schema(id={"type": "integer"}, note={"type": "string"}))
    assert found.table.column("id").to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("odd", ["", ',"b":1', ',"a":1.0', ',"a":"x"'])
@pytest.mark.parametrize("prefix", [PREFIX, None])
def test_what_stands_around_a_record_is_told_when_asked_for(odd: str, prefix: bytes | None) -> None:
    """`version` and `time_extracted` have an entry a row on both paths, null where they are absent or unreadable."""
    records = ['{"a":1}', '{"a":2' + odd + "}", '{"a":3}', '{"a":4}']
    tails = [
        ',"version":7,"time_extracted":"2024-01-01T14:00:00+02:00"',
        "",
        ',"time_extracted":"soon"',
        ',"version":8',
    ]
    data = b"".join(line(record, tail) for record, tail in zip(records, tails, strict=True))
    found = decode(data, schema(a={"type": "integer"}), prefix, envelope=True)
    rows = list(zip(found.table.column("a").to_pylist(), found.version.to_pylist(), found.extracted, strict=True))
    told = [(version, moment.as_py()) for _, version, moment in rows]
    if len(told) == 4:
        assert told.pop(1) == (None, None)
    assert told == [(7, NOON), (None, None), (8, None)]
    plain = decode(data, schema(a={"type": "integer"}), prefix)
    assert (plain.version, plain.extracted) == (None, None)
    assert plain.table.equals(found.table)


@pytest.mark.parametrize("tail", [',"stream":"b"', ',"type":"STATE"'])
def test_a_message_that_says_twice_what_it_is_is_a_reject(tail: str) -> None:
    """A line that begins as this stream's and then names another never becomes a row here, whatever its neighbours."""
    odd = line('{"a":2}', tail)
    for data, rows in ((odd, []), (line('{"a":1}') + odd + line('{"a":3}'), [1, 3])):
        found = checked(data, schema(a={"type": "integer"}))
        assert [reject.raw for reject in found.rejects] == [odd[:-1]]
        assert found.table.column("a").to_pylist() == rows
