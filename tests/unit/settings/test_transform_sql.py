"""`transform`: what is refused before a tap starts, and the words that Spark gets."""

from __future__ import annotations

import pytest

from bridge.errors import SettingsError
from bridge.settings.sql.transform import TRANSFORM, quoted_column, read_transform
from tests.unit.settings.settings_files import Load, pipeline_text, refused


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("SELECT max(a) AS a FROM stream", "max is an aggregate"),
        ("SELECT collect_list(a) AS a FROM stream", "is an aggregate"),
        ("SELECT count(*) AS n FROM stream", "count is an aggregate"),
        ("SELECT sum(a) OVER (PARTITION BY b) AS a FROM stream", "a window looks at other rows"),
        ("SELECT row_number() OVER (ORDER BY a) AS a FROM stream", "a window looks at other rows"),
        ("SELECT a FROM stream LIMIT 5", "LIMIT counts rows"),
        ("SELECT a FROM stream ORDER BY a", "ORDER BY sorts rows"),
        ("SELECT a FROM stream SORT BY a", "SORT BY sorts rows"),
        ("SELECT DISTINCT a FROM stream", "DISTINCT compares rows"),
        ("SELECT a FROM stream GROUP BY a", "GROUP BY gathers rows"),
        ("SELECT a FROM stream TABLESAMPLE (1 PERCENT)", "only the stream's own rows"),
        ("SELECT a FROM stream s JOIN other o ON true", "columns of o that equal something of the row"),
        ("SELECT a FROM stream, other", "tables are joined by a comma"),
        ("SELECT a FROM stream WHERE a IN (SELECT b FROM other)", "a subquery reads other rows"),
        ("SELECT (SELECT 1) AS a FROM stream", "a subquery reads other rows"),
        ("WITH q AS (SELECT 1) SELECT a FROM stream", "WITH makes tables"),
        ("SELECT explode(a) AS a FROM stream", "explode makes several rows of one"),
        ("SELECT a FROM stream LATERAL VIEW explode(a) t AS b", "LATERAL VIEW makes several rows"),
        ("SELECT inline_outer(a) FROM stream", "inline_outer makes several rows of one"),
        ("SELECT rand() AS a FROM stream", "rand is not the same each time"),
        ("SELECT uuid() AS a FROM stream", "uuid is not the same each time"),
        ("SELECT monotonically_increasing_id() AS a FROM stream", "is not the same each time"),
        ("SELECT input_file_name() AS a FROM stream", "is not the same each time"),
        ("SELECT session_window(at, '5 minutes').start AS a FROM stream", "session_window is of several rows"),
        ("SELECT current_timestamp() AS a FROM stream", "is the time of the run"),
        ("SELECT current_date AS a FROM stream", "is the time of the run"),
        ("SELECT a FROM stream WHERE at > now()", "is the time of the run"),
        ("SELECT unix_timestamp() AS a FROM stream", "is the time of the run"),
        ("SELECT timestamp 'now' AS a FROM stream", "'now' is the time of the run"),
        ("SELECT current_user() AS a FROM stream", "is of the session"),
        ("SELECT a FROM stream UNION SELECT b FROM stream", "a transform is one SELECT"),
        ("SELECT a FROM stream; SELECT b FROM stream", "a transform is one SELECT"),
        ("DELETE FROM stream", "a transform is one SELECT"),
        ("SELECT a FROM users", "a transform selects FROM stream"),
        ("SELECT a FROM lake.stream", "a transform selects FROM stream"),
        ("SELECT 1 AS a", "a transform selects FROM stream"),
        ("SELECT a FROM stream WHERE a = :b", "a transform has no parameters"),
        ("SELECT (a FROM stream", "cannot be read as Spark SQL"),
    ],
)
def test_what_is_more_than_row_by_row_is_refused_with_the_reason(statement: str, reason: str) -> None:
    """A result that depends on other rows, on the clock or on chance would depend on where a batch ends."""
    with pytest.raises(SettingsError) as caught:
        read_transform(statement)
    assert reason in caught.value.message
    assert caught.value.hint


END = ", `stream`.`_h` FROM `v` AS `stream`"


@pytest.mark.parametrize(
    ("statement", "over"),
    [
        ("SELECT a, b+1 AS c FROM stream", f"SELECT a, b+1 AS c {END}"),
        ("SELECT * FROM STREAM WHERE a > 1;", f"SELECT `stream`.`a`, `stream`.`b c` {END} WHERE a > 1"),
        ("select s.*, 2*a AS d from stream s", "select `s`.`a`, `s`.`b c`, 2*a AS d , `s`.`_h` from `v` s"),
        ("SELECT * EXCEPT (`b c`) FROM stream AS s", "SELECT `s`.`a` , `s`.`_h` FROM `v` AS s"),
        ("SELECT place.*, hash(*) AS h FROM stream", f"SELECT place.*, hash(`stream`.`a`, `stream`.`b c`) AS h {END}"),
        ("SELECT extract(YEAR FROM at) AS y FROM stream", f"SELECT extract(YEAR FROM at) AS y {END}"),
        ("SELECT a IS DISTINCT FROM b AS d -- FROM\nFROM stream", f"SELECT a IS DISTINCT FROM b AS d -- FROM\n{END}"),
        (
            "SELECT aggregate(l, 0, (x, y) -> x + y) AS n, transform(l, x -> x + 1) AS m FROM stream",
            f"SELECT aggregate(l, 0, (x, y) -> x + y) AS n, transform(l, x -> x + 1) AS m {END}",
        ),
    ],
)
def test_the_words_stay_as_they_are_but_for_the_table_and_the_stars(statement: str, over: str) -> None:
    """Nothing is written anew by another dialect's rules; the bridge's own column is in no `*`."""
    assert read_transform(statement).over("v", ["a", "b c"], "_h") == over


def test_a_wrong_transform_is_told_with_its_line(settings: Load) -> None:
    """It is a wrong setting, so the tap is never started."""
    text = pipeline_text(more="streams: {a: {transform: SELECT max(a) FROM stream}}")
    error = refused(lambda: settings(text))
    assert "bridge.yaml:7: not in a transform: max is an aggregate" in error.message
    assert "row by row" in error.hint


@pytest.mark.parametrize("text", ['lower("At")', '"at"', 'concat("x", "AT")', 'struct(1, "at")'])
def test_a_column_in_double_quotes_is_refused(text: str) -> None:
    """To Spark it is a text; to DuckDB, and to the SQL standard, the column."""
    error = quoted_column(f"SELECT {text} AS x FROM stream", ["id", "at"], TRANSFORM, stream="s")
    assert error
    assert "name of a column in double quotes" in error.message
    assert "write `at` for the column" in error.hint


@pytest.mark.parametrize("text", ["'at'", "`at`", "at", '"other"', "'\"at\"'", '1 /* "at" */'])
def test_texts_and_columns_that_cannot_be_confused(text: str) -> None:
    """Single quotes are a text everywhere, backticks a column to Spark; other texts in double quotes stay."""
    assert quoted_column(f"SELECT {text} AS x FROM stream", ["id", "at"], TRANSFORM, stream="s") is None
