"""Folders by the values of columns: one name a value, and the value from the name."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.errors import DataError, SettingsError
from bridge.load.write.partition import NULL, Partition, check_layout, folder_of, partitioned

UTC = pa.timestamp("us", "UTC")
MOMENT = datetime(2025, 3, 9, 23, 59, 59, 120000, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("value", "granularity", "folder"),
    [
        ("DE", None, "k=DE"),
        (None, None, f"k={NULL}"),
        ("", None, f"k={NULL}"),
        ("a b/c=%", None, "k=a b%2Fc%3D%25"),
        ("é日\n\\:*?\"#'{[]^\x7f", None, "k=é日%0A%5C%3A%2A%3F%22%23%27%7B%5B%5D%5E%7F"),
        (-7, None, "k=-7"),
        (True, None, "k=true"),
        (Decimal("1.50"), None, "k=1.50"),
        (Decimal("1E+3"), None, "k=1000"),
        (date(1, 2, 3), None, "k=0001-02-03"),
        (MOMENT, None, "k=2025-03-09 23%3A59%3A59.12"),
        (MOMENT.replace(microsecond=0), None, "k=2025-03-09 23%3A59%3A59"),
        (MOMENT, "year", "k_year=2025"),
        (MOMENT, "month", "k_month=2025-03"),
        (date(1, 2, 3), "day", "k_day=0001-02-03"),
        (MOMENT, "hour", "k_hour=2025-03-09-23"),
        (None, "hour", f"k_hour={NULL}"),
    ],
)
def test_folder_names(value: Any, granularity: str | None, folder: str) -> None:
    """A folder is named as Hive and Spark would name it."""
    assert folder_of(Partition("k", granularity), value) == folder


def test_a_columns_name_is_encoded_as_well() -> None:
    """Whatever a column is called, the folder is one level, with one `=`."""
    assert folder_of(Partition("a/b=c"), 1) == "a%2Fb%3Dc=1"


def test_no_folder_for_a_long_text() -> None:
    """What no file system can hold is an error that names the column."""
    with pytest.raises(DataError, match="too long") as caught:
        folder_of(Partition("note"), "ü" * 130)
    assert "note" in str(caught.value)


@settings(deadline=None)
@given(st.lists(st.none() | st.text(max_size=40), max_size=30), st.lists(st.integers(-2, 2), min_size=30, max_size=30))
def test_each_row_is_in_the_folder_of_its_values(texts: list[str | None], numbers: list[int]) -> None:
    """No row is lost, none is twice, each folder comes once, and rows inside one keep their order."""
    table = pa.table({"id": pa.array(range(len(texts))), "s": pa.array(texts, pa.string()), "n": numbers[: len(texts)]})
    parts = partitioned(table, (Partition("s"), Partition("n")))
    seen = []
    for folder, part in parts:
        first, second = (text.partition("=")[2] for text in folder.split("/"))
        for row in part.to_pylist():
            assert unquote(first) == (row["s"] or NULL)
            assert second == str(row["n"])
            seen.append(row["id"])
        assert part["id"].to_pylist() == sorted(part["id"].to_pylist())
    assert sorted(seen) == list(range(len(texts)))
    assert len({folder for folder, _ in parts}) == len(parts)


def test_sorted_inside_a_folder() -> None:
    """`-` sorts the other way round, null comes last either way, and equal rows stay in their order."""
    table = pa.table({"k": list("abababab"), "a": [1, 1, None, 2, 3, 1, 1, None], "b": [1, 2, 3, 4, 5, 6, 7, 8]})
    parts = dict(partitioned(table, (Partition("k"),), ("-a", "b")))
    assert [part["b"].to_pylist() for part in parts.values()] == [[5, 1, 7, 3], [4, 2, 6, 8]]
    assert partitioned(table, (), ("-b",))[0][1]["b"].to_pylist() == [8, 7, 6, 5, 4, 3, 2, 1]


def test_nothing_to_part() -> None:
    """Without rows there are no parts; without partitions the one folder is the table's."""
    table = pa.table({"k": ["a", "b"]})
    assert partitioned(table.slice(0, 0), (Partition("k"),)) == []
    assert [(folder, part.num_rows) for folder, part in partitioned(table, ())] == [("", 2)]


def test_times_count_in_utc() -> None:
    """The last second of a day in UTC is that day's, wherever this machine is, also before 1970."""
    moments = [MOMENT, datetime(1969, 12, 31, 23, 59, 59, tzinfo=timezone.utc), None]
    table = pa.table({"t": pa.array(moments, UTC)})
    folders = [folder for folder, _ in partitioned(table, (Partition("t", "day"),))]
    assert folders == ["t_day=2025-03-09", "t_day=1969-12-31", f"t_day={NULL}"]


SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        pa.field("data", pa.string(), metadata={"kind": "json"}),
        ("at", UTC),
        ("day", pa.date32()),
        ("price", pa.float64()),
        ("tags", pa.list_(pa.string())),
        ("at_day", pa.string()),
    ]
)


@pytest.mark.parametrize(
    ("partition_by", "sort_by", "error"),
    [
        ([Partition("nmae")], [], "partition_by names no column .*column=nmae"),
        ([Partition("data")], [], "JSON cannot name a folder"),
        ([Partition("tags")], [], "a list, an object"),
        ([Partition("price")], [], "floating-point"),
        ([Partition("name", "day")], [], "the day of a column that is no time"),
        ([Partition("day", "hour")], [], "the hour of a date"),
        ([Partition("at", "day")], [], "a column has the folders' name"),
        ([], ["-nmae"], "sort_by names no column"),
        ([], ["tags"], "no order"),
        ([], ["data"], "no order"),
    ],
)
def test_what_cannot_be(partition_by: Sequence[Partition], sort_by: Sequence[str], error: str) -> None:
    """A wrong column is an error that says what is wrong, and the near name is offered."""
    with pytest.raises(SettingsError, match=error) as caught:
        check_layout(SCHEMA, "orders", partition_by, sort_by)
    assert caught.value.hint
    assert "orders" in str(caught.value)
    if "nmae" in error:
        assert caught.value.hint == 'did you mean "name"?'


def test_what_can_be() -> None:
    """Texts, dates and times name folders, and whatever has an order sorts."""
    check_layout(SCHEMA, "orders", [Partition("name"), Partition("day", "month"), Partition("at", "hour")], ["-price"])
