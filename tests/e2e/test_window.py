"""`run --backfill` with a tap whose every line we choose: what it loads, what it leaves, and what it refuses."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.e2e.conftest import Project

pytestmark = pytest.mark.usefixtures("in_process")

TAP = """\
import json, sys

def say(**message):
    print(json.dumps(message), flush=True)

plan = json.load(open("plan.json"))
if "--discover" in sys.argv:
    streams = []
    for name, (columns, key, by, _) in plan["streams"].items():
        stream = {"stream": name, "tap_stream_id": name, "schema": {"properties": columns}, "key_properties": key}
        marks = {"replication_key": by[0], "replication_method": "INCREMENTAL"} if by else {}
        streams.append(stream | marks | {"metadata": [{"breadcrumb": [], "metadata": {"selected": True}}]})
    sys.exit(print(json.dumps({"streams": streams})))
state = json.load(open(sys.argv[sys.argv.index("--state") + 1])) if "--state" in sys.argv else {}
json.dump(state, open("given.json", "w"))
for message in plan.get("messages", ()):
    say(**message)
for stream, (columns, key, by, rows) in plan["streams"].items() if "messages" not in plan else ():
    marks = {"bookmark_properties": by} if by else {}
    say(type="SCHEMA", stream=stream, schema={"properties": columns}, key_properties=key, **marks)
    given = state.get("bookmarks", {}).get(stream, {}).get("replication_key_value")
    for row in rows:
        is_old = plan.get("honest") and given is not None and row["id"] <= given
        if not is_old:
            say(type="RECORD", stream=stream, record=row)
bookmarks = dict(state.get("bookmarks", {}), **plan["bookmarks"])
say(type="STATE", value={"bookmarks": bookmarks})
if plan.get("fails"):
    sys.exit(3)
"""
INTEGER, TEXT, TIME = {"type": ["null", "integer"]}, {"type": ["null", "string"]}, {"type": ["null", "string"]}
NUMBERS = {"id": INTEGER, "v": TEXT}


class Source:
    """A project, and what its tap sends."""

    def __init__(self, project: Project, destination: dict[str, Any], **streams: Any) -> None:
        self.project = project
        source = {"tap": [sys.executable, "tap.py"]}
        pipeline = {"source": source, "destination": {"bucket": "lake"} | destination} | streams
        (project.folder / "bridge.yaml").write_text(json.dumps({"pipelines": {"smoke": pipeline}}))
        (project.folder / "tap.py").write_text(TAP)

    def sends(self, rows: list[Any], mark: Any, *, columns: Any = NUMBERS, key: Any = (), by: Any = ("id",)) -> None:
        bookmarks = {"a": mark if isinstance(mark, dict) else {"replication_key": by[0], "replication_key_value": mark}}
        plan = {"streams": {"a": [columns, list(key), list(by), rows]}, "bookmarks": bookmarks}
        (self.project.folder / "plan.json").write_text(json.dumps(plan))

    def has(self, **facts: Any) -> None:
        """More facts about what the tap does: it `fails`, is `honest` about its bookmark, sends these `messages`."""
        path = self.project.folder / "plan.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | facts))

    def run(self, *arguments: str) -> Any:
        done = self.project.command("run", "smoke", "--json", *arguments, timeout=500)
        result = json.loads(done.out)
        assert done.code == 0, done.err
        return result

    def refused(self, *arguments: str) -> str:
        done = self.project.command("run", "smoke", *arguments, timeout=500)
        assert done.code, done.out
        return done.err

    @property
    def given(self) -> Any:
        return json.loads((self.project.folder / "given.json").read_text())["bookmarks"]["a"]


def numbered(*values: Any) -> list[dict[str, Any]]:
    return [{"id": number, "v": text} for number, text in values]


@pytest.mark.parametrize("table_format", ["parquet", "delta", "iceberg"])
def test_rows_without_a_key_are_replaced(project: Project, table_format: str) -> None:
    """Those of the window, whatever the order of the tap's rows; others that it sends are filtered out."""
    source = Source(project, {"format": table_format})
    source.sends(numbered(*((n, "old") for n in range(1, 31)), (None, "none")), 30)
    source.run()
    rows = numbered((40, "new"), (11, "new"), (10, "new"), (19, "new"), (20, "new"), (10, "twice"), (None, "new"))
    source.sends(rows, 40)
    result = source.run("-s", "a", "--backfill", "10..20")
    assert source.given == {"replication_key": "id", "replication_key_value": 9}
    counts = result["streams"]["a"]
    assert (counts["read"], counts["records"], counts["filtered"]) == (7, 4, 3)
    assert result["state"] == {"bookmarks": {"a": {"replication_key": "id", "replication_key_value": 30}}}
    assert result["warnings"] == []
    old = [(n, "old") for n in (*range(1, 10), *range(20, 31))]
    inside = [(10, "new"), (10, "twice"), (11, "new"), (19, "new")]
    assert table(project) == [*sorted(old + inside), (None, "none")]
    assert project.command("verify", "smoke").code == 0


