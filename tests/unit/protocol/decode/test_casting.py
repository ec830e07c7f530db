"""Older rows get the columns that their table has now."""

from __future__ import annotations

import json
import struct
from datetime import date
from decimal import Decimal
from math import isfinite

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.protocol.decode.casting import fitted, refit

OLD = pa.table({"id": pa.chunked_array([[1, 2], [3]]), "v": ["a", "b", None], "gone": [0.5, 1.5, 2.5]})


def test_columns_by_name() -> None:
    """A wider type, a new column, another order, one column less; of what stays the chunks are not copied."""
    fields = [pa.field("new", pa.string()), pa.field("v", pa.string()), pa.field("id", pa.float64())]
    rows = refit(OLD, fields)
    assert rows.schema == pa.schema(fields)
    assert rows.to_pydict() == {"new": [None] * 3, "v": ["a", "b", None], "id": [1.0, 2.0, 3.0]}
    same = refit(OLD, [OLD.schema.field("id")]).column("id")
    assert [chunk.buffers()[1].address for chunk in same.chunks] == [
        chunk.buffers()[1].address for chunk in OLD.column("id").chunks
    ]


def test_a_name_that_is_there_twice() -> None:
    """No guess which one is meant, and no nulls: such a file is not one of ours."""
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["id", "id"])
    with pytest.raises(KeyError, match="id"):
        refit(twice, [pa.field("id", pa.int64())])


def test_slices() -> None:
    """Arrays that are a part of a larger one, with nulls around and inside, are cast to what they show."""
    inner = pa.struct([("a", pa.int64()), ("b", pa.date32())])
    old = pa.field("c", pa.list_(inner))
    day = date(2024, 2, 29)
    values = [[{"a": 1, "b": day}], None, [], [None, {"a": None, "b": None}], [{"a": 2, "b": day}] * 2]
    array = pa.array([[{"a": 9, "b": day}], *values, [{"a": 9, "b": day}]], old.type).slice(1, 5)
    new = pa.field("c", pa.list_(pa.struct([("b", pa.string()), ("a", pa.float64()), ("x", pa.bool_())])))
    wanted = [
        None if v is None else [i and {"b": i["b"] and "2024-02-29", "a": i["a"], "x": None} for i in v] for v in values
    ]
    found = fitted(array, old, new)
    found.validate(full=True)
    assert found.to_pylist() == wanted
    text = fitted(array, old, pa.field("c", pa.string(), metadata={b"kind": b"json"})).to_pylist()
    assert text[0] == '[{"a":1,"b":"2024-02-29"}]'
    assert text[1:4] == [None, "[]", '[null,{"a":null,"b":null}]']


@given(st.lists(st.none() | st.floats() | st.integers(-(2**63), 2**63 - 1).map(float), max_size=5))
def test_numbers_as_text(values: list[float | None]) -> None:
    """A double's text is JSON that reads back as the same double; what is no number keeps its name."""
    texts = fitted(pa.array(values, pa.float64()), pa.field("c", pa.float64()), pa.field("c", pa.string())).to_pylist()
    for value, text in zip(values, texts, strict=True):
        if value is None:
            assert text is None
        elif isfinite(value):
            assert struct.pack("d", json.loads(text)) == struct.pack("d", value)
        else:
            assert text in ("NaN", "Infinity", "-Infinity")


@given(st.lists(st.decimals(-(10**28), 10**28, places=9), max_size=5))
def test_decimals_as_text(values: list[Decimal]) -> None:
    """A decimal's text has all of its digits, no exponent, and no zeros behind."""
    type_ = pa.decimal128(38, 9)
    texts = fitted(pa.array(values, type_), pa.field("c", type_), pa.field("c", pa.string())).to_pylist()
    assert [Decimal(text) for text in texts] == values
    assert not any("E" in text or ("." in text and text.endswith("0")) for text in texts)
