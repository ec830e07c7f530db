"""`guard`: a commit that would empty a table is refused, and nothing but its rejects is kept."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.errors import DataError
from bridge.load.maintain.rejects.purge import purge
from bridge.load.maintain.rejects.replay import rehearse
from bridge.load.maintain.rejects.survey import Criteria
from bridge.load.run.checks.table_guard import without_limits
from bridge.operate.verify.check import verify
from tests.support.pipe import Found
from tests.support.shelf import Shelf, record, schema, state
from tests.unit.conftest import Load

OVERWRITE = {"load_method": "overwrite"}
UPSERT = {"load_method": "upsert", "streams": {"*": {"key_properties": ["id"]}}}


def full(rows: int, bad: int = 0) -> list[dict[str, Any]]:
    """A whole table of so many rows, and of records whose `n` is a text by now."""
    good = [record(number) for number in range(1, rows + 1)]
    return [schema(bookmarks=False), *good, *[record(rows + number, f"n{number}") for number in range(1, bad + 1)]]


def count(found: Found, stream: str = "s") -> int:
    return len(found.rows(stream))


def refused(found: Found) -> str:
    assert isinstance(found.error, DataError), found.error
    assert found.error.exit_code == 1
    return str(found.error)


def test_an_overwrite_that_rejects_most_keeps_the_table(shelf: Shelf) -> None:
    """The old rows and the STATE stay; the error names column, value and reason, and what to type."""
    shelf.say(*full(10), state(1), **OVERWRITE)
    found = shelf.say(*full(1, bad=9), state(2), **OVERWRITE)
    said = refused(found)
    assert said.startswith("s: 9 of 10 records of the overwrite were rejected; the table keeps its 10 rows")
    assert 'column=n value="n1" reason=not an integer' in said
    for typed in ("rejects show p -s s", "run p --refresh-catalog", "run p --no-guard", "guard: {rejected: null}"):
        assert typed in found.error.hint
    assert (count(found), found.state) == (10, state(1)["value"])
    assert not any("overwritten" in warning for warning in found.warnings)


def test_the_rejects_of_a_refused_commit_can_be_looked_at(shelf: Shelf) -> None:
    """They are those of the last refused run only, are never loaded beside the old rows, and go with the next load."""
    shelf.say(*full(10), **OVERWRITE)
    for _ in range(3):
        refused(shelf.say(*full(1, bad=9), **OVERWRITE))
    assert len(shelf.kept(stream="s")) == 9
    (outcome,) = rehearse(shelf.storage, shelf.pipeline(), Criteria()).streams.values()
    assert (outcome.fit, sum(outcome.left.values())) == (0, 9)
    assert "the next run brings" in next(iter(outcome.left))
    found = shelf.say(*full(9, bad=1), **OVERWRITE)
    assert (found.error, count(found), len(shelf.kept(stream="s"))) == (None, 9, 1)
    assert verify(shelf.storage, "p").errors == 0


def test_what_is_left_of_purged_rejects_is_still_refused(shelf: Shelf) -> None:
    """A part of the rejects is purged; the others are not replayed for that."""
    shelf.say(*full(10), **OVERWRITE)
    refused(shelf.say(*full(1, bad=9), record(50, 10**20), **OVERWRITE))
    purge(shelf.storage, "p", Criteria(reason="beyond"))
    (outcome,) = rehearse(shelf.storage, shelf.pipeline(), Criteria()).streams.values()
    assert (outcome.fit, sum(outcome.left.values())) == (0, 9)


@pytest.mark.parametrize(
    ("guard", "rows", "bad", "passes"),
    [
        ({}, 5, 5, True),  # not more than half
        ({}, 4, 6, False),
        ({"rejected": 0}, 9, 1, False),
        ({"rejected": 0.7}, 4, 6, True),
        ({"rejected": None}, 2, 9, True),
        ({}, 1, 0, True),  # lacks 90 %, not more
        ({}, 0, 0, False),
        ({"shrink": 0.5}, 5, 0, True),
        ({"shrink": 0.5}, 4, 0, False),
        ({"shrink": None}, 0, 0, True),
        (None, 0, 0, True),
        (None, 0, 9, True),
        ({"rejected": None}, 0, 9, False),  # an empty table all the same
    ],
)
def test_the_limits_of_an_overwrite(
    shelf: Shelf, guard: dict[str, Any] | None, rows: int, bad: int, passes: bool
) -> None:
    """A larger share than the limit is refused, the limit itself is not; null is off."""
    shelf.say(*full(10), **OVERWRITE)
    found = shelf.say(*full(rows, bad), guard=guard, **OVERWRITE)
    assert (found.error is None) == passes
    assert count(found) == (rows if passes else 10)


def test_an_overwrite_that_is_empty(shelf: Shelf) -> None:
    """The table keeps its rows, and the error says how to have it emptied, once and always."""
    shelf.say(*full(3), **OVERWRITE)
    found = shelf.say(*full(0), **OVERWRITE)
    assert refused(found) == "s: the overwrite has 0 rows, the table has 3; the table keeps its 3 rows"
    assert "run p --no-guard" in found.error.hint
    assert "streams: {s: {guard: {shrink: null}}}" in found.error.hint
    assert count(shelf.say(*full(0), streams={"s": {"guard": {"shrink": None}}}, **OVERWRITE)) == 0


def test_other_streams_of_the_commit_wait_too(shelf: Shelf) -> None:
    """A commit is whole or not at all: the other stream's rows come again, and are there once."""
    shelf.say(*full(10), schema("t"), record(1, stream="t"), state(1, "t"), streams={"s": OVERWRITE})
    more = [schema("t"), record(2, stream="t"), state(2, "t")]
    refused(shelf.say(*full(0), *more, streams={"s": OVERWRITE}))
    found = shelf.say(*full(9), *more, streams={"s": OVERWRITE})
    assert [row["id"] for row in found.rows("t")] == [1, 2]


