"""`verify`: whatever is not as the log says is found, nothing else, and `--repair` mends what need not be guessed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from bridge.errors import CorruptLake, PipelineHeld
from bridge.findings import Finding
from bridge.lake.commit.open import open_committer, recover
from bridge.lake.lease import take
from bridge.lake.log import Log
from bridge.lake.ownership import Owner, claim
from bridge.lake.pipeline_state import PipelineState
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.spool.folder import SpoolFolder
from bridge.operate.verify.check import verify
from bridge.operate.verify.mend import repair
from tests.support.dying import die_at
from tests.support.lake import FIRST, Lake
from tests.support.records import staged_table, table_change
from tests.support.tables import INTEGER, Shop

ID = {"id": INTEGER}
GHOST = "part-0000000002-000001-0123456789abcdef0123456789abcdef.parquet"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of two tables, one of which was replaced, with nothing wrong in it."""
    shop = Shop(tmp_path_factory.mktemp("made"))
    shop.load("orders", ID, [{"id": 1}])
    shop.load("orders", ID, [{"id": 2}], mode="overwrite")
    shop.load("orders", ID, [{"id": 3}, {"id": 4}])
    shop.load("users", ID, [{"id": 7}])
    recover(shop.storage, "shop")
    repair(shop.storage, "shop")
    return shop.root


@pytest.fixture
def lake(made: Path, tmp_path: Path) -> Lake:
    """A copy of that lake under its own path: manifests hold whole paths."""
    kept = tmp_path / "kept"
    shutil.copytree(made, kept)
    yield Lake(made)
    shutil.rmtree(made)
    shutil.move(kept, made)


def files(lake: Lake, stream: str) -> list[Path]:
    return sorted((lake.root / "shop" / stream).iterdir())


def found(lake: Lake) -> list[tuple[str, str]]:
    """The severity and the check of each finding. To look changes nothing, and each says what to do."""
    before = lake.everything()
    findings = verify(lake.storage, "shop").findings
    assert lake.everything() == before
    assert all(finding.fix and finding.text and finding.file for finding in findings)
    return [(finding.status, finding.check) for finding in findings]


def only(lake: Lake) -> Finding:
    (finding,) = verify(lake.storage, "shop").findings
    return finding


def test_all_is_well(lake: Lake) -> None:
    """Nothing is found in a whole lake, and it is said what was counted."""
    report = verify(lake.storage, "shop")
    assert (report.findings, report.running) == ([], "")
    size = sum(path.stat().st_size for path in lake.root.glob("shop/*/*"))
    assert (report.head, report.commits, report.tables, report.files, report.rows) == (5, 5, 2, 3, 4)
    assert report.bytes == size


def test_where_nothing_ever_ran(tmp_path: Path) -> None:
    """Of a pipeline that never ran nothing is wrong, and nothing is made."""
    report = verify(LocalStorage(tmp_path / "none"), "shop")
    assert (report.findings, report.commits) == ([], 0)
    assert not (tmp_path / "none").exists()


# what is mended


def in_the_trash(lake: Lake) -> None:
    trash = lake.root / ".bridge/shop/trash/00000000000000000004/shop/users"
    trash.mkdir(parents=True)
    files(lake, "users")[0].rename(trash / f"{files(lake, 'users')[0].name}.removed")


def visible_still(lake: Lake) -> None:
    (file,) = lake.root.glob(".bridge/shop/trash/*/shop/orders/*")
    shutil.copy(file, lake.root / "shop/orders" / file.name.removesuffix(".removed"))


def a_ghost(lake: Lake) -> None:
    shutil.copy(files(lake, "users")[0], lake.root / "shop/users" / GHOST)


def a_leftover(lake: Lake) -> None:
    (lake.root / ".bridge/shop/pending" / f"{GHOST}.pending").write_bytes(b"half")


def unlink(path: str) -> Callable[[Lake], object]:
    return lambda lake: (lake.root / path).unlink()


