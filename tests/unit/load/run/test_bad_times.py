"""`on_bad_time`: a reject, or a null that the run counts and says. All of the product but Spark."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from bridge.errors import SettingsError
from bridge.settings.options import Pipeline
from tests.support.catalogs import catalog, stream
from tests.support.tap_runs import ResumingRuns, outcome, state

AT = {"type": ["null", "string"], "format": "date-time"}
UPSERT = {"load_method": "upsert", "key_properties": ["id"]}
NULL = {"on_bad_time": "null"}
FINE = "2024-01-01T00:00:00Z"


def schema(*bookmarks: str, **columns: Any) -> dict[str, Any]:
    properties = {"id": {"type": "integer"}, "at": AT, "seen": AT} | columns
    facts = {"bookmark_properties": list(bookmarks)} if bookmarks else {}
    return {"type": "SCHEMA", "stream": "a", "schema": {"properties": properties}, "key_properties": ["id"]} | facts


def row(number: int, **facts: Any) -> dict[str, Any]:
    return {"type": "RECORD", "stream": "a", "record": {"id": number, "at": FINE, **facts}}


def seen(runs: ResumingRuns) -> list[tuple[int, bool]]:
    """Each row, and whether it has a time in `seen`."""
    table = runs.view.tables["a"]
    files = [f"{runs.uri}/{table.folder}/{name}" for name in table.files]
    return duckdb.sql(f"select id, seen is not null from read_parquet({files}) order by id").fetchall()


ROWS = [row(1, seen=FINE), row(2, seen=""), row(3, seen="0000-00-00"), row(4, at=""), row(5, at="", seen="")]


@pytest.mark.parametrize("method", [{"load_method": "append-only"}, UPSERT])
def test_null_where_the_settings_say_so(runs: ResumingRuns, method: dict[str, Any]) -> None:
    """Counted, said with what to type, and kept in the record; a replication key stays a reject."""
    result = runs.run(schema("at"), ROWS, state(a=5), streams={"a": method | NULL})
    assert outcome(result) == ("success", 0)
    assert seen(runs) == [(1, True), (2, False), (3, False)]
    assert sum(counts.rejected for counts in result.streams.values()) == 2
    [(kind, text, count)] = [(each.kind, each.text, each.rows) for each in result.differences]
    assert (kind, count, result.marks["differs"]) == ("bad_time", 2, ["a"])
    assert text.startswith("seen: 2 texts are no time, so null was stored")
    assert "on_bad_time: reject" in text


def test_by_default_they_are_rejects(runs: ResumingRuns) -> None:
    """As every value that does not fit."""
    result = runs.run(schema("at"), ROWS, state(a=5), streams={"a": {"load_method": "append-only"}})
    assert seen(runs) == [(1, True)]
    assert (sum(counts.rejected for counts in result.streams.values()), result.differences) == (4, [])


@pytest.mark.parametrize("source", ["catalog", "settings"])
def test_a_replication_key_that_the_schema_does_not_name(runs: ResumingRuns, source: str) -> None:
    """The catalog or the settings name it."""
    entry = stream("a", "id at seen", selected=True, replication_method="INCREMENTAL", replication_key="at")
    keys = {"load_method": "append-only", **NULL} | ({"replication_key": "at"} if source == "settings" else {})
    result = runs.run(schema(), ROWS, state(a=5), streams={"a": keys}, catalog=catalog(entry))
    assert outcome(result) == ("success", 0), result.error
    assert seen(runs) == [(1, True), (2, False), (3, False)]


def test_a_key_is_never_null(runs: ResumingRuns) -> None:
    """Neither one that the tap declares, nor one of the settings that may be null; nor after a SCHEMA that names it."""
    keys = {"load_method": "upsert", "key_properties": ["at"], **NULL}
    runs.run(schema(), ROWS, state(a=5), streams={"a": keys})
    assert [number for number, _ in seen(runs)] == [3]
    runs.run(schema(), row(7, seen=""), schema("seen"), row(8, seen=""), state(a=8), streams={"a": UPSERT | NULL})
    assert seen(runs)[-1] == (7, False)


def test_a_column_that_is_new_or_renamed(runs: ResumingRuns) -> None:
    """Of a later SCHEMA, and under the table's name for it."""
    keys = {"load_method": "append-only", "rename": {"met": "seen_2"}, **NULL}
    runs.run(schema(), row(1, seen=""), state(a=1), streams={"a": keys})
    result = runs.run(schema(met=AT), row(2, seen="", met="-"), state(a=2), streams={"a": keys})
    assert seen(runs) == [(1, False), (2, False)]
    assert [each.text.partition(":")[0] for each in result.differences] == ["seen", "seen_2"]


@pytest.mark.parametrize(("written", "expected"), [(None, "null"), ("null", "null"), ("reject", "reject")])
def test_the_setting(written: Any, expected: str) -> None:
    """A bare `null` of YAML is the word."""
    keys = {"name": "p", "source": {"tap": "tap-x"}, "destination": {"bucket": "./lake"}}
    pipeline = Pipeline.model_validate(keys | {"streams": {"*": {"on_bad_time": written}}})
    assert pipeline.stream("a").on_bad_time == expected


def test_another_word_is_refused() -> None:
    """With the words that there are."""
    keys = {"name": "p", "source": {"tap": "tap-x"}, "destination": {"bucket": "./lake"}}
    with pytest.raises((SettingsError, ValueError), match="'reject' or 'null'"):
        Pipeline.model_validate(keys | {"streams": {"*": {"on_bad_time": "drop"}}})