@pytest.mark.parametrize("settings", [{}, OVERWRITE, UPSERT], ids=["append", "overwrite", "upsert"])
def test_a_stream_of_rejects_only_fails(shelf: Shelf, settings: dict[str, Any]) -> None:
    """A first load of whatever method: no STATE leads past the records, and the next run has them all."""
    bad = [schema(), record(1, "x"), record(2, "y"), state(2)]
    found = shelf.say(*bad, **settings)
    assert refused(found).startswith('s: all of its records were rejected; nothing was committed column=n value="x"')
    assert (found.state, found.streams(), len(shelf.kept())) == (None, [], 2)
    assert not found.counts["s"].to_json()["complete"]  # `--resume` loads it
    good = shelf.say(schema(), record(1), record(2), state(2), **settings)
    assert (good.error, count(good), shelf.kept()) == (None, 2, [])


@pytest.mark.parametrize("settings", [{}, UPSERT], ids=["append", "upsert"])
def test_rejects_only_beside_rows_that_stay_fail_the_run_once(shelf: Shelf, settings: dict[str, Any]) -> None:
    """The run fails, and its STATE counts: the record is kept as a reject, and holds back none that comes later."""
    shelf.say(schema(), record(1), state(1), **settings)
    bad = shelf.say(schema(), record(2, "x"), state(2), **settings)
    assert refused(bad).startswith("s: its only new record was rejected, and kept as rejects")
    assert "singer-bridge rejects replay" in bad.error.hint
    assert (bad.state, count(bad), len(shelf.kept())) == (state(2)["value"], 1, 1)
    good = shelf.say(schema(), record(3), state(3), **settings)
    assert (good.error, count(good), len(shelf.kept())) == (None, 2, 1)


def test_rejects_beside_rows_do_not_fail_an_append(shelf: Shelf) -> None:
    """Most may be rejected of what is added: nothing that was there goes."""
    found = shelf.say(schema(), record(1), record(2, "x"), record(3, "x"), state(3))
    assert (found.error, count(found), len(shelf.kept())) == (None, 1, 2)
    off = shelf.say(schema(), record(4, "x"), state(4), guard={"rejected": None})
    assert (off.error, off.state) == (None, state(4)["value"])


@pytest.mark.parametrize("settings", [{}, UPSERT], ids=["append", "upsert"])
def test_full_is_an_overwrite(shelf: Shelf, settings: dict[str, Any]) -> None:
    """`--full` replaces tables of any load method, and is guarded like an overwrite."""
    rows = [record(number) for number in range(1, 21)]
    shelf.say(schema(), *rows, state(20), **settings)
    found = shelf.say(schema(), rows[0], state(1), full=True, **settings)
    assert "the overwrite has 1 rows, the table has 20" in refused(found)
    assert (count(found), found.state) == (20, state(20)["value"])


def test_a_version_that_sweeps_the_table(shelf: Shelf) -> None:
    """ACTIVATE_VERSION takes the rows of older versions away: that is guarded, too."""
    settings = {"load_method": "upsert", "streams": {"*": {"key_properties": ["id"], "hard_delete": True}}}

    def version(number: int, rows: int, bad: int = 0) -> list[dict[str, Any]]:
        good = [record(n, version=number) for n in range(1, rows + 1)]
        wrong = [record(rows + n, "x", version=number) for n in range(1, bad + 1)]
        return [schema(), *good, *wrong, {"type": "ACTIVATE_VERSION", "stream": "s", "version": number}]

    shelf.say(*version(1, 20), **settings)
    for found in (shelf.say(*version(2, 1), **settings), shelf.say(*version(2, 5, bad=15), **settings)):
        refused(found)
        assert count(found) == 20
    assert count(shelf.say(*version(3, 15), **settings)) == 15


def test_a_version_that_only_marks_rows(shelf: Shelf) -> None:
    """Where deletions mark rows, a version without rows removes none, and is loaded. Mostly rejects are refused."""
    settings = {"load_method": "upsert", "streams": {"*": {"key_properties": ["id"], "hard_delete": False}}}

    def version(number: int, rows: int, bad: int = 0) -> list[dict[str, Any]]:
        good = [record(n, version=number) for n in range(1, rows + 1)]
        wrong = [record(rows + n, "x", version=number) for n in range(1, bad + 1)]
        return [schema(), *good, *wrong, {"type": "ACTIVATE_VERSION", "stream": "s", "version": number}]

    shelf.say(*version(1, 20), **settings)
    refused(shelf.say(*version(2, 5, bad=15), **settings))
    found = shelf.say(*version(3, 0), **settings)
    assert (found.error, count(found)) == (None, 20)
    assert all(row["_sdc_deleted_at"] for row in found.rows("s"))


def test_settings_key_by_key(settings: Load) -> None:
    """A stream's guard is laid over the pipeline's; null at either place is off; `--no-guard` is off everywhere."""
    text = """
pipelines:
  p:
    source: {tap: tap-x}
    destination: {bucket: lake}
    guard: {shrink: 0.5}
    streams:
      "small_*": {guard: {shrink: null}}
      small_off: {guard: null}
"""
    pipeline = settings(text).pipelines["p"]
    limits = {name: pipeline.guard_of(name) for name in ("big", "small_1", "small_off")}
    assert [(g.rejected, g.shrink) for g in limits.values()] == [(0.5, 0.5), (0.5, None), (None, None)]
    off = without_limits(pipeline)
    assert {(off.guard_of(n).rejected, off.guard_of(n).shrink) for n in limits} == {(None, None)}
