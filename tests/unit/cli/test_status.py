"""`status`: one row a pipeline, true while runs come and go, and never stopped by one that is unreadable."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from bridge.lake.commit.committer import Committer
from bridge.lake.commit.open import open_pipeline
from bridge.lake.log import Log
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.runs import RunFile, new_run_id
from bridge.lake.storage.local.storage import LocalStorage
from tests.support.records import table_change
from tests.support.shell import Typed, Words

FILE = """
pipelines:
  flights: {source: {tap: "true"}, destination: {bucket: lake}}
  orders: {source: {tap: "true"}, destination: {bucket: lake}}
"""


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStorage:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bridge.yaml").write_text(FILE)
    return LocalStorage(tmp_path / "lake")


@contextmanager
def writing(lake: LocalStorage, pipeline: str) -> Iterator[tuple[str, Committer]]:
    """A run at work, with its record."""
    run = new_run_id()
    with open_pipeline(lake, pipeline, run) as committer:
        record = RunFile(lake, pipeline, run)
        yield run, committer
        record.finish(status="success", streams={"s": {"records": 1234}}, error=None)


def commit(lake: LocalStorage, committer: Committer, state: Any) -> None:
    """Commit 1,500 rows with a STATE."""
    name = f"part-{committer.generation:010d}-{committer.snapshot.n:06d}-0.parquet"
    source = f".bridge/{committer.log.pipeline}/pending/{name}"
    file = lake.open_pending(source, "t/f")
    file.write(b"rows")
    file.close()
    adds = [{"name": name, "source": source, "size": 4, "rows": 1500}]
    committer.commit(PipelineState(state), [table_change(adds, folder=f"{committer.log.pipeline}/s")])


def set_back(lake: LocalStorage, pipeline: str, n: int, age: timedelta) -> str:
    """Make a record older."""
    path = lake.root / Log(lake, pipeline).key(n)
    at = (datetime.now(timezone.utc) - age).isoformat(timespec="milliseconds")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"at": at}))
    return at


def test_a_pipeline_that_never_ran(bridge: Words, lake: LocalStorage) -> None:
    """A new file's pipelines are listed as such: nothing ran, nothing is wrong."""
    code, out, err = bridge("status", "--json")
    assert (code, err) == (0, "")
    assert [(row["pipeline"], row["status"], row["rows"], row["held_by"]) for row in json.loads(out)] == [
        ("flights", "never ran", 0, None),
        ("orders", "never ran", 0, None),
    ]
    assert "never ran" in bridge("status")[1]
    assert not lake.root.exists(), "looking makes nothing"


def test_last_run_rows_and_bookmarks(bridge: Words, lake: LocalStorage) -> None:
    """A row says how the last run ended, what the lake has, and how long ago each bookmark last moved."""
    with writing(lake, "flights") as (run, committer):
        commit(lake, committer, {"bookmarks": {"s": {"id": 1}, "t": {"id": 1}, "u": {}}})
        commit(lake, committer, {"bookmarks": {"s": {"id": 2}, "t": {"id": 1}, "u": {}}})
        commit(lake, committer, {"bookmarks": {"s": {"id": 2}, "t": {"id": 1}, "u": {}}})
    first = set_back(lake, "flights", 1, timedelta(days=3, minutes=1))
    second = set_back(lake, "flights", 2, timedelta(hours=2, minutes=1))
    code, out, _ = bridge("status", "flights", "--json")
    (row,) = json.loads(out)
    assert (code, row["status"], row["run_id"], row["records"], row["rows"]) == (0, "success", run, 1234, 4500)
    assert {s: each["moved"] for s, each in row["bookmarks"].items()} == {"s": second, "t": first, "u": first}
    assert row["bookmarks"]["s"]["bookmark"] == {"id": 2}
    assert 7250 < row["bookmarks"]["s"]["age_seconds"] < 7400
    head, line, other = bridge("status")[1].splitlines()
    assert head.split("  ")[0] == "pipeline"
    assert "1,234   4,500   2 h to 3 d ago" in line
    assert other.split()[:3] == ["orders", "never", "ran"]


