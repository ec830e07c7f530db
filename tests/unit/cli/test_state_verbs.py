"""`state set`, `merge`, `clear` and what all changes have in common: what is printed, committed and refused."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from bridge.lake.commit.open import open_pipeline
from bridge.lake.lease import take
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.storage.local.storage import LocalStorage
from tests.support.records import table_change
from tests.support.states import STATE, A, B, StateProject, project, shop, text

__all__ = ["project", "shop"]  # fixtures


# set


@pytest.mark.parametrize("way", ["inline", "file", "stdin"])
def test_set_takes_it_from_anywhere(project: StateProject, way: str) -> None:
    """The STATE is given as JSON, as a file or on stdin; a pipeline that never ran takes it, and its lake is made."""
    (project.folder / "s.json").write_text(text(STATE))
    value = {"inline": text(STATE), "file": "s.json", "stdin": "-"}[way]
    done = project.state("set", "shop", value, stdin=text(STATE))
    assert (done.code, done.out) == (0, "shop: the STATE is that of commit 1 now\n")
    assert f"a\n  before  none\n  after   {text(A)}\n" in done.err
    assert project.store().get() == STATE
    assert (project.folder / "lake/.bridge/lake.json").exists()
    assert json.loads((project.folder / "lake/.bridge/shop/state.json").read_text()) == STATE


def test_set_without_a_name(tmp_path: Path, project: StateProject) -> None:
    """Where the bucket has one pipeline a single word is the STATE; with --name it may be a new pipeline."""
    assert project.state("set", "--to", "elsewhere", "--name", "x", text(STATE)).code == 0
    assert project.state("set", "--to", "elsewhere", "-s", "a", "7").code == 0
    assert project.state("get", "--to", "elsewhere", "-s", "a").json == 7


def test_set_one_bookmark(shop: StateProject) -> None:
    """With -s the others keep theirs."""
    done = shop.state("set", "shop", "-s", "a", '{"id": 12345678901234567890, "f": 0.10}')
    assert done.code == 0
    assert '"f": 0.10' in shop.state("get", "shop").out
    assert shop.store().get("b") == B


PARTS = {"partitions": [{"context": {"region": "a"}, **A}, {"context": {"region": "b"}, **A}], "other": 1}


def test_one_partition_of_a_bookmark(shop: StateProject) -> None:
    """`--partition` sets, shows and clears the part with that context; the other parts stay as they are."""
    shop.store().set("a", PARTS)
    assert shop.state("set", "shop", "-s", "a", "--partition", '{"region": "b"}', text(B)).code == 0
    assert shop.store().get("a") == PARTS | {"partitions": [PARTS["partitions"][0], {"context": {"region": "b"}, **B}]}
    assert shop.state("show", "shop", "-s", "a", "--partition", '{"region": "b"}').json == {
        "context": {"region": "b"},
        **B,
    }
    assert shop.state("clear", "shop", "-s", "a", "--partition", '{"region": "a"}').code == 0
    assert shop.store().get("a") == {"partitions": [{"context": {"region": "b"}, **B}], "other": 1}
    assert shop.store().get("b") == B
    unknown = shop.state("set", "shop", "-s", "a", "--partition", '{"region": "c"}', text(A))
    assert (unknown.code, 'there are: {"region": "b"}; state set --force' in unknown.err) == (2, True)
    assert shop.state("set", "shop", "-s", "a", "--partition", '{"region": "c"}', text(A), "--force").code == 0
    assert [part["context"] for part in shop.store().get("a")["partitions"]] == [{"region": "b"}, {"region": "c"}]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["set", "shop", "--partition", '{"r": 1}', "{}"], "--partition is of one stream"),
        (["set", "shop", "-s", "a", "--partition", "r=1", "{}"], "--partition is not JSON"),
        (["set", "shop", "-s", "a", "--partition", "[]", "{}"], "--partition is a JSON object"),
        (["set", "shop", "-s", "a", "--partition", '{"r": 1}', "5"], "the bookmark of a partition is a JSON object"),
        (["set", "shop", "-s", "a", "--partition", '{"r": 1}', "{}"], "the bookmark has no such partition"),
        (["clear", "shop", "-s", "a", "-s", "b", "--partition", '{"r": 1}'], "--partition is of one stream"),
        (["get", "shop", "--partition", '{"r": 1}'], "--partition is of one stream"),
    ],
)
def test_a_partition_that_cannot_be_meant(shop: StateProject, words: list[str], message: str) -> None:
    """Nothing is changed, and the error says what is wrong."""
    before = shop.store().get()
    done = shop.state(*words)
    assert (done.code, message in done.err, shop.store().get()) == (2, True, before)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["set", "shop"], "neither JSON nor a file"),
        (["set"], "no STATE was given"),
        (["set", "shop", '{"a": }'], "not JSON"),
        (["set", "shop", "[1"], "not JSON"),
        (["set", "shop", "missing.json"], "neither JSON nor a file"),
        (["set", "shop", "null"], "null is no STATE"),
        (["set", "shop", "[]"], "a STATE is a JSON object"),
        (["set", "shop", '{"bookmarks": 5}'], "`bookmarks` of a STATE is a JSON object"),
        (["merge", "shop", '{"bookmarks": []}'], "`bookmarks` of a STATE is a JSON object"),
        (["merge", "shop", "7"], "a STATE is a JSON object"),
        (["set", "shop", '{"type": "STREAM", "streams": []}'], "a file of olake"),
        (["set", "shopp", "{}"], "unknown pipeline"),
        (["set", "shop", "-s", "a", "{"], "not JSON"),
        (["merge", "shop", '{"users": 2}'], "per stream"),
        (["clear", "shop", "-s", "c"], "no bookmark of this stream"),
        (["clear", "other"], "no STATE to clear"),
        (["clear", "shop"], "to clear them: --yes"),
        (["set", "shop", "-s", "aa", "1"], "--force sets it all the same"),
        (["copy", "other", "shop"], "no STATE to copy"),
        (["copy", "shop"], "onto itself"),
        (["copy", "shop", "shop"], "onto itself"),
        (["copy", "shop", "other", "-s", "c"], "no bookmark of this stream"),
        (["export", "other", "--format", "singer"], "no STATE to export"),
        (["export", "shop", "--format", "singer", "-s", "c"], "no such stream"),
        (["import", "shop", "missing", "--format", "singer"], "cannot read the file"),
        (["import", "--format", "singer"], "no file was given"),
        (["import", "shop", ".", "--format", "olake"], "this is a folder"),
        (["get", "other"], "no commit yet"),
        (["history", "other"], "no commit yet"),
    ],
)
def test_what_is_refused(shop: StateProject, words: list[str], message: str) -> None:
    """Wrong input of each kind ends with exit 2, an error and a hint, and changes nothing."""
    done = shop.state(*words)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert "hint: " in done.err
    assert (shop.store().get(), shop.kinds(), shop.kinds("other")) == (STATE, ["state"], [])


def test_a_flat_state(project: StateProject) -> None:
    """A flat STATE is set and looked at whole; no verb takes it apart."""
    flat = {"users": 2, "at": "x"}
    assert project.state("set", "shop", text(flat)).code == 0
    assert [row["stream"] for row in project.state("list", "shop", "--json").json] == ["users", "at"]
    for words in (["set", "-s", "users", "shop", "3"], ["clear", "shop", "-s", "users"]):
        done = project.state(*words)
        assert (done.code, "per stream" in done.err) == (2, True)
    assert project.state("export", "shop", "--format", "singer", "-s", "users").code == 2
    assert project.state("export", "shop", "--format", "singer").json == flat
    assert project.state("clear", "shop", "--yes").code == 0
    assert project.store().get() == {}


# every change


CHANGES = [
    ["set", "shop", text({"bookmarks": {"a": 1}})],
    ["set", "shop", "-s", "a", "1"],
    ["merge", "shop", text({"bookmarks": {"a": 1}})],
    ["clear", "shop", "--yes"],
    ["clear", "shop", "-s", "a", "-s", "b"],
    ["copy", "other", "shop"],
    ["import", "shop", "s.json", "--format", "singer"],
    ["edit", "shop"],
]


@pytest.fixture
def ready(shop: StateProject) -> StateProject:
    """The project, with all that the changes need."""
    shop.store("other").replace({"bookmarks": {"a": 1}})
    (shop.folder / "s.json").write_text(text({"bookmarks": {"a": 1}}))
    shop.editor(text({"bookmarks": {"a": 1}}))
    return shop


@pytest.mark.parametrize("words", CHANGES, ids=" ".join)
def test_a_change_is_one_commit(ready: StateProject, words: list[str]) -> None:
    """Each change is a commit of kind `state` that says by which verb it came; before and after are on stderr."""
    done = ready.state(*words)
    assert (done.code, done.out) == (0, "shop: the STATE is that of commit 2 now\n")
    assert f"a\n  before  {text(A)}\n  after   " in done.err
    assert ready.kinds() == ["state", "state"]
    told = ready.state("history", "shop", "-n", "1", "--json").json[0]
    assert (told["commit"], told["kind"], told["reason"].split()[1]) == (2, "state", words[0])


@pytest.mark.parametrize("words", CHANGES, ids=" ".join)
def test_a_dry_run_changes_nothing(ready: StateProject, words: list[str]) -> None:
    """A dry run shows before and after, and leaves every byte of the lake as it was."""
    files = [path for path in (ready.folder / "lake").rglob("*") if path.is_file()]
    before = {path: path.read_bytes() for path in files}
    done = ready.state(*words, "--dry-run")
    assert (done.code, done.out) == (0, "dry run: nothing was changed\n")
    assert f"a\n  before  {text(A)}\n  after   " in done.err
    assert {path: path.read_bytes() for path in (ready.folder / "lake").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("words", CHANGES, ids=" ".join)
def test_a_change_as_json(ready: StateProject, words: list[str]) -> None:
    """With --json stdout is one object that says what changed."""
    done = ready.state(*words, "--json").json
    assert (done["format"], done["pipeline"], done["commit"], done["dry_run"], done["before"]) == (
        *(1, "shop", 2, False),
        STATE,
    )
    assert done["after"] == ready.store().get()
    assert done["changed"][0]["stream"] == "a"


@pytest.mark.parametrize("words", CHANGES, ids=" ".join)
def test_a_running_pipeline_is_left_alone(ready: StateProject, words: list[str]) -> None:
    """While a run holds the pipeline every change ends with exit 4 and the run's id."""
    lease = take(LocalStorage(ready.folder / "lake"), "shop", "20261120T133501Z-k3f9")
    done = ready.state(*words)
    lease.close(head=1, clean=True)
    assert (done.code, "run=20261120T133501Z-k3f9" in done.err) == (4, True)
    assert ready.kinds() == ["state"]


