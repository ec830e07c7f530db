"""Columns that the source has got or lost since the catalog was kept: what a run loads, and what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import SettingsError
from bridge.load.tap.new_columns import by_database, unknown
from bridge.load.tap.source import Source
from tests.support.catalogs import catalog, stream
from tests.unit.load.tap.test_source import Scripted, source, tap

__all__ = ["source", "tap"]


def says(tap: Scripted, columns: str, method: str = "INCREMENTAL", **nested: Any) -> None:
    """The tap has a stream with these columns."""
    users = stream("users", columns, selected=True)
    users["metadata"][0]["metadata"] |= {"replication-method": method}
    users["schema"]["properties"] |= nested
    tap.says(catalog(users))


def columns_of(made: Source) -> list[str]:
    """The columns that a run gives to the tap."""
    given, _ = made.catalog([], refresh=False)
    assert given
    return list(given["streams"][0]["schema"]["properties"])


def test_a_new_column_is_loaded_from_this_run_on(tap: Scripted, source: Any) -> None:
    """Said once, with the command that fills older rows."""
    says(tap, "id note")
    source().discover()
    says(tap, "id note more")
    made = source()
    assert columns_of(made) == ["id", "note", "more"]
    [news] = made.news
    assert (news.stream, news.kind) == ("users", "new_column")
    assert "new column more" in news.text and "`singer-bridge run shop --full -s users`" in news.text
    again = source()
    assert (columns_of(again), again.news) == (["id", "note", "more"], [])


@pytest.mark.parametrize(
    ("mode", "select", "taken", "says_so"),
    [
        (None, ["users"], True, True),
        (None, ["users.*"], True, True),
        (None, ["users.id", "users.mo*"], True, True),
        (None, ["users.id"], False, True),
        (None, ["users", "!users.more"], False, False),
        (None, ["users", "!users.note"], False, True),
        ("add", ["users", "!users.note"], True, True),
        ("warn", ["users"], False, True),
        ("ignore", ["users"], False, False),
    ],
)
def test_selection_and_setting_decide(
    tap: Scripted, source: Any, mode: str | None, select: list[str], taken: bool, says_so: bool
) -> None:
    """All columns or a pattern that names it: added; otherwise each run says so until the user decides."""
    says(tap, "id note")
    source().discover()
    says(tap, "id note more")
    settings: dict[str, Any] = {"select": select} | ({"streams": {"users": {"new_columns": mode}}} if mode else {})
    for attempt in range(2):
        made = source(**settings)
        assert ("more" in columns_of(made)) is taken
        assert bool(made.news) is (says_so and not (taken and attempt))


def test_a_log_based_run_does_not_pass_a_selected_column(tap: Scripted, source: Any, tmp_path: Path) -> None:
    """Its changes would be consumed: the run is refused where the setting keeps the column out; a slow tap is asked."""
    says(tap, "id note", "LOG_BASED")
    source().discover()
    says(tap, "id note more", "LOG_BASED")
    memory = tmp_path / "home/catalogs/discovered/shop.json"
    memory.write_text(json.dumps(json.loads(memory.read_text()) | {"seconds": 60}))
    warn = {"users": {"new_columns": "warn"}}
    with pytest.raises(SettingsError, match="changes of this run would be lost") as caught:
        columns_of(source(select=["users"], streams=warn))
    assert "`singer-bridge discover shop`" in caught.value.hint
    assert columns_of(source(select=["users", "!users.note"])) == ["id", "note", "more"]


def test_a_column_inside_another_one(tap: Scripted, source: Any) -> None:
    """It is taken over, and said once by its path; a new object is said as one column."""
    place = {"type": "object", "properties": {"city": {"type": "string"}}}
    wider = {"type": "object", "properties": {"zip": {"type": "string"}}}
    says(tap, "id", place=place)
    source().discover()
    says(tap, "id", place=wider, other=place)
    made = source()
    given, _ = made.catalog([], refresh=False)
    assert given["streams"][0]["schema"]["properties"]["place"] == wider
    texts = sorted(news.text.split(",")[0].split(" any more")[0] for news in made.news)
    assert [text.removeprefix("the source has ") for text in texts] == [
        "a new column other",
        "a new column place.zip",
        "no column place.city",
    ]
    again = source()
    assert (columns_of(again), again.news) == (["id", "place", "other"], [])


def test_a_dropped_column_is_said_once(tap: Scripted, source: Any) -> None:
    """It leaves the kept catalog, and a tap is not asked for it any more."""
    says(tap, "id note")
    source().discover()
    says(tap, "id remark")
    made = source()
    assert columns_of(made) == ["id", "remark"]
    assert sorted(news.kind for news in made.news) == ["dropped_column", "new_column"]
    again = source()
    assert (columns_of(again), again.news) == (["id", "remark"], [])


@pytest.mark.parametrize("case", ["own", "never", "failed", "unnoted"])
def test_what_a_log_based_run_does_not_know(tap: Scripted, source: Any, tmp_path: Path, case: str) -> None:
    """If neither the tap nor a database was asked for columns, the run says so, in each run."""
    says(tap, "id note", "LOG_BASED")
    source().discover()
    more: dict[str, Any] = {"discover": "never"} if case == "never" else {}
    if case == "own":
        more = {"catalog": str(tmp_path / "home/catalogs/shop.json")}
    elif case == "failed":
        tap.says("no catalog")
    elif case == "unnoted":
        (tmp_path / "home/catalogs/discovered/shop.json").unlink()
    for _ in range(2):
        made = source(**more)
        assert columns_of(made) == ["id", "note"]
        [news] = made.news
        assert (news.stream, news.kind) == ("users", "unknown_columns")
        assert "`singer-bridge discover shop`" in news.text
    made = source(streams={"users": {"new_columns": "ignore"}}, **more)
    assert (columns_of(made), made.news) == (["id", "note"], [])


def logged(columns: str) -> dict[str, Any]:
    return catalog(stream("users", columns, selected=True, replication_method="LOG_BASED"))


def test_what_the_database_has(source: Any) -> None:
    """A column that a pattern selects stops a log-based run; others are said; an unsupported one is no news."""
    kept = logged("id note _sdc_lsn")
    unsupported = {"breadcrumb": ["properties", "raw"], "metadata": {"inclusion": "unsupported"}}
    kept["streams"][0]["metadata"].append(unsupported)
    assert by_database(source().pipeline, kept, {"users": {"id", "note", "raw"}}, adds_columns=False) == []
    [more, gone] = by_database(source().pipeline, kept, {"users": {"id", "raw", "more"}}, adds_columns=False)
    assert (more.kind, gone.kind) == ("new_column", "dropped_column")
    assert "no column note" in gone.text
    with pytest.raises(SettingsError, match="changes of this run would be lost"):
        by_database(source(select=["users"]).pipeline, kept, {"users": {"id", "note", "more"}}, adds_columns=False)
    for given in ({"select": ["users", "!users.more"]}, {"streams": {"users": {"new_columns": "ignore"}}}):
        assert by_database(source(**given).pipeline, kept, {"users": {"id", "note", "more"}}, adds_columns=False) == []


def test_a_column_that_the_tap_adds_by_itself(source: Any) -> None:
    """Its changes arrive, so a log-based run is not refused: it says what older rows lack."""
    made = source(select=["users"])
    [news] = by_database(made.pipeline, logged("id note"), {"users": {"id", "note", "more"}}, adds_columns=True)
    assert news.kind == "new_column"
    assert "more, which is loaded as rows change; older rows have no value in it" in news.text
    assert "`singer-bridge run shop --full -s users`" in news.text
    assert "older rows have no value in them" in unknown(made.pipeline, "users", "...", adds_columns=True).text
    assert "changes in this run are lost" in unknown(made.pipeline, "users", "...", adds_columns=False).text
    ignoring = source(streams={"users": {"new_columns": "ignore"}}).pipeline
    assert by_database(ignoring, logged("id note"), {"users": {"id", "note", "more"}}, adds_columns=True) == []


def test_a_renamed_table_is_said_once(tap: Scripted, source: Any) -> None:
    """With the new name, if one new table has its columns; a similar name of a table that was there is not it."""
    users, old = stream("users", "id note", selected=True), stream("users_old", "id note", selected=True)
    tap.says(catalog(users, old))
    source().discover()
    tap.says(catalog(old, stream("people", "id note"), stream("users_2", "id")))
    made = source()
    made.catalog([], refresh=False)
    [news] = made.news
    assert (news.stream, news.kind) == ("users", "dropped_table")
    assert "`singer-bridge discover shop`" in news.text
    assert "`singer-bridge select shop '!users'`" in news.text
    assert "The new table people has the same columns" in news.text
    for only in ([], ["users_old"], []):
        again = source()
        again.catalog(only, refresh=False)
        assert again.news == []
    tap.says(catalog(users, old))
    source().catalog([], refresh=False)
    tap.says(catalog(old))
    made = source()
    made.catalog([], refresh=False)
    assert [news.kind for news in made.news] == ["dropped_table"]


def test_a_new_table_that_is_chosen(tap: Scripted, source: Any) -> None:
    """Each run says that it is not loaded, until `discover`."""
    users = stream("public-users", "id note", selected=True)
    tap.says(catalog(users))
    source().discover()
    tap.says(catalog(users, stream("public-late", "id"), stream("other-late", "id")))
    for _ in range(2):
        made = source(select=["public-*"])
        made.catalog([], refresh=False)
        assert [(news.stream, news.kind) for news in made.news] == [("public-late", "new_table")]
    source().discover()
    made = source(select=["public-*"])
    made.catalog([], refresh=False)
    assert made.news == []


def test_a_pattern_of_a_table_that_was_renamed(tap: Scripted, source: Any) -> None:
    """No table with a similar name is offered for it."""
    tap.says(catalog(stream("orders", selected=True), stream("orders_old")))
    source().discover()
    tap.says(catalog(stream("sales", selected=True), stream("orders_old")))
    source().discover()
    made = source(select=["orders", "sales"])
    made.catalog([], refresh=False)
    assert made.notes == ["select: orders was dropped or renamed. `singer-bridge select shop --rm orders`"]