def test_who_holds_it(bridge: Words, lake: LocalStorage) -> None:
    """While a run works it is named with its process and host; once it ended nobody holds the pipeline."""
    with writing(lake, "flights") as (run, _):
        (row,) = json.loads(bridge("status", "flights", "--json")[1])
        assert (row["status"], row["held_by"]["run_id"]) == ("running", run)
        assert (row["held_by"]["pid"], row["held_by"]["host"]) == (os.getpid(), socket.gethostname())
        assert re.search(rf"  pid {os.getpid()}, \d+ s", bridge("status")[1])
    assert json.loads(bridge("status", "flights", "--json")[1])[0]["held_by"] is None


def test_a_run_that_died(bridge: Words, lake: LocalStorage) -> None:
    """A run that was killed is seen to have died, and to hold nothing."""
    run = new_run_id()
    RunFile(lake, "orders", run)
    (row,) = json.loads(bridge("status", "orders", "--json")[1])
    assert (row["status"], row["run_id"], row["ended"], row["held_by"]) == ("died", run, None, None)


def test_commits_of_a_run_under_way_are_seen(bridge: Words, lake: LocalStorage) -> None:
    """What a run has committed counts at once, though the lease names the head from before it."""
    with writing(lake, "flights") as (_, committer):
        for n in range(1, 4):
            commit(lake, committer, {"bookmarks": {"s": n}})
            (row,) = json.loads(bridge("status", "flights", "--json")[1])
            assert (row["commit"], row["rows"], row["bookmarks"]["s"]["bookmark"]) == (n, n * 1500, n)


def test_marks_outlast_a_failure(bridge: Words, lake: LocalStorage) -> None:
    """What looked wrong in the last run that succeeded is shown until one succeeds without it."""
    for n, (ended, marks) in enumerate([("success", {"volume": ["s"]}), ("failed", {}), ("interrupted", {})]):
        RunFile(lake, "flights", f"20260101T00000{n}Z-aaaa", opened=True).finish(status=ended, marks=marks)
        (row,) = json.loads(bridge("status", "flights", "--json")[1])
        assert (row["status"], row["marks"]) == (ended, {"volume": ["s"]})
    RunFile(lake, "flights", "20260101T000009Z-aaaa", opened=True).finish(status="success", marks={})
    assert json.loads(bridge("status", "flights", "--json")[1])[0]["marks"] == {}


ENDED = datetime.now(timezone.utc).isoformat()
WRONG: dict[str, tuple[int, list[dict[str, Any]]]] = {
    "it never ran": (0, []),
    "all is well": (0, [{"status": "success", "warnings": ["slow"]}]),
    "failed": (1, [{"status": "failed"}]),
    "died": (1, [{}]),
    "somebody stopped it": (0, [{"status": "interrupted"}]),
    "stopped after a failure": (1, [{"status": "failed"}, {"status": "interrupted"}]),
    "held back": (5, [{"status": "failed", "streams": {"s": {"held_back": {"message": "no", "hint": ""}}}}]),
    "stale": (6, [{"status": "success", "ended": "2026-01-01T00:00:00+00:00"}]),
    "it differs": (7, [{"status": "success", "marks": {"differs": ["s"]}}]),
    "it differs and failed since": (7, [{"status": "success", "marks": {"differs": ["s"]}}, {"status": "failed"}]),
    "well again": (0, [{"status": "failed"}, {"status": "success"}]),
}
"""How runs ended, one after the other, and the exit code that says so."""


@pytest.mark.parametrize("name", WRONG)
def test_the_exit_code_for_scripts(bridge: Words, lake: LocalStorage, name: str) -> None:
    """With --exit-code it says what is wrong, of several pipelines and reasons the highest; else only of the lake."""
    code, runs = WRONG[name]
    file = lake.root.parent / "bridge.yaml"
    file.write_text(FILE.replace("bucket: lake}}", "bucket: lake}, stale_after: 1d}", 1))
    for n, facts in enumerate(runs):
        run = RunFile(lake, "flights", f"2026010{n + 1}T000000Z-aaaa", opened=True)
        if facts:
            run.update(**{"ended": ENDED, **facts})
    assert bridge("status", "flights", "--exit-code")[0] == code
    assert bridge("status", "--exit-code", "--json")[0] == code
    assert bridge("status")[0] == 0
    assert bridge("status", "orders", "--exit-code")[0] == 0