def table(project: Project) -> list[tuple[Any, ...]]:
    done = project.command("sql", "smoke", "--json", 'select id, v from "a" order by id nulls last, v')
    return [(row["id"], row["v"]) for row in map(json.loads, done.out.splitlines())]


def test_rows_with_a_key_are_merged(project: Project) -> None:
    """A row that is gone at the source stays: `reconcile` is for those."""
    source = Source(project, {"load_method": "upsert"})
    source.sends(numbered(*((n, "old") for n in range(1, 31))), 30, key=["id"])
    source.run()
    source.sends(numbered((9, "new"), (10, "new"), (12, "new"), (20, "new")), 40, key=["id"])
    result = source.run("-s", "a", "--backfill", "10..20")
    assert table(project) == [(n, "new" if n in (10, 12) else "old") for n in range(1, 31)]
    assert result["streams"]["a"]["merged"] == {"rows": 2, "inserted": 0, "updated": 2, "superseded": 0, "deleted": 0}


@pytest.mark.parametrize(
    ("mark", "window", "given"),
    [
        ("2024-03-01", "2024-01-02..2024-01-05", "2024-01-01"),
        ("2024-03-01T00:00:00Z", "2024-01-02..2024-01-05", "2024-01-01T23:59:59Z"),
        (
            "2024-03-01T00:00:00.000000+00:00",
            "2024-01-02T02:00:00+02:00..2024-01-05",
            "2024-01-01T23:59:59.000000+00:00",
        ),
        ("2024-03-01 00:00:00.000", "2024-01-02..2024-01-05", "2024-01-01 23:59:59.000"),
    ],
)
def test_the_bookmark_keeps_its_form(project: Project, mark: str, window: str, given: str) -> None:
    """The tap is started at the window's beginning, as it writes times; texts are compared as times."""
    source, columns = Source(project, {}), {"id": INTEGER, "v": TEXT, "at": TEXT}

    def at(number: int, day: str) -> dict[str, Any]:
        return {"id": number, "v": "x", "at": mark.replace("2024-03-01", day)}

    rows = [at(1, "2024-01-01"), at(2, "2024-01-02"), at(3, "2024-01-04"), at(4, "2024-01-05"), at(5, "2024-03-01")]
    source.sends(rows, mark, columns=columns, by=["at"])
    source.run()
    source.sends([row | {"v": "y"} for row in rows], mark, columns=columns, by=["at"])
    result = source.run("-s", "a", "--backfill", window)
    assert source.given["replication_key_value"] == given
    assert result["state"]["bookmarks"]["a"]["replication_key_value"] == mark
    assert table(project) == [(1, "x"), (2, "y"), (3, "y"), (4, "x"), (5, "x")]


def test_bookmarks_of_partitions(project: Project) -> None:
    """Each starts at the window's beginning."""
    source = Source(project, {})
    one, other = ({"context": {"org": org}, "replication_key_value": 30, "replication_key": "id"} for org in "ab")
    mark = {"partitions": [one, other]}
    source.sends(numbered(*((n, "old") for n in range(1, 31))), mark)
    source.run()
    result = source.run("-s", "a", "--backfill", "10..20")
    assert source.given == {"partitions": [part | {"replication_key_value": 9} for part in (one, other)]}
    assert result["state"] == {"bookmarks": {"a": mark}}


def test_a_view_follows(project: Project) -> None:
    """The commit that replaces a window's rows changes the view of the table, too."""
    source = Source(project, {}, views={"count_v": "SELECT v, count(*) AS n, sum(id) AS s FROM a GROUP BY v"})
    source.sends(numbered(*((n, "old") for n in range(1, 31))), 30)
    source.run()
    source.sends(numbered((10, "new"), (11, "new")), 30)
    source.run("-s", "a", "--backfill", "10..20", "--no-guard")
    done = project.command("sql", "smoke", "--json", "select v, n, s from count_v order by v")
    rows = [tuple(json.loads(line).values()) for line in done.out.splitlines()]
    assert rows == [("new", 2, 21), ("old", 20, sum(n for n in range(1, 31) if not 10 <= n < 20))]
    assert project.command("verify", "smoke").code == 0


