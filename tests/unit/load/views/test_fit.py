"""What names and types of columns say of a view without Spark: never more than Spark itself says."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from bridge.errors import SettingsError
from bridge.load.spark.transform import analysed as analysed_transform
from bridge.load.spark.view_types import analysed
from bridge.load.views.expression_types import ExpressionTypes
from bridge.load.views.fit import check_fit, outline
from bridge.protocol.schema.table_schema import TableSchema
from bridge.settings.sql.transform import read_transform
from bridge.settings.sql.view import read_view
from tests.support.lookups import NO_LOOKUPS
from tests.unit.load.views.test_types import COLUMNS

EXPRESSIONS = """
id, Name, price, score, at, place, place.x, s.place.x, tags, ok, s.score, `score`
-score, (score), abs(score), round(score, 1), round(price), abs(id), - price
score + id, score * price, price * 2, price * 1.5, id + 1, id / 2, price / 2, score / 2, id % 2, 1.5 * id, 1e3 * id
coalesce(score, 0), coalesce(id, 1.5), coalesce(price, 0), coalesce(NULL, id), if(ok, score, 0), if(ok, 1, 0)
CASE WHEN ok THEN score END, CASE WHEN ok THEN 1 ELSE 2.5 END, CASE id WHEN 1 THEN score ELSE price END
CAST(score AS decimal(18, 2)), CAST(id AS double), double(id), CAST(id AS string), CAST(score AS bigint), int(score)
CAST(ok AS int), CAST(Name AS boolean), id > 1, id IS NULL, NOT ok, ok AND id = 1, id IN (1, 2), id BETWEEN 1 AND 2
Name LIKE 'a%', 'text', 7, 2.5, 1e3, 1.5D, true, Name || 'x', upper(Name), sqrt(id), tags[0], id DIV 2, nullif(score, 0)
date_trunc('hour', at), window(at, '1 hour').start, exists(tags, x -> x = 'a'), length(Name), greatest(id, score)
"""


def expressions() -> list[str]:
    """Each expression of the list, which commas outside of brackets separate."""
    return [one.strip() for line in EXPRESSIONS.strip().splitlines() for one in split(line)]


def split(line: str) -> list[str]:
    parts, depth = [""], 0
    for letter in line:
        depth += (letter == "(") - (letter == ")")
        parts[-1] += "" if letter == "," and not depth else letter
        parts += [""] if letter == "," and not depth else []
    return parts


def kind(type_: pa.DataType) -> str:
    return "decimal" if pa.types.is_decimal(type_) else str(type_)


def test_a_type_that_is_certain_is_the_one_that_spark_sees(spark: SparkSession) -> None:
    """Of each expression: so `config check` refuses nothing that a run takes. Most of what views sum is certain."""
    types = ExpressionTypes(COLUMNS, "s")
    certain = {text: type_ for text in expressions() if (type_ := types.of(text)) is not None}
    columns = [f"max_by({text}, id) AS c{number}" for number, text in enumerate(certain)]
    view = read_view("v", f"SELECT 'all' AS k, {', '.join(columns)} FROM s GROUP BY 1")
    schema = analysed(spark, view, COLUMNS).schema
    seen = {text: kind(schema.field(f"c{number}").type) for number, text in enumerate(certain)}
    assert seen == {text: kind(type_) for text, type_ in certain.items()}
    assert len(certain) > 45
    assert {"score * price", "coalesce(score, 0)", "id / 2", "price * 1.5", "if(ok, score, 0)"} <= certain.keys()


@pytest.mark.parametrize(
    "select",
    [
        "id, sum(score) AS a",
        "id, avg(score * 2) AS a",
        "id, sum(coalesce(s.Score, 0) / 2) FILTER (WHERE ok) AS a",
        "id, sum(Name) AS a",
        "id, median(Name) AS a",
        "id, sum(ok) AS a",
        "id, count_if(id) AS a",
        "id, bool_and(Name) AS a",
        "id, max(place) AS a",
        "id, max_by(id, tags) AS a",
        "score, count(*) AS a",
        "place, count(*) AS a",
        "tags, count(*) AS a",
        "ids, count(*) AS a",
        "id, sum(pric * 2) AS a",
        'id, count("AT") AS a',
    ],
)
def test_a_fault_has_the_same_words_with_spark_and_without(spark: SparkSession, select: str) -> None:
    """Message and hint."""
    view, errors = read_view("v", f"SELECT {select} FROM s GROUP BY 1"), []
    for judge in (lambda: check_fit(view, COLUMNS), lambda: analysed(spark, view, COLUMNS)):
        with pytest.raises(SettingsError) as caught:
            judge()
        errors.append((caught.value.message, caught.value.hint))
    assert errors[0] == errors[1]


@pytest.mark.parametrize(
    "select",
    [
        "id, sum(price * 1.5) AS a, avg(id) AS b, sum(CAST(score AS DECIMAL(18, 2))) AS c, count(*) AS n",
        "timestampadd(HOUR, 1, at) AS h, max(score) AS a, sum(CASE WHEN ok THEN 1 ELSE 0 END) AS b",
        "lower(name) AS k, count_if(exists(tags, x -> x = 'a')) AS n, sum(nope(score)) AS a, max_by(place, at) AS p",
        "window(at, '1 hour').start AS k, bool_or(ok AND id > 1) AS a",
        "id, count_if(_sdc_deleted_at IS NULL) AS a, max(_sdc_extra) AS b",
    ],
)
def test_what_is_not_certain_is_left_to_spark(select: str) -> None:
    """Functions whose types the words do not tell, units of time, variables of lambdas, columns that a tap may add."""
    check_fit(read_view("v", f"SELECT {select} FROM s GROUP BY 1"), COLUMNS)


@pytest.mark.parametrize("slide", ["10 minutes", "+10 minutes"])
def test_a_window_slides_as_a_key_only(spark: SparkSession, slide: str) -> None:
    """Also one whose lengths only Spark can read: Spark makes a row of each window that a row is in."""
    window = f"window(at, '1 hour', '{slide}').start"
    typed = analysed(spark, read_view("v", f"SELECT {window} AS w, count(*) AS n FROM s GROUP BY w"), COLUMNS)
    assert typed.view.keys == ("w",)
    with pytest.raises(SettingsError, match="a window that slides puts a row into several windows"):
        analysed_transform(
            spark,
            read_transform(f"SELECT {window} AS w FROM stream"),
            TableSchema(COLUMNS),
            "s",
            metadata=False,
            lookups=NO_LOOKUPS,
        )


def test_what_is_certain_of_a_view_s_columns() -> None:
    """A view of the view is judged by them: of other expressions only the names are known."""
    text = (
        "SELECT id, lower(name) AS low, count(*) AS n, sum(id) AS total, avg(id) AS mean, bool_or(ok) AS any_ok, "
        "min(score) AS least, max_by(id, at) AS last FROM s GROUP BY id, 2"
    )
    columns = outline(read_view("v", text), COLUMNS)
    assert [str(field.type) for field in columns] == (
        ["int64", "null", "int64", "decimal128(38, 0)", "double", "bool", "double", "int64"]
    )
    check_fit(read_view("w", "SELECT low, sum(total) AS t FROM v GROUP BY low"), columns)
    for select, message in (
        ("n, sum(least) AS t", "sum of a float"),
        ("least, count(*) AS t", "a float is no key"),
        ("id, sum(any_ok) AS t", "sum takes numbers"),
        ("id, max(score) AS t", "a column that the stream does not have"),
    ):
        with pytest.raises(SettingsError, match=message):
            check_fit(read_view("w", f"SELECT {select} FROM v GROUP BY 1"), columns)
