"""`commits`: what each commit did, and which one a rollback goes back to; a group's name alone lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.lake.commit.open import recover
from bridge.lake.state.store import StateStore
from bridge.lake.storage.local.storage import LocalStorage
from bridge.operate.verify.mend import repair
from tests.support.shell import Typed
from tests.support.tables import INTEGER, TWO_PIPELINES, Shop

ID = {"id": INTEGER}


def ids(*numbers: int) -> list[dict[str, int]]:
    return [{"id": number} for number in numbers]


@pytest.fixture
def shop(folder: Path) -> Shop:
    """A lake whose second commit doubled what the first had loaded; then a fence, an upsert and an overwrite."""
    (folder / "bridge.yaml").write_text(TWO_PIPELINES)
    shop = Shop(folder)
    shop.load("orders", ID, ids(1, 2, 3))
    shop.load("orders", ID, ids(1, 2, 3))
    shop.load("users", ID, ids(7, 8), keys=("id",))
    recover(shop.storage, "shop")
    repair(shop.storage, "shop")
    shop.load("orders", ID, ids(9), mode="overwrite")
    return shop


def test_list_shows_which_commit_doubled_a_table(shop: Shop, typed: Typed) -> None:
    """A row a commit, newest first: rows that came and went, and how many the tables had then."""
    done = typed("commits list shop")
    assert done.code == 0
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0] == ["commit", "at", "kind", "added", "removed", "rows", "now", "run"]
    table = [(line[0], line[3], *line[4:-1]) for line in lines[1:]]
    assert [row[1:] for row in table] == [
        ("data", "+1", "-6", "orders", "1"),
        ("data", "+2", "users", "2"),
        ("data", "+3", "orders", "6"),
        ("data", "+3", "orders", "3"),
    ]
    assert [int(row[0]) for row in table][1:] == [3, 2, 1]


def test_list_as_json_is_bounded(shop: Shop, typed: Typed) -> None:
    """Programs get the same figures by table; a rollback is a commit with its reason."""
    assert typed("rollback 1 shop --yes").code == 0
    done = typed("commits list shop -n 2 --json")
    newest, before = done.json
    assert (newest["kind"], newest["reason"]) == ("rollback", "rollback to commit 1")
    assert {table["stream"]: table["rows"] for table in newest["tables"]} == {"orders": 3, "users": 0}
    assert before["tables"] == [
        {
            "stream": "orders",
            "folder": "shop/orders",
            "mode": "replace",
            "rows_added": 1,
            "rows_removed": 6,
            "rows": 1,
            "files_added": 1,
            "files_removed": 2,
        }
    ]
    assert before["bookmarks_changed"] == ["n"]
    assert "older commits; -n 10 shows more" in typed("commits list shop -n 2").out


def test_more_commits_than_are_read_at_once(folder: Path, typed: Typed) -> None:
    """Pages of the log, and snapshots in it, make no difference to a figure."""
    (folder / "bridge.yaml").write_text(TWO_PIPELINES)
    storage = LocalStorage(folder / "lake")
    for number in range(104):
        StateStore.at(storage, "shop").update(lambda _, n=number: {"bookmarks": {"orders": n}}, reason=f"to {number}")
    found = typed("commits list shop -n 200 --json").json
    assert [(one["commit"], one["reason"]) for one in found] == [(n + 1, f"to {n}") for n in reversed(range(104))]
    assert all(one["bookmarks_changed"] == ["orders"] and one["rows_added"] == 0 for one in found)


@pytest.mark.parametrize("line", ["commits show shop 2", "commits show 2 shop", "commits show 2 --to lake --name shop"])
def test_show_one_commit(shop: Shop, typed: Typed, line: str) -> None:
    """Its tables, the bookmark before and after, and what to type to go back; number and name in either order."""
    done = typed(line)
    assert done.code == 0, done.err
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert lines[0] == "commit 2"
    assert "orders append +3 6 +1" in lines
    assert "before 1" in lines and "after 2" in lines
    name = "--to lake --name shop" if "--to" in line else "shop"
    assert f"go back to this commit: singer-bridge rollback 2 {name} --dry-run" in lines
    assert f"go back to before it: singer-bridge rollback 1 {name} --dry-run" in lines
    assert typed(f"rollback 1 {name} --dry-run").code == 0


def test_show_says_when_a_rollback_cannot_have_it(shop: Shop, typed: Typed) -> None:
    """Its files are not in the trash any more: that is known before a rollback is tried."""
    for file in (shop.root / ".bridge/shop/trash").rglob("*.removed"):
        file.unlink()
    done = typed("commits show shop 2 --json")
    assert done.json["rollback"] is False
    assert "a file of that commit is gone" in done.json["why_not"]
    assert "cannot go back to this commit" in typed("commits show shop 2").out


def test_a_commit_that_was_taken_back_is_marked(shop: Shop, typed: Typed) -> None:
    """Its files were lost before they were visible: it holds nothing to go back to."""
    shop.lose("orders", ID, ids(10))
    found = typed("commits list shop --json").json
    ((lost, by),) = [(one["commit"], one["taken_back_by"]) for one in found if one["taken_back_by"]]
    assert by in [one["commit"] for one in found if one["kind"] == "void"]
    assert f"this commit was taken back commit={lost}" in typed(f"commits show shop {lost}").out
    assert "data, taken back" in typed("commits list shop").out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("commits show shop 99", "there is no such commit"),
        ("commits show shop 0", "there is no such commit"),
        ("commits show shop", "which commit?"),
        ("commits show shop two", "which commit?"),
        ("commits shpo", "no verb"),
    ],
)
def test_what_is_refused(shop: Shop, typed: Typed, line: str, words: str) -> None:
    """Exit code 2, and a hint."""
    done = typed(line)
    assert (done.code, words in done.err) == (2, True), done.err


def test_rollback_points_to_them(shop: Shop, typed: Typed) -> None:
    """Who does not know the number is told where it stands."""
    assert "commits list" in typed("rollback --help").out
    assert "singer-bridge commits list" in typed("rollback 99 shop --yes").err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("commits", "rows now"),
        ("tables", "shop/orders"),
        ("state", "moved"),
        ("runs", ""),
        ("rejects", "no rejects"),
        ("commits -n 1", "rows now"),
        ("commits shop", "rows now"),
        ("tables shop --json", '"orders"'),
    ],
)
def test_a_group_alone_lists(shop: Shop, typed: Typed, line: str, words: str) -> None:
    """Of all pipelines of the file, also where one of them never ran; options and a name go to the list."""
    done = typed(line)
    assert (done.code, words in done.out) == (0, True), done


def test_several_pipelines_have_a_column(shop: Shop, typed: Typed) -> None:
    """Their commits are one list by time."""
    StateStore.at(shop.storage, "other").update(lambda _: {"bookmarks": {"x": 1}}, reason="mine")
    found = typed("commits --json").json
    assert [one["pipeline"] for one in found] == ["other", "shop", "shop", "shop", "shop"]
    assert typed("commits").out.split()[0] == "pipeline"
    assert {one["pipeline"] for one in typed("state --json").json} == {"shop", "other"}


def test_it_reads_well_at_80_columns(shop: Shop, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers stay whole, no line is longer, and what gave way is named."""
    for name, value in {"FORCE_COLOR": "1", "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    lines = typed("commits shop").out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("not shown: run") for line in lines) or any("run" in line.split() for line in lines[:1])


def test_help_is_still_help(typed: Typed) -> None:
    """`runs -h` shows the verbs."""
    assert "show" in typed("runs -h").out


def test_a_pipeline_without_commits(shop: Shop, typed: Typed) -> None:
    """It is said, and is no error."""
    done = typed("commits list other")
    assert (done.code, done.out, done.err) == (0, "", "no commits yet\n")