def test_a_tap_that_fails_changes_nothing(project: Project) -> None:
    """Not even a part of the window: there is one commit, at the end."""
    source = Source(project, {"load_method": "append-only"}, commit={"rows": 1, "every": "1s"})
    source.sends(numbered(*((n, "old") for n in range(1, 31))), 30)
    source.run()
    source.sends(numbered((10, "new"), (11, "new")), 30)
    source.has(fails=True)
    assert "the tap failed" in source.refused("-s", "a", "--backfill", "10..20")
    assert table(project) == [(n, "old") for n in range(1, 31)]


def test_a_window_that_is_gone_at_the_source(project: Project) -> None:
    """A source that has hardly a row of it is doubted; with --no-guard the table's rows go."""
    source = Source(project, {})
    source.sends(numbered(*((n, "old") for n in range(1, 31))), 30)
    source.run()
    source.sends([], 30)
    text = source.refused("-s", "a", "--backfill", "10..20")
    assert "the source has 0 rows in the window, the table has 10 of it" in text
    assert "--no-guard" in text
    source.run("-s", "a", "--backfill", "10..20", "--no-guard")
    assert table(project) == [(n, "old") for n in range(1, 31) if not 10 <= n < 20]
    source.run("-s", "a", "--backfill", "10..20")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--backfill", "1..5"], "--backfill is of some streams"),
        (["-s", "a", "--backfill", "5..1"], "a window without anything in it"),
        (["-s", "a", "--backfill", "5..5"], "a window without anything in it"),
        (["-s", "a", "--backfill", "5"], "is no window"),
        (["-s", "a", "--backfill", "5..2024-01-01"], "is no window"),
        (["-s", "a", "--backfill", "2024-13-01..2024-14-01"], "is no window"),
        (["-s", "a", "--backfill", "1..5", "--full"], "--backfill has a beginning and an end of its own"),
        (["-s", "a", "--backfill", "1..5", "--max-records", "5"], "--backfill has a beginning and an end of its own"),
        (["-s", "a", "--step", "5"], "--step cuts the window of --backfill"),
        (["-s", "a", "--backfill", "1..5", "--step", "7d"], "--step 7d does not fit a window of numbers"),
        (["-s", "a", "--backfill", "1..5", "--step", "0"], "--step 0 does not fit a window of numbers"),
        (["-s", "a", "--backfill", "2024-01-01..2024-01-05", "--step", "5"], "--step 5 does not fit a window of times"),
        (["-s", "a", "--backfill", "1..50000", "--step", "1"], "cuts the window into too many"),
        (["-s", "a", "--backfill", "2024-01-01..2024-01-05"], "nobody knows how to have the tap start at a value"),
        (["-s", "b", "--backfill", "1..5"], "the catalog has no such stream"),
        (["-s", "a", "--backfill", "1..5", "--every", "5m"], "--every goes on from the last bookmark"),
    ],
)
def test_what_is_refused(project: Project, arguments: list[str], text: str) -> None:
    """With what to do instead; nothing is loaded."""
    source = Source(project, {})
    source.sends(numbered((1, "old")), 1)
    source.run()
    source.sends(numbered((1, "new")), 1)
    said = source.refused(*arguments)
    assert text in said
    assert "hint: " in said
    assert table(project) == [(1, "old")]


def test_streams_without_a_window(project: Project) -> None:
    """A table that is replaced, and one without a replication key, are refused at their SCHEMA at the latest."""
    source = Source(project, {"load_method": "overwrite"})
    source.sends(numbered((1, "old")), 1)
    source.run()
    assert "each run replaces the table" in source.refused("-s", "a", "--backfill", "1..5")
    source = Source(project, {"load_method": "append-only"})
    source.sends(numbered((2, "old")), {"replication_key_value": 1}, by=[])
    source.run("--refresh-catalog")
    assert "the stream has no replication key" in source.refused("-s", "a", "--backfill", "1..5")


