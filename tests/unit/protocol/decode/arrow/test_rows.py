"""Arrow rows as JSON lines: every type that Arrow has, and nothing lost."""

from __future__ import annotations

import math
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from bridge.protocol.decode.arrow.plain import plain_pieces
from bridge.protocol.decode.arrow.rows import json_rows

COLUMNS: list[tuple[pa.Array, list[str]]] = [
    (pa.array([-128, None, 127], pa.int8()), ["-128", "null", "127"]),
    (pa.array([2**64 - 1, 0, None], pa.uint64()), ["18446744073709551615", "0", "null"]),
    (pa.array([0.1, 5e-324, 1.7976931348623157e308]), ["0.1", "5e-324", "1.7976931348623157e+308"]),
    (pa.array([math.nan, -math.inf, None]), ["NaN", "-Infinity", "null"]),
    (pa.array([-0.0, None, math.inf]), ["-0.0", "null", "Infinity"]),
    (pa.array([0.1, None], pa.float32()), ["0.10000000149011612", "null"]),
    (pa.array(["plain", "é", None]), ['"plain"', '"é"', "null"]),
    (pa.array(['a"\n\\', "\u0000", None], pa.large_string()), ['"a\\"\\n\\\\"', '"\\u0000"', "null"]),
    (pa.array(["a", None, "a"]).dictionary_encode(), ['"a"', "null", '"a"']),
    (pa.array([Decimal("1.10"), None, Decimal("-0.01")]), ["1.10", "null", "-0.01"]),
    (pa.array([Decimal("9" * 38)], pa.decimal128(38, 0)), ["9" * 38]),
    (pa.array([True, None, False]), ["true", "null", "false"]),
    (pa.array([datetime(1, 1, 1), None], pa.timestamp("us")), ['"0001-01-01T00:00:00.000000"', "null"]),
    (pa.array([-1000], pa.timestamp("ns")), ['"1969-12-31T23:59:59.999999000"']),
    (pa.array([0, 1], pa.time64("ns")), ['"00:00:00.000000000"', '"00:00:00.000000001"']),
    (pa.array([-1, 1999], pa.timestamp("ns")), ['"1969-12-31T23:59:59.999999999"', '"1970-01-01T00:00:00.000001999"']),
    (pa.array([10**15, -(10**17)], pa.timestamp("s", "UTC")), ['"1000000000000000"', '"-100000000000000000"']),
    (pa.array([-(2**63), 0], pa.timestamp("ms")), ['"-9223372036854775808"', '"1970-01-01T00:00:00.000000"']),
    (pa.array([2**31 - 1], pa.int32()).cast(pa.date32()), ['"2147483647"']),
    (pa.array([1500, -86_400_000], pa.duration("ms")), ['"PT1.5S"', '"PT-86400S"']),
    (pa.array([(1, 2, 3_000_000_000), (0, -1, 0)], pa.month_day_nano_interval()), ['"P1M2DT3S"', '"P-1D"']),
    (pa.array([b"ok", b'\xff"'], pa.binary()).view(pa.string()), ['"ok"', '"\udcff\\u0022"']),
    (pa.array([0], pa.timestamp("s", "Europe/Berlin")), ['"1970-01-01T00:00:00.000000+00:00"']),
    (pa.array([date(9999, 12, 31), None]), ['"9999-12-31"', "null"]),
    (pa.array([time(23, 59, 59, 999999)]), ['"23:59:59.999999"']),
    (pa.array([b"\xff\x00", None]), ['"/wA="', "null"]),
    (pa.array([[1, None], [], None]), ["[1,null]", "[]", "null"]),
    (pa.array([[["a"], None], None, [[]]]), ['[["a"],null]', "null", "[[]]"]),
    (pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), ["[1,2]", "null"]),
    (pa.array([{"x": 1, "y z": {"q": "r"}}, None, {}]), ['{"x":1,"y z":{"q":"r"}}', "null", '{"x":null,"y z":null}']),
    (pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())), ['{"k":1}', "null", "{}"]),
    (pa.nulls(2), ["null", "null"]),
]


@pytest.mark.parametrize(("array", "texts"), COLUMNS, ids=[str(array.type) for array, _ in COLUMNS])
def test_a_column_of_each_type(array: pa.Array, texts: list[str]) -> None:
    """Each value has its JSON text; a part of a column has the texts of its own rows."""
    batch = pa.RecordBatch.from_arrays([array, array], ['a"b', "c"])
    lines = [f'{{"a\\"b":{text},"c":{text}}}\n' for text in texts]
    assert written(batch) == "".join(lines)
    assert written(batch.slice(1)) == "".join(lines[1:])


def written(batch: pa.RecordBatch) -> str:
    return b"".join(map(json_rows, plain_pieces(batch))).decode(errors="surrogateescape")


