"""What Spark's analyzer says of a view: the types of its columns, and what only it can refuse."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from bridge.errors import SettingsError
from bridge.load.spark.view_types import analysed, needed_columns, plain_keys, view_session
from bridge.load.views.algebra import TypedView
from bridge.protocol.schema.json_schema import TIMESTAMP
from bridge.settings.sql.view import read_view

COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("Name", pa.string()),
        pa.field("payload", pa.string(), metadata={b"kind": b"json"}),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("score", pa.float64()),
        pa.field("at", TIMESTAMP),
        pa.field("day", pa.date32()),
        pa.field("place", pa.struct([pa.field("x", pa.int64())])),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("ok", pa.bool_()),
    ]
)


def test_the_table_of_a_view_has_visible_and_hidden_columns(spark: SparkSession) -> None:
    """In the order of SELECT, then what it takes to go on. Keys keep what their text holds; none is required."""
    text = (
        "SELECT sum(price) AS total, id, payload, place.x, timestampadd(HOUR, 1, at) AS later, "
        "sum(CAST(id AS smallint)) AS ids, avg(price) AS mean, count(*) AS n, count_if(ok) AS oks, "
        "bool_or(ok) AS any_ok, count(DISTINCT Name) AS names, median(price) AS middle, "
        "min(score) AS least, max_by(place, at) AS last, max(CAST(id AS int)) AS most FROM s "
        "GROUP BY id, payload, 4, 5"
    )
    typed = analysed(spark, read_view("v", text), COLUMNS)
    assert {field.name: field.type for field in typed.schema} == {
        "total": pa.decimal128(38, 2),
        "id": pa.int64(),
        "payload": pa.string(),
        "x": pa.int64(),
        "later": TIMESTAMP,
        "ids": pa.decimal128(38, 0),
        "mean": pa.float64(),
        "n": pa.int64(),
        "oks": pa.int64(),
        "any_ok": pa.bool_(),
        "names": pa.int64(),
        "middle": pa.float64(),
        "least": pa.float64(),
        "last": pa.struct([("x", pa.int64())]),
        "most": pa.int64(),
        "_view_rows": pa.int64(),
        "_view_count_total": pa.int64(),
        "_view_count_ids": pa.int64(),
        "_view_sum_mean": pa.decimal128(38, 2),
        "_view_count_mean": pa.int64(),
        "_view_true_any_ok": pa.int64(),
        "_view_count_any_ok": pa.int64(),
        "_view_by_last": TIMESTAMP,
    }
    assert all(field.nullable for field in typed.schema)
    assert typed.schema.field("payload").metadata == {b"kind": b"json"}


def test_a_session_is_a_key_of_a_time(spark: SparkSession) -> None:
    """Of a time or a date."""
    text = "SELECT id, session_window({}, '1 hour').end AS until, count(*) AS n FROM s GROUP BY id, until"
    for time in ("at", "day", "timestampadd(HOUR, 1, at)"):
        assert analysed(spark, read_view("v", text.format(time)), COLUMNS).schema.field("until").type == TIMESTAMP
    with pytest.raises(SettingsError, match="does not fit the stream"):
        analysed(spark, read_view("v", text.format("id")), COLUMNS)


def test_only_columns_that_the_view_needs_are_read() -> None:
    """By their names in the table, whatever their case in the view."""
    view = read_view("v", "SELECT NAME, count(*) AS n FROM s WHERE s.Place.x > 1 GROUP BY name")
    assert [field.name for field in needed_columns(view, COLUMNS)] == ["Name", "place"]


def test_keys_that_are_columns_are_recognized() -> None:
    """By these the table's rows can be chosen before Spark sees them; an expression, or a cast, is none."""
    text = "SELECT ID, `t`.`Name` AS n, lower(name) AS low, t.at, CAST(day AS string) AS day, count(*) AS c FROM s AS t"
    view = read_view("v", text + " GROUP BY ID, n, low, at, 5")
    fields = [pa.field("ID", pa.int64()), *(pa.field(name, pa.string()) for name in ("n", "low", "day"))]
    typed = TypedView(view, pa.schema([*fields, pa.field("at", TIMESTAMP)]))
    assert {key: field.name for key, field in plain_keys(typed, COLUMNS).items()} == {
        "ID": "id",
        "n": "Name",
        "at": "at",
    }
    narrower = TypedView(view, typed.schema.set(0, pa.field("ID", pa.string())))
    assert "ID" not in plain_keys(narrower, COLUMNS)