def test_a_column_that_changed_its_type(project: Project) -> None:
    """Rows of older files are found by what they hold, as the table has them now."""
    source = Source(project, {})
    source.sends(numbered(*((n, "old") for n in range(1, 21))), 20)
    source.run()
    columns = NUMBERS | {"id": {"type": ["null", "number"]}}
    source.sends(numbered((20.5, "later")), 20.5, columns=columns)
    source.run()
    source.sends(numbered((15, "new"), (15.5, "new")), 20.5, columns=columns)
    source.run("-s", "a", "--backfill", "15..16.5", "--no-guard")
    expected = [(n, "old") for n in range(1, 21) if n not in (15, 16)] + [(15, "new"), (15.5, "new"), (20.5, "later")]
    assert table(project) == sorted(expected)


def test_steps(project: Project) -> None:
    """Each step is a run of its own, and one that fails stops; the same command goes on with it."""
    source = Source(project, {})
    source.sends(numbered(*((n, "old") for n in range(1, 31))), 30)
    source.run()
    source.sends(numbered(*((n, "new") for n in range(1, 31))), 30)
    command = ("-s", "a", "--backfill", "1..30", "--step", "10")
    runs = source.run(*command)
    assert [run["streams"]["a"]["records"] for run in runs] == [10, 10, 9]
    assert table(project) == [(n, "new" if n < 30 else "old") for n in range(1, 31)]
    source.has(fails=True)
    text = source.refused(*command)
    assert "step 1 of 3: 1..11" in text and "3 steps left: the same command goes on with them" in text


def test_a_window_beyond_the_bookmark(project: Project) -> None:
    """Its rows would come once more by the next run: refused for a table that is only added to."""
    source = Source(project, {})
    source.sends(numbered(*((n, "old") for n in range(1, 31))), 30)
    source.run()
    source.sends(numbered(*((n, "new") for n in range(1, 41))), 40)
    source.has(honest=True)
    text = source.refused("-s", "a", "--backfill", "10..100")
    assert "the window ends beyond the bookmark" in text and "end it at 30 at the latest" in text
    assert "beyond the bookmark" in source.refused("-s", "a", "--backfill", "10..100", "--step", "15")
    done = project.command("run", "smoke", "-s", "a", "--backfill", "10..30", "--dry-run")
    assert "backfill: rows from 10 up to, but without, 30; the bookmarks stay" in done.out
    source.run("-s", "a", "--backfill", "10..30")
    assert "backfill  10..30" in project.command("runs", "show", "smoke").out
    source.run()
    expected = [(n, "new" if 10 <= n < 30 or n > 30 else "old") for n in range(1, 41)]
    assert table(project) == expected, "also the first row, of a tap that starts after its bookmark"


def test_a_beginning_that_the_tap_leaves_out(project: Project) -> None:
    """Steps of a tap that sends what is greater than its bookmark: no row at a boundary is lost."""
    source = Source(project, {})
    source.sends(numbered(*((n, "old") for n in range(1, 31))), 30)
    source.run()
    source.sends(numbered(*((n, "new") for n in range(1, 31))), 30)
    source.has(honest=True)
    source.run("-s", "a", "--backfill", "1..30", "--step", "7")
    assert table(project) == [(n, "new" if n < 30 else "old") for n in range(1, 31)]


def test_a_key_that_changes_within_it(project: Project) -> None:
    """There is one commit: what would need two fails, and changes nothing."""
    source = Source(project, {"load_method": "upsert"})
    columns = NUMBERS | {"w": INTEGER}
    source.sends(numbered(*((n, "old") for n in range(1, 31))), 30, columns=columns, key=["id"])
    source.run()

    def schema(*key: str) -> dict[str, Any]:
        facts = {"key_properties": key, "bookmark_properties": ["id"], "schema": {"properties": columns}}
        return {"type": "SCHEMA", "stream": "a", **facts}

    def record(n: int) -> dict[str, Any]:
        return {"type": "RECORD", "stream": "a", "record": {"id": n, "v": "new", "w": 1}}

    state = {"type": "STATE", "value": {"bookmarks": {"a": {"replication_key_value": 31, "replication_key": "id"}}}}
    source.has(messages=[schema("id"), record(10), record(11), state, schema("id", "w"), record(12), state])
    assert "the key changes" in source.refused("-s", "a", "--backfill", "10..20")
    assert table(project) == [(n, "old") for n in range(1, 31)]


