"""Rows without a replication key: the tap does not see them again when they change. All of the product but Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge.lake.runs import read_opened
from bridge.lake.storage import open_storage
from bridge.load.run.result import Result
from bridge.settings.values.request import Request
from tests.support.catalogs import catalog, stream
from tests.support.pipe import wire
from tests.support.tables import INTEGER, STRING
from tests.support.tap_runs import ResumingRuns, outcome, state
from tests.support.targets import target

KIND = "null_replication_key"
UPSERT = {"load_method": "upsert", "key_properties": ["id"]}


def schema(*bookmarks: str, at: Any = INTEGER) -> dict[str, Any]:
    properties = {"id": {"type": "integer"}, "at": at}
    facts = {"bookmark_properties": list(bookmarks)} if bookmarks else {}
    return {"type": "SCHEMA", "stream": "a", "schema": {"properties": properties}, "key_properties": ["id"]} | facts


def row(number: int, **facts: Any) -> dict[str, Any]:
    return {"type": "RECORD", "stream": "a", "record": {"id": number, **facts}}


ROWS = [row(1, at=1), row(2, at=None), row(3), row(4, at=4)]
"""A null, and a property that is not there."""


def counts(result: Result) -> list[tuple[str, int | None]]:
    return [(each.kind, each.rows) for each in result.differences if each.kind == KIND]


@pytest.mark.parametrize("method", [{"load_method": "append-only"}, UPSERT, {}])
def test_rows_without_a_replication_key_are_said(runs: ResumingRuns, method: dict[str, Any]) -> None:
    """Counted as they came, also where they are merged into a table; the run differs, and says what to type."""
    result = runs.run(schema("at"), ROWS, state(a={"at": 4}), streams={"a": method})
    assert (outcome(result), counts(result), runs.log_ids("a")) == (("success", 0), [(KIND, 2)], [1, 2, 3, 4])
    assert result.marks["differs"] == ["a"]
    [text] = [text for text in result.warnings if "an incremental run does not see them again" in text]
    assert text.startswith("a: at: 2 rows have none, so")
    assert "replication_method: FULL_TABLE" in text
    assert "singer-bridge run p --full -s a" in text


def test_what_is_to_be_typed_is_not_refused(runs: ResumingRuns) -> None:
    """An append-only table refuses `--full`: the text says which setting comes first, and with it the command works."""
    appended = {"a": {"load_method": "append-only"}}
    result = runs.run(schema("at"), ROWS, state(a={"at": 4}), streams=appended)
    [text] = [each.text for each in result.differences]
    assert text.endswith("then set load_method: auto for a, then `singer-bridge run p --full -s a`")
    entry = stream("a", selected=True, replication_method="INCREMENTAL", replication_key="at")
    full: dict[str, Any] = {"catalog": catalog(entry), "asked": Request(full=True, streams=("a",))}
    messages = [schema("at"), ROWS, state(a={"at": 4})]
    assert outcome(runs.run(*messages, streams=appended, **full)) == ("failed", 2)
    again = runs.run(*messages, streams={"a": {"load_method": "auto"}}, **full)
    assert (outcome(again), runs.log_ids("a")) == (("success", 0), [1, 2, 3, 4]), again.error


def test_a_tap_that_another_program_starts(tmp_path: Path) -> None:
    """There is no `singer-bridge run` to type."""
    assert target(tmp_path, wire(schema("at"), *ROWS, state(a={"at": 4}))).code == 0
    [record] = read_opened(open_storage(str(tmp_path / "lake")), "target-bridge", 1)
    [difference] = record.differences
    again = "set load_method: overwrite for a, then start the tap without a STATE"
    assert (difference.kind, difference.text.endswith(f"then {again}")) == (KIND, True), difference.text


@pytest.mark.parametrize("method", [{"load_method": "append-only"}, UPSERT])
def test_the_runs_after_it_say_it_too(runs: ResumingRuns, method: dict[str, Any]) -> None:
    """They did not see whether those rows changed. A key that is written into them, or a whole table, ends it."""
    keys = method | {"rename": {"at": "moment"}}
    runs.run(schema("at"), ROWS, state(a={"at": 4}), streams={"a": keys})
    runs.run(schema("at"), row(5, at=5), state(a={"at": 5}), streams={"a": keys})
    after = runs.run(schema("at"), row(6, at=6), state(a={"at": 6}), streams={"a": keys})
    assert (counts(after), after.marks["differs"]) == ([(KIND, 2)], ["a"])
    if method is UPSERT:
        now = [row(2, at=7), row(3, at=7)]
        assert counts(runs.run(schema("at"), now, state(a={"at": 7}), streams={"a": keys})) == []
    else:
        whole = {"a": {"load_method": "overwrite"}}
        assert counts(runs.run(schema("at"), row(1), state(a={"at": 7}), streams=whole)) == []


def test_a_full_run_of_an_incremental_stream_says_it(runs: ResumingRuns) -> None:
    """It has them as they are now; the runs after it do not see them again."""
    result = runs.run(schema("at"), ROWS, state(a={"at": 4}), streams={}, asked=Request(full=True))
    assert counts(result) == [(KIND, 2)]


def test_two_columns_of_one_key_are_one(runs: ResumingRuns) -> None:
    """A key in two parts, by `on_type_change: variant`: a row that has either has it."""
    variant = {"a": {"load_method": "append-only", "on_type_change": "variant"}}
    runs.run(schema("at"), row(1, at=1), state(a={"at": 1}), streams=variant)
    result = runs.run(schema("at", at=STRING), row(2, at="x"), row(3, at=None), state(a={"at": "x"}), streams=variant)
    assert counts(result) == [(KIND, 1)]


@pytest.mark.parametrize(
    ("facts", "bookmarks", "method"),
    [
        ({"replication_method": "FULL_TABLE", "replication_key": "at"}, ["at"], {}),
        ({"replication_method": "LOG_BASED"}, ["at"], {}),
        ({}, [], {}),
        ({"replication_method": "INCREMENTAL", "replication_key": "at"}, ["at"], {"load_method": "overwrite"}),
    ],
    ids=["full", "log", "unknown", "overwrite"],
)
def test_where_no_row_is_left_out(runs: ResumingRuns, facts: Any, bookmarks: list[str], method: Any) -> None:
    """Whole tables and a log have changes of all rows, whatever a column says."""
    entry = stream("a", selected=True, table_key_properties=["id"], **facts)
    result = runs.run(schema(*bookmarks), ROWS, state(a={"at": 4}), streams={"a": method}, catalog=catalog(entry))
    assert (outcome(result), counts(result)) == (("success", 0), [])


@pytest.mark.parametrize("method", [{"load_method": "append-only"}, UPSERT])
def test_they_can_be_refused(runs: ResumingRuns, method: dict[str, Any]) -> None:
    """`fail`: exit 1 before they are committed, with a hint; what was committed before stays. A stream may differ."""
    first = [schema("at"), row(1, at=1), state(a={"at": 1})]
    result = runs.run(*first, row(2), state(a={"at": 2}), streams={"a": method}, on_null_key="fail")
    assert outcome(result) == ("failed", 1)
    assert result.error
    assert "rows have no replication key" in result.error.message
    assert "on_null_key: warn" in result.error.hint
    assert 2 not in runs.log_ids("a")
    allowed = {"a": method | {"on_null_key": "warn"}}
    assert outcome(runs.run(*first, row(2), streams=allowed, on_null_key="fail")) == ("success", 0)


def test_a_refused_stream_can_be_held_back(runs: ResumingRuns) -> None:
    """`on_error: hold` commits the others."""
    other = schema("at") | {"stream": "b"}
    rows = [row(1), row(1, at=1) | {"stream": "b"}, state(a={"at": 1}, b={"at": 1})]
    result = runs.run(schema("at"), other, rows, streams={"a": {"on_error": "hold", "on_null_key": "fail"}})
    assert (outcome(result), runs.log_ids("a"), runs.log_ids("b")) == (("failed", 5), [], [1])


def test_a_bookmark_of_null_is_said(runs: ResumingRuns) -> None:
    """Also of a chosen append-only stream: each run brings the same rows, and the third one says that it stands."""
    null = state(a={"replication_key": "at", "replication_key_value": None})
    chosen = {"a": {"load_method": "append-only"}}
    results = [runs.run(schema("at"), ROWS, null, streams=chosen) for _ in range(4)]
    assert runs.log_ids("a") == sorted([1, 2, 3, 4] * 4)
    assert all(any("their bookmark is null: a" in text for text in run.warnings) for run in results)
    assert [run.marks.get("standstill") for run in results] == [None, None, None, ["a"]]
    assert any("a (at null)" in text for text in results[3].warnings)
