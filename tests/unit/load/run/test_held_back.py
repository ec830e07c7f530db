"""`on_error: hold`: a stream that cannot be stored is held back, the others commit. All of the product but Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.cli import main
from bridge.lake.runs import read_run
from bridge.lake.storage import open_storage
from bridge.settings.values.request import Request
from tests.support.tables import STRING
from tests.support.tap_runs import PagedRuns, ResumingRuns, at, outcome, schema, state, upto, values

HOLD = {"a": {"on_error": "hold"}}


def rows(stream: str, first: int, last: int, v: Any = 1) -> list[dict[str, Any]]:
    """RECORDs with these ids."""
    return [{"type": "RECORD", "stream": stream, "record": {"id": n, "v": v}} for n in range(first, last + 1)]


def test_a_schema_that_cannot_be_merged(runs: ResumingRuns) -> None:
    """Rows and bookmark of that stream stay, the other commits; the next run takes it from its old bookmark."""
    assert runs.run(schema("a"), schema("b"), rows("a", 1, 3), rows("b", 1, 3), state(a=3, b=3)).status == "success"
    changed = [schema("a", STRING), schema("b"), rows("a", 4, 6, "x"), rows("b", 4, 6), state(a=6, b=6)]
    fails = {"a": {"on_error": "hold", "on_type_change": "fail"}}
    more = [*changed, rows("a", 7, 9, "x"), rows("b", 7, 9), state(a=9, b=9)]
    result = runs.run(*more, streams=fails)
    assert outcome(result) == ("failed", 5)
    assert (runs.log_ids("a"), runs.log_ids("b"), runs.marks) == (upto(3), upto(9), {"a": 3, "b": 9})
    assert result.error
    assert result.error.message == "held back: a; all else is committed"
    assert "column" in result.error.hint
    run = read_run(open_storage(runs.uri), "p", result.run_id)
    assert run
    assert run.streams["a"].held_back
    assert (run.streams["a"].records, run.streams["a"].complete, run.streams["b"].held_back) == (0, False, None)
    assert runs.run(*more).status == "success"
    assert runs.given == {"a": 3, "b": 9}
    assert (runs.log_ids("a"), runs.log_ids("b"), runs.marks) == (upto(9), upto(9), {"a": 9, "b": 9})


def test_a_first_schema_that_cannot_be_read(runs: ResumingRuns) -> None:
    """The stream has no table and no bookmark; its rows are counted by nobody, and come with the next run."""
    broken = schema("a", {"$ref": "#/nowhere"})
    result = runs.run(broken, schema("b"), rows("b", 1, 2), state(b=2), rows("a", 1, 3), state(a=3, b=2))
    assert (outcome(result), runs.log_ids("b"), runs.marks) == (("failed", 5), upto(2), {"b": 2})
    assert "a" not in runs.view.tables
    assert runs.run(schema("a"), schema("b"), rows("a", 1, 3), state(a=3, b=2)).status == "success"
    assert (runs.log_ids("a"), runs.log_ids("b"), runs.marks) == (upto(3), upto(2), {"a": 3, "b": 2})


def test_too_many_rejects(runs: ResumingRuns) -> None:
    """What does not fit can be looked at, and is not replayed: the next run extracts it again."""
    bad = [schema("a"), schema("b"), rows("a", 1, 4, "x"), rows("b", 1, 4), state(a=4, b=4)]
    result = runs.run(*bad, rejects={"max": 2})
    assert (outcome(result), runs.log_ids("a"), runs.log_ids("b"), runs.marks) == (("failed", 5), [], upto(4), {"b": 4})
    assert sum(reject.lines for reject in runs.view.rejects.values()) == 4
    assert all(reject.refused for reject in runs.view.rejects.values())
    good = [schema("a"), schema("b"), rows("a", 1, 4), rows("b", 5, 6), state(a=4, b=6)]
    assert runs.run(*good, rejects={"max": 2}).status == "success"
    assert (runs.log_ids("a"), runs.log_ids("b"), runs.view.rejects) == (upto(4), upto(6), {})
    assert outcome(runs.run(*bad[:2], rows("b", 7, 9, "x"), state(a=4, b=9), rejects={"max": 2})) == ("failed", 1)


@pytest.mark.parametrize("chosen", [{}, {"on_error": "hold"}], ids=["default", "hold"])
@pytest.mark.parametrize("full", [False, True])
def test_an_overwrite_that_the_guard_refuses(runs: ResumingRuns, full: bool, chosen: dict[str, Any]) -> None:
    """The old table stays, and its bookmark; the others of the same commit are loaded. Nobody need ask for that."""
    streams = {"a": {"load_method": "overwrite", **chosen}}
    first = [schema("a"), schema("b"), rows("a", 1, 50), rows("b", 1, 3), state(b=3, a=50)]
    assert runs.run(*first, streams=streams).status == "success"
    few = [schema("a"), schema("b"), rows("b", 1, 6), rows("a", 1, 2), state(b=6, a=2)]
    result = runs.run(*few, streams=streams, asked=Request(full=full))
    assert (outcome(result), len(runs.log_ids("a")), runs.log_ids("b")) == (("failed", 5), 50, upto(6))
    assert (runs.marks, "the table keeps its 50 rows" in result.error.hint) == (  # type: ignore[union-attr]
        {"a": 50, "b": 6},
        True,
    )


@pytest.mark.parametrize("why", ["on_error: fail", "one stream", "a position of all"])
def test_a_refused_overwrite_that_ends_the_run(runs: ResumingRuns, why: str) -> None:
    """By choice; where there is nothing else to load; where the STATE cannot leave one stream where it is."""
    streams = {"a": {"load_method": "overwrite"} | ({"on_error": "fail"} if why == "on_error: fail" else {})}
    others = [] if why == "one stream" else [schema("b"), rows("b", 1, 3)]
    states = [state(a=1), state(a=2)]
    if why == "a position of all":
        states = [{**one, "value": one["value"] | {"page": n}} for n, one in enumerate(states)]
    assert runs.run(schema("a"), rows("a", 1, 50), *others, states[0], streams=streams).status == "success"
    result = runs.run(schema("a"), *others, rows("a", 60, 61), states[1], streams=streams)
    assert (outcome(result), len(runs.log_ids("a"))) == (("failed", 1), 50)
    assert "guard: {shrink: null}" in result.error.hint  # type: ignore[union-attr]
    assert runs.view.state == states[0]["value"]


def test_a_stream_that_may_not_be_held_fails_the_run(runs: ResumingRuns) -> None:
    """The default is as it was: nothing after the last STATE before it is committed."""
    result = runs.run(schema("b"), rows("b", 1, 2), state(b=2), schema("a", {"$ref": "#/no"}), streams={})
    assert (outcome(result), runs.log_ids("b")) == (("failed", 1), upto(2))


def test_a_family_is_held_back_together(runs: ResumingRuns) -> None:
    """A child whose parent is held back would come again with it; a parent goes on only with its child."""
    streams = {"a": {"on_error": "hold"}, "c": {"parent": "a", "on_error": "hold"}, "b": {}}
    broken = schema("a", {"$ref": "#/no"})
    tail = [rows("a", 1, 2), rows("c", 1, 4), state(a=2), schema("b"), rows("b", 1, 2), state(a=2, b=2)]
    result = runs.run(broken, schema("c", resumes=False), *tail, streams=streams)
    assert (outcome(result), runs.marks, runs.log_ids("b"), runs.log_ids("c")) == (("failed", 5), {"b": 2}, upto(2), [])
    result = runs.run(schema("a"), schema("c", {"$ref": "#/no"}, resumes=False), *tail, streams=streams)
    assert (outcome(result), runs.marks, runs.log_ids("a")) == (("failed", 5), {"b": 2}, [])
    assert runs.run(schema("a"), schema("c", resumes=False), *tail, streams=streams).status == "success"
    assert (runs.log_ids("a"), runs.log_ids("b"), runs.log_ids("c")) == (upto(2), upto(2), upto(4))


def test_a_parent_that_sends_nothing_keeps_its_bookmark(runs: ResumingRuns) -> None:
    """Its children come again only if it is read from where it was."""
    streams = {name: {"parent": "p", "on_error": "hold"} for name in "ac"}
    broken = schema("a", {"$ref": "#/no"}, resumes=False)
    messages = [schema("c", resumes=False), schema("b"), rows("a", 1, 2), rows("c", 1, 2), rows("b", 1, 2)]
    result = runs.run(broken, *messages, state(p=2, b=2), streams=streams)
    assert (outcome(result), runs.marks, runs.log_ids("b"), runs.log_ids("c")) == (("failed", 5), {"b": 2}, upto(2), [])


IMPOSSIBLE: dict[str, Callable[[], list[Any]]] = {
    "has no `bookmarks`": lambda: [rows("b", 1, 2), {"type": "STATE", "value": {"offset": 7}}],
    "has a position beside `bookmarks`": lambda: [
        rows("b", 1, 2),
        {"type": "STATE", "value": {"bookmarks": {}, "n": 1}},
    ],
    "may cover the rows of a,": lambda: [rows("a", 1, 2), rows("b", 1, 2), state(b=2)],
    "may cover the rows of c,": lambda: [
        schema("c"),
        rows("c", 1, 2),
        rows("a", 1, 2),
        rows("b", 1, 2),
        state(a=2, b=2),
    ],
}


@pytest.mark.parametrize("why", IMPOSSIBLE)
def test_what_cannot_be_told_apart_is_refused(runs: ResumingRuns, why: str) -> None:
    """No STATE is committed that might lead the rows that were left out; the error says what to set."""
    result = runs.run(schema("a", {"$ref": "#/no"}), schema("b"), *IMPOSSIBLE[why]())
    assert (outcome(result), runs.view.state, runs.log_ids("b")) == (("failed", 1), None, [])
    assert result.error
    assert "a cannot be held back: " in result.error.message
    assert why in result.error.message


def test_a_stream_without_a_parent_may_be_named_as_its_own(runs: ResumingRuns) -> None:
    """Then no other bookmark covers its rows, and it is held back without a bookmark."""
    streams = {"a": {"on_error": "hold", "parent": "a"}}
    messages = [schema("a", {"$ref": "#/no"}), schema("b"), rows("a", 1, 2), rows("b", 1, 2), state(b=2)]
    assert (outcome(runs.run(*messages, streams=streams)), runs.log_ids("b")) == (("failed", 5), upto(2))


def test_a_half_loaded_table_stays_half_loaded(runs: ResumingRuns) -> None:
    """Its bookmark is in the middle of it, and the staged rows are kept with it."""
    streams = {"a": {"on_error": "hold", "load_method": "overwrite"}}

    def versioned(first: int, last: int) -> list[dict[str, Any]]:
        return [row | {"version": 7} for row in rows("a", first, last)]

    def mark(n: int) -> dict[str, Any]:
        return at(n) | {"version": 7}

    middle = [schema("a"), versioned(1, 3), state(a=mark(3)), versioned(4, 5), {"type": "EXIT"}]
    assert runs.run(*middle, streams=streams).status == "failed"
    assert (runs.log_ids("a"), sum(file.rows for file in runs.view.staged["a"].files)) == ([], 3)
    broken = [schema("b"), rows("b", 1, 2), state(a=mark(3), b=2), schema("a", {"$ref": "#/no"}), versioned(1, 6)]
    result = runs.run(*broken, state(a=mark(6), b=2), rows("b", 3, 4), state(a=mark(6), b=4), streams=streams)
    assert (outcome(result), runs.marks, runs.log_ids("b")) == (("failed", 5), {"a": 3, "b": 4}, upto(4))
    done = [
        schema("a"),
        versioned(1, 6),
        {"type": "ACTIVATE_VERSION", "stream": "a", "version": 7},
        state(a=mark(6), b=4),
    ]
    assert runs.run(*done, streams=streams).status == "success"
    assert (runs.log_ids("a"), runs.marks) == (upto(6), {"a": 6, "b": 4})


def test_a_tap_that_fails_is_not_held_back(runs: ResumingRuns) -> None:
    """The run fails, and says that the setting is not for this; without the setting there is nothing to say."""
    sent = [schema("a"), rows("a", 1, 2), state(a=2), {"type": "EXIT"}]
    failed = runs.run(*sent)
    assert outcome(failed) == ("failed", 1)
    assert failed.error
    assert failed.error.hint.startswith("on_error: hold (a) is for rows that cannot be stored")
    assert "singer-bridge select p '!STREAM'" in failed.error.hint
    failed = runs.run(*sent, streams={})
    assert failed.error
    assert "on_error" not in failed.error.hint


def test_status_names_it(runs: ResumingRuns, capsys: pytest.CaptureFixture[str]) -> None:
    """The stream, the reason and what to do; also in the summary's error, and for programs."""
    runs.run(schema("a", {"$ref": "#/no"}), schema("b"), rows("b", 1, 2), state(b=2))
    with pytest.raises(SystemExit) as ended:
        main(["status", "--to", runs.uri, "--name", "p"])
    shown = capsys.readouterr()
    assert (ended.value.code, "held back" in shown.out + shown.err) == (0, True)
    assert "p, a: " in shown.out + shown.err
    with pytest.raises(SystemExit):
        main(["status", "--to", runs.uri, "--name", "p", "--json"])
    (facts,) = json.loads(capsys.readouterr().out)
    assert (facts["status"], list(facts["held_back"])) == ("failed", ["a"])


