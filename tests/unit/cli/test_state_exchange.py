"""`state edit`, `copy`, `export`, `import`, and the verbs that only look."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bridge.lake.runs import new_run_id
from tests.support.states import STATE, A, B, StateProject, project, shop, text

__all__ = ["project", "shop"]  # fixtures
CURSOR_4 = {"replication_key": "id", "replication_key_value": 4}


# edit


def test_edit_asks_again(shop: StateProject) -> None:
    """JSON that is broken is not committed: its line is told, and the editor opens again with what was written."""
    shop.editor('{"bookmarks": {"a": }}', text({"bookmarks": {"a": 9}}))
    done = shop.state("edit", "shop", stdin="y\n")
    assert done.code == 0
    assert "error: the STATE is not JSON" in done.err
    assert "edit it again?" in done.err
    assert (shop.folder / "shown.txt").read_text().strip() == '{"bookmarks": {"a": }}'
    assert shop.store().get() == {"bookmarks": {"a": 9}}


def test_edit_given_up(shop: StateProject) -> None:
    """Who does not want to edit again ends with exit 2, and one who saves nothing with exit 0; nothing is changed."""
    shop.editor("{")
    assert shop.state("edit", "shop", stdin="n\n").code == 2
    shop.editor()
    done = shop.state("edit", "shop")
    assert (done.code, "nothing was saved" in done.err) == (0, True)
    assert json.loads((shop.folder / "shown.txt").read_text()) == STATE
    assert shop.kinds() == ["state"]


def test_edit_against_somebody_else(shop: StateProject) -> None:
    """If the STATE moved while it was edited nothing is overwritten, and what was written is kept in a file."""
    shop.editor(text({"bookmarks": {"a": "mine"}}))
    with (shop.folder / "editor.py").open("a") as file:
        file.write(
            f"from bridge import StateStore\nStateStore({str(shop.folder / 'lake')!r}, 'shop').set('a', 'theirs')\n"
        )
    done = shop.state("edit", "shop")
    assert (done.code, shop.store().get("a")) == (3, "theirs")
    kept = Path(done.err.rsplit("kept in ", 1)[1].strip())
    assert json.loads(kept.read_text()) == {"bookmarks": {"a": "mine"}}
    kept.unlink()


# copy


def test_copy_between_pipelines(shop: StateProject) -> None:
    """DST gets the STATE of NAME, or with -s single bookmarks beside its own; NAME keeps its."""
    shop.store("other").replace({"bookmarks": {"b": 1, "c": 1}})
    assert shop.state("copy", "shop", "other", "-s", "a").code == 0
    assert shop.store("other").get() == {"bookmarks": {"b": 1, "c": 1, "a": A}}
    assert shop.state("copy", "shop", "other").code == 0
    assert shop.store("other").get() == shop.store().get() == STATE


def test_copy_between_environments(shop: StateProject) -> None:
    """An environment has a STATE of its own, in another bucket perhaps; copy takes one from there, and only it does."""
    assert shop.state("get", "shop", "--env", "dev").code == 2
    shop.store("dev.shop").replace({"bookmarks": {"a": "dev"}})
    assert shop.state("copy", "shop", "--from-env", "dev", "--env", "prod").code == 0
    assert shop.state("get", "shop", "--env", "prod").json == {"bookmarks": {"a": "dev"}}
    assert shop.store("prod.shop", "production").get("a") == "dev"
    assert shop.state("copy", "shop", "--from-env", "prod").code == 0
    assert shop.store().get() == {"bookmarks": {"a": "dev"}}
    assert shop.store("dev.shop").version == 1


# export and import


@pytest.mark.parametrize("tool", ["singer", "meltano", "olake", "dataspoc"])
def test_there_and_back(shop: StateProject, tool: str) -> None:
    """What one pipeline exports another one imports: the same STATE; a file is written whole, its folder is made."""
    assert shop.state("export", "shop", "--format", tool, "-o", "deep/out.json").code == 0
    assert shop.state("import", "other", "deep/out.json", "--format", tool).code == 0
    assert shop.store("other").get() == STATE
    printed = shop.state("export", "shop", "--format", tool)
    assert printed.json == json.loads((shop.folder / "deep/out.json").read_text())
    shop.store("other").replace({})
    assert shop.state("import", "other", "-", "--format", tool, stdin=printed.out).code == 0
    assert shop.store("other").get() == STATE
    assert os.listdir(shop.folder / "deep") == ["out.json"]


def test_some_streams_only(shop: StateProject) -> None:
    """With -s bookmarks are written, or taken in beside those that are there."""
    assert shop.state("export", "shop", "--format", "singer", "-s", "b").json == {"bookmarks": {"b": B}}
    (shop.folder / "s.json").write_text(text({"bookmarks": {"b": 7, "c": 8}}))
    assert shop.state("import", "shop", "s.json", "--format", "singer", "-s", "c").code == 0
    assert shop.store().get() == {"bookmarks": {"a": A, "b": B, "c": 8}}
    done = shop.state("import", "shop", "s.json", "--format", "singer", "-s", "d")
    assert (done.code, "b, c" in done.err) == (2, True)


def test_from_a_bucket_of_dataspoc(shop: StateProject) -> None:
    """A folder is searched as its tool lays it out."""
    folder = shop.folder / "old/.dataspoc/state/sales"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text(text({"bookmarks": {"a": 1}}))
    assert shop.state("import", "shop", "old", "--format", "dataspoc").code == 0
    assert shop.store().get("a") == 1
    assert shop.state("import", "shop", "old", "--format", "dataspoc", "--id", "rents").code == 2


def test_a_position_of_olake_as_a_tap_keeps_it(shop: StateProject) -> None:
    """--as TAP stores what that tap resumes from; without it, or for another tap, an error says what to type."""
    token = "8267B34D61000000022B0429296E1404"
    users = {"stream": "users", "namespace": "crm", "sync_mode": "", "state": {"chunks": [], "id": 4}}
    orders = {"stream": "orders", "namespace": "crm", "sync_mode": "", "state": {"_data": token}}
    (shop.folder / "olake.json").write_text(text({"type": "STREAM", "streams": [users, orders]}))
    olake = ("olake.json", "--format", "olake")
    done = shop.state("import", "shop", *olake)
    assert (done.code, shop.store().get("crm-orders")) == (0, None)
    assert "note: crm-orders starts from the beginning: OLake reads it from the database's log" in done.err
    done = shop.state("import", "shop", *olake, "-s", "crm-orders")
    assert (done.code, "--as, one of: meltanolabs-tap-mongodb, pipelinewise-tap-mongodb" in done.err) == (2, True)
    for tool, tap in (("olake", "tap-x"), ("singer", "tap-mongodb")):
        done = shop.state("import", "shop", "olake.json", "--format", tool, "--as", tap)
        assert (done.code, f"--as does not know this tap for the format {tool}" in done.err) == (2, True)
    done = shop.state("import", "shop", *olake, "--as", "pipelinewise-tap-mongodb", "-s", "crm-orders")
    assert (done.code, "note" in done.err) == (0, True)
    expected = {"last_replication_method": "LOG_BASED", "token": {"_data": token}}
    assert shop.store().get() == {"bookmarks": {"crm-users": CURSOR_4, "crm-orders": expected}}
    back = shop.state("export", "shop", "--format", "olake", "--as", "pipelinewise-tap-mongodb")
    assert back.json["streams"][1]["state"] == {"chunks": [], "_data": token}


# look


def test_list(shop: StateProject) -> None:
    """A row a stream: its bookmark, when it last moved, and by which commit; all pipelines with --all."""
    shop.store().set("a", 7)
    shop.store("other").replace({"bookmarks": {"z": 1}})
    rows = shop.state("list", "shop", "--json").json
    assert [(row["pipeline"], row["stream"], row["bookmark"], row["commit"]) for row in rows] == [
        ("shop", "a", 7, 2),
        ("shop", "b", B, 1),
    ]
    assert all(row["moved"].startswith("20") and row["moved"].endswith("Z") for row in rows)
    shown = shop.state("list", "--all").out.splitlines()
    assert [line.split()[:2] for line in shown] == [
        ["pipeline", "stream"],
        ["shop", "a"],
        ["shop", "b"],
        ["other", "z"],
    ]
    assert shop.state("list", "shop").out.splitlines()[0].split()[0] == "stream"


def test_history(shop: StateProject) -> None:
    """Newest first, with what each commit changed; --diff shows before and after, -s one stream, -n so many."""
    shop.store().set("a", 7, reason="test")
    shop.store().set("b", 8)
    told = [
        (step["commit"], [c["stream"] for c in step["changed"]])
        for step in shop.state("history", "shop", "--json").json
    ]
    assert told == [(3, ["b"]), (2, ["a"]), (1, ["a", "b"])]
    assert [step["commit"] for step in shop.state("history", "shop", "-s", "a", "-n", "1", "--json").json] == [2]
    diff = shop.state("history", "shop", "--diff", "-s", "a").out
    assert f"a\n  before  {text(A)}\n  after   7\n" in diff
    assert f"a\n  before  none\n  after   {text(A)}\n" in diff
    assert "b\n" not in diff
    assert [line.split()[0] for line in shop.state("history", "shop").out.splitlines()] == ["commit", "3", "2", "1"]


def test_show_is_get(shop: StateProject) -> None:
    """`show` is another word for `get`; a stream without bookmark is null."""
    assert shop.state("show", "shop").json == shop.state("get", "shop").json == STATE
    assert shop.state("get", "shop", "-s", "a").json == A
    assert shop.state("get", "shop", "-s", "c").json is None


def test_a_file_before_the_first_run(project: StateProject) -> None:
    """A `state.json` put there before the first run is what `get` and `list` show, and what a change builds on."""
    project.edit_state(text(STATE))
    done = project.state("get", "shop")
    assert (done.json, "edited by hand" in done.err) == (STATE, True)
    assert [row["commit"] for row in project.state("list", "shop", "--json").json] == [None, None]
    changed = project.state("set", "shop", "-s", "c", "1", "--force")
    assert (changed.code, "note: state.json was edited by hand" in changed.err) == (0, True)
    assert project.store().get() == {"bookmarks": {**STATE["bookmarks"], "c": 1}}
    assert project.kinds() == ["state", "state"]


def test_an_edit_by_hand_is_recorded_before_it_is_edited_again(shop: StateProject) -> None:
    """`edit` opens the hand-edited STATE, and both it and what was saved are in the log."""
    shop.edit_state(text({"bookmarks": {"a": "hand"}}))
    shop.editor(text({"bookmarks": {"a": "editor"}}))
    assert shop.state("edit", "shop").code == 0
    assert json.loads((shop.folder / "shown.txt").read_text()) == {"bookmarks": {"a": "hand"}}
    assert shop.store().get("a") == "editor"
    assert shop.kinds() == ["state"] * 3


def test_what_was_not_edited_keeps_its_move(shop: StateProject) -> None:
    """`list` shows when and by which commit the other bookmarks moved."""
    shop.store().set("a", 7)
    shop.edit_state(text({"bookmarks": shop.store().read().state["bookmarks"] | {"a": "hand"}}))
    rows = shop.state("list", "shop", "--json").json
    assert {row["stream"]: row["commit"] for row in rows} == {"a": None, "b": 1}
    assert all(bool(row["moved"]) == bool(row["commit"]) for row in rows)


def test_an_earlier_file(shop: StateProject) -> None:
    """An earlier STATE in `state.json` is what `get` shows, with a warning, and what a change builds on."""
    shop.store().set("a", 7)
    shop.edit_state(text(STATE))
    done = shop.state("get", "shop", "-s", "a")
    assert (done.json, "edited by hand" in done.err) == (A, True)
    changed = shop.state("set", "shop", "-s", "c", "8", "--force")
    note = "note: state.json was edited by hand: starting from a"
    assert (changed.code, note in changed.err, "rows since then come again" in changed.err) == (0, True, True)
    assert shop.store().get() == {"bookmarks": {**STATE["bookmarks"], "c": 8}}


def test_stderr_for_programs(shop: StateProject) -> None:
    """With --log-format json each line of stderr is an object, before and after too."""
    shop.edit_state(text({"bookmarks": {"a": 1}}))
    done = shop.state("set", "shop", "-s", "a", "2", "--log-format", "json")
    events = [json.loads(line) for line in done.err.splitlines()]
    assert [event["event"] for event in events] == ["note", "state"]
    assert (events[1]["stream"], events[1]["before"], events[1]["after"]) == ("a", 1, 2)


def test_quiet_is_quiet(shop: StateProject) -> None:
    """With -q a change says nothing at all, unless it failed."""
    done = shop.state("set", "shop", "-s", "a", "2", "-q")
    assert (done.code, done.out, done.err, shop.store().get("a")) == (0, "", "", 2)
    assert "error: " in shop.state("clear", "shop", "-s", "c", "-q").err


def test_run_ids_of_changes_sort(shop: StateProject) -> None:
    """A change has an id like a run's, so that the log can be read by time."""
    before = new_run_id()
    shop.state("set", "shop", "-s", "a", "1")
    assert before[:16] <= shop.state("history", "shop", "--json").json[0]["run_id"][:16] <= new_run_id()[:16]
