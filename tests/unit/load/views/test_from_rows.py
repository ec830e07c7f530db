"""Sessions, `count(DISTINCT x)` and percentiles: groups that change are computed anew, and others stay as they are."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import bridge.load.spark.views
import bridge.load.write.groups
from bridge.load.write.spill import CHANGE
from tests.unit.load.views.keeper import Keeper, rows_of
from tests.unit.load.views.test_change import COLUMNS, Kept

SESSION = "session_window(timestamp_seconds(at), '3 seconds')"
VIEW = f"""
SELECT {SESSION}.end AS until, count(*) AS n, count(DISTINCT v) AS vs, k, {SESSION}.start AS since, sum(v) AS total,
  median(v) FILTER (WHERE v <> 4) AS middle, percentile(v, 0.9) AS high, min_by(v, unread) AS first, max(v) AS most,
  count(DISTINCT unread) FILTER (WHERE v > 2) AS us
FROM s WHERE v <> 7 GROUP BY k, since, until
"""
SPANS = f"SELECT k, {SESSION}.start AS since, {SESSION}.end AS until, count(*) AS n FROM s GROUP BY k, since, until"
Row = tuple[str | None, int, int | None, int]
"""`k`, `v`, `at` in seconds, and `unread`."""


def sessions(rows: Iterable[Row], gap: int = 3) -> list[tuple[int, int, list[Row]]]:
    """Start, end, and rows of each session: one and the next row of a key are at most the gap apart."""
    by_key = defaultdict[str | None, list[tuple[int, Row]]](list)
    for row in rows:
        if row[2] is not None:
            by_key[row[0]].append((row[2], row))
    result: list[tuple[int, int, list[Row]]] = []
    for timed in by_key.values():
        timed.sort(key=lambda one: one[0])
        starts = [0, *(n + 1 for n, (one, other) in enumerate(pairwise(timed)) if other[0] - one[0] > gap)]
        for start, end in zip(starts, [*starts[1:], len(timed)], strict=True):
            of_session = timed[start:end]
            result.append((of_session[0][0], of_session[-1][0] + gap, [row for _, row in of_session]))
    return result


def percentile(values: list[int], place: float) -> float | None:
    if not values:
        return None
    at = (len(values) - 1) * place
    low, high = math.floor(at), math.ceil(at)
    values = sorted(values)
    return values[low] if low == high else (high - at) * values[low] + (at - low) * values[high]


def expected(rows: Iterable[Row]) -> list[str]:
    """The rows of `VIEW`, in plain Python."""
    groups = []
    for start, end, of_session in sessions(row for row in rows if row[1] != 7):
        values = [row[1] for row in of_session]
        group = (
            *(end, len(values), len(set(values)), of_session[0][0], start, sum(values)),
            *(percentile([v for v in values if v != 4], 0.5), percentile(values, 0.9)),
            *(min((row[3], row[1]) for row in of_session)[1], max(values), len({r[3] for r in of_session if r[1] > 2})),
        )
        groups.append(group)
    return comparable(groups)


def comparable(groups: Iterable[tuple[Any, ...]]) -> list[str]:
    """Groups in an order of their own, numbers to 12 digits."""
    texts = (
        tuple(f"{one:.12g}" if isinstance(one, (int, float, Decimal)) else one for one in group) for group in groups
    )
    return sorted(map(repr, texts))


def stored(kept: Kept) -> list[str]:
    """The same, from the view's files."""
    rows = [row for file in kept.state for row in pq.read_table(kept.storage.root / file.key).to_pylist()]
    groups = (list(row.values())[:11] for row in rows)
    return comparable(tuple(one.timestamp() if isinstance(one, datetime) else one for one in group) for group in groups)


def table(rows: Iterable[Row]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(COLUMNS.names, row, strict=True)) for row in rows], COLUMNS)


def rows_in(kept: Kept) -> list[Row]:
    return [row for rows in kept.files.values() for row in zip(*rows.to_pydict().values(), strict=True)]