def test_with_one_commit_a_run(runs: ResumingRuns) -> None:
    """All but the stream that is held back is that commit."""
    at_end = {"commit": {"rows": 1, "at": "end"}}
    messages = [schema("a", {"$ref": "#/no"}), schema("b"), rows("a", 1, 2), rows("b", 1, 4), state(a=2, b=4)]
    result = runs.run(*messages, **at_end)
    assert (outcome(result), result.commits, runs.log_ids("b"), runs.marks) == (("failed", 5), 1, upto(4), {"b": 4})


def test_with_several_processes(tmp_path: Path, without_spark: None) -> None:
    """The STATE of its own process keeps its bookmark, too."""
    lake = PagedRuns(tmp_path)
    lake.settings = {"rejects": {"on_reject": "fail"}, "streams": HOLD}
    lake.streams = {name: {"last": 4} for name in "abc"}
    assert lake.run(2).status == "success"
    groups = lake.groups
    lake.streams = {"a": {"last": 8, "said": "x"}, "b": {"last": 8}, "c": {"last": 8}}
    assert outcome(lake.run(2)) == ("failed", 5)
    assert [lake.ids(name) for name in "abc"] == [upto(4), upto(8), upto(8)]
    assert {s: mark for group in lake.groups.values() for s, mark in group.items()} == {"a": 4, "b": 8, "c": 8}
    assert (values(lake.view.state), lake.groups.keys()) == ({"a": 4, "b": 8, "c": 8}, groups.keys())
    del lake.streams["a"]["said"]
    assert lake.run(2).status == "success"
    assert [lake.ids(name) for name in "abc"] == [upto(8)] * 3
