"""`views`: what is refused before a tap starts, and what of a view is taken apart."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bridge.errors import SettingsError
from bridge.settings.load import check
from bridge.settings.sql.view import Aggregate, Key, read_view, read_views, root_stream
from bridge.settings.sql.window import SessionWindow, TimeWindow, words_of
from tests.unit.settings.settings_files import Load, pipeline_text, refused


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT k, count(*) AS n FROM s", "a view has keys"),
        ("SELECT count(*) AS n FROM s", "a view has keys"),
        ("SELECT k, count(*) AS n FROM s GROUP BY ALL", "a view has keys"),
        ("SELECT k FROM s GROUP BY k", "a view has aggregates"),
        ("SELECT k, a, count(*) AS n FROM s GROUP BY k", "neither a key nor an aggregate column=a"),
        ("SELECT k, every(a) AS e FROM s GROUP BY k", "neither a key nor an aggregate column=e"),
        ("SELECT count(*) AS n FROM s GROUP BY k", "a key of the view is not selected key=k"),
        ("SELECT k, count(*) AS n FROM s GROUP BY lower(k)", "a key of the view is not selected"),
        ("SELECT k, count(*) AS n FROM s GROUP BY 3", "GROUP BY has a place"),
        ("SELECT k, count(*) AS n FROM s GROUP BY 1, 2", "an aggregate cannot be a key"),
        ("SELECT lower(k), count(*) AS n FROM s GROUP BY 1", "has no name"),
        ("SELECT k, count(*) FROM s GROUP BY k", "has no name"),
        ("SELECT k, count(*) AS K FROM s GROUP BY 1", "two columns of one name"),
        ("SELECT k, count(*) AS _view_n FROM s GROUP BY k", "is taken"),
        ("SELECT k, max(a) AS _sdc_extra FROM s GROUP BY k", "is taken"),
        ("SELECT lower(k) AS k, count(*) AS n FROM s GROUP BY k", "a name in GROUP BY is a column of the stream"),
        ("SELECT *, count(*) AS n FROM s GROUP BY k", "* selects every column"),
        ("SELECT k, count(s.*) AS n FROM s GROUP BY k", "* is every column"),
        ("SELECT k, sum(a) + 1 AS n FROM s GROUP BY k", "an aggregate of a view stands alone column=n"),
        ("SELECT k, coalesce(sum(a), 0) AS n FROM s GROUP BY k", "an aggregate of a view stands alone column=n"),
        ("SELECT k, sum(max(a)) AS n FROM s GROUP BY k", "max is an aggregate"),
        ("SELECT k, sum(a, b) AS n FROM s GROUP BY k", "cannot be read as Spark SQL"),
        ("SELECT k, max_by(a) AS n FROM s GROUP BY k", "max_by takes 2 arguments"),
        ("SELECT k, collect_list(a) AS n FROM s GROUP BY k", "collect_list is no aggregate of a view"),
        ("SELECT k, sort_array(collect_list(a)) AS n FROM s GROUP BY k", "collect_list is no aggregate of a view"),
        ("SELECT k, stddev(a) AS n FROM s GROUP BY k", "stddev is no aggregate of a view"),
        ("SELECT k, approx_count_distinct(a) AS n FROM s GROUP BY k", "approx_count_distinct is no aggregate"),
        ("SELECT k, percentile_approx(a, 0.5) AS n FROM s GROUP BY k", "percentile_approx is no aggregate"),
        ("SELECT k, percentile_cont(0.5) WITHIN GROUP (ORDER BY a) AS n FROM s GROUP BY k", "percentile_cont is no"),
        ("SELECT k, first(a) AS n FROM s GROUP BY k", "first is no aggregate of a view"),
        ("SELECT k, percentile(a, 0.5, 2) AS n FROM s GROUP BY k", "percentile takes 2 arguments"),
        ("SELECT k, percentile(a, 1.5) AS n FROM s GROUP BY k", "a number from 0 to 1"),
        ("SELECT k, percentile(a, b) AS n FROM s GROUP BY k", "a number from 0 to 1"),
        ("SELECT k, percentile(a, array(0.1, 0.9)) AS n FROM s GROUP BY k", "a number from 0 to 1"),
        ("SELECT k, count(DISTINCT a, b) AS n FROM s GROUP BY k", "count takes 1 argument"),
        ("SELECT k, count(DISTINCT *) AS n FROM s GROUP BY k", "* is every column"),
        ("SELECT k, sum(DISTINCT a) AS n FROM s GROUP BY k", "DISTINCT stands in count(DISTINCT x) only"),
        ("SELECT k, median(DISTINCT a) AS n FROM s GROUP BY k", "DISTINCT stands in count(DISTINCT x) only"),
        (
            "SELECT session_window(at, '1 hour').start AS w, count(*) AS n FROM s GROUP BY w",
            "a session needs another key",
        ),
        ("SELECT k, session_window(at, a).start AS w, count(*) AS n FROM s GROUP BY k, w", "is a length of time"),
        (
            "SELECT k, session_window(at, '1 month').start AS w, count(*) AS n FROM s GROUP BY k, w",
            "is a length of time",
        ),
        (
            "SELECT k, session_window(at, '0 hours').start AS w, count(*) AS n FROM s GROUP BY k, w",
            "is a length of time",
        ),
        (
            (
                "SELECT k, session_window(at, '1 day').start AS v, session_window(at, '2 days').end AS w, "
                "count(*) AS n FROM s GROUP BY 1, 2, 3"
            ),
            "two sessions in one view",
        ),
        (
            (
                "SELECT window(at, '1 day').start AS v, session_window(at, '1 hour').start AS w, count(*) AS n FROM s "
                "GROUP BY v, w"
            ),
            "a session beside a window",
        ),
        (
            (
                "SELECT k, session_window(at, '1 hour').start AS w, count(*) AS n FROM s GROUP BY k, w"
                "\n-- singer-bridge: keep: 30d"
            ),
            "a session never closes",
        ),
        ("SELECT k, date(session_window(at, '1 h').start) AS w, count(*) AS n FROM s GROUP BY 1, 2", "of several rows"),
        ("SELECT k, session_window(at, '1 h') AS w, count(*) AS n FROM s GROUP BY 1, 2", "is of several rows"),
        ("SELECT k, session_window(at, '1 h').start AS w, count(*) AS n FROM s GROUP BY 1", "is of several rows"),
        ("SELECT k, max(session_window(at, '1 h').start) AS n FROM s GROUP BY k", "is of several rows"),
        ("SELECT k, count(*) AS n FROM s WHERE session_window(at, '1 h').end > at GROUP BY k", "is of several rows"),
        ("SELECT DISTINCT k, count(*) AS n FROM s GROUP BY k", "DISTINCT compares rows"),
        ("SELECT k, sum(a) OVER () AS n FROM s GROUP BY k", "a window looks at other rows"),
        ("SELECT k, row_number() OVER (ORDER BY a) AS n FROM s GROUP BY k", "a window looks at other rows"),
        ("SELECT k, count(*) AS n FROM s GROUP BY k HAVING count(*) > 1", "HAVING leaves out groups"),
        ("SELECT k, count(*) AS n FROM s GROUP BY k ORDER BY k", "ORDER BY sorts rows"),
        ("SELECT k, count(*) AS n FROM s GROUP BY k LIMIT 5", "LIMIT leaves out groups"),
        ("SELECT k, count(*) AS n FROM s GROUP BY k WITH ROLLUP", "a row belongs to one group only"),
        ("SELECT k, count(*) AS n FROM s GROUP BY CUBE (k)", "a row belongs to one group only"),
        ("SELECT k, count(*) AS n FROM s GROUP BY GROUPING SETS ((k))", "a row belongs to one group only"),
        ("SELECT k, count(*) AS n FROM s JOIN t ON true GROUP BY k", "the other table's rows change, too"),
        ("SELECT k, count(*) AS n FROM s, t GROUP BY k", "the other table's rows change, too"),
        ("SELECT k, count(*) AS n FROM (SELECT * FROM s) GROUP BY k", "a subquery reads other rows"),
        ("SELECT k, count(*) AS n FROM s WHERE a IN (SELECT 1) GROUP BY k", "a subquery reads other rows"),
        ("SELECT k, count_if(a = (SELECT 1)) AS n FROM s GROUP BY k", "a subquery reads other rows"),
        ("SELECT k, count(*) AS n FROM s TABLESAMPLE (1 PERCENT) GROUP BY k", "only the stream's own rows"),
        ("WITH q AS (SELECT 1) SELECT k, count(*) AS n FROM s GROUP BY k", "WITH makes tables"),
        ("SELECT k, max(rand()) AS n FROM s GROUP BY k", "rand is not the same each time"),
        ("SELECT date(now()) AS d, count(*) AS n FROM s GROUP BY 1", "is the time of the run"),
        ("SELECT k, count_if(a > now()) AS n FROM s GROUP BY k", "is the time of the run"),
        ("SELECT k, sum(a) FILTER (WHERE b < current_date) AS n FROM s GROUP BY k", "is the time of the run"),
        ("SELECT k, count(*) AS n FROM s WHERE at > timestamp 'yesterday' GROUP BY k", "'yesterday' is the time"),
        ("SELECT explode(a) AS k, count(*) AS n FROM s GROUP BY 1", "explode makes several rows of one"),
        (
            "SELECT k, count(*) AS n FROM s WHERE window(at, '1 hour', '10 minutes').start > '2025' GROUP BY 1",
            "a window that slides",
        ),
        ("SELECT k, max(window(at, '2 hours', '1 hour').end) AS n FROM s GROUP BY k", "a window that slides"),
        ("SELECT k, count(*) AS n FROM s WHERE a = :b GROUP BY k", "a view has no parameters"),
        ("SELECT k, count(*) AS n FROM public.s GROUP BY k", "a view selects FROM one stream or view, in backticks"),
        ("SELECT 1 AS k, count(*) AS n GROUP BY 1", "a view selects FROM one stream"),
        ("SELECT k, count(*) AS n FROM s GROUP BY k UNION SELECT 1, 2", "a view is one SELECT"),
        ("DELETE FROM s", "a view is one SELECT"),
        ("SELECT (k FROM s", "cannot be read as Spark SQL"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_the_reason(text: str, reason: str) -> None:
    """A view that is not its SELECT at each commit would be worse than none."""
    with pytest.raises(SettingsError) as caught:
        read_view("v", text)
    assert reason in caught.value.message
    assert caught.value.hint


def test_a_view_is_taken_apart_in_its_own_words() -> None:
    """Expressions stay as they were written, and GROUP BY may repeat a key, or say its name or its place."""
    view = read_view(
        "v",
        """
        select O.Region as region, -- a comment, with a comma
          date_trunc( 'day', at ) day, place.city.`na,me` AS city,
          count(*) AS n, Sum(amount) FILTER (WHERE status <> 'it''s, FROM' AND extract(YEAR FROM at) > 2000) AS total,
          max_by(named_struct('a', a, 'b', b), at) AS last, min(transform(list, x -> x + o.y)[0]) AS least
        from `public-orders` AS o where a IS DISTINCT FROM b -- GROUP BY
        group by region, 2, place.city.`NA,me`;
        """,
    )
    assert (view.stream, view.alias) == ("public-orders", "o")
    assert view.items == (
        Key("region", "O.Region"),
        Key("day", "date_trunc( 'day', at )"),
        Key("city", "place.city.`na,me`"),
        Aggregate("n", "count", ("*",)),
        Aggregate("total", "sum", ("amount",), "status <> 'it''s, FROM' AND extract(YEAR FROM at) > 2000"),
        Aggregate("last", "max_by", ("named_struct('a', a, 'b', b)", "at")),
        Aggregate("least", "min", ("transform(list, x -> x + o.y)[0]",)),
    )
    assert view.where == "a IS DISTINCT FROM b"
    assert view.keys == ("region", "day", "city")
    assert view.columns == ("region", "day", "city", "n", "total", "last", "least")
    assert set(view.needs) == {"Region", "at", "place", "amount", "status", "a", "b", "list", "y"}
    assert view.by_name == ()


def test_a_name_of_the_view_in_group_by_is_remembered() -> None:
    """Spark takes a column of the stream before one of SELECT: only its columns tell which of them is meant."""
    assert read_view("v", "SELECT date(at) AS day, count(*) AS n FROM s GROUP BY Day").by_name == ("day",)
    assert read_view("v", "SELECT a AS b, count(*) AS n FROM s t GROUP BY t.A").keys == ("b",)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, lower(a) AS b, count(*) AS n FROM s GROUP BY k, lower(a) -- the keys",
        "SELECT k, lower(a) AS b, count(*) AS n FROM s GROUP BY k /* one */, /* two */ b /* three */",
        "-- by k\nSELECT k /* a key */, lower(a) /* B */ AS b, -- and b\n count(*) AS n FROM s /* all */ GROUP BY 1, b",
        "SELECT k, lower(a /* text */) AS b, count(*) AS n -- rows\nFROM s -- all\nGROUP BY k, lower(a) -- a\n;-- end",
    ],
)
def test_comments_change_nothing(text: str) -> None:
    """Wherever a comment stands, the keys are the same."""
    view = read_view("v", text)
    assert (view.keys, [item.name for item in view.aggregates]) == (("k", "b"), ["n"])


SELECT = "SELECT id, count(*) AS n FROM orders GROUP BY id"
VIEW = f"'{SELECT}'"
WINDOW = "\"SELECT window(at, '1 hour').start AS hour, count(*) AS n FROM orders GROUP BY 1\""


@pytest.mark.parametrize(
    ("views", "message", "hint"),
    [
        ("{by_id: SELECT id FROM orders}", "bridge.yaml:7: a view has keys", "GROUP BY"),
        (
            f"\n  fine: {VIEW}\n  by_id: {SELECT} LIMIT 1",
            "bridge.yaml:9: not in a view: LIMIT",
            "adding and removing rows",
        ),
        ("{by_id: 7}", "bridge.yaml:7: must be text", "GROUP BY"),
        ("[a]", "must be a mapping", ""),
        (f"{{a.b: {VIEW}}}", "not a name for a view", "letters, digits"),
        (f"{{1a: {VIEW}}}", "not a name for a view", "letters, digits"),
        (f"{{a: {VIEW}, A: {VIEW}}}", "two views have one name", "case of letters"),
        (f"{{Orders: {VIEW}}}", "the name of its stream", "another name"),
        (f"{{b: {VIEW}, c: 'SELECT n, count(*) AS m FROM B GROUP BY n'}}", "in other letters", "the case of letters"),
        (f"{{a: {{sql: {VIEW}, keep: 1d}}}}", "need a key that is a window of time", "window(at, '1 hour').start"),
        (f"{{a: {{sql: {VIEW}, keep: soon}}}}", "not a duration key=pipelines.flights.views.a.keep", "a whole number"),
        (f"{{a: {{sql: {VIEW}, kept: 1d}}}}", "unknown key pipelines.flights.views.a.kept", "a view has: sql, keep"),
        ("{a: {keep: 1d}}", "a view needs its SELECT", "as sql: SELECT"),
        (f"{{a: {{sql: {WINDOW}, keep: 1m, lateness: 2m}}}}", "keep is shorter than lateness", "a longer keep"),
        (
            f"{{a: {{sql: {WINDOW}, lateness: 2m}}, a_closed: {VIEW}}}",
            "the name of a table of closed windows",
            "rename it, or a",
        ),
        (
            "{a: 'SELECT n, count(*) AS m FROM b GROUP BY n', b: 'SELECT m, count(*) AS n FROM a GROUP BY m'}",
            "views select from each other: a -> b -> a",
            "the first of several views selects from a stream",
        ),
    ],
)
def test_a_wrong_view_is_refused_with_its_line(settings: Load, views: str, message: str, hint: str) -> None:
    """It is a wrong setting, so the tap is never started."""
    error = refused(lambda: settings(pipeline_text(more=f"views: {views}")))
    assert message in error.message
    assert hint in error.hint


@pytest.mark.parametrize(
    ("key", "time", "to_end"),
    [
        ("window(at, '1 hour').start", "at", 3600),
        ("window(o.at, '10 minutes', '1 minute').END", "o.at", 0),
        ("Window ( timestamp_seconds(a + (b)) , '1 day 2 hours' ) . start", "timestamp_seconds(a + (b))", 93600),
        ("window(CAST(at AS timestamp), 'interval 90 seconds').`end`", "CAST(at AS timestamp)", 0),
    ],
)
def test_the_window_of_a_view(settings: Load, key: str, time: str, to_end: int) -> None:
    """As text, which is what the log keeps, it says all that the mapping does."""
    text = f"SELECT c, {key} AS w, count(*) AS n FROM orders o GROUP BY c, 2"
    more = f'views: {{a: {{sql: "{text}", keep: 7d, lateness: 5m}}}}'
    kept = settings(pipeline_text(more=more)).pipeline(None).views["a"]
    assert kept == f"{text}\n-- singer-bridge: keep: 7d, lateness: 5m"
    view = read_view("a", kept)
    assert view.window == TimeWindow("w", time, to_end * 10**6, timedelta(days=7), timedelta(minutes=5))
    assert (view.closes, view.where, view.words) == ("a_closed", None, words_of(text))
    assert read_view("a", text).window is None


def test_a_shared_table_has_no_views(settings: Load) -> None:
    """Other pipelines change it, too: no commit of this one could keep the view."""
    error = refused(lambda: settings(pipeline_text(destination="shared: true", more=f"views: {{by_id: {VIEW}}}")))
    assert "a shared table has no views" in error.message


@pytest.mark.parametrize("table_format", ["parquet", "delta", "iceberg"])
def test_views_are_of_every_format(settings: Load, table_format: str) -> None:
    """Beside tables of any format."""
    text = pipeline_text(destination=f"format: {table_format}", more=f"views: {{by_id: {VIEW}}}")
    assert settings(text).pipeline(None).views == {"by_id": SELECT}


def test_views_are_read_with_the_source_and_without(settings: Load) -> None:
    """A verb that only looks at the lake knows them, too."""
    loaded = settings(pipeline_text(more=f"views: {{by_id: {VIEW}}}"))
    for source in (True, False):
        assert loaded.pipeline(None, source=source).views == {"by_id": SELECT}


def test_config_check_reports_each_wrong_view(settings: Load) -> None:
    """All of them at once, each with its line."""
    more = f"views:\n  a: {SELECT} ORDER BY id\n  b: {SELECT}\n  c: SELECT 1"
    path = settings(pipeline_text()).path
    path.write_text(pipeline_text(more=more))
    messages = [problem.error.message for problem in check(path, {})]
    assert ["bridge.yaml:8" in messages[0], "bridge.yaml:10" in messages[1], len(messages)] == [True, True, 2]


def test_each_view_has_its_place(settings: Load) -> None:
    """What only Spark can refuse, at a run, is told with file and line as well; a layer below counts as its own."""
    default = f"defaults:\n  views:\n    of_all: {SELECT}\n"
    loaded = settings(default + pipeline_text(more=f"views:\n  a: {SELECT}\n  b: >-\n    {SELECT}"))
    places = loaded.pipeline(None).view_places
    lines = {name: place.rpartition("bridge.yaml:")[2] for name, place in places.items()}
    assert lines == {"of_all": "3", "a": "11", "b": "12"}


@pytest.mark.parametrize("lengths", ["'1 hour'", "'1 hour', '60 minutes'", "'1 day', '24 HOURS', '5 minutes'", "a, b"])
def test_windows_that_do_not_overlap_are_keys(lengths: str) -> None:
    """A slide as long as the window is none; what only Spark can read is left to Spark."""
    view = read_view("v", f"SELECT window(at, {lengths}).start AS k, count(*) AS n FROM s GROUP BY 1")
    assert view.keys == ("k",)


@pytest.mark.parametrize(
    ("keys", "names", "session"),
    [
        ("session_window(at, '30 minutes').start AS a", "a", SessionWindow(30 * 60 * 10**6, ("a",), ())),
        (
            (
                "Session_Window ( o.at , 'interval 1 hour 1 second' ) . `END` AS a, "
                "session_window(o.at, 'interval 1 hour 1 second').start AS b"
            ),
            "a, b",
            SessionWindow(3601 * 10**6, ("b",), ("a",)),
        ),
        ("session_window AS a", "a", None),
    ],
)
def test_the_session_of_a_view(keys: str, names: str, session: SessionWindow | None) -> None:
    """Its gap, and the columns with its start and its end. A column of that name is none."""
    view = read_view("v", f"SELECT {keys}, k, count(*) AS n FROM orders o GROUP BY {names}, k")
    assert (view.session, view.from_rows) == (session, session is not None)
    assert view.keys == (*names.split(", "), "k")


def test_aggregates_of_all_rows() -> None:
    """A median is a percentile, and DISTINCT is not among the words of the argument."""
    view = read_view(
        "v",
        "SELECT k, count( DISTINCT lower(a) ) FILTER (WHERE b) AS n, median(a + 1) AS m, Percentile(a, .95) AS p "
        "FROM s GROUP BY k",
    )
    assert view.aggregates == (
        Aggregate("n", "count_distinct", ("lower(a)",), "b"),
        Aggregate("m", "percentile", ("a + 1", "0.5")),
        Aggregate("p", "percentile", ("a", ".95")),
    )
    assert view.from_rows


@pytest.mark.parametrize(
    ("aggregate", "hint"),
    [
        ("stddev(a)", "sum(x * x)"),
        ("var_pop(a)", "sum(x * x)"),
        ("approx_count_distinct(a)", "count(DISTINCT x) is exact"),
        ("percentile_approx(a, 0.9)", "percentile(x, 0.5)"),
        ("collect_list(a)", "ask the table by SQL"),
        ("first(a)", "min_by(x, at)"),
        ("mode(a)", "max_by(x, n) in a view of it"),
        ("any_value(a)", "min(x)"),
    ],
)
def test_a_refused_aggregate_has_a_hint(aggregate: str, hint: str) -> None:
    """It says what to write instead."""
    with pytest.raises(SettingsError) as caught:
        read_view("v", f"SELECT k, {aggregate} AS n FROM s GROUP BY k")
    assert hint in caught.value.hint


def test_views_come_after_those_that_they_select_from() -> None:
    """Else by name; each knows the stream whose rows are in it."""
    sources = {"a": "b", "b": "z", "c": "s", "z": "s"}
    texts = {name: f"SELECT n, count(*) AS m FROM {source} GROUP BY n" for name, source in sources.items()}
    assert [view.name for view in read_views(texts)] == ["z", "b", "a", "c"]
    assert {root_stream(name, texts) for name in (*texts, "s")} == {"s"}
