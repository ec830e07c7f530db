"""Rows that come as Arrow against the same rows as RECORD lines: one table, the same rejects, the same counts."""

from __future__ import annotations

import math
import random
import uuid
from datetime import date, datetime, time
from decimal import Decimal
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from bridge.protocol.decode.arrow.pieces import ArrowPieces
from bridge.protocol.decode.decoder import Decoded, decode
from bridge.protocol.schema.table_schema import TableSchema, from_singer

INTEGERS = [0, 1, -1, 7, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 1.0, 1.5, 0.1, 1e15, 1e16, 1e22, 1e300, 5e-324, 1e-7, 2.0**53, 2.0**53 + 2, -3.25, 12.34]
DECIMALS = ["0", "1.50", "-0.01", "12.34", "99999999.99", "1000000"]
WIDE = ["0", "1.5", "-0.000000001", "123456789012345678.123456789", "0.1", "9007199254740993", "1E+17"]
INSTANTS = [datetime(1, 1, 1), datetime(1970, 1, 1), datetime(2024, 2, 29, 12, 30, 15, 123456), datetime(9999, 12, 31)]
TEXTS = [
    *("", "plain", 'a "quoted" \\ \n\t\x00', "é😀", "12", "1.5", "-0", "1e5", "007", "true", "NaN", "null", "9" * 45),
    *("2024-02-29", "2023-02-29", "2024-02-29T01:02:03Z", "2024-02-29 01:02:03.1234567", "2024-02-29T00:00:00+05:00"),
    *("infinity", "{1,2}", '{"a": 1.0}', "0000-01-01", "10000-01-01", "1.50", "0.123456789012345"),
]
JSONS = [
    '{"a": 1.0, "b": [null, 1e400]}',
    "[1, 2]",
    "3",
    '"x"',
    "null",
    "not json",
    "",
    '1, "id": 2',
    '{"a":\n1}',
    "NaN",
]


def extension(type_: Any, values: list[Any], stored: pa.DataType) -> pa.Array:
    return pa.ExtensionArray.from_storage(type_, pa.array(values, stored))