def test_the_exit_code_of_what_cannot_be_read(bridge: Words, lake: LocalStorage) -> None:
    """A lake and settings that cannot be read keep their codes; a higher one of another pipeline wins."""
    with writing(lake, "flights") as (_, committer):
        commit(lake, committer, {"bookmarks": {"s": 1}})
    (lake.root / Log(lake, "flights").key(1)).write_bytes(b"torn")
    assert bridge("status", "--exit-code")[0] == 3
    RunFile(lake, "orders", new_run_id(), opened=True).finish(status="success", marks={"volume": ["s"]})
    assert bridge("status", "--exit-code")[0] == 7


def test_all_of_a_bucket(bridge: Words, lake: LocalStorage) -> None:
    """Without any file the bucket itself says which pipelines it has."""
    for pipeline in ("a", "b"):
        with writing(lake, pipeline) as (_, committer):
            commit(lake, committer, {"flat": 7, "currently_syncing": "x"})
    (lake.root / ".bridge/notes.txt").write_text("mine")
    (lake.root / "bridge.yaml").unlink(missing_ok=True)
    rows = json.loads(bridge("status", "--to", "lake", "--json")[1])
    assert [(row["pipeline"], list(row["bookmarks"])) for row in rows] == [("a", ["flat"]), ("b", ["flat"])]
    code, _, err = bridge("status", "--to", "elsewhere")
    assert (code, "no pipeline in this bucket" in err) == (2, True)


def test_one_that_is_unreadable_hides_no_other(bridge: Words, lake: LocalStorage) -> None:
    """A damaged pipeline has its row and its error, exit code 3; the others are shown as ever."""
    for pipeline in ("flights", "orders"):
        with writing(lake, pipeline) as (_, committer):
            commit(lake, committer, {"bookmarks": {"s": 1}})
    (lake.root / Log(lake, "flights").key(1)).write_bytes(b"torn")
    code, out, err = bridge("status", "--json")
    assert code == 3
    assert [(row["pipeline"], row["status"]) for row in json.loads(out)] == [
        ("flights", "unreadable"),
        ("orders", "success"),
    ]
    assert "a commit record is unreadable" in err
    code, out, _ = bridge("status")
    assert (code, "unreadable" in out, "1,500" in out) == (3, True, True)


def test_a_log_written_before_moves_were_kept(bridge: Words, lake: LocalStorage) -> None:
    """Where a snapshot does not say when bookmarks moved, its own time is the latest that it can have been."""
    with writing(lake, "flights") as (_, committer):
        for n in range(100):
            committer.set_state({"bookmarks": {"s": n, "t": 1}}, "test")
        committer.set_state({"bookmarks": {"s": 100, "t": 1}}, "test")
    path = lake.root / Log(lake, "flights").key(100)
    record = json.loads(path.read_text())
    assert record.pop("moved")["t"] <= record["at"]
    path.write_text(json.dumps(record))
    at = set_back(lake, "flights", 100, timedelta(days=5))
    (row,) = json.loads(bridge("status", "flights", "--json")[1])
    assert row["bookmarks"]["t"]["moved"] == at
    assert row["bookmarks"]["s"]["moved"] > at


@pytest.mark.parametrize("verb", [("state", "get"), ("tables", "list")])
@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("--to", "nowhere"), "which pipeline?", "nothing was loaded there yet; check --to"),
        (("--to", "nowhere", "--name", "flights"), "this pipeline has no commit yet", "nothing loaded yet"),
        (("--to", "lake", "--name", "fligths"), "this pipeline has no commit yet", 'did you mean "flights"?'),
        (("--to", "lake", "--name", "xyz"), "this pipeline has no commit yet", "the bucket has: flights, orders"),
        (("orders",), "this pipeline has no commit yet", "`singer-bridge runs list` says why"),
        (("order",), "unknown pipeline", 'did you mean "orders"?'),
    ],
)
def test_verbs_that_look_into_nothing(
    bridge: Words, lake: LocalStorage, verb: tuple[str, ...], words: tuple[str, ...], message: str, hint: str
) -> None:
    """A bucket or a pipeline that is not there is exit code 2, with what there is instead; nothing is made."""
    with writing(lake, "flights") as (_, committer):
        commit(lake, committer, {"bookmarks": {"s": 1}})
    with writing(lake, "orders"):
        pass
    code, out, err = bridge(*verb, *words)
    assert (code, out) == (2, "")
    assert message in err
    assert hint in err
    assert not (lake.root.parent / "nowhere").exists()


