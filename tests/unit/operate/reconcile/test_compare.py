"""Tables and what their sources sent, compared by a plain oracle and by `compare`."""

from __future__ import annotations

import math
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.errors import DataError
from bridge.lake.reconciled import Proof
from bridge.operate.reconcile.compare import compare
from bridge.operate.reconcile.sides import Question, Side

BEGAN = datetime(2026, 1, 1, tzinfo=timezone.utc)
MARKS = pa.timestamp("us", "UTC")


def side(rows: Sequence[dict[str, Any]], **types: pa.DataType) -> Side:
    return Side(ds.dataset(pa.Table.from_pylist(list(rows), pa.schema(list(types.items())))))


def asked(lake: Side, source: Side, key: Sequence[str] = ("id",), samples: int = 5, **facts: Any) -> Proof:
    with tempfile.TemporaryDirectory() as folder:
        return compare(Question("t", lake, source, key, **facts), Path(folder), samples)


def counts(proof: Proof) -> tuple[int, ...]:
    return proof.missing, proof.extra, proof.stale, proof.in_flight


KEYS = st.one_of(st.none(), st.sampled_from(["", "a", "A", "ä", "a\x00", "'", '"']))
ROWS = st.dictionaries(
    st.tuples(KEYS, st.integers(-2, 2)),
    st.tuples(
        st.one_of(st.none(), st.integers(0, 5)),
        st.one_of(st.none(), st.sampled_from([0.0, -0.0, math.nan, math.inf, 0.1, 1e300])),
    ),
    max_size=8,
)


def rows_of(table: dict[Any, Any]) -> Side:
    rows = [
        {"a": a, "b": b, "at": None if at is None else BEGAN + timedelta(hours=at), "v": v}
        for (a, b), (at, v) in table.items()
    ]
    return side(rows, a=pa.string(), b=pa.int64(), at=MARKS, v=pa.float64())


def same(one: Any, other: Any) -> bool:
    both_nan = all(isinstance(value, float) and math.isnan(value) for value in (one[1], other[1]))
    return bool(one[0] == other[0] and (both_nan or one[1] == other[1]))


@settings(deadline=None)
@given(ROWS, ROWS, st.one_of(st.none(), st.integers(0, 6)))
def test_it_finds_what_differs_and_nothing_else(
    lake: dict[Any, Any], source: dict[Any, Any], bookmark: int | None
) -> None:
    """Composite keys, keys with nulls, NaN; what is at or beyond the bookmark comes with the next run."""

    def is_new(key: Any) -> bool:
        at = source[key][0]
        return bookmark is not None and at is not None and at >= bookmark

    missing = [key for key in source if key not in lake]
    stale = [key for key in source if key in lake and not same(source[key], lake[key])]
    proof = asked(
        rows_of(lake),
        rows_of(source),
        ("a", "b"),
        replication_key="at",
        bookmark=None if bookmark is None else (BEGAN + timedelta(hours=bookmark)).isoformat(),
    )
    assert (proof.lake_rows, proof.source_rows) == (len(lake), len(source))
    assert counts(proof) == (
        sum(not is_new(key) for key in missing),
        sum(key not in source for key in lake),
        sum(not is_new(key) for key in stale),
        sum(map(is_new, [*missing, *stale])),
    )
    assert proof.null_keys == sum(source[key][0] is None for key in missing)
    assert sum(proof.columns.values()) >= proof.stale


@settings(deadline=None)
@given(
    st.lists(st.tuples(KEYS, st.sampled_from([1, 2, None]))), st.lists(st.tuples(KEYS, st.sampled_from([1, 2, None])))
)
def test_without_a_key_rows_are_compared_as_a_multiset(lake: list[Any], source: list[Any]) -> None:
    """A row that is there twice is to be there twice."""
    types = {"a": pa.string(), "b": pa.int64()}
    tables = [side([dict(zip(types, row, strict=True)) for row in rows], **types) for rows in (lake, source)]
    proof = asked(*tables, ())
    missing, extra = Counter(source) - Counter(lake), Counter(lake) - Counter(source)
    assert counts(proof) == (missing.total(), extra.total(), 0, 0)
    shown = [tuple(row.values()) for row in proof.samples.get("missing", ())]
    assert set(shown) <= set(missing)
    assert bool(shown) == bool(missing)