@pytest.mark.parametrize("words", CHANGES, ids=" ".join)
def test_a_corrupt_file_stops_every_change(ready: StateProject, words: list[str]) -> None:
    """A `state.json` that is no JSON ends each verb with exit 3 and what to do: it is never an empty STATE."""
    ready.edit_state("{")
    for each in (
        words,
        ["get", "shop"],
        ["list", "shop"],
        ["history", "shop"],
        ["export", "shop", "--format", "singer"],
    ):
        done = ready.state(*each)
        assert (done.code, done.out) == (3, "")
        assert "state.json is not JSON" in done.err
        assert "hint: rm " in done.err
    assert ready.kinds() == ["state"]


def test_a_new_stream_by_force(shop: StateProject) -> None:
    """A stream that neither catalog, tables nor STATE know is more often misspelt than meant; it can be meant."""
    assert shop.state("set", "shop", "-s", "c", "1", "--force").code == 0
    kept = shop.folder / ".singer-bridge/catalogs/shop.json"
    kept.parent.mkdir(parents=True)
    kept.write_text(text({"streams": [{"tap_stream_id": "orders", "stream": "orders", "schema": {}, "metadata": []}]}))
    assert shop.state("set", "shop", "-s", "orders", "1").code == 0
    done = shop.state("set", "shop", "-s", "odrers", "1")
    assert (done.code, 'did you mean "orders"?' in done.err) == (2, True)


