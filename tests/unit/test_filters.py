"""A filter finds the rows that are there, in each table format, by each engine, whatever the statistics say."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from bridge.log import Log
from bridge.rollback import roll_back
from tests.filters import OPERATORS, Asked, Places, wrong
from tests.iceberg_lake import catalog_of
from tests.tables import Shop

UTC = timezone.utc
INF, NAN = float("inf"), float("nan")
TOP = "\U0010ffff"
TEXTS = ["", "a", "b", "é", "￿", "\U00010000", "x" * 64, "x" * 65, "x" * 5000, "x" * 5000 + "y", TOP * 70 + "z", "a\x00b"]
TIMES = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=UTC),
    datetime(2024, 2, 29, 23, 59, 59, 123999, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
]


def of(type_: str, **more: Any) -> dict[str, Any]:
    return {"type": ["null", type_], **more}


KINDS: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "n": (of("integer"), [0, 1, -1, 2**63 - 1, -(2**63)]),
    "wide": (of("integer", maximum=10**30), [0, 1, -1, 10**30, -(10**25)]),
    "price": (of("number", multipleOf=0.01), [Decimal("0.00"), Decimal("1.25"), Decimal("-12345678901234567.89")]),
    "tiny": (of("number", multipleOf=1e-10), [Decimal("0.0000000000"), Decimal("0.0000000001"), Decimal("-2.5000000000")]),
    "ratio": (of("number"), [0.0, -0.0, 1.5, -2.5, INF, -INF, 5e-324, 1e308]),
    "open": (of("boolean"), [True, False]),
    "name": (of("string"), TEXTS),
    "day": (of("string", format="date"), [date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31)]),
    "at": (of("string", format="date-time"), TIMES),
    "a.b c": (of("integer"), [3, 4]),
}
"""Columns by name: what a SCHEMA says of them, and values at which bounds go wrong."""


def written(value: Any) -> Any:
    """A value as a tap writes it."""
    return value.isoformat() if isinstance(value, date) else value


def rows_of(shop: Shop) -> tuple[pa.Table, list[str]]:
    """The rows of the table `s`, by the commit log and without any filter, and its files."""
    log = Log(shop.storage, "shop")
    table = log.view(log.head()).tables["s"]
    files = [f"{shop.root}/{table.folder}/{name}" for name in sorted(table.files)]
    parts = [pq.ParquetFile(file).read().replace_schema_metadata() for file in files]
    return pa.concat_tables(parts, promote_options="permissive"), files


def places_of(shop: Shop, format_: str, files: list[str]) -> Places:
    if format_ == "delta":
        return Places(files, delta=f"{shop.root}/shop/s")
    if format_ == "iceberg":
        with catalog_of(shop.storage) as catalog:
            return Places(files, iceberg=catalog.load_table("shop.s"))
    return Places(files)


def filters(draw: Any, rows: pa.Table) -> list[Asked]:
    """Some filters of each column, by values that are there and by others."""
    asked = []
    for name in KINDS:
        if name in rows.schema.names:
            kind = rows.schema.field(name).type
            for operator in draw(st.lists(st.sampled_from(OPERATORS), min_size=2, max_size=3, unique=True)):
                asked.append(Asked(name, operator, draw(st.sampled_from(KINDS[name][1])), kind))
    return asked


@st.composite
def loads(draw: Any) -> tuple[list[dict[str, Any]], list[tuple[list[str], list[dict[str, Any]]]]]:
    """Two or three loads, each with more columns than the one before, and their rows."""
    names = draw(st.permutations(list(KINDS)))
    first = draw(st.integers(2, len(names)))
    made = []
    for load in range(draw(st.integers(1, 3))):
        columns = names[: first + load]
        row = st.fixed_dictionaries(
            {"id": st.integers(0, 9)},
            optional={name: st.sampled_from([None, *KINDS[name][1]]).map(written) for name in columns},
        )
        made.append((columns, draw(st.lists(row, min_size=1, max_size=4))))
    return made


def fill(shop: Shop, made: list[tuple[list[str], list[dict[str, Any]]]]) -> None:
    for columns, records in made:
        properties = {"id": {"type": "integer"}} | {name: KINDS[name][0] for name in columns}
        shop.load("s", properties, records, keys=("id",))


def check(format_: str, shop: Shop, draw: Any) -> None:
    rows, files = rows_of(shop)
    assert list(wrong(format_, rows, places_of(shop, format_, files), filters(draw, rows))) == []


@pytest.fixture(autouse=True)
def _no_power_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda fd: None)


@pytest.mark.parametrize("keys", [(), ("id",)], ids=["append", "upsert"])
@pytest.mark.parametrize("format_", ["parquet", "delta", "iceberg"])
@settings(max_examples=15, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_filters_find_what_is_there(format_: str, keys: tuple[str, ...], data: st.DataObject) -> None:
    """After loads that add columns, and merge by key, each engine finds the rows that it would find in memory."""
    with TemporaryDirectory() as folder:
        shop = Shop(Path(folder), format=format_, keys=keys)
        fill(shop, data.draw(loads()))
        check(format_, shop, data.draw)
