"""Groups that are merged without Spark: what is an error in SQL is one here. `keeper.py` compares the results."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from bridge.errors import DataError
from bridge.load.views.algebra import RECOMPUTE, TypedView, table_schema
from bridge.load.views.merge import can_merge, merge_groups
from bridge.protocol.schema.json_schema import TIMESTAMP
from bridge.settings.sql.view import read_view

LONGEST = Decimal("9" * 38)


def typed(aggregate: str, *arguments: pa.DataType) -> TypedView:
    view = read_view("v", f"SELECT k, {aggregate} AS a FROM s GROUP BY k")
    return TypedView(view, table_schema(view, {"k": pa.field("k", pa.string())}, {"a": arguments}))


def merged(view: TypedView, partials: dict[str, list[Any]], state: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Merge partial groups, of columns by name, with groups so far."""
    types = {field.name: field.type for field in view.schema}
    made = (
        pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})
        for columns in (partials, state or {name: [] for name in view.schema.names})
    )
    return merge_groups(view, *made).to_pylist()


def test_a_sum_has_at_most_38_digits() -> None:
    """It is exact up to there, and more is an error, not a rounded number."""
    view = typed("sum(x)", pa.decimal128(38, 0))
    partials: dict[str, list[Any]] = {"k": ["a"], "_view_rows": [1], "a": [Decimal(1)], "_view_count_a": [1]}
    state = partials | {"a": [Decimal("9" * 37 + "8")]}
    assert merged(view, partials, state)[0]["a"] == LONGEST
    with pytest.raises(DataError) as caught:
        merged(view, partials, state | {"a": [LONGEST]})
    assert "the sum in a has more than 38 digits" in caught.value.hint


def test_groups_of_less_than_no_rows_are_an_error_and_of_none_are_left_out() -> None:
    """A view that has lost touch with its table is not mended in silence."""
    view = typed("count(*)", pa.int64())
    state: dict[str, list[Any]] = {"k": [None], "_view_rows": [2], "a": [2]}
    assert merged(view, {"k": [None], "_view_rows": [-2], "a": [-2]}, state) == []
    with pytest.raises(DataError) as caught:
        merged(view, {"k": ["a"], "_view_rows": [-2], "a": [-2]}, state)
    assert "fewer than zero rows in a group" in caught.value.hint


def test_zero_is_a_rank_and_a_value_like_any_other() -> None:
    """And a time before the year 1, which Python's have not, passes."""
    view = typed("max_by(x, y)", TIMESTAMP, pa.int64())
    table = pa.table({"k": ["a"], "_view_rows": [1]})
    rank = pa.struct([("by", pa.int64()), ("last", pa.bool_()), ("value", TIMESTAMP)])
    added = pa.StructArray.from_arrays(
        [pa.array([0]), pa.array([True]), pa.array([-(10**17)], pa.int64()).cast(TIMESTAMP)], fields=list(rank)
    )
    table = table.append_column("_view_added_a", added).append_column("_view_removed_a", pa.nulls(1, rank))
    groups = merge_groups(view, table, view.schema.empty_table())
    assert groups.column("a").cast(pa.int64()).to_pylist() == [-(10**17)]
    assert groups.column("_view_by_a").to_pylist() == [0]
    assert not groups.column(RECOMPUTE).to_pylist()[0]
    again = merge_groups(view, table.set_column(2, "_view_added_a", pa.nulls(1, rank)), groups.drop_columns(RECOMPUTE))
    assert again.column("a").equals(groups.column("a"))


def test_nested_values_are_compared_by_spark() -> None:
    """Their order is Spark's own."""
    assert not can_merge(typed("max_by(x, y)", pa.struct([("z", pa.int64())]), pa.int64()))
    assert can_merge(typed("max_by(x, y)", pa.string(), pa.float64()))