@pytest.mark.parametrize(
    ("ours", "theirs", "is_same"),
    [
        ((Decimal("1.50"), pa.decimal128(10, 2)), (Decimal("1.5"), pa.decimal128(10, 4)), True),
        ((Decimal("1.50"), pa.decimal128(10, 2)), (Decimal("1.5049"), pa.decimal128(10, 4)), False),
        ((1, pa.int64()), (Decimal("1.0"), pa.decimal128(10, 1)), True),
        ((1, pa.int64()), (1.5, pa.float64()), False),
        (("1", pa.string()), (1, pa.int64()), True),
        ((None, pa.int64()), ("no number", pa.string()), False),
        (([1, 2], pa.list_(pa.int64())), ([1, 2], pa.list_(pa.int32())), True),
        (({"x": 1}, pa.struct([("x", pa.int64())])), ({"x": 2}, pa.struct([("x", pa.int64())])), False),
        ((2**53 + 1, pa.int64()), (2**53, pa.int64()), False),
        ((BEGAN, MARKS), (BEGAN + timedelta(microseconds=1), MARKS), False),
    ],
)
def test_values_are_compared_by_the_type_of_the_lake(ours: Any, theirs: Any, is_same: bool) -> None:
    """Two ways to write one number are equal; digits that the lake's type has no room for are a difference."""
    tables = [side([{"id": 1, "v": value}], id=pa.int64(), v=kind) for value, kind in (ours, theirs)]
    proof = asked(*tables)
    assert counts(proof) == (0, 0, 0 if is_same else 1, 0)
    assert proof.columns == ({} if is_same else {"v": 1})


def test_keys_only() -> None:
    """A later replication key is stale; other values are not looked at."""
    types = {"id": pa.int64(), "at": pa.int64(), "v": pa.string()}
    lake = side([{"id": 1, "at": 1, "v": "a"}, {"id": 2, "at": 1, "v": "a"}], **types)
    source = side([{"id": 1, "at": 1, "v": "b"}, {"id": 2, "at": 2, "v": "a"}], **types)
    proof = asked(lake, source, replication_key="at", values=False)
    assert (counts(proof), proof.compared, proof.columns) == ((0, 0, 1, 0), "keys", {})
    assert proof.samples == {"stale": [{"id": 2}]}
    assert asked(lake, source, replication_key="at", bookmark=2, values=False).in_flight == 1


def test_rows_that_are_marked_as_deleted_are_not_there() -> None:
    """On either side; other columns of ours are not compared."""
    types = {"id": pa.int64(), "_sdc_deleted_at": MARKS, "_sdc_sequence": pa.int64()}
    lake = [{"id": 1, "_sdc_deleted_at": BEGAN}, {"id": 2, "_sdc_sequence": 5}, {"id": 3}]
    source = [{"id": 2, "_sdc_sequence": 6}, {"id": 3, "_sdc_deleted_at": BEGAN}]
    assert counts(asked(side(lake, **types), side(source, **types))) == (0, 1, 0, 0)


def test_a_table_that_is_only_added_to() -> None:
    """One of the rows of a key is as the source's; without a key, rows that the source has no more are former ones."""
    types = {"id": pa.int64(), "v": pa.int64()}
    lake = side([{"id": 1, "v": value} for value in (1, 2, 3)], **types)
    for value, stale in ((1, 0), (2, 0), (3, 0), (4, 1)):
        source = side([{"id": 1, "v": value}], **types)
        assert counts(asked(lake, source, keeps_former=True)) == (0, 0, stale, 0)
    proof = asked(lake, side([{"id": 1, "v": 3}], **types), (), keeps_former=True)
    assert (counts(proof), proof.former, proof.differs) == ((0, 2, 0, 0), True, False)


def test_what_runs_brought_meanwhile_is_in_flight() -> None:
    """A row counts only if it was wrong before the source was asked, and is so after it has told all."""
    types = {"id": pa.int64(), "v": pa.int64()}

    def table(**rows: int) -> Side:
        return side([{"id": int(name[1:]), "v": value} for name, value in rows.items()], **types)

    source = table(r1=1, r2=2, r3=3, r4=4)
    before = table(r1=1, r2=0, r4=4, r5=5, r6=6)  # 2 is stale, 3 is missing, 5 and 6 are extra
    after = table(r1=9, r2=2, r4=4, r6=6)  # 2 was brought, 5 deleted; 1 changed after the source had told it
    assert counts(asked(before, source)) == (1, 2, 1, 0)
    assert counts(asked(before, source, later=after)) == (1, 1, 0, 2)


def test_columns_of_one_side_only() -> None:
    """They are named; only those that both have are compared. Names in the lake may be others."""
    renamed = pa.field("v_", pa.int64(), metadata={b"singer": b"V-"})
    lake = Side(
        ds.dataset(pa.table([[1], [2], [0]], schema=pa.schema([("id", pa.int64()), renamed, ("old", pa.int8())])))
    )
    source = side([{"id": 1, "V-": 3, "late": 1}], id=pa.int64(), late=pa.int64(), **{"V-": pa.int64()})
    proof = asked(lake, source)
    assert (proof.only_in_source, proof.only_in_lake, proof.columns) == (("late",), ("old",), {"V-": 1})


