"""Tables whose files were rewritten under their names, and lie in Hive folders: what looks at them later."""

from __future__ import annotations

import os
import time
import uuid
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import duckdb
import pytest

from bridge.errors import LakeError
from bridge.lake.commit.committer import Committer
from bridge.lake.commit.open import open_committer, recover
from bridge.lake.commit.retention import Sweep
from bridge.lake.commit.rollback import roll_back
from bridge.lake.log import Log, storage_changes
from bridge.lake.ownership import strangers
from bridge.lake.paths import file_name, table_and_name
from bridge.lake.records import TableState
from bridge.lake.storage import Storage
from bridge.lake.storage.local.storage import LocalStorage
from bridge.load.run.tables.adopt import adopt
from bridge.operate.verify.check import verify
from bridge.operate.verify.mend import repair
from bridge.settings.inline import inline_pipeline
from bridge.settings.options import Retention
from tests.crash.rewriting import Rewrites, nothing_said
from tests.support.lake import DEAD


@pytest.fixture
def lake(tmp_path: Path) -> Storage:
    """Three commits: the second and the third rewrite the two files of `t`."""
    Rewrites(nothing_said).execute(str(tmp_path / "lake"), tmp_path / "spool")
    return LocalStorage(tmp_path / "lake")


def rows(storage: Storage, stream: str = "t") -> list[tuple[Any, ...]]:
    """What another engine reads of a table's folder."""
    query = f"select id, g from read_parquet('{storage.uri}/p/{stream}/**/*.parquet') order by id, g"
    return duckdb.sql(query).fetchall()


def loaded(last: int) -> list[tuple[int, int]]:
    return [(file, g) for file in (1, 2) for g in range(1, last + 1)]


def wrong(storage: Storage) -> list[str]:
    """What is found, apart from notes for people, which these runs do not write."""
    return [finding.check for finding in verify(storage, "p").findings if finding.check != "streams"]


def test_nothing_is_wrong(lake: Storage) -> None:
    """After rewriting the lake is as its log says."""
    assert (rows(lake), wrong(lake)) == (loaded(3), [])


@pytest.mark.parametrize("to", [1, 2])
def test_rollback_and_back_again(lake: Storage, to: int) -> None:
    """The bytes that a file had at each commit come back, whatever has its name now."""
    _, n, _ = roll_back(lake, "p", to)
    assert (rows(lake), wrong(lake)) == (loaded(to), [])
    roll_back(lake, "p", 3)
    assert (rows(lake), wrong(lake)) == (loaded(3), [])
    roll_back(lake, "p", n)
    assert (rows(lake), wrong(lake)) == (loaded(to), [])
    assert {name.rpartition("/")[0] for name in lake.walk("p/t")} == {"", "part=x"}