@pytest.mark.parametrize(
    ("select", "message", "hint"),
    [
        ("id, sum(score) AS a", "sum of a float depends on the order", "sum(CAST(score AS DECIMAL(38, 9)))"),
        ("id, avg(score * 2) AS a", "avg of a float depends on the order", "avg(CAST(score * 2 AS DECIMAL(38, 9)))"),
        ("id, sum(Name) AS a", "sum takes numbers", "CAST(Name AS DECIMAL"),
        ("id, sum(ok) AS a", "sum takes numbers", "CAST(ok AS"),
        ("id, count_if(id) AS a", "count_if takes a condition", "count_if(id > 0)"),
        ("id, bool_and(Name) AS a", "bool_and takes a condition", "bool_and(Name > 0)"),
        ("id, max(place) AS a", "max orders by single values", "a field of it"),
        ("id, percentile(Name, 0.9) AS a", "percentile takes numbers", "CAST(Name AS DECIMAL(38, 9)), 0.9)"),
        ("id, median(at) AS a", "percentile takes numbers", "percentile(CAST(at AS DECIMAL(38, 9)), 0.5)"),
        ("id, max_by(id, tags) AS a", "max_by orders by single values", "a field of it"),
        ("id, min(CAST(score AS float)) AS a", "tables have no such type", "cast it"),
        ("score, count(*) AS a", "a float is no key", "CAST(score AS DECIMAL(38, 9))"),
        ("place, count(*) AS a", "a struct or a list is no key", "select a field"),
        ("tags, count(*) AS a", "a struct or a list is no key", "to_json"),
        ("ids, count(*) AS a", "needs a column that the stream does not have", 'did you mean "id"'),
        ("id, sum(place.y) AS a", "does not fit the stream", "y"),
        ("id, count(nope(id)) AS a", "does not fit the stream", "nope"),
        ("id, max(id) FILTER (WHERE Name) AS a", "does not fit the stream", ""),
        ("id, max(session_user()) AS a", "not in a view", "adding and removing rows"),
        ("date(at) > to_date('today') AS b, count(*) AS a", "is the time of the run", "adding and removing rows"),
        ("CAST(id AS string) COLLATE UNICODE_CI AS b, count(*) AS a", "texts are compared by their bytes", "lower"),
    ],
)
def test_what_only_spark_can_tell_is_refused_in_our_words(
    spark: SparkSession, select: str, message: str, hint: str
) -> None:
    """Before a row is stored, with what to write instead."""
    with pytest.raises(SettingsError) as caught:
        analysed(spark, read_view("v", f"SELECT {select} FROM s GROUP BY 1"), COLUMNS)
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        'SELECT "at" AS at, count(*) AS n FROM s GROUP BY "at"',
        'SELECT id, count("AT") AS n FROM s GROUP BY id',
        'SELECT id, count(*) AS n FROM s WHERE "at" IS NOT NULL GROUP BY id',
    ],
)
def test_a_column_in_double_quotes_is_refused(spark: SparkSession, text: str) -> None:
    """To Spark it is a text, which is the same in each row."""
    with pytest.raises(SettingsError, match="column=at") as caught:
        analysed(spark, read_view("v", text), COLUMNS)
    assert caught.value.hint.startswith("write `at` for the column, or '")


def test_a_name_in_group_by_that_the_stream_has_is_ambiguous(spark: SparkSession) -> None:
    """Spark would group by the stream's column, and the view would have several rows of one key."""
    text = "SELECT date(at) AS day, count(*) AS n FROM s GROUP BY "
    with pytest.raises(SettingsError, match="a name in GROUP BY is a column of the stream, and another one"):
        analysed(spark, read_view("v", text + "day"), COLUMNS)
    assert analysed(spark, read_view("v", text + "1"), COLUMNS).schema.field("day").type == pa.date32()


def test_no_variable_of_this_machine_is_filled_in(spark: SparkSession) -> None:
    """A view's SELECT may come out of a bucket, a column's name out of a source: `${env:PATH}` in them is text."""
    written = ["${env:PATH}", "${system:user.home}", "${spark.app.name}"]
    query = f"SELECT {', '.join(f'{one!r}' for one in written)}, `${{env:PATH}}` FROM VALUES (1) AS s(`${{env:PATH}}`)"
    for session in (spark, view_session(spark)):
        assert list(session.sql(query).collect()[0]) == [*written, 1]
