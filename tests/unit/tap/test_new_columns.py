"""Columns that the source has got or lost since the catalog was kept: what a run loads, and what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import SettingsError
from bridge.tap.source import Source
from tests.support.catalogs import catalog, stream
from tests.unit.tap.test_source import Scripted, source, tap

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
