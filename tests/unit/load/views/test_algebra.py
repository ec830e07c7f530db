"""Views kept step by step are their SELECT at each step: real Spark keeps them, DuckDB computes them from all rows."""

from __future__ import annotations

import math
import random
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from bridge.protocol.schema.json_schema import TIMESTAMP
from tests.unit.load.views.keeper import Keeper, Row, rows_of

COLUMNS = pa.schema(
    [
        pa.field("k", pa.string()),
        pa.field("at", TIMESTAMP),
        pa.field("i", pa.int64()),
        pa.field("d", pa.decimal128(12, 2)),
        pa.field("f", pa.float64()),
        pa.field("t", pa.string()),
        pa.field("ok", pa.bool_()),
    ]
)
VIEW = """
SELECT k, date_trunc('day', at) AS day, ok IS NULL AS unsure,
  count(*) AS n, count(i) AS i_n, count(*) FILTER (WHERE i > 0) AS above, count_if(i > 1) AS more,
  sum(i) AS i_sum, sum(d) AS d_sum, sum(i + d) FILTER (WHERE ok) AS both, avg(i) AS i_avg, avg(d) AS d_avg,
  bool_and(ok) AS every, bool_or(i > 1) AS some,
  min(t) AS t_min, max(t) AS t_max, min(at) AS at_min, max(d) AS d_max, min(f) AS f_min, max(f) AS f_max,
  max(ok) AS ok_max, max(i) FILTER (WHERE ok) AS i_max,
  max_by(t, at) AS latest, min_by(i, d) AS first, max_by(f, t) AS f_by, min_by(ok, f) FILTER (WHERE i > 0) AS ok_by
FROM s WHERE i IS NULL OR i <> 3 GROUP BY k, 2, unsure
"""
ORACLE = """
WITH s AS (SELECT * REPLACE (f + 0.0 AS f) FROM rows WHERE i IS DISTINCT FROM 3)
SELECT k, date_trunc('day', "at")::TIMESTAMPTZ AS "day", ok IS NULL AS "unsure",
  count(*) AS "n", count(i) AS i_n, count(*) FILTER (i > 0) AS above, count(*) FILTER (i > 1) AS more,
  sum(i) AS i_sum, sum(d) AS d_sum, sum(i::DECIMAL(20, 0) + d) FILTER (ok) AS "both", avg(i) AS i_avg, avg(d) AS d_avg,
  bool_and(ok) AS "every", bool_or(i > 1) AS "some",
  min(t) AS t_min, max(t) AS t_max, min("at") AS at_min, max(d) AS d_max, min(f) AS f_min, max(f) AS f_max,
  max(ok) AS ok_max, max(i) FILTER (ok) AS i_max,
  first(t ORDER BY "at" DESC, t DESC NULLS LAST) FILTER ("at" IS NOT NULL) AS "latest",
  first(i ORDER BY d, i NULLS LAST) FILTER (d IS NOT NULL) AS "first",
  first(f ORDER BY t DESC, f DESC NULLS LAST) FILTER (t IS NOT NULL) AS f_by,
  first(ok ORDER BY f, ok NULLS LAST) FILTER (f IS NOT NULL AND i > 0) AS ok_by
FROM s GROUP BY ALL
"""
VALUES: list[list[Any]] = [
    [None, "a", "A", "a ", "", "é", "e\u0301", *"bcdefgh"],
    [None, *(datetime(2024, 2, 28 + day, hour, tzinfo=timezone.utc) for day in (0, 1) for hour in (1, 9))],
    [None, 0, 1, 2, 3, -5, 2**63 - 1, -(2**63)],
    [None, *map(Decimal, ("0.00", "1.50", "1.51", "-2.00", "9999999999.99"))],
    [None, 0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan],
    [None, "", "a", "B", "é", "z", "\uffff", "\U0001d11e"],
    [None, True, False],
]