def some(dice: random.Random, count: int) -> pa.Table:
    def row() -> Row:
        at = None if dice.random() < 0.1 else dice.randrange(90)
        return dice.choice(["a", "B", None, "é", ""]), dice.randrange(9), at, dice.randrange(99)

    return table(row() for _ in range(count))


@pytest.mark.parametrize("few", [30, 1 << 18])
def test_files_come_and_go(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """Whether few rows change, or many, or few of many sessions: the view is what plain Python makes of all rows."""
    monkeypatch.setattr(bridge.load.spark.views, "_FEW", few)
    monkeypatch.setattr(bridge.load.write.groups, "GROUP_ROWS", 9)
    dice, kept = random.Random(5), Kept(spark, tmp_path, VIEW)
    for added, removed in (([60, 40], 0), ([4], 0), ([5], 1), ([], 1)):
        kept.change([some(dice, count) for count in added], list(kept.files)[:removed])
        assert stored(kept) == expected(rows_in(kept))
        kept.check()
    old, rows = next(iter(kept.files.items()))
    new = pa.concat_tables([rows.slice(2), some(dice, 3)])
    signs = pa.array([-1] * 2 + [1] * 3, pa.int64())
    noted = pa.concat_tables([rows.slice(0, 2), new.slice(len(new) - 3)]).append_column(CHANGE, signs)
    del kept.files[old]
    kept.files[kept.file(new)] = new
    kept.change([], [], noted)
    assert stored(kept) == expected(rows_in(kept))
    kept.change([], list(kept.files))
    assert sum(file.rows or 0 for file in kept.state) == 0


def spans(kept: Kept) -> set[tuple[str | None, int, int, int]]:
    """Of each session in the view its key, its start, its end, and the number of its rows."""
    rows = [row for file in kept.state for row in pq.read_table(kept.storage.root / file.key).to_pylist()]
    assert len(rows) == len({(row["k"], row["since"]) for row in rows})
    return {(row["k"], row["since"].timestamp(), row["until"].timestamp(), row["n"]) for row in rows}


def test_what_rows_do_to_sessions(spark: SparkSession, tmp_path: Path) -> None:
    """Two become one, one becomes two, one grows; equal times are one; no time is none; a row moves to another key."""
    kept = Kept(spark, tmp_path, SPANS)
    files: dict[Row, Any] = {}

    def change(added: list[Row], removed: list[Row] | None = None) -> set[tuple[str | None, int, int, int]]:
        before = set(kept.files)
        kept.change([table([row]) for row in added], [files.pop(row) for row in removed or []])
        files.update({rows_in_file(kept, file): file for file in set(kept.files) - before})
        return spans(kept)

    def at(second: int | None, key: str | None = "a", number: int = 1) -> Row:
        return key, 1, second, number

    other = (None, 50, 53, 1)
    assert change([at(10), at(16), at(50, None)]) == {("a", 10, 13, 1), ("a", 16, 19, 1), other}
    assert change([at(13)]) == {("a", 10, 19, 3), other}  # exactly the gap after the one, and before the other
    assert change([at(13, number=2), at(None), at(None, "b")]) == {("a", 10, 19, 4), other}
    assert change([], [at(13), at(13, number=2)]) == {("a", 10, 13, 1), ("a", 16, 19, 1), other}
    assert change([at(7)], [at(None)]) == {("a", 7, 13, 2), ("a", 16, 19, 1), other}
    assert change([at(53, None)], [at(16)]) == {("a", 7, 13, 2), (None, 50, 56, 2)}
    assert change([at(14, "b")], [at(10)]) == {("a", 7, 10, 1), ("b", 14, 17, 1), (None, 50, 56, 2)}
    assert change([at(None, "z")]) == {("a", 7, 10, 1), ("b", 14, 17, 1), (None, 50, 56, 2)}
    assert change([], [at(7), at(50, None), at(53, None)]) == {("b", 14, 17, 1)}
    kept.check()


def rows_in_file(kept: Kept, file: Any) -> Row:
    (row,) = zip(*kept.files[file].to_pydict().values(), strict=True)
    return row


def test_sessions_are_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """As its GROUP BY session_window gives them."""
    kept = Kept(spark, tmp_path, SPANS)
    kept.change([some(random.Random(2), 300)], [])
    rows = [(row[0], row[2]) for row in rows_in(kept)]
    spark.createDataFrame(rows, "k STRING, at LONG").createOrReplaceTempView("s")
    window = f"{SESSION}.start, {SESSION}.end"
    groups = spark.sql(f"SELECT k, {window}, count(*) FROM s GROUP BY k, {SESSION}").collect()
    assert spans(kept) == {(k, int(start.timestamp()), int(end.timestamp()), n) for k, start, end, n in groups}


def test_an_untouched_file_of_the_view_stays(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few sessions change, so only the files that have them are written again; a row that does not count changes none.

    The first key is not a session's, and files have ranges of it.
    """
    monkeypatch.setattr(bridge.load.write.groups, "GROUP_ROWS", 20)
    kept = Kept(spark, tmp_path, f"SELECT k, {SESSION}.start AS since, count(*) AS n FROM s WHERE v < 5 GROUP BY 1, 2")
    kept.change([table((f"k{n:03}", 1, at, 1) for n in range(300) for at in (0, 10))], [])
    before = set(kept.state)
    kept.change([table([("k007", 9, 11, 1)])], [])
    assert set(kept.state) == before
    kept.change([table([("k007", 1, 12, 1)])], [])
    kept.check()
    assert len(before) > 3
    assert len(before - set(kept.state)) == len(set(kept.state) - before) == 1


NUMBERS = pa.schema([("k", pa.int64()), ("f", pa.float64()), ("d", pa.decimal128(38, 3)), ("i", pa.int64())])


def test_the_order_of_rows_does_not_matter(spark: SparkSession) -> None:
    """Also of floats: they are sorted first, NaN after all numbers, -0.0 as 0.0; a set has NaN and zero once."""
    text = (
        "SELECT k, percentile(f, 0.3) AS f_low, median(f) AS f_mid, percentile(f, 1) AS f_high, "
        "count(DISTINCT f) AS fs, percentile(d, 0.77) AS d_high, percentile(i, 0.123) AS i_low, "
        "count(DISTINCT i) AS n, count(DISTINCT named_struct('f', f, 'i', i % 2)) AS pairs FROM s GROUP BY k"
    )
    keeper, dice, results = Keeper(spark, text, NUMBERS), random.Random(4), set()
    floats = [None, 0.0, -0.0, 0.1, 0.2, 0.3, 1e300, -1e-300, 5e-324, -5e-324, math.inf, -math.inf, math.nan]
    decimals = [None, *map(Decimal, (1, 10**34, 10**34 + 1, -3))]
    keeper.rows = [
        (n % 3, dice.choice(floats), dice.choice(decimals), dice.choice([None, 2**53, 2**53 + 1, 2**63 - 1, 0]))
        for n in range(300)
    ]
    keeper.rows += [(7, one, None, None) for one in (0.0, -0.0, math.nan, -math.nan, None)]
    for _ in range(4):
        dice.shuffle(keeper.rows)
        results.add("\n".join(rows_of(keeper.from_scratch())))
    (result,) = results
    assert "'k': 7" in result
    assert "'fs': 2" in result
    assert "-0.0" not in result


def test_a_percentile_is_a_double_of_any_numbers(spark: SparkSession) -> None:
    """Between two values it is as far as its place; NULL does not count, and of no value it is NULL."""
    text = "SELECT k, median(d) AS mid, percentile(i, 0.25) AS low, percentile(f, 0) AS f FROM s GROUP BY k"
    keeper = Keeper(spark, text, NUMBERS)
    keeper.rows = [(1, None, None, n) for n in (0, 10, 20, 31)] + [
        (1, 2.5, Decimal(1), None),
        (1, None, Decimal(2), None),
    ]
    assert keeper.from_scratch().select(["mid", "low", "f"]).to_pylist() == [{"mid": 1.5, "low": 7.5, "f": 2.5}]
    keeper.rows = [(1, None, None, None)]
    assert keeper.from_scratch().select(["mid", "low", "f"]).to_pylist() == [{"mid": None, "low": None, "f": None}]
