"""`recover`, `rollback` and `verify` as they are typed: what is printed, asked, refused, and the exit codes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.lake.commit.open import recover
from bridge.lake.lease import take
from bridge.lake.log import Log
from bridge.operate.verify.mend import repair
from tests.support.shell import Typed
from tests.support.tables import INTEGER, TWO_PIPELINES, Shop

ID = {"id": INTEGER}


@pytest.fixture
def shop(folder: Path) -> Shop:
    """A project with a lake of three commits and a fence, in good order, and a pipeline that never ran."""
    (folder / "bridge.yaml").write_text(TWO_PIPELINES)
    shop = Shop(folder)
    shop.load("orders", ID, [{"id": 1}])
    shop.load("orders", ID, [{"id": 2}, {"id": 3}])
    shop.load("orders", ID, [{"id": 9}], mode="overwrite")
    recover(shop.storage, "shop")
    repair(shop.storage, "shop")
    return shop


def lose(shop: Shop) -> str:
    """Delete the table's only file and return its key."""
    (file,) = shop.root.glob("shop/orders/*")
    file.unlink()
    return str(file.relative_to(shop.root))


# recover


def test_recover_with_nothing_to_do(shop: Shop, typed: Typed) -> None:
    """It is said, and a hook that has nothing to do is a success."""
    done = typed("recover shop")
    assert (done.code, done.out, done.err) == (0, "shop: nothing to do, commit 4 is whole\n", "")


def test_recover_after_a_death(shop: Shop, typed: Typed) -> None:
    """Which run had died, and of which commit all is visible now."""
    take(shop.storage, "shop", "20261120T133501Z-k3f9").close(head=4, clean=False)
    said = "shop: run 20261120T133501Z-k3f9 had not ended in good order: commit 3 is whole; the log is at commit 5\n"
    assert typed("recover shop").out == said
    assert typed("recover shop").out == "shop: nothing to do, commit 5 is whole\n"


def test_recover_as_json(shop: Shop, typed: Typed) -> None:
    """One object, an array with several; what recovery noted is in it."""
    (shop.root / ".bridge/shop/state.json").write_text('{"mine": 1}')
    said = json.loads(typed("recover shop --json").out)
    note = 'state.json was edited by hand: starting from {"mine": 1}; rows since then come again'
    assert said == {"format": 1, "pipeline": "shop", "commit": 5, "died": None, "finished": None, "notes": [note]}
    several = json.loads(typed("recover --all --json").out)
    assert [(each["pipeline"], each["commit"]) for each in several] == [("shop", 5), ("other", 0)]


def test_recover_goes_on(shop: Shop, typed: Typed) -> None:
    """With several pipelines one that is held does not keep the others from it; the exit code is the worst."""
    lease = take(shop.storage, "shop", "run")
    done = typed("recover shop other")
    lease.close(head=4, clean=True)
    assert (done.code, done.out) == (4, "other: nothing to do, nothing was committed yet\n")
    assert "another run holds this pipeline" in done.err


def test_recover_is_refused(shop: Shop, typed: Typed) -> None:
    """A run that is alive has the pipeline; a lake that contradicts itself is an error of the lake."""
    lease = take(shop.storage, "shop", "run")
    assert typed("recover shop").code == 4
    lease.close(head=4, clean=True)
    (shop.root / f".bridge/shop/commits/{2:020d}.json").unlink()
    assert typed("recover shop").code == 3
    assert typed("recover nobody").code == 2


# verify


def test_verify_a_whole_lake(shop: Shop, typed: Typed) -> None:
    """All is well, and what was counted is said."""
    done = typed("verify shop")
    assert done.code == 0
    assert done.out.startswith("✓ all is well: 4 commits, 1 table, 1 file, 1 row, ")
    assert typed("verify --all").code == 0


def test_verify_says_what_to_do(shop: Shop, typed: Typed) -> None:
    """A line a finding, with the file, and what to type, and the pipeline in it as it is typed."""
    key = lose(shop)
    done = typed("verify shop")
    assert done.code == 3
    first, second, last = done.out.splitlines()
    assert first == f"✗ {key}: gone; it holds 1 rows of commit 3"
    assert "singer-bridge rollback 2 shop; " in second
    assert "singer-bridge run shop --full -s orders" in second
    assert last.startswith("✗ 1 error, 0 warnings: 4 commits, ")
    assert "rollback 2 --to lake --name shop; " in typed("verify --to lake --name shop").out


def test_warnings_are_a_success(shop: Shop, typed: Typed) -> None:
    """What does no harm is told, and is exit code 0."""
    (shop.root / "shop/orders/README").write_text("x")
    done = typed("verify shop")
    assert (done.code, "! shop/orders/README: is not ours" in done.out) == (0, True)


