"""`remove` undoes `add`, and says what stays and how to be rid of it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from bridge.lake.lease import take
from bridge.lake.ownership import Owner, claim
from bridge.lake.storage.local.storage import LocalStorage
from bridge.settings.load import check
from tests.support.shell import Typed
from tests.support.tables import INTEGER, Shop
from tests.support.terminal import talked
from tests.support.wheels import wheel

ID = {"id": INTEGER}
OURS = """\
# ours
pipelines:
  # made by hand
  other:
    source: {tap: tap-smoke}
    destination: {bucket: lake}   # big
"""
ADD = "add shop --tap tap-x --pip-url ./tap_x-1.0-py3-none-any.whl"


@pytest.fixture
def file(folder: Path, typed: Typed) -> Path:
    """bridge.yaml of a project with one more pipeline, whose passwords nobody has set yet."""
    wheel(folder)
    (folder / "bridge.yaml").write_text(OURS)
    assert typed(ADD).code == 0
    return folder / "bridge.yaml"


def kept(folder: Path) -> list[str]:
    """What the project keeps of its pipelines."""
    home = folder / ".singer-bridge"
    return sorted(str(path.relative_to(home)) for pattern in ("*/*", "catalogs/*/*") for path in home.glob(pattern))


def keep(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / ".singer-bridge" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")


def test_it_undoes_add(typed: Typed, file: Path, folder: Path) -> None:
    """bridge.yaml is byte for byte what it was; the kept catalog, notes, scratch and the tap's venv go, no others."""
    others = ["catalogs/other.json", "catalogs/discovered/other.json", "lakes/other.json", "spool/shop-2-12345678/x"]
    keep(folder, *others, "catalogs/shop.json", "catalogs/discovered/shop.json", "lakes/shop.json")
    keep(folder, "spool/shop-12345678/run/data", "checkpoint/shop-12345678/run/data")
    done = typed("remove shop --yes")
    assert (done.code, done.out) == (0, "shop: removed\n"), done.err
    assert file.read_text() == OURS
    catalogs = ["catalogs/discovered", "catalogs/discovered/other.json", "catalogs/other.json"]
    assert kept(folder) == [*catalogs, "lakes/other.json", "spool/shop-2-12345678"]
    assert "stays: in .env or .env.example: TAP_X_HOST, TAP_X_PASSWORD\n  to remove it: delete these lines" in done.err
    assert typed(ADD).code == 0


def test_a_dry_run_and_a_no_change_nothing(typed: Typed, file: Path, folder: Path) -> None:
    """They show all of it; without a terminal somebody has to say yes."""
    keep(folder, "catalogs/shop.json")
    text, before = file.read_text(), kept(folder)
    dry = typed("remove shop --dry-run")
    assert (dry.code, dry.out) == (0, "dry run: nothing was changed\n")
    assert "removes: shop in bridge.yaml\n" in dry.err
    assert "removes: .singer-bridge/catalogs/shop.json\n" in dry.err
    assert (typed("remove shop").code, typed("remove shop").out) == (2, "")
    assert "--dry-run shows what goes" in typed("remove shop").err
    assert talked("remove shop", [("remove it? [y/N]: ", "n")]).code == 130
    assert (file.read_text(), kept(folder)) == (text, before)
    assert talked("remove shop", [("remove it? [y/N]: ", "y")]).code == 0
    assert file.read_text() == OURS


def test_the_lake_stays_until_somebody_types_what_is_said(typed: Typed, file: Path, folder: Path) -> None:
    """Tables and STATE stay; after the command that it names, the bucket knows nothing of it, and all of the other."""
    shop = Shop(folder)
    shop.load("orders", ID, [{"id": 1}, {"id": 2}])
    done = typed("remove shop --yes --json")
    assert done.code == 0, done.err
    lake = next(one for one in done.json["stays"] if "STATE" in one["what"])
    assert "1 table with 2 rows, and the STATE" in lake["what"]
    assert list(shop.root.glob("shop/orders/*.parquet"))
    subprocess.run(lake["remove"], shell=True, check=True)
    assert {path.name for path in shop.root.rglob("*")} <= {".bridge", "lake.json", "tables"}
    assert typed(ADD).code == 0
    Shop(folder).load("orders", ID, [{"id": 1}])


def test_a_table_s_folder_behind_a_link(typed: Typed, file: Path, folder: Path) -> None:
    """No command is printed that would delete what lies outside of the bucket, where somebody's link leads."""
    shop = Shop(folder)
    shop.load("orders", ID, [{"id": 1}])
    claim(LocalStorage(shop.root), "shop/theirs", Owner("other", "theirs"), shared=False)  # each is named by itself
    (shop.root / "shop").rename(folder / "outside")
    (shop.root / "shop").symlink_to(folder / "outside")
    done = typed("remove shop --dry-run")
    assert "a link in the bucket leads out of it" in done.err
    assert "rm -rf" not in done.err


