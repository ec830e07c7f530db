"""Older rows get the columns that their table has now."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bridge.protocol.decode.casting import refit

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
