"""Which rows a window has, in columns of each type."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from bridge.errors import DataError
from bridge.load.write.layout import RowWindow
from bridge.protocol.schema.json_schema import TIMESTAMP
from bridge.settings.values.request import Window


def mask(window: str, *columns: pa.Array) -> list[bool]:
    fields = [pa.field(f"k{n}", column.type, metadata={b"singer": b"k"}) for n, column in enumerate(columns)]
    table = pa.Table.from_arrays([*columns], schema=pa.schema(fields))
    result: list[bool] = RowWindow("k", Window.read(window)).mask(table).to_pylist()
    return result


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=timezone.utc)  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(
    ("values", "type_", "inside"),
    [
        ([0, 1, 2, 3, None], pa.int64(), [1, 2]),
        ([-(2**63), 2**63 - 1, 2], pa.int64(), [2]),
        ([0.5, 1.0, 2.999, 3.0, float("nan"), float("inf")], pa.float64(), [1.0, 2.999]),
        (["0.999999999", "1", "2.999999999", "3"], pa.decimal128(38, 9), ["1", "2.999999999"]),
        (["9" * 38, "1"], pa.decimal128(38, 0), ["1"]),
        (["0", "1", "02.5", "3", None], pa.string(), ["1", "02.5"]),
    ],
)
def test_numbers(values: list[Any], type_: pa.DataType, inside: list[Any]) -> None:
    """The beginning is in it, the end is not; what has no value is not."""
    array = pa.array([Decimal(one) for one in values] if pa.types.is_decimal(type_) else values, type_)
    assert mask("1..3", array) == [one in inside for one in values]


@pytest.mark.parametrize(
    ("values", "type_", "inside"),
    [
        (
            [at(2023, 12, 31, 23, 59, 59, 999999), at(2024, 1, 1), at(2024, 2, 29, 23, 59, 59, 999999), at(2024, 3, 1)],
            TIMESTAMP,
            [False, True, True, False],
        ),
        ([date(2023, 12, 31), date(2024, 1, 1), date(2024, 3, 1), None], pa.date32(), [False, True, False, False]),
        (
            ["2024-01-01", "2024-02-29 23:00:00", "2024-03-01T01:00:00+02:00", "2024-01-01T01:00:00+02:00", None],
            pa.string(),
            [True, True, True, False, False],
        ),
    ],
)
def test_times(values: list[Any], type_: pa.DataType, inside: list[bool]) -> None:
    """Text is compared as the time that it says, whatever its zone."""
    assert mask("2024-01-01..2024-03-01", pa.array(values, type_)) == inside


def test_two_columns_of_one_property() -> None:
    """A column whose type has changed may have a twin: each row is looked for in both."""
    assert mask("1..3", pa.array([1, None, 5]), pa.array([None, "2", None])) == [True, True, False]


@pytest.mark.parametrize("values", [[1], ["soon"], [True], [1.5], [{"a": 1}]])
def test_values_of_another_kind(values: list[Any]) -> None:
    """No guess: a number is not taken for a time."""
    with pytest.raises(DataError, match="the window is one of times, and the replication key has"):
        mask("2024-01-01..2024-03-01", pa.array(values))


def test_no_column() -> None:
    """A transform may have left it out."""
    with pytest.raises(DataError, match="no column of the replication key"):
        RowWindow("k", Window.read("1..2")).mask(pa.table({"v": [1]}))