@pytest.mark.parametrize(
    "array",
    [
        pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
        pa.array([[(1, 2)]], pa.map_(pa.int64(), pa.int64())),
        pa.Array.from_buffers(pa.decimal256(3, 77), 1, [None, pa.py_buffer(bytes(32))]),
    ],
    ids=["union", "map with numbers as keys", "decimal with 77 digits after its point"],
)
def test_a_type_that_json_does_not_have_is_refused(array: Any) -> None:
    """Nothing is guessed."""
    with pytest.raises(ValueError, match="for which records have no form"):
        list(plain_pieces(pa.RecordBatch.from_arrays([array], ["a"])))


def test_json_is_embedded_as_one_value() -> None:
    """JSON of an `arrow.json` column is a value on one line; text that is no JSON is a text."""
    values = ['{"a":\n 1}', "not json", '1, "b": 2', "", None]
    array = pa.ExtensionArray.from_storage(pa.json_(), pa.array(values))
    batch = pa.RecordBatch.from_arrays([array], ["a"])
    assert written(batch).splitlines() == [
        '{"a":{"a":  1}}',
        '{"a":"not json"}',
        '{"a":"1, \\"b\\": 2"}',
        '{"a":""}',
        '{"a":null}',
    ]


NULLS = pa.ListArray.from_arrays(pa.array([2, 5, 5, 6], pa.int32()), pa.nulls(8))


@pytest.mark.parametrize(
    ("array", "texts"),
    [
        (
            pa.MapArray.from_arrays(pa.array([0, 1, 3], pa.int32()), pa.array(list("abc")), NULLS),
            ['{"a":[null,null,null]}', '{"b":[],"c":[null]}'],
        ),
        (
            pa.MapArray.from_arrays(pa.array([1, 2, 3], pa.int32()), pa.array(list("abc")), NULLS),
            ['{"b":[]}', '{"c":[null]}'],
        ),
        (
            pa.MapArray.from_arrays(
                pa.array([0, 1, 3], pa.int32()), pa.array(list("abc")), NULLS, mask=pa.array([True, False])
            ),
            ["null", '{"b":[],"c":[null]}'],
        ),
        (pa.DictionaryArray.from_arrays(pa.array([2, 0], pa.int8()), NULLS), ["[null]", "[null,null,null]"]),
    ],
)
def test_nested_nulls_with_offsets(array: pa.Array, texts: list[str]) -> None:
    """Arrow's own casts and takes of these fail, or end the process."""
    batch = pa.RecordBatch.from_arrays([array], ["a"])
    assert written(batch).splitlines() == [f'{{"a":{text}}}' for text in texts]
    assert written(batch.slice(1)).splitlines() == [f'{{"a":{texts[1]}}}']