def test_verify_as_json(shop: Shop, typed: Typed) -> None:
    """One object with the counts and each finding; an array with several pipelines."""
    key = lose(shop)
    said = json.loads(typed("verify shop --json").out)
    (finding,) = said.pop("findings")
    fix = finding.pop("fix")
    assert fix.startswith("restore it")
    assert finding == {
        "severity": "error",
        "check": "files",
        "file": key,
        "found": "gone; it holds 1 rows of commit 3",
        "repairable": False,
    }
    counts = {"commits": 4, "tables": 1, "files": 1, "rows": 1}
    assert {name: said[name] for name in counts} == counts
    assert (said["status"], said["pipeline"], said["mended"], said["running"]) == ("error", "shop", [], None)
    assert [each["status"] for each in json.loads(typed("verify --all --json").out)] == ["error", "ok"]


def test_many_findings(shop: Shop, typed: Typed) -> None:
    """Of many of a kind some are shown; a program gets all."""
    for number in range(30):
        (shop.root / f"shop/orders/{number}").write_text("x")
    lines = typed("verify shop").out.splitlines()
    assert len([line for line in lines if line.startswith("! ")]) == 20 + 1
    assert "  and 10 more like these of the files; --json has them all" in lines
    assert len(json.loads(typed("verify shop --json").out)["findings"]) == 30


def test_repair(shop: Shop, typed: Typed) -> None:
    """What is found, what was mended, and that nothing is left; the exit code is that of the second look."""
    (shop.root / ".bridge/tables/shop/orders.manifest").unlink()
    (shop.root / ".bridge/shop/state.json").write_text("{")
    done = typed("verify shop --repair")
    assert done.code == 0
    lines = done.out.splitlines()
    assert [line[0] for line in lines if not line.startswith("  ")] == ["✗", "✗", "✗", "m", "m", "✓"]
    assert "mended: written again: the manifests of orders" in lines
    lose(shop)
    done = typed("verify shop --repair --json")
    assert (done.code, json.loads(done.out)["mended"]) == (3, [])


def test_repair_beside_a_run(shop: Shop, typed: Typed) -> None:
    """To look is always possible; to mend is not while a run is alive."""
    (shop.root / ".bridge/tables/shop/orders.manifest").unlink()
    lease = take(shop.storage, "shop", "run-1")
    looked, mended = typed("verify shop"), typed("verify shop --repair")
    lease.close(head=4, clean=True)
    assert (looked.code, mended.code) == (0, 4)
    assert "note: run run-1 holds the pipeline: what it is about to write was not checked" in looked.out


# rollback


def test_rollback_dry(shop: Shop, typed: Typed) -> None:
    """What would change is shown, table by table and bookmark by bookmark, and nothing is."""
    done = typed("rollback 2 shop --dry-run")
    assert (done.code, done.out) == (0, "dry run: nothing was changed\n")
    assert done.err.splitlines()[0] == "orders: 1 row, then 3; 2 files back, 1 removed"
    assert "before  3" in done.err
    assert "after   2" in done.err
    assert Log(shop.storage, "shop").head() == 4


def test_rollback(shop: Shop, typed: Typed) -> None:
    """The commit that did it is named, the lake is whole, and the way back is the same."""
    done = typed("rollback 2 shop --yes")
    assert (done.code, done.out) == (0, "shop: as of commit 2 again, by commit 5\n")
    assert json.loads(typed("state get shop").out) == {"bookmarks": {"n": 2}}
    assert typed("verify shop").code == 0
    assert typed("rollback 3 shop --yes").out == "shop: as of commit 3 again, by commit 6\n"
    assert "rollback to commit 3" in typed("state history shop").out
    assert typed("rollback 6 shop --yes").out == "shop: nothing to do, tables and STATE are those of commit 6\n"


def test_rollback_as_json(shop: Shop, typed: Typed) -> None:
    """One object, the same for a dry run, and for the deed."""
    dry, did = (json.loads(typed(f"rollback 1 shop {flag} --json").out) for flag in ("--dry-run", "--yes"))
    assert (dry.pop("commit"), dry.pop("dry_run"), did.pop("commit"), did.pop("dry_run")) == (4, True, 5, False)
    table = {"stream": "orders", "rows_before": 1, "rows_after": 1, "files_back": 1, "files_removed": 1}
    wanted = {"format": 1, "pipeline": "shop", "to": 1, "tables": [table], "warnings": []}
    assert dry == did == wanted | {"before": {"bookmarks": {"n": 3}}, "after": {"bookmarks": {"n": 1}}}