def test_status_in_an_empty_folder(typed: Typed) -> None:
    """Who has nothing yet is told how to begin."""
    done = typed("status")
    assert done.code == 2
    assert "hint: singer-bridge init starts a project; or name a bucket: --to ./lake\n" in done.err


def test_status_of_a_file_with_a_misspelt_key(typed: Typed, folder: Path) -> None:
    """A verb that only looks at the lake names the slip of the pen, too, not what is missing for it."""
    (folder / "bridge.yaml").write_text("pipelines: {x: {source: {tap: t}, destinatoin: {bucket: lake}}}")
    done = typed("status x")
    assert (done.code, "unknown key pipelines.x.destinatoin" in done.err) == (2, True)
    assert done.err.endswith('hint: did you mean "destination"?\n')


def test_before_and_during_the_first_run(bridge: Words, lake: LocalStorage) -> None:
    """Before it what to type, and while it is under way that it is; what nobody can know yet is no zero."""
    assert "hint: nothing loaded yet; singer-bridge run orders\n" in bridge("tables", "list", "orders")[2]
    with writing(lake, "orders"):
        assert "hint: a run is under way since " in bridge("tables", "list", "orders")[2]
        row = bridge("status", "orders")[1].splitlines()[1].split()
        assert row[2:4] == ["running", "-"]
        (line,) = bridge("runs", "list", "orders")[1].splitlines()[1:]
        assert line.split()[1:] == ["running", "-", "-"]


SECRET = """
pipelines:
  flights:
    source: {tap: "true ${NOT_SET}", pip_url: "${NOT_SET}", config: {password: "${NOT_SET}"}, env: {A: "${NOT_SET}"}}
    destination: {bucket: lake, path: "{tap}"}
    spool: {max_bytes: 100MiB}
    commit: {bytes: 40MiB}
"""


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("status", "flights"),
        ("runs", "list"),
        ("runs", "show", "flights", "--json"),
        ("runs", "show", "flights", "--logs"),
        ("tables", "list"),
        ("state", "get"),
        ("state", "list"),
        ("state", "history", "flights"),
        ("state", "export", "--format", "singer"),
    ],
    ids=" ".join,
)
def test_looking_needs_no_password(bridge: Words, lake: LocalStorage, words: tuple[str, ...]) -> None:
    """Verbs that only read the lake do not ask for the variables of the tap; a change does, and so does a run."""
    with writing(lake, "flights") as (_, committer):
        commit(lake, committer, {"bookmarks": {"s": 1}})
    (lake.root.parent / "bridge.yaml").write_text(SECRET)
    code, _, err = bridge(*words)
    assert (code, err) == (0, "")
    assert bridge("state", "set", "-s", "s", "2")[0] == 2


@pytest.mark.parametrize("words", [("status",), ("runs", "list"), ("schedule", "list")])
def test_a_bad_pipeline_is_a_row(bridge: Words, lake: LocalStorage, words: tuple[str, ...]) -> None:
    """Of several pipelines one whose bucket nobody knows is told as such; the others are shown."""
    with writing(lake, "flights") as (_, committer):
        commit(lake, committer, {"bookmarks": {"s": 1}})
    text = FILE + '  bad: {source: {tap: "true"}, destination: {bucket: "${NOT_SET}"}, schedule: {cron: "@daily"}}\n'
    (lake.root.parent / "bridge.yaml").write_text(text)
    code, out, err = bridge(*words)
    (row,) = [line for line in out.splitlines() if line.startswith("bad")]
    assert (code, "settings: " in row, "NOT_SET" in row, "NOT_SET" in err) == (2, True, True, True)
    assert words == ("schedule", "list") or "flights" in out
    assert bridge(*words, "flights")[0] == 0


def test_a_pipeline_is_one_line_of_a_terminal(
    bridge: Words, lake: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 80 columns the run's id gives way, and what is left stands whole beside its pipeline."""
    for name, value in {"FORCE_COLOR": "1", "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    with writing(lake, "flights") as (run, _):
        head, flights, _, note = bridge("status")[1].splitlines()
        assert note == "not shown: last run; a wider terminal has room, or --json"
        assert max(map(len, (head, flights))) <= 80
        assert run not in flights
        assert re.search(rf"flights .* running .*pid {os.getpid()}, \d+ s", flights)