def oracle(keeper: Keeper) -> list[Row]:
    """What DuckDB makes of all rows."""
    rows = keeper.table()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", rows)
        result = connection.sql(ORACLE).to_arrow_table()
    names = [field.name for field in result.schema]
    assert names == list(keeper.typed.view.columns)
    return comparable(result)


def comparable(table: pa.Table) -> list[Row]:
    """Rows in an order of their own; averages to 12 digits."""

    def value(name: str, one: Any) -> Any:
        if name.endswith("_avg") and one is not None:
            return f"{one:.12g}"
        return Decimal(one) if name.endswith("_sum") and one is not None else one

    return sorted((tuple((name, value(name, one)) for name, one in row.items()) for row in table.to_pylist()), key=repr)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 41))])
def test_a_view_that_is_kept_is_its_select(spark: SparkSession, seed: int) -> None:
    """Whatever rows come and go, in some eighty groups, they are what DuckDB says, and in the end as if filled anew."""
    keeper, chance = Keeper(spark, VIEW, COLUMNS), random.Random(seed)
    for _ in range(8):
        share = chance.choice([0, 0.05, 0.5, 0.95])
        removed = [row for row in keeper.rows if chance.random() < share]
        returned = [row for row in removed if chance.random() < 0.3]  # as in a file that is written anew
        added = [tuple(map(chance.choice, VALUES)) for _ in range(chance.choice([0, 1, 30, 250]))]
        keeper.change(added + returned, removed)
        assert repr(comparable(keeper.state.select(list(keeper.typed.view.columns)))) == repr(oracle(keeper))
    assert rows_of(keeper.state) == rows_of(keeper.from_scratch())


SMALL = pa.schema([pa.field("k", pa.string()), pa.field("v", pa.int64()), pa.field("at", pa.int64())])


@pytest.fixture
def extremes(spark: SparkSession) -> Keeper:
    return Keeper(spark, "SELECT k, max(v) AS most, min_by(v, at) AS first FROM s GROUP BY k", SMALL)


def test_a_table_is_read_again_only_where_an_extreme_is_lost(extremes: Keeper) -> None:
    """Rows that are not the best may go; so may the best, if as good a one comes: as with a file written anew."""
    extremes.change([("a", 1, 5), ("a", 9, 1), ("a", 9, 7), ("b", 1, 1)], [])
    extremes.change([("a", 2, 6)], [("a", 1, 5)])
    extremes.change([("a", 9, 1), ("a", 3, 8)], [("a", 9, 1)])
    extremes.change([], [("b", 1, 1)])
    assert extremes.recomputed == 0
    extremes.change([], [("a", 9, 1)])
    assert extremes.recomputed == 1
    assert extremes.state.select(["k", "most", "first"]).to_pylist() == [{"k": "a", "most": 9, "first": 2}]


def test_a_group_without_rows_goes_and_the_key_null_stays(extremes: Keeper) -> None:
    """NULL is a key as in any GROUP BY."""
    extremes.change([(None, 1, 1), ("a", None, 1)], [])
    extremes.change([], [("a", None, 1)])
    assert extremes.state.select(["k", "most"]).to_pylist() == [{"k": None, "most": 1}]
    extremes.change([], [(None, 1, 1)])
    assert extremes.state.num_rows == 0