TEXT = "x" * (1 << 20)
BOMBS = {
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([0] * 5000, pa.int32()), pa.array([TEXT])),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([5000], pa.int32()), pa.array([TEXT])),
    "struct": pa.StructArray.from_arrays(
        [pa.DictionaryArray.from_arrays(pa.array([0] * 5000, pa.int32()), pa.array([TEXT]))], ["a"]
    ),
    "lists": pa.ListViewArray.from_arrays(
        pa.array([0] * 5000, pa.int32()), pa.array([1 << 17] * 5000, pa.int32()), pa.array([1] * (1 << 17))
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_few_bytes_that_stand_for_many(name: str) -> None:
    """Pieces are small, whatever their rows were before; memory holds one at a time."""
    batch = pa.RecordBatch.from_arrays([BOMBS[name]], ["a"])
    pieces = [piece for piece, _ in zip(plain_pieces(batch), range(4), strict=False)]
    assert max(piece.nbytes for piece in pieces) < 10 << 20


def test_a_row_that_is_too_large_is_refused() -> None:
    """In words, before memory is asked for."""
    rows = pa.ListViewArray.from_arrays(
        pa.array([0], pa.int32()),
        pa.array([1 << 20], pa.int32()),
        pa.DictionaryArray.from_arrays(pa.array([0] * (1 << 20), pa.int32()), pa.array([TEXT])),
    )
    with pytest.raises(ValueError, match=r"a row of it has some [0-9]+ MiB, and may have 1024"):
        list(plain_pieces(pa.RecordBatch.from_arrays([rows], ["a"])))


def over(values: list[str | None], type_: pa.DataType) -> pa.Array:
    return pa.ExtensionArray.from_storage(pa.json_(type_), pa.array(values, type_))


JSON_VIEWS = over(
    ['{"a":{"b":[1.5e400]}}', None, '{"aaaaaaaaaaaaa":1}', "[1, 2]", "3", '{"bbbbbbbbb":1}'], pa.string_view()
)
LISTS = pa.ListArray.from_arrays(pa.array(range(7), pa.int32()), JSON_VIEWS)
ODD: dict[str, tuple[pa.Array, list[str]]] = {
    "an empty list over a list that begins later": (
        pa.ListArray.from_arrays(
            pa.array([0, 0], pa.int32()),
            pa.LargeListArray.from_arrays(pa.array([2], pa.int64()), pa.array([1, 2, 3, 4])),
        ),
        ["[]"],
    ),
    "JSON as views, in a list of lists with nulls": (
        pa.ListArray.from_arrays(pa.array([0, 1, 3, 6], pa.int32()), LISTS, mask=pa.array([False, True, False])),
        ['[[{"a":{"b":[1.5e400]}}]]', "null", '[[[1, 2]],[3],[{"bbbbbbbbb":1}]]'],
    ),
    "JSON as views, in a list view": (
        pa.ListViewArray.from_arrays(pa.array([4, 0, 3], pa.int32()), pa.array([1, 2, 0], pa.int32()), JSON_VIEWS),
        ["[3]", '[{"a":{"b":[1.5e400]}},null]', "[]"],
    ),
    "a dictionary of views": (
        pa.DictionaryArray.from_arrays(pa.array([1, 0, None]), pa.array(["a", "b" * 20], pa.string_view())),
        [f'"{"b" * 20}"', '"a"', "null"],
    ),
    "runs of views": (
        pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int16()), pa.array(["a", None], pa.string_view())),
        ['"a"', '"a"', "null"],
    ),
    "runs of runs": (
        pa.RunEndEncodedArray.from_arrays(
            pa.array([1, 3], pa.int32()),
            pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), pa.array([7, 8])),
        ),
        ["7", "8", "8"],
    ),
    "runs of JSON": (
        pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), over(["{}", "[1]"], pa.string())),
        ["{}", "[1]"],
    ),
    "an empty list of maps": (
        pa.ListArray.from_arrays(
            pa.array([0, 0, 0], pa.int32()), pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())).slice(1)
        ),
        ["[]", "[]"],
    ),
    "a map of views": (
        pa.MapArray.from_arrays(
            pa.array([0, 1, 2], pa.int32()),
            pa.array(["k", "l"], pa.string_view()),
            pa.array([b"x", None], pa.binary_view()),
        ),
        ['{"k":"eA=="}', '{"l":null}'],
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_what_arrow_itself_cannot_flatten_or_take(name: str) -> None:
    """Files that are valid, and by which its kernels fail, read foreign memory or end the process."""
    array, texts = ODD[name]
    batch = pa.RecordBatch.from_arrays([array], ["a"])
    assert written(batch).splitlines() == [f'{{"a":{text}}}' for text in texts]
    assert written(batch.slice(1)).splitlines() == [f'{{"a":{text}}}' for text in texts[1:]]


def test_a_dictionary_of_dictionaries_is_refused() -> None:
    """Arrow reads other values than were written."""
    inner = pa.array([1, 2, 1]).dictionary_encode()
    batch = pa.RecordBatch.from_arrays([pa.DictionaryArray.from_arrays(pa.array([2, 0, 1]), inner)], ["a"])
    with pytest.raises(ValueError, match="the column a is a dictionary of dictionaries"):
        list(plain_pieces(batch))


@pytest.mark.parametrize("columns", [500, 20])
def test_columns_of_nothing_do_not_become_long_lines(columns: int) -> None:
    """A piece is cut by what its rows are as text, too."""
    rows = pa.RecordBatch.from_arrays([pa.nulls(65_536)] * columns, [f"c{n}" for n in range(columns)])
    assert max(len(json_rows(piece)) for piece in plain_pieces(rows)) < 16 << 20


MANY: dict[str, pa.Array] = {
    "a dictionary of views": pa.DictionaryArray.from_arrays(
        pa.array([n % 5000 for n in range(20_000)], pa.int32()),
        pa.array([f"category {n:010}" for n in range(5000)], pa.string_view()),
    ),
    "a list view of objects": pa.array(
        [[{"a": n, "b": "x"}] for n in range(20_000)], pa.list_view(pa.struct([("a", pa.int64()), ("b", pa.string())]))
    ),
    "a dictionary of fixed bytes": pa.DictionaryArray.from_arrays(
        pa.array([n % 5000 for n in range(20_000)], pa.int32()),
        pa.array([n.to_bytes(16, "big") for n in range(5000)], pa.binary(16)),
    ),
    "a dictionary of lists": pa.DictionaryArray.from_arrays(
        pa.array([n % 5000 for n in range(20_000)], pa.int32()), pa.array([[n, n] for n in range(5000)])
    ),
}


@pytest.mark.parametrize("name", MANY)
def test_usual_rows_are_not_cut_small(name: str) -> None:
    """A row is counted by what it holds, not by all that it could point to."""
    batch = pa.RecordBatch.from_arrays([MANY[name]], ["a"])
    pieces = list(plain_pieces(batch))
    assert sum(piece.num_rows for piece in pieces) == 20_000
    assert len(pieces) < 4