def write(path: str, text: str) -> Callable[[Lake], object]:
    return lambda lake: (lake.root / path).write_text(text)


MENDED: dict[str, tuple[Callable[[Lake], object], str, str]] = {
    "a file is in the trash": (in_the_trash, "error", "files"),
    "a removed file is visible": (visible_still, "error", "files"),
    "a file of no commit": (a_ghost, "error", "files"),
    "a pending file of a dead run": (a_leftover, "warning", "pending"),
    "a manifest is gone": (unlink(".bridge/tables/shop/users.manifest"), "error", "manifest"),
    "a manifest is old": (write(".bridge/tables/shop/orders.symlinks/manifest", "/x\n"), "error", "manifest"),
    "the owner is gone": (unlink(".bridge/tables/shop/users.json"), "error", "owner"),
    "a stream is gone": (unlink(".bridge/shop/streams/users.json"), "warning", "streams"),
    "a stream is old": (write(".bridge/shop/streams/users.json", '{"rows": 5}'), "warning", "streams"),
    "a stream is broken": (write(".bridge/shop/streams/users.json", "{"), "warning", "streams"),
    "no state.json": (unlink(".bridge/shop/state.json"), "warning", "state"),
    "a broken state.json": (write(".bridge/shop/state.json", "{"), "error", "state"),
    "no object in state.json": (write(".bridge/shop/state.json", "[]"), "error", "state"),
    "no lake.json": (unlink(".bridge/lake.json"), "warning", "lake"),
}


@pytest.mark.parametrize("name", MENDED)
def test_what_is_mended(lake: Lake, name: str) -> None:
    """It is found as what it is, and after the repair the tables have their rows, and no other."""
    damage, severity, check = MENDED[name]
    damage(lake)
    assert set(found(lake)) == {(severity, check)}
    assert only(lake).mend
    done, report = repair(lake.storage, "shop")
    assert done
    assert report.findings == verify(lake.storage, "shop").findings == []
    rows = [
        row["id"] for stream in ("orders", "users") for row in pq.read_table(lake.root / "shop" / stream).to_pylist()
    ]
    assert sorted(rows) == [2, 3, 4, 7]
    assert Log(lake.storage, "shop").snapshot(report.head).state == {"bookmarks": {"n": 4}}


def test_all_at_once(lake: Lake) -> None:
    """One repair mends all of it, and what it did is said; a second one has nothing to do."""
    apart = ("a file is in the trash", "no state.json", "a stream is gone", "the owner is gone")
    for name in [name for name in MENDED if name not in apart]:
        MENDED[name][0](lake)
    done, report = repair(lake.storage, "shop")
    assert report.findings == []
    assert any(GHOST in line and "moved into the trash by commit 6" in line for line in done)
    assert repair(lake.storage, "shop") == ([], report)


def test_a_ghost_is_kept_and_forgotten(lake: Lake) -> None:
    """A file of no commit is moved, by a commit that names it: so the retention finds it in the trash one day."""
    a_ghost(lake)
    repair(lake.storage, "shop")
    log = Log(lake.storage, "shop")
    record = next(log.history(log.head()))
    assert record.tables[0].removes == [GHOST]
    assert (lake.root / f".bridge/shop/trash/{log.head():020d}/shop/users/{GHOST}.removed").exists()


def test_a_ghost_where_nobody_knows_whose_the_table_is(lake: Lake) -> None:
    """Without an owner on record a file of no commit may be another pipeline's: it stays until there is one."""
    a_ghost(lake)
    (lake.root / ".bridge/tables/shop/users.json").unlink()
    assert [finding.mend for finding in repair(lake.storage, "shop")[1].findings if finding.check == "owner"] == []
    assert (lake.root / "shop/users" / GHOST).exists()
    assert repair(lake.storage, "shop")[1].findings == []