def arrays() -> dict[str, pa.Array]:
    """A column of each type that Arrow has, with values that go wrong easily."""
    ticks = [0, 1, -1, 999, 1000, 1_700_000_000_123_456_789]
    columns: dict[str, pa.Array] = {
        "null": pa.nulls(4),
        "bool": pa.array([True, False, None]),
        "int8": pa.array([-128, None, 127, 0, 1], pa.int8()),
        "int64": pa.array([*INTEGERS, None], pa.int64()),
        "uint64": pa.array([0, 2**64 - 1, None, 2**63], pa.uint64()),
        "float16": pa.array([1.5, None, 0.1, math.inf], pa.float16()),
        "float32": pa.array([1.5, None, 0.1, -0.0, 1e30], pa.float32()),
        "double": pa.array([*FLOATS, None], pa.float64()),
        "not finite": pa.array([math.nan, math.inf, -math.inf, None, 1.0]),
        "decimal": pa.array([*map(Decimal, DECIMALS), None], pa.decimal128(10, 2)),
        "decimal32": pa.array([Decimal("1.5"), None, Decimal("-2.0")], pa.decimal32(5, 1)),
        "wide": pa.array([*map(Decimal, WIDE), None], pa.decimal128(38, 9)),
        "wider": pa.array([*map(Decimal, WIDE), Decimal("1E+50"), None], pa.decimal256(76, 9)),
        "whole": pa.array([Decimal(2**63), Decimal(5), None], pa.decimal128(38, 0)),
        "string": pa.array([*TEXTS, None]),
        "large string": pa.array([*TEXTS, None], pa.large_string()),
        "string view": pa.array([*TEXTS, "x" * 100, None], pa.string_view()),
        "dictionary": pa.array(["a", None, "2024-01-01", "a"]).dictionary_encode(),
        "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([5, None])),
        "binary": pa.array([b"", b"\xff\x00", None, b"text"]),
        "fixed": pa.array([b"ab", None], pa.binary(2)),
        "date": pa.array([date(1, 1, 1), date(9999, 12, 31), None, date(1970, 1, 1)]),
        "far date": pa.array([-(10**6), 3_000_000, 0], pa.int32()).cast(pa.date32()),
        "date64": pa.array([date(2024, 1, 1), None], pa.date64()),
        "seconds": pa.array([0, -62_135_596_800, 253_402_300_800, None, 10**15, -(10**17)], pa.timestamp("s")),
        "naive": pa.array([*INSTANTS, None], pa.timestamp("us")),
        "zoned": pa.array([*INSTANTS[1:3], None], pa.timestamp("ms", "Europe/Berlin")),
        "nanoseconds": pa.array([*ticks, None], pa.timestamp("ns", "UTC")),
        "whole nanoseconds": pa.array([0, 1000, -5000, None], pa.timestamp("ns")),
        "midnights": pa.array([0, 86_400_000_000, -86_400_000_000, None], pa.timestamp("us")),
        "time": pa.array([time(0), time(23, 59, 59, 999999), None]),
        "fine time": pa.array([0, 1, 1000, None], pa.time64("ns")),
        "duration": pa.array([0, -1500, 86_400_000, None], pa.duration("ms")),
        "interval": pa.array([(1, -2, 3_000_000_000), (0, 0, 0), None], pa.month_day_nano_interval()),
        "list": pa.array([[1, None], [], None, [2**63 - 1]], pa.list_(pa.int64())),
        "list of texts": pa.array([["a", "2024-01-01"], None, [None]]),
        "list view": pa.array([[1.5], None, [], [2.0]], pa.list_view(pa.float64())),
        "fixed list": pa.array([[1, 2], None, [3, None]], pa.list_(pa.int64(), 2)),
        "nested list": pa.array([[["a"], None], None, [[]]]),
        "struct": pa.array([{"x": 1, "y": "a"}, None, {"x": None, "y": "2024-01-01"}, {"x": 2**40, "y": None}]),
        "struct of instants": pa.array([{"at": INSTANTS[2], "n": 1}, None, {"at": None, "n": 2}]),
        "fine struct": pa.StructArray.from_arrays([pa.array([1, 1000, None], pa.timestamp("ns"))], ["at"]),
        "empty struct": pa.array([{}, None, {}], pa.struct([])),
        "map": pa.array([[("k", 1), ("k", 2)], None, []], pa.map_(pa.string(), pa.int64())),
        "json": extension(pa.json_(), [*JSONS, None], pa.string()),
        "uuid": extension(pa.uuid(), [uuid.UUID(int=7).bytes, None], pa.binary(16)),
        "bool8": extension(pa.bool8(), [1, None, 0], pa.int8()),
        "list of json": pa.ListArray.from_arrays(
            [0, 2, 3], extension(pa.json_(), ['{"a": 1}', None, "[]"], pa.string())
        ),
    }
    bad = pa.array([b"ok", b'\xff"\n', None, b"\xc3\xa9"])
    columns["not UTF-8"] = pa.Array.from_buffers(pa.string(), 4, bad.buffers())
    return columns


ARRAYS = arrays()
PROPERTIES: dict[str, dict[str, Any]] = {
    "string": {"type": ["null", "string"]},
    "integer": {"type": ["null", "integer"]},
    "wide integer": {"type": ["null", "integer"], "maximum": 10**30},
    "number": {"type": ["null", "number"]},
    "decimal": {"type": ["null", "number"], "multipleOf": 0.01},
    "digits": {"type": ["null", "string"], "format": "singer.decimal"},
    "boolean": {"type": ["null", "boolean"]},
    "date-time": {"type": ["null", "string"], "format": "date-time"},
    "date": {"type": ["null", "string"], "format": "date"},
    "any": {},
    "null": {"type": "null"},
    "integers": {"type": ["null", "array"], "items": {"type": ["null", "integer"]}},
    "numbers": {"type": ["null", "array"], "items": {"type": ["null", "number"]}},
    "texts": {"type": ["null", "array"], "items": {"type": ["null", "string"]}},
    "x and y": {"type": ["null", "object"], "properties": {"x": {"type": "integer"}, "y": {"type": "string"}}},
    "only x": {"type": ["null", "object"], "properties": {"x": {"type": "number"}}},
    "at": {
        "type": ["null", "object"],
        "properties": {"at": {"type": "string", "format": "date-time"}, "n": {}, "more": {"type": "string"}},
    },
}