def test_transforms_and_children(project: Project) -> None:
    """A window is of the tap's rows: a table whose rows are others, and rows that come with a parent's, are refused."""
    for more, text in (
        ({"a": {"transform": "SELECT id + 100 AS id, v FROM stream"}}, "a table that a transform fills has no windows"),
        ({"a": {"parent": "p"}}, "a child stream has no windows of its own"),
    ):
        source = Source(project, {}, streams=more)
        source.sends(numbered((1, "old"), (2, "old")), 2)
        assert text in source.refused("-s", "a", "--backfill", "1..2")


@pytest.mark.parametrize("hard", [True, False])
def test_versions_stay(project: Project, hard: bool) -> None:
    """A file that a window leaves some rows of keeps its version: a later one removes, or marks, what is older."""
    source = Source(project, {"hard_delete": hard})
    schema = {"type": "SCHEMA", "stream": "a", "key_properties": [], "bookmark_properties": ["id"]}
    schema |= {"schema": {"properties": NUMBERS}}
    state = {"type": "STATE", "value": {"bookmarks": {"a": {"replication_key": "id", "replication_key_value": 30}}}}

    def messages(version: int) -> list[Any]:
        rows = [{"id": n, "v": f"v{version}"} for n in range(1, 31)]
        records = [{"type": "RECORD", "stream": "a", "record": row, "version": version} for row in rows]
        return [schema, *records, {"type": "ACTIVATE_VERSION", "stream": "a", "version": version}, state]

    source.sends([], 30)
    source.has(messages=messages(1))
    source.run()
    source.run("-s", "a", "--backfill", "10..20")
    assert len(table(project)) == 30
    source.has(messages=messages(2))
    source.run()
    live = "" if hard else "where _sdc_deleted_at is null"
    done = project.command("sql", "smoke", "--json", f'select id, v from "a" {live} order by id')
    assert [json.loads(line) for line in done.out.splitlines()] == [{"id": n, "v": "v2"} for n in range(1, 31)]
    assert project.command("verify", "smoke").code == 0


def test_steps_after_a_rollback(project: Project) -> None:
    """What a rollback took back is loaded again."""
    source = Source(project, {})
    source.sends(numbered(*((n, "old") for n in range(1, 31))), 30)
    source.run()
    source.sends(numbered(*((n, "new") for n in range(1, 31))), 30)
    source.run("-s", "a", "--backfill", "1..11")
    newest = source.run("-s", "a", "--backfill", "1..30", "--step", "10")
    assert project.command("rollback", "1", "smoke", "--yes").code == 0
    assert len(newest) == len(source.run("-s", "a", "--backfill", "1..30", "--step", "10")) == 3
    assert table(project) == [(n, "new" if n < 30 else "old") for n in range(1, 31)]


def test_a_tap_that_sends_nothing(project: Project) -> None:
    """No success, and no step that counts."""
    source = Source(project, {})
    source.sends(numbered(*((n, "old") for n in range(1, 31))), 30)
    source.run()
    source.has(messages=[{"type": "STATE", "value": {"bookmarks": {}}}])
    text = source.refused("-s", "a", "--backfill", "10..20", "--step", "5")
    assert "the tap sent no SCHEMA of a stream" in text and "2 steps left" in text
    assert table(project) == [(n, "old") for n in range(1, 31)]


def test_rejects_are_those_of_the_window(project: Project) -> None:
    """A record outside of it is filtered out, whether it fits or not."""
    source = Source(project, {}, rejects={"on_reject": "quarantine"})
    source.sends(numbered(*((n, "old") for n in range(1, 31))), 30)
    source.run()
    rows = [*numbered((12, "new"), (13, "new")), {"id": 25, "n": "x"}, {"id": 14, "n": "x"}, {"id": "x", "v": "new"}]
    source.sends(rows, 30, columns=NUMBERS | {"n": INTEGER})
    result = source.run("-s", "a", "--backfill", "10..20", "--no-guard")
    counts = result["streams"]["a"]
    assert (counts["read"], counts["records"], counts["rejected"], counts["filtered"]) == (5, 2, 2, 1)


def test_backfills_are_no_usual_runs(project: Project) -> None:
    """The next run is not judged by them: neither few rows nor a bookmark that stands still."""
    source = Source(project, {"load_method": "upsert"})
    source.sends(numbered(*((n, "old") for n in range(1, 2001))), 2000, key=["id"])
    source.run()
    source.run("-s", "a", "--backfill", "1..2000", "--step", "200")
    source.sends(numbered((1999, "x"), (2000, "y")), 2000, key=["id"])
    assert source.run()["warnings"] == []