def test_what_state_json_said_is_kept(lake: Lake) -> None:
    """A `state.json` that nobody can read is set aside, not thrown away."""
    lake.storage.write(".bridge/shop/state.json", b'{"bookmarks": ')
    assert "no run starts" in only(lake).text
    repair(lake.storage, "shop")
    assert (lake.root / ".bridge/shop/state.json.damaged").read_bytes() == b'{"bookmarks": '


def test_death_of_a_repair(lake: Lake, made: Path) -> None:
    """Wherever a repair is killed, the next one mends the rest."""
    for name in ("a file is in the trash", "a removed file is visible", "a manifest is gone", "a broken state.json"):
        MENDED[name][0](lake)
    shutil.copy(next(lake.root.glob("shop/orders/*")), lake.root / "shop/orders" / GHOST)
    broken = made.with_name("broken")
    shutil.copytree(made, broken)
    step = 0
    while die_at(made, step, lambda: repair(lake.storage, "shop")).killed:
        assert repair(lake.storage, "shop")[1].findings == [], step
        shutil.rmtree(made)
        shutil.copytree(broken, made)
        step += 1
    assert step > 15
    shutil.rmtree(broken)


def test_a_lake_that_was_moved(lake: Lake, tmp_path: Path) -> None:
    """Manifests hold whole paths: of a lake that is somewhere else now they are told, and are written anew."""
    moved = Lake(tmp_path / "moved")
    shutil.copytree(lake.root, moved.root)
    assert set(found(moved)) == {("warning", "manifest")}
    assert str(lake.root) in verify(moved.storage, "shop").findings[0].text
    assert repair(moved.storage, "shop")[1].findings == []
    assert str(moved.root) in (moved.root / ".bridge/tables/shop/users.manifest").read_text()


# what is not mended


def gone(lake: Lake) -> None:
    files(lake, "orders")[1].unlink()


def cut(lake: Lake) -> None:
    path = files(lake, "orders")[1]
    path.write_bytes(path.read_bytes()[:-1])


def no_parquet(lake: Lake) -> None:
    path = files(lake, "orders")[1]
    path.write_bytes(b"x" * path.stat().st_size)


LOST: dict[str, tuple[Callable[[Lake], object], str]] = {
    "gone": (gone, "gone; it holds 2 rows of commit 3"),
    "cut": (cut, "bytes, and the log says"),
    "no parquet": (no_parquet, "is no longer a Parquet file"),
}


@pytest.mark.parametrize("name", LOST)
def test_lost_rows(lake: Lake, name: str) -> None:
    """Rows that are nowhere any more are not invented: it is said which, and both ways to have them again."""
    damage, text = LOST[name]
    damage(lake)
    assert found(lake) == [("error", "files")]
    assert text in only(lake).text
    assert "rollback 2 NAME" in only(lake).fix
    assert "--full -s orders" in only(lake).fix
    done, report = repair(lake.storage, "shop")
    assert done == []
    assert [finding.check for finding in report.findings] == ["files"]


def test_other_rows(lake: Lake) -> None:
    """A file is held against the number of rows that its commit says."""
    path = lake.root / ".bridge/shop/commits" / f"{3:020d}.json"
    path.write_text(path.read_text().replace('"rows": 2', '"rows": 3'))
    assert set(found(lake)) == {("error", "files"), ("warning", "streams")}
    assert "2 rows, and the log says 3; it holds 3 rows of commit 3" in verify(lake.storage, "shop").findings[0].text