def test_a_folder_of_several_pipelines(typed: Typed, file: Path, folder: Path) -> None:
    """Of a folder in which another pipeline has tables, only its own are named."""
    one = Shop(folder)
    one.load("orders", ID, [{"id": 1}])
    foreign = one.root / ".bridge/tables/shop/users.json"
    foreign.write_text('{"format": 1, "pipeline": "other", "stream": "users"}')
    (one.root / "shop/users").mkdir()
    command = typed("remove shop --dry-run --json").json["stays"][0]["remove"]
    subprocess.run(command, shell=True, check=True)
    left = sorted(str(path.relative_to(one.root)) for path in (one.root / "shop").rglob("*"))
    assert (left, foreign.exists()) == (["shop/users"], True)
    assert not list(one.root.glob(".bridge/tables/shop/orders*"))
    assert not (one.root / ".bridge/shop").exists()


def test_a_venv_that_others_need_stays(typed: Typed, file: Path, folder: Path) -> None:
    """A pipeline with the same pip_url, or one whose settings do not tell, keeps it."""
    before = file.read_text()
    sharing = "  third: {source: {tap: tap-x, pip_url: ./tap_x-1.0-py3-none-any.whl}, destination: {bucket: lake}}\n"
    for text, why in ((sharing, "another pipeline uses it"), ("  third: {source: {tap: 1}}\n", "third do not say")):
        file.write_text(before + text)
        done = typed("remove shop --yes")
        assert (done.code, why in done.err) == (0, True), done.err
        assert file.read_text() == f"{OURS}\n{text}"
        assert list(folder.glob(".singer-bridge/taps/tap_x*/venv/bin/tap-x"))


def test_environments_and_included_files(typed: Typed, file: Path, folder: Path) -> None:
    """It goes from every file that names it; the catalogs of its environments go, too. The file is right afterwards."""
    (folder / "more.yaml").write_text("# theirs\npipelines:\n  far:\n    source: {tap: tap-smoke}\n")
    environments = "environments:\n  prod:\n    pipelines:\n      far: {commit: {every: 1m}}\n"
    top = "include: [more.yaml]\ndefaults: {destination: {bucket: lake}}\n"
    file.write_text(OURS + top + environments)
    keep(folder, "catalogs/far.json", "catalogs/prod.far.json")
    done = typed("remove far --yes")
    assert done.code == 0, done.err
    assert (folder / "more.yaml").read_text() == "# theirs\npipelines:\n"
    assert file.read_text() == OURS + top + environments.replace("      far: {commit: {every: 1m}}\n", "")
    assert not list(folder.glob(".singer-bridge/catalogs/*far*"))
    assert check(file, {}) == []


def test_what_it_says_of_a_replication_slot(typed: Typed, file: Path, folder: Path) -> None:
    """The slot that its runs noted, or that its settings name, keeps the server's log: its name, and what drops it."""
    shop = Shop(folder)
    shop.load("orders", ID, [{"id": 1}])
    (shop.root / ".bridge/shop/slot.json").write_text(json.dumps({"slot": "shop_live"}))
    file.write_text(
        OURS + "  shop: {source: {tap: tap-smoke}, destination: {bucket: lake}}\n"
        "  new:\n    source: {tap: tap-postgres, pip_url: meltanolabs-tap-postgres}\n    destination: {bucket: lake}\n"
        "    streams: {a: {replication_method: LOG_BASED}}\n"
    )
    drop = "to remove it: in the database: SELECT pg_drop_replication_slot('{}');\n"
    assert drop.format("shop_live") in typed("remove shop --dry-run").err
    assert drop.format("tappostgres") in typed("remove new --dry-run").err
    assert "slot" not in typed("remove other --dry-run").err
    (shop.root / ".bridge/shop/slot.json").write_text(json.dumps({"slot": "x'); DROP TABLE t; --"}))
    assert drop.format("x''); DROP TABLE t; --") in typed("remove shop --dry-run").err  # all of it is one text


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("remove shpo --yes", 2, 'did you mean "shop"?'),
        ("remove nobody --yes", 2, "there are: other, shop"),
        ("remove", 2, "NAME"),
        ("remove shop --yes -f elsewhere.yaml", 2, "elsewhere.yaml"),
    ],
)
def test_what_is_refused(typed: Typed, file: Path, line: str, code: int, words: str) -> None:
    """A name that nobody knows is an error with the nearest one."""
    text = file.read_text()
    done = typed(line)
    assert (done.code, words in done.err) == (code, True), done.err
    assert file.read_text() == text


def test_a_run_that_is_alive(typed: Typed, file: Path, folder: Path) -> None:
    """It needs its tap and its scratch: exit code 4, and nothing is removed. A dry run only looks."""
    shop = Shop(folder)
    shop.load("orders", ID, [{"id": 1}])
    text = file.read_text()
    lease = take(shop.storage, "shop", "run")
    assert typed("remove shop --yes").code == 4
    assert typed("remove shop --dry-run").code == 0
    lease.close(head=1, clean=True)
    assert file.read_text() == text


def test_a_lake_that_cannot_be_read(typed: Typed, file: Path, folder: Path) -> None:
    """It does not keep the pipeline in the file: that it was not looked into is said."""
    (folder / "lake").write_text("a file")
    done = typed("remove shop --yes")
    assert (done.code, "stays: its lake, which cannot be looked into" in done.err) == (0, True), done.err
    assert file.read_text() == OURS