def test_clearing_says_what_doubles(shop: StateProject) -> None:
    """Tables that a cleared bookmark has loaded once more are named with their rows, and so is the way without."""
    lake = LocalStorage(shop.folder / "lake")
    with open_pipeline(lake, "shop") as committer:
        for stream, rows in (("b", 200), ("a", 5000)):
            name, source = f"part-{stream}.parquet", f".bridge/shop/pending/part-{stream}"
            with closing(committer.storage.open_pending(source, "t/f")) as file:
                file.write(b"rows")
            adds = [{"name": name, "source": source, "size": 4, "rows": rows}]
            committer.commit(PipelineState(STATE), [table_change(adds, stream=stream, folder=f"shop/{stream}")])
    said = (
        "a (5,000 rows) and b (200) are append-only: the next run adds all their rows again; "
        "to load them anew without doubles: singer-bridge run shop --full"
    )
    refused = shop.state("clear", "shop")
    assert (refused.code, f"hint: {said}; to clear them all the same: --yes\n" in refused.err) == (2, True)
    assert f"warning: {said}\n" in shop.state("clear", "shop", "--dry-run").err
    one = shop.state("clear", "shop", "-s", "b")
    assert (one.code, "warning: b (200 rows) is append-only: " in one.err) == (0, True)
    assert one.err.splitlines()[0].endswith("singer-bridge run shop --full -s b")