def test_rollback_of_a_log_based_stream(shop: Shop, typed: Typed, folder: Path) -> None:
    """Of what the tap reads from a database's log it is said that it may be gone there: by catalog, or by bookmark."""
    for state in ({"bookmarks": {"orders": {"lsn": 1}, "users": {"position": 1}}}, {"bookmarks": {}}):
        typed(f"state set shop '{json.dumps(state)}' --yes --to lake --name shop")
    assert "warning: orders: the tap reads a database's log" in typed("rollback 5 shop --dry-run").err
    metadata = [{"breadcrumb": [], "metadata": {"replication-method": "LOG_BASED"}}]
    catalog = {"streams": [{"tap_stream_id": "users", "schema": {}, "metadata": metadata}]}
    (folder / ".singer-bridge/catalogs").mkdir(parents=True)
    (folder / ".singer-bridge/catalogs/shop.json").write_text(json.dumps(catalog))
    assert "warning: orders, users: the tap reads" in typed("rollback 5 shop --dry-run").err
    assert "singer-bridge run shop --full" in typed("rollback 5 shop --dry-run").err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("rollback 2 shop", 2, "there is no terminal to ask on"),
        ("rollback 9 shop --yes", 2, "there is no such commit"),
        ("rollback 9 shop --dry-run", 2, "there is no such commit"),
        ("rollback 1 other --yes", 2, "no commit yet"),
        ("rollback 0 shop", 2, "0 is not in the range"),
        ("rollback shop", 2, "is not a valid integer"),
        ("rollback", 2, "missing argument"),
    ],
)
def test_rollback_is_refused(shop: Shop, typed: Typed, words: str, code: int, message: str) -> None:
    """What cannot be meant is refused before anything is changed."""
    done = typed(words)
    assert (done.code, message in done.err) == (code, True), done.err
    assert Log(shop.storage, "shop").head() == 4


def test_rollback_past_the_trash(shop: Shop, typed: Typed) -> None:
    """A commit whose files are gone is an error of the lake, and what can be had is said."""
    for file in shop.root.glob(".bridge/shop/trash/*/shop/orders/*"):
        file.unlink()
    done = typed("rollback 2 shop --yes")
    assert done.code == 3
    assert "a file of that commit is gone" in done.err
    assert "only the last commit can be restored" in done.err


def test_the_way_out_that_verify_names(shop: Shop, typed: Typed) -> None:
    """Rows that are lost for good are had again by going back to before them: what `verify` tells to type works."""
    lose(shop)
    assert "singer-bridge rollback 2 shop;" in typed("verify shop").out
    assert typed("rollback 2 shop --yes").code == 0
    assert typed("verify shop").code == 0
    assert json.loads(typed("state get shop").out) == {"bookmarks": {"n": 2}}


def test_rollback_of_a_held_pipeline(shop: Shop, typed: Typed) -> None:
    """A run that is alive is not pulled the ground from under."""
    lease = take(shop.storage, "shop", "run")
    codes = [typed(f"rollback 2 shop {flag}").code for flag in ("--yes", "--dry-run")]
    lease.close(head=4, clean=True)
    assert codes == [4, 0]


@pytest.mark.parametrize(("answer", "code", "head"), [("y", 0, 5), ("n", 1, 4)])
def test_rollback_asks(shop: Shop, folder: Path, answer: str, code: int, head: int) -> None:
    """On a terminal it is shown and asked, and a no changes nothing."""
    terminal, stdin = pty.openpty()
    os.write(terminal, f"{answer}\n".encode())
    words = [sys.executable, "-m", "bridge", "rollback", "2", "shop"]
    done = subprocess.run(words, cwd=folder, stdin=stdin, capture_output=True, text=True, check=False, timeout=60)
    os.close(terminal)
    os.close(stdin)
    assert "orders: 1 row, then 3" in done.stderr
    assert "go back?" in done.stderr
    assert bool(done.returncode) == bool(code)
    assert Log(shop.storage, "shop").head() == head


def test_tables_that_were_not_there_yet(shop: Shop, typed: Typed) -> None:
    """A table that came later than the commit is empty, and every verb that looks can look at it."""
    shop._head = 4
    shop.load("users", ID, [{"id": 7}])
    repair(shop.storage, "shop")
    assert typed("rollback 4 shop --yes").code == 0
    assert typed("verify shop").code == 0
    for words in ("tables list shop", "tables show shop -s users", "tables history shop -s users", "status"):
        assert typed(words).code == 0, words
    assert typed("tables head shop -s users").code == 0