LISTS = pa.list_(pa.string())
POINT = pa.struct([("x", pa.int64())])


@pytest.mark.parametrize(
    ("types", "ours", "theirs"),
    [
        ({"l": LISTS}, {"l": None}, {"l": []}),
        ({"o": POINT}, {"o": None}, {"o": {"x": None}}),
        ({"a": LISTS, "b": LISTS}, {"a": ["bob"], "b": []}, {"a": [], "b": ["bob"]}),
        ({"a": LISTS, "b": LISTS}, {"a": ["a"], "b": ["b", "c"]}, {"a": ["a", "b"], "b": ["c"]}),
        ({"l": pa.list_(pa.int64())}, {"l": [0]}, {"l": [0, 0, 0]}),
        ({"l": pa.list_(pa.list_(pa.int64()))}, {"l": [[1], [2]]}, {"l": [[1, 2]]}),
        ({"l": LISTS}, {"l": ["a, b"]}, {"l": ["a", "b"]}),
        ({"l": pa.list_(pa.decimal128(38, 2))}, {"l": [Decimal(2**60)]}, {"l": [Decimal(2**60 + 1)]}),
    ],
)
def test_parts_of_lists_and_objects(types: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Where a list ends, and what is null, counts; -0.0 is 0.0."""
    tables = [side([{"id": 1, **row}], id=pa.int64(), **types) for row in (ours, theirs)]
    assert counts(asked(*tables)) == (0, 0, 1, 0)
    assert counts(asked(tables[0], tables[0])) == (0, 0, 0, 0)
    zeros = [side([{"id": 1, "l": [zero]}], id=pa.int64(), l=pa.list_(pa.float64())) for zero in (0.0, -0.0)]
    assert counts(asked(*zeros)) == (0, 0, 0, 0)


def test_a_property_with_several_columns() -> None:
    """Whichever of them has the value; JSON and plain text are the same text."""
    fields = [pa.field("id", pa.int64()), pa.field("v", pa.int64(), metadata={b"singer": b"v"})]
    fields.append(pa.field("v__string", pa.string(), metadata={b"singer": b"v"}))
    rows = [{"id": 1, "v": 5, "v__string": None}, {"id": 2, "v": None, "v__string": "six"}]
    lake = Side(ds.dataset(pa.Table.from_pylist(rows, pa.schema(fields))))
    same = side([{"id": 1, "v": "5"}, {"id": 2, "v": "six"}], id=pa.int64(), v=pa.string())
    proof = asked(lake, same)
    assert (counts(proof), proof.other_types) == ((0, 0, 0, 0), ("v",))
    assert asked(lake, side([{"id": 1, "v": None}, {"id": 2, "v": "six"}], id=pa.int64(), v=pa.string())).stale == 1
    json_field = pa.field("v", pa.string(), metadata={b"kind": b"json"})
    as_json = Side(ds.dataset(pa.table([[1], ['"x"']], schema=pa.schema([("id", pa.int64()), json_field]))))
    text = side([{"id": 1, "v": "x"}], id=pa.int64(), v=pa.string())
    assert (asked(as_json, text).stale, asked(text, as_json).stale) == (0, 0)


def test_a_key_of_another_type() -> None:
    """Numbers are compared as numbers; a time and a text are not: that is said, instead of a wrong count."""
    lake = side([{"id": 1}], id=pa.int64())
    assert counts(asked(lake, side([{"id": Decimal(1)}], id=pa.decimal128(20, 0)))) == (0, 0, 0, 0)
    with pytest.raises(DataError, match="the key is another one now"):
        asked(lake, side([{"id": "1"}], id=pa.string()))
    with pytest.raises(DataError, match="the key is another one now"):
        asked(lake, side([{"u": 1}], u=pa.int64()), ("u",))


def test_no_library_for_time_zones_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB's client would import pytz for an instant, which pip does not bring."""
    monkeypatch.setitem(sys.modules, "pytz", None)
    types = {"at": MARKS, "v": pa.int64()}
    lake, source = side([{"at": BEGAN, "v": 1}], **types), side([{"at": BEGAN, "v": 2}], **types)
    proof = asked(lake, source, ("at",), replication_key="at")
    assert proof.samples == {"stale": [{"at": "2026-01-01T00:00:00.000000Z"}]}
    assert asked(lake, source, ()).samples["extra"] == [{"at": "2026-01-01T00:00:00.000000Z", "v": 1}]