OTHERS: dict[str, tuple[Callable[[Lake], object], str, str, str]] = {
    "a file of others": (
        lambda lake: shutil.copy(files(lake, "users")[0], lake.root / "shop/users/x.parquet"),
        "error",
        "files",
        "--adopt",
    ),
    "a note of others": (write("shop/users/README", "x"), "warning", "files", "is not ours"),
    "an earlier state.json": (
        write(".bridge/shop/state.json", '{"bookmarks": {"n": 2}}'),
        "warning",
        "state",
        "edited by hand",
    ),
    "an edited state.json": (write(".bridge/shop/state.json", '{"mine": 1}'), "warning", "state", "edited by hand"),
    "an owner that cannot be read": (write(".bridge/tables/shop/users.json", "{"), "error", "owner", "unreadable"),
    "another owner": (
        write(".bridge/tables/shop/users.json", '{"format": 1, "pipeline": "q", "stream": "s"}'),
        "error",
        "owner",
        "is q's",
    ),
    "a newer lake": (write(".bridge/lake.json", '{"format": 2}'), "error", "lake", "newer format"),
    "a broken lake": (write(".bridge/lake.json", "{"), "error", "lake", "unreadable"),
    "a schema is gone": (
        lambda lake: shutil.rmtree(lake.root / ".bridge/shop/schemas"),
        "error",
        "schema",
        "is missing",
    ),
    "begins.json": (write(".bridge/shop/begins.json", "{"), "error", "commits", "begins is unreadable"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_only_a_person_can_mend(lake: Lake, name: str) -> None:
    """What is not ours, or would have to be guessed, is named and stays as it is."""
    damage, severity, check, text = OTHERS[name]
    damage(lake)
    assert set(found(lake)) == {(severity, check)}
    first = verify(lake.storage, "shop").findings[0]
    assert text in first.text + first.fix
    assert first.mend is None


def test_a_file_of_others_is_not_touched(lake: Lake) -> None:
    """A repair leaves it where it is, whatever else it moves."""
    shutil.copy(files(lake, "users")[0], lake.root / "shop/users/theirs.parquet")
    a_ghost(lake)
    done, report = repair(lake.storage, "shop")
    assert [GHOST in line for line in done] == [True]
    assert [finding.file for finding in report.findings] == ["shop/users/theirs.parquet"]
    assert (lake.root / "shop/users/theirs.parquet").exists()


@pytest.mark.parametrize(
    ("text", "said"), [("", "missing"), ("{", "unreadable"), ('{"format": 1, "n": 2, "state": {}}', "incomplete")]
)
def test_a_damaged_log(lake: Lake, text: str, said: str) -> None:
    """A commit that is missing or unreadable is named; what the tables hold is not guessed, nor repaired."""
    path = lake.root / ".bridge/shop/commits" / f"{2:020d}.json"
    path.write_text(text) if text else path.unlink()
    findings = verify(lake.storage, "shop").findings
    assert [finding.check for finding in findings] == ["commits", "commits"]
    assert said in findings[0].text
    assert "nobody can know" in findings[1].text
    before = lake.everything()
    with pytest.raises(CorruptLake):
        repair(lake.storage, "shop")
    lease = ".bridge/shop/lease.json"
    assert lake.everything() | {lease: b""} == before | {lease: b""}


# a long log


@pytest.fixture
def long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A log of more than two snapshots, in which each commit appends a file."""
    monkeypatch.setattr("bridge.operate.verify.files._rows", lambda storage, key: 1)  # its files are no Parquet
    lake = Lake(tmp_path)
    committer = lake.open(FIRST)
    for n in range(1, 206):
        lake.load(committer, {"n": n})
    claim(lake.storage, "p/s", Owner("p", "s"), shared=False)
    recover(lake.storage, "p")
    return lake


def checks(lake: Lake) -> list[str]:
    return [
        finding.check for finding in verify(lake.storage, "p").findings if finding.check not in ("schema", "streams")
    ]


def test_snapshots(long: Lake) -> None:
    """A snapshot that is not what the commits come to is found; behind a damaged commit the next snapshot helps on."""
    assert checks(long) == []
    path = long.root / ".bridge/p/commits" / f"{200:020d}.json"
    record = json.loads(path.read_bytes())
    path.write_text(json.dumps(record | {"snapshot": {}}))
    assert checks(long)[0] == "commits"
    path.write_text(json.dumps(record))
    (path.parent / f"{57:020d}.json").unlink()
    report = verify(long.storage, "p")
    assert (report.commits, report.files) == (205, 205)
    assert checks(long) == ["commits"]


def test_a_log_that_was_cut(long: Lake) -> None:
    """What the retention deleted is not missed."""
    for n in range(1, 100):
        (long.root / ".bridge/p/commits" / f"{n:020d}.json").unlink()
    assert checks(long)
    long.storage.write(".bridge/p/begins.json", b'{"format": 1, "first": 100, "swept": 100}')
    report = verify(long.storage, "p")
    assert (report.first, report.commits, report.files) == (100, 107, 205)
    assert checks(long) == []


# beside a run


def test_a_dead_run_is_told_from_a_live_one(lake: Lake) -> None:
    """What a commit in progress explains is no finding while its run is alive; once it died, it is one."""
    log = Log(lake.storage, "shop")
    old = files(lake, "users")[0]
    name = GHOST.replace("0000000002", "0000000005")
    source = f".bridge/shop/pending/{name}.pending"
    shutil.copy(old, lake.root / source)
    add = {"name": name, "source": source, "size": old.stat().st_size, "rows": 1}
    schema = log.snapshot(5).tables["users"].schema
    change = table_change([add], [old.name], "users", folder="shop/users", schema=schema)
    lease = take(lake.storage, "shop", "alive")
    committer = open_committer(lake.storage, "shop", "alive", last=lease.last)
    committer.create("data", PipelineState({"bookmarks": {"n": 9}}), tables=[change])
    report = verify(lake.storage, "shop")
    assert (report.running, report.findings) == ("alive", [])
    with pytest.raises(PipelineHeld):
        repair(lake.storage, "shop")
    lease.close(head=6, clean=False)
    severities = {(finding.check, finding.status) for finding in verify(lake.storage, "shop").findings}
    assert severities == {("commits", "error"), ("manifest", "error"), ("state", "warning")}
    done, report = repair(lake.storage, "shop")
    assert report.findings == []
    assert any("commits/00000000000000000006.json" in line for line in done)
    assert [path.name for path in files(lake, "users")] == [name]


def test_damage_beside_a_live_run(lake: Lake) -> None:
    """What no commit explains is found while a run is alive, too."""
    lease = take(lake.storage, "shop", "alive")
    gone(lake)
    report = verify(lake.storage, "shop")
    assert (report.running, [finding.check for finding in report.findings]) == ("alive", ["files"])
    lease.close(head=5, clean=True)


def test_a_swap_that_died_half_way(lake: Lake) -> None:
    """A table that was being exchanged when its run died is not called lost, and recovery finishes it."""
    shop = Shop.__new__(Shop)
    shop.root, shop.storage, shop._head, shop.layout = lake.root, lake.storage, 5, {}
    shop.spool = lake.root.with_name("spool-of-swap")
    SpoolFolder(shop.spool).create()

    def load() -> None:
        lease = take(lake.storage, "shop", "dead")
        shop.load("orders", ID, [{"id": 9}], mode="overwrite")
        lease.close(head=6, clean=True)

    kept = lake.root.with_name("kept-of-swap")
    shutil.copytree(lake.root, kept)
    states, step = set(), 0
    while die_at(lake.root, step, load).killed:
        report = verify(lake.storage, "shop")
        lost = [finding for finding in report.findings if "restore it" in finding.fix]
        assert lost == [], step
        recover(lake.storage, "shop")
        report = verify(lake.storage, "shop")
        assert {finding.check for finding in report.findings} <= {"streams"}
        states.add(report.rows)
        shutil.rmtree(lake.root)
        shutil.copytree(kept, lake.root)
        step += 1
    assert states == {4, 2}
    shutil.rmtree(kept)
    shutil.rmtree(shop.spool)


def test_a_shared_table(tmp_path: Path) -> None:
    """Files that the other pipeline's log has are no strangers, and what is in no log may be about to be."""
    lake = Lake(tmp_path)
    claim(lake.storage, "p/s", Owner("p", "s"), shared=True)
    claim(lake.storage, "p/s", Owner("q", "s"), shared=True)
    for number, name in enumerate(("p", "q"), 1):
        committer = open_committer(lake.storage, name, "run", last=FIRST)
        committer.commit(
            PipelineState({"n": number}), [structs.replace(lake.entry(lake.pending(0, name)), shared=True)]
        )
    recover(lake.storage, "p")
    kinds = {finding.check for finding in verify(lake.storage, "p").findings}
    assert kinds == {"files", "schema"}  # its file is no Parquet, and it has no schema
    assert len(verify(lake.storage, "p").findings) == 2
    (lake.root / "p/s" / GHOST).write_bytes(b"")
    ghosts = [finding for finding in verify(lake.storage, "p").findings if finding.file.endswith(GHOST)]
    assert [(ghost.status, ghost.mend) for ghost in ghosts] == [("warning", None)]


def test_half_loaded_tables(tmp_path: Path) -> None:
    """A staged file that is gone costs no rows: the stream starts again, and that is said before."""
    lake = Lake(tmp_path)
    committer = lake.open(FIRST)
    file = lake.pending(0)
    committer.commit(PipelineState({"bookmarks": {"s": {"pk": 5}}}), [], staged={"s": staged_table(1, file)})
    recover(lake.storage, "p")
    assert checks(lake) == []
    (lake.root / file["source"]).unlink()
    (finding,) = verify(lake.storage, "p").findings
    assert (finding.status, finding.check) == ("warning", "staged")
    repair(lake.storage, "p")
    assert (checks(lake), lake.state) == ([], {"bookmarks": {}})


def test_the_last_commit_once_more(lake: Lake) -> None:
    """A run that closed well and whose files were pending all the same is finished by the repair."""
    old = files(lake, "users")[0]
    record = next(r for r in Log(lake.storage, "shop").history(5, fences=False))
    source = record.tables[0].adds[0].source
    old.rename(lake.root / source)
    assert found(lake) == [("error", "commits")]
    done, report = repair(lake.storage, "shop")
    assert (report.findings, "published again" in done[0]) == ([], True)


def test_on_s3(s3: Any) -> None:
    """The same in a bucket: what is wrong is found and mended there, beside what is pending as an upload."""
    storage = s3.storage("s3://verify/lake")
    committer = open_committer(storage, "p", "run", last=FIRST)
    entries = []
    for number in (1, 2):
        name = f"part-{0:010d}-{number:06d}-{number:032x}.parquet"
        source = f".bridge/p/pending/{name}.pending"
        file = storage.open_pending(source, f"p/s/{name}")
        pq.write_table(pa.table({"id": [number]}), file)
        size = file.tell()
        file.close()
        entries.append({"name": name, "source": source, "size": size, "rows": 1, "upload": file.upload})
    committer.commit(PipelineState({"bookmarks": {}}), [table_change(entries, schema=None)])
    claim(storage, "p/s", Owner("p", "s"), shared=False)
    storage.prepare()
    recover(storage, "p")
    repair(storage, "p")
    report = verify(storage, "p")
    assert (report.findings, report.files, report.rows) == ([], 2, 2)
    name = entries[0]["name"]
    storage.write(f"p/s/{GHOST}", storage.read(f"p/s/{name}"))
    storage.write(f".bridge/p/trash/{1:020d}/p/s/{name}.removed", storage.read(f"p/s/{name}"))
    storage.delete(f"p/s/{name}")
    storage.delete(".bridge/tables/p/s.manifest")
    storage.write("p/s/theirs.parquet", b"x")
    assert {finding.check for finding in verify(storage, "p").findings} == {"files", "manifest"}
    done, report = repair(storage, "p")
    assert [finding.file for finding in report.findings] == ["p/s/theirs.parquet"]
    assert len(done) == 3
    assert sorted(storage.list("p/s")) == sorted([*(entry["name"] for entry in entries), "theirs.parquet"])