def test_get_prints_json_anyway(shop: StateProject) -> None:
    """So `--json` is no mistake."""
    assert shop.state("get", "shop", "--json").out == shop.state("get", "shop").out


def test_no_change_is_no_commit(shop: StateProject) -> None:
    """What is there already is not committed again."""
    done = shop.state("set", "shop", text({"bookmarks": {"b": B, "a": A}}))
    assert (done.code, done.out, done.err) == (0, "shop: nothing to change, commit 1 has this STATE\n", "")
    assert shop.kinds() == ["state"]


@pytest.mark.parametrize(("typed", "code", "commits"), [("y\n", 0, 2), ("n\n", 130, 1)])
def test_a_person_is_asked(shop: StateProject, typed: str, code: int, commits: int) -> None:
    """On a terminal the change is shown and asked about first; a no changes nothing."""
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "bridge", "state", "clear", "shop", "-s", "a"]
    with subprocess.Popen(argv, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        os.write(ours, typed.encode())
        out, err = process.communicate()
    os.close(ours)
    os.close(theirs)
    assert (process.returncode, len(shop.kinds())) == (code, commits)
    assert err.index("before") < err.index("commit this?")
    assert bool(out) == (code == 0)
    assert code == 0 or err.endswith("\n")  # the shell's prompt has a line of its own


def test_a_person_who_said_yes(shop: StateProject) -> None:
    """With --yes nothing is asked, on a terminal either."""
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "bridge", "state", "clear", "shop", "--yes"]
    done = subprocess.run(argv, stdin=theirs, capture_output=True, text=True, check=False)
    os.close(ours)
    os.close(theirs)
    assert (done.returncode, "commit this?" in done.stderr, shop.store().get()) == (0, False, {"bookmarks": {}})