def test_of_equal_places_the_value_is_determined(spark: SparkSession) -> None:
    """`max_by` takes the largest, `min_by` the smallest, and NULL only if there is nothing else."""
    keeper = Keeper(spark, "SELECT k, max_by(v, at) AS last, min_by(v, at) AS first FROM s GROUP BY k", SMALL)
    keeper.change([("a", 2, 1), ("a", None, 1), ("a", 1, 1), ("a", 5, None), ("b", None, 1), ("c", 1, None)], [])
    assert keeper.state.select(["k", "last", "first"]).sort_by("k").to_pylist() == [
        {"k": "a", "last": 2, "first": 1},
        {"k": "b", "last": None, "first": None},
        {"k": "c", "last": None, "first": None},
    ]


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_sum_never_wraps(spark: SparkSession, ansi: str) -> None:
    """It is exact to 38 digits, across merges, too; beyond that it is an error, however Spark is set."""
    columns = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.decimal128(38, 1))])
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        integers = Keeper(spark, "SELECT 'x' AS k, sum(v) AS total FROM s GROUP BY 1", SMALL)
        for _ in range(3):
            integers.change([("a", 2**63 - 1, 0)] * 3, [])
        assert integers.state["total"].to_pylist() == [Decimal(9 * (2**63 - 1))]
        decimals = Keeper(spark, "SELECT k, sum(v) AS total, avg(v) AS mean FROM s GROUP BY k", columns)
        largest = Decimal("9" * 37 + ".9")
        decimals.change([(1, largest)], [])
        decimals.change([(1, largest)], [(1, largest)])
        assert decimals.state.select(["total", "mean"]).to_pylist() == [{"total": largest, "mean": 1e37}]
        for rows in ([(1, Decimal("0.1"))], [(2, largest), (2, largest)]):
            with pytest.raises(PySparkException, match="the sum in total has more than 38 digits"):
                decimals.change(rows, [])
            decimals.rows = decimals.rows[:1]
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_rows_that_the_view_never_had_are_an_error(spark: SparkSession) -> None:
    """A view that has lost touch with its table is not mended in silence."""
    keeper = Keeper(spark, "SELECT k, count(*) AS n FROM s GROUP BY k", SMALL)
    keeper.change([("a", 1, 1)], [])
    keeper.rows += [("a", 1, 1)]
    with pytest.raises(PySparkException, match="fewer than zero rows"):
        keeper.change([], [("a", 1, 1), ("a", 1, 1)])


def test_an_expression_sees_only_rows_that_pass_its_filter(spark: SparkSession) -> None:
    """As in SQL: a text that is no number is not cast where FILTER leaves its row out."""
    text = (
        "SELECT 1 AS one, sum(CAST(k AS DECIMAL(5, 1))) FILTER (WHERE k RLIKE '^[0-9.]+$') AS total FROM s GROUP BY 1"
    )
    keeper = Keeper(spark, text, SMALL)
    keeper.change([("1.5", 1, 1), ("none", 1, 1), (None, 1, 1)], [])
    assert keeper.state["total"].to_pylist() == [Decimal("1.5")]


def test_names_of_all_kinds_are_quoted(spark: SparkSession) -> None:
    """Names of streams and columns with dots, dashes, quotes and backticks."""
    columns = pa.schema([pa.field("a.b", pa.int64()), pa.field("it's", pa.int64())])
    text = (
        "SELECT `public.s-1`.`a.b` AS `k``1`, sum(`it's`) AS `to'tal\\`, max(`it's`) AS `m.x`, "
        "max_by(`a.b`, `it's`) AS `by 1` FROM `public.s-1` GROUP BY `a.b`"
    )
    keeper = Keeper(spark, text, columns)
    keeper.change([(1, 2), (1, 3)], [])
    keeper.change([(2, 2)], [(1, 3)])
    result = keeper.state.select(list(keeper.typed.view.columns)).sort_by("k`1").to_pylist()
    assert [list(row.values()) for row in result] == [[1, 2, 2, 1], [2, 2, 2, 2]]


def test_the_value_of_a_place_may_be_a_struct(spark: SparkSession) -> None:
    """So that several columns of the last row are kept together."""
    keeper = Keeper(spark, "SELECT k, max_by(struct(v, at), at) AS last FROM s GROUP BY k", SMALL)
    keeper.change([("a", 1, 1), ("a", 2, 2)], [])
    keeper.change([("a", 3, 3)], [("a", 1, 1)])
    assert keeper.state["last"].to_pylist() == [{"v": 3, "at": 3}]