def compare(batch: pa.RecordBatch, schema: TableSchema, version: int | None = None, at: str | None = None) -> Decoded:
    """Check that both ways give the same."""
    pieces = ArrowPieces(b"".join(data for data, _ in ArrowPieces.pack(batch, version, at)), "s")
    lines = pieces.lines()
    results = []
    for envelope in (False, True):
        ours = pieces.decoded(schema, envelope=envelope)
        theirs = decode(lines, schema, None, envelope=envelope)
        assert ours.table.schema.equals(theirs.table.schema, check_metadata=True)
        assert ours.table.to_pylist() == theirs.table.to_pylist() or str(ours.table) == str(theirs.table)  # NaN
        ours.table.validate(full=True)
        assert ours.rejects == theirs.rejects
        assert +ours.changed == +theirs.changed
        for name in ("versions", "unversioned", "extra", "version", "extracted", "line_numbers"):
            assert getattr(ours, name) == getattr(theirs, name), name
        results.append(ours)
    return results[0]


def schema_of(properties: dict[str, Any], *keys: str) -> TableSchema:
    return from_singer({"type": "object", "properties": properties}, keys)


@pytest.mark.parametrize(("column", "declared"), list(product(ARRAYS, PROPERTIES)))
def test_each_type_as_each_property(column: str, declared: str) -> None:
    """Whatever a column holds and the SCHEMA says, the row is the one that the line gives, or the same reject."""
    array = ARRAYS[column]
    batch = pa.RecordBatch.from_arrays([array, pa.array(range(len(array)))], ["a", "id"])
    schema = schema_of({"id": {"type": "integer"}, "a": PROPERTIES[declared]}, "id")
    compare(batch, schema)
    compare(batch.slice(1), schema, 7, "2024-01-01T00:00:00Z")


@pytest.mark.parametrize("column", ARRAYS)
def test_a_column_outside_the_schema_or_of_a_key(column: str) -> None:
    """It is kept among the extra fields; a key without a value is a reject."""
    array = ARRAYS[column]
    batch = pa.RecordBatch.from_arrays([array], ["a"])
    compare(batch, schema_of({"id": {"type": ["null", "integer"]}}))
    compare(batch, schema_of({"a": {"type": "string"}}, "a"))
    compare(batch, schema_of({"a": {"type": "integer"}, "id": {"type": "integer"}}, "id"))


@pytest.mark.parametrize("seed", range(60))
def test_any_rows_under_any_schema(seed: int) -> None:
    """Columns of all kinds beside one another, most of them fit, others absent or outside the SCHEMA."""
    rng = random.Random(seed)
    count = rng.choice([1, 9, 200])
    names = rng.sample(sorted(ARRAYS), 6)
    columns = [some_of(ARRAYS[name], rng, count) for name in names]
    batch = pa.RecordBatch.from_arrays([pa.array(range(count)), *columns], ["id", *names])
    declared = {name: PROPERTIES[rng.choice(sorted(PROPERTIES))] for name in rng.sample(names, 4)}
    declared |= {"absent": {"type": "string"}}
    compare(batch, schema_of({"id": {"type": "integer"}, **declared}, "id"), rng.choice([None, 1]))


def some_of(array: pa.Array, rng: random.Random, count: int) -> pa.Array:
    """Some of its values, in any order; Arrow cannot concatenate arrays of each type, so there they are one of them."""
    parts = [array.slice(rng.randrange(len(array)), 1) for _ in range(count)]
    try:
        return pa.concat_arrays(parts)
    except (pa.ArrowException, NotImplementedError):
        return pa.nulls(count)