def test_a_commit_that_was_taken_back(lake: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half rewritten, taken back, loaded again: each commit before and after can be had by a rollback."""
    renames, real = [0], os.rename

    def rename(source: Any, target: Any) -> None:
        if "part-" in str(target) and "pending" in str(source) and "/t/" in str(target):
            renames[0] += 1
            if renames[0] == 2:
                Path(source).unlink()
                raise OSError("a disk that fails")
        real(source, target)

    monkeypatch.setattr("os.rename", rename)
    with pytest.raises(LakeError):
        Rewrites(nothing_said, last=4).execute(lake.uri, tmp_path / "spool")
    monkeypatch.setattr("os.rename", real)
    assert len(rows(lake)) == 7  # one file has its fourth row
    assert "taken back" in recover(lake, "p").notes[0]
    assert (rows(lake), wrong(lake)) == (loaded(3), [])
    Rewrites(nothing_said, last=5).execute(lake.uri, tmp_path / "spool")
    assert (rows(lake), wrong(lake)) == (loaded(5), [])
    for to, last in ((2, 2), (3, 3), (6, 3), (7, 4)):
        roll_back(lake, "p", to)
        assert (rows(lake), wrong(lake)) == (loaded(last), []), to


def test_a_file_that_somebody_changed_is_not_taken_back(lake: Storage, tmp_path: Path) -> None:
    """Where a lost commit was to rewrite a file that is not what the log says, nobody guesses."""
    committer = _died(lake, tmp_path)
    record = next(committer.log.history(committer.snapshot.n))
    for change in storage_changes("p", record):
        for one in change.rewrites:
            lake.delete(one.add.source)
            lake.write(one.add.key, b"theirs")
    with pytest.raises(LakeError, match="is not what the log says"):
        open_committer(lake, "p", "next", last=DEAD)


def _died(lake: Storage, tmp_path: Path) -> Committer:
    """Make a fourth commit that nobody publishes; return its writer."""
    committer = open_committer(lake, "p", "run", last=DEAD)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalStorage, "publish", lambda self, changes: (_ for _ in ()).throw(LakeError("cut", hint="h")))
        with pytest.raises(LakeError, match="cut"):
            Rewrites(nothing_said, last=4)._load(lake, committer, tmp_path)
    return committer


def test_an_unfinished_rewriting_is_found_and_finished(lake: Storage, tmp_path: Path) -> None:
    """A commit whose files are not rewritten yet is one finding, and recovery mends it."""
    _died(lake, tmp_path)
    found = [finding for finding in verify(lake, "p").findings if finding.check == "commits"]
    assert len(found) == 1
    assert "has 3 file(s) still to publish or to remove" in found[0].text
    assert rows(lake) == loaded(3)
    repair(lake, "p")
    assert (rows(lake), wrong(lake)) == (loaded(4), [])


def test_the_trash_has_other_bytes_than_the_file(lake: Storage) -> None:
    """A file that is gone is not brought back from what it was before it was rewritten."""
    name = next(name for name in lake.walk("p/t") if "=" in name)
    log = Log(lake, "p")
    size = log.snapshot(log.head()).tables["t"].files[name].size
    lake.delete(f"p/t/{name}")
    old = f".bridge/p/trash/{3:020d}/p/t/{name}.removed"
    lake.write(old, b"x" * size)
    assert [finding.mend for finding in verify(lake, "p").findings if finding.check == "files"] == [None]
    lake.write(f".bridge/p/trash/{4:020d}/p/t/{name}.removed", b"x" * size)
    mends = [finding.mend for finding in verify(lake, "p").findings if finding.check == "files"]
    assert mends[0] is not None


def test_retention_deletes_old_bytes(lake: Storage) -> None:
    """What was rewritten is kept as long as what was removed, and then goes."""
    assert len(list(lake.walk(".bridge/p/trash"))) == 4
    later = datetime.now(timezone.utc) + timedelta(days=30)
    sweep = Sweep(lake, "p", Retention(), now=later)
    sweep.all(3)
    assert (sweep.deleted["trash"], sweep.warnings) == (2, [])
    assert all(f"{3:020d}" in path for path in lake.walk(".bridge/p/trash"))  # the last one may be taken back
    assert rows(lake) == loaded(3)


def test_what_dead_writes_left_goes(lake: Storage) -> None:
    """Temporary files of the pipeline's folders go after a day, those of somebody who is writing do not."""
    root = Path(lake.uri)
    places = [root / place for place in (".bridge/p/commits", ".bridge/tables/p", "p/t/part=x")]
    old, new = ([place / f".{uuid.uuid4().hex}.tmp" for place in places] for _ in range(2))
    for path in (*old, *new):
        path.write_bytes(b"torn")
    for path in old:
        os.utime(path, (time.time() - 100_000,) * 2)
    Sweep(lake, "p", Retention()).all(3)
    assert [path.exists() for path in (*old, *new)] == [False] * 3 + [True] * 3


def test_strangers_in_hive_folders(lake: Storage) -> None:
    """A file that nobody knows is seen wherever readers would find it, and is not adopted out of a folder."""
    stranger = "part=y/theirs.parquet"
    lake.write(f"p/t/{stranger}", lake.read(f"p/n/{next(iter(lake.walk('p/n')))}") or b"")
    log = Log(lake, "p")
    assert strangers(lake, log.snapshot(log.head()).tables["t"], []) == [stranger]
    assert [f.file for f in verify(lake, "p").findings if f.check == "files"] == [f"p/t/{stranger}"]
    # These tables are as an older version left them: only the settings say that rows are not merged into them.
    pipeline = inline_pipeline(name="p", bucket=lake.uri, tap="tap", load_method="append-only", environ={})
    with pytest.raises(LakeError, match="cannot be adopted into partitions"):
        adopt(open_committer(lake, "p", "run", last=DEAD), pipeline)


def test_a_ghost_in_a_hive_folder_is_moved(lake: Storage) -> None:
    """A file that a run of ours left goes into the trash from its folder, and the folder with it."""
    name = file_name(0, 1, beside="part=z/x")
    lake.write(f"p/t/{name}", lake.read(f"p/n/{next(iter(lake.walk('p/n')))}") or b"")
    assert wrong(lake) == ["files"]
    repair(lake, "p")
    assert (wrong(lake), rows(lake)) == ([], loaded(3))
    assert not (Path(lake.uri) / "p/t/part=z").exists()


@pytest.mark.parametrize(
    ("key", "parts"),
    [
        ("p/t/f", ("p/t", "f")),
        ("p/t/a=1/b=x/f", ("p/t", "a=1/b=x/f")),
        ("a=b/t/f", ("a=b/t", "f")),
        (".bridge/p/pending/f", (".bridge/p/pending", "f")),
    ],
)
def test_a_key_in_two(key: str, parts: tuple[str, str]) -> None:
    """A table's folder never has `=` in its name, and Hive's folders always."""
    assert table_and_name(key) == parts


def test_live_tables_have_no_strangers(lake: Storage) -> None:
    """Files in folders that the log names are no strangers."""
    log = Log(lake, "p")
    assert [strangers(lake, table, []) for table in log.snapshot(log.head()).tables.values()] == [[], []]
    assert strangers(lake, TableState("p/none", None), []) == []


def test_names_stay(lake: Storage) -> None:
    """Rewriting gives no file another name."""
    log = Log(lake, "p")
    assert set(log.snapshot(1).tables["t"].files) == set(log.snapshot(3).tables["t"].files) == set(lake.walk("p/t"))
