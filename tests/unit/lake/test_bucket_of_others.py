"""A bucket into which others may write: what they put there leads no file outside of it to be changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import CorruptLake, LakeError
from bridge.lake.commit.open import open_committer
from bridge.lake.lease import take
from bridge.lake.log import Log, Snapshot, storage_changes
from bridge.lake.ownership import Owner, claim
from bridge.lake.storage import Add, Change, Remove, Rewrite
from bridge.lake.storage.local.storage import LocalStorage
from tests.support.lake import DEAD
from tests.support.records import commit_record, table_change
from tests.support.shell import Typed

OUT = ["../victim", "t/../../victim", "{victim}", "t/..", "..", "t\0x"]


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of ours beside the lake, where others may not write."""
    path = tmp_path / "victim"
    path.write_text("ours")
    return path


@pytest.fixture
def lake(tmp_path: Path) -> LocalStorage:
    """A lake with something in it."""
    storage = LocalStorage(tmp_path / "lake")
    storage.write("t/f", b"rows")
    return storage


def write(storage: LocalStorage, key: str) -> None:
    """Write a pending file; none is begun where its name leads out."""
    with storage.open_pending(key, "t/f") as file:  # type: ignore[attr-defined]
        file.write(b"x")


ACTS: dict[str, Callable[[LocalStorage, str], object]] = {
    "read": lambda lake, key: lake.read(key),
    "open": lambda lake, key: lake.open(key),
    "list": lambda lake, key: list(lake.list(key)),
    "size": lambda lake, key: lake.size(key),
    "walk": lambda lake, key: list(lake.walk(key)),
    "write": lambda lake, key: lake.write(key, b"x"),
    "put": lambda lake, key: lake.put_if_absent(key, b"x"),
    "swap": lambda lake, key: lake.compare_and_swap(key, b"x", None),
    "delete": lambda lake, key: lake.delete(key),
    "abort": lambda lake, key: lake.abort(Add(key, "t/f", 1)),
    "pending": write,
    "tidy": lambda lake, key: lake.tidy(key, timedelta()),
    "add from": lambda lake, key: lake.publish([Change("t", (Add(key, "t/new", 4),))]),
    "add to": lambda lake, key: lake.publish([Change("t", (Add("t/f", key, 4),))]),
    "remove": lambda lake, key: lake.publish([Change("t", removes=(Remove(key, "trash/f"),))]),
    "remove to": lambda lake, key: lake.publish([Change("t", removes=(Remove("t/f", key),))]),
    "take back": lambda lake, key: lake.publish([Change("t", aborts=(Add(key, "t/f", 4),))]),
    "settle": lambda lake, key: lake.settle_rewrites([Change("t", rewrites=(Rewrite(Add(key, "t/f", 4), "trash/f"),))]),
    "folder": lambda lake, key: lake.publish([Change(key)]),
}


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("key", OUT)
@pytest.mark.parametrize("act", ACTS)
def test_a_key_stays_in_the_bucket(lake: LocalStorage, victim: Path, act: str, key: str) -> None:
    """A key with `..`, a leading `/` or NUL is refused by each method, and nothing is changed."""
    before = everything(victim.parent)
    with pytest.raises(CorruptLake, match="leads out of the bucket") as caught:
        ACTS[act](lake, key.format(victim=victim))
    assert "who may write" in caught.value.hint
    assert everything(victim.parent) == before


@pytest.mark.parametrize("act", sorted(ACTS.keys() - {"folder"}))
def test_a_linked_folder_leads_nowhere(lake: LocalStorage, tmp_path: Path, act: str) -> None:
    """A folder of the bucket that is a link to one elsewhere is refused before a file there is read or changed."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "f").write_text("ours")
    (lake.root / "s").symlink_to(mine)
    before = everything(tmp_path)
    with pytest.raises(CorruptLake, match="a link in the bucket leads out of it") as caught:
        ACTS[act](lake, "s" if act == "tidy" else "s/f")
    assert "mount" in caught.value.hint
    assert everything(tmp_path) == before


@pytest.mark.parametrize("act", ["read", "open", "size", "swap"])
def test_a_linked_file_is_not_read(lake: LocalStorage, victim: Path, act: str) -> None:
    """A file of the bucket that is a link to one elsewhere is not read, as a commit would show what is in it."""
    assert list(lake.list("t")) == ["f"]
    (lake.root / "t/s").symlink_to(victim)
    before = everything(victim.parent)
    with pytest.raises(CorruptLake, match="a link in the bucket leads out of it"):
        ACTS[act](lake, "t/s")
    assert everything(victim.parent) == before


def test_the_bucket_itself_may_be_a_link(lake: LocalStorage, tmp_path: Path) -> None:
    """Who runs us chose the bucket: it may be a link, and links within it may lead to its other folders."""
    (tmp_path / "short").symlink_to(lake.root)
    (lake.root / "again").symlink_to(lake.root / "t")
    linked = LocalStorage(tmp_path / "short")
    linked.write("again/g", b"x")
    assert lake.read("t/g") == b"x"


def test_a_lease_that_is_a_link(lake: LocalStorage, victim: Path) -> None:
    """A lease that leads to another file has that file neither written over nor made."""
    lease = lake.root / ".bridge/p/lease.json"
    lease.parent.mkdir(parents=True)
    for target in (victim, victim.with_name("new")):
        lease.symlink_to(target)
        with pytest.raises(LakeError, match="cannot open the lease") as caught:
            take(lake, "p", "mine")
        assert "it is a link" in caught.value.hint
        lease.unlink()
    assert everything(victim.parent / "lake").keys() == {str(lake.root / "t/f"), str(lake.root / ".bridge/lake.json")}
    assert (victim.read_text(), victim.with_name("new").exists()) == ("ours", False)


def record(**facts: Any) -> dict[str, Any]:
    table = {"stream": "s", "folder": "p/s", "schema": "c0", "mode": "append", "adds": [], "removes": []}
    names = ("folder", "schema", "adds", "removes", "aborts")
    table |= {key: facts.pop(key) for key in names if key in facts}
    made = {"run": "r", "generation": 0, "nonce": "1", "at": "2026-01-01T00:00:00.000+00:00"}
    return {"format": 1, "n": 1, "kind": "data", **made, "state": None, "tables": [table]} | facts


def add(**facts: Any) -> dict[str, Any]:
    return {"name": "f", "source": ".bridge/p/pending/f.pending", "size": 4, "rows": 1} | facts


def staged(file: dict[str, Any], **facts: Any) -> dict[str, Any]:
    files = [file | {"stream": "s", "extra": False, "columns": ""}]
    return {"staged": {"s": {"version": 1, "schema": "c0", "folder": "p/s", "files": files} | facts}}


def reject(file: str) -> dict[str, Any]:
    return {"stream": "s", "file": file, "lines": 1, "reasons": {}}


LIVE = {"f": {"size": 4, "rows": 1}}
GOOD = ".bridge/p/rejects/s/r-1.jsonl"
CRAFTED: dict[str, Callable[[str], dict[str, Any]]] = {
    "folder": lambda out: record(folder=out),
    "schema": lambda out: record(schema=out),
    "removes": lambda out: record(removes=["fine", out]),
    "name": lambda out: record(adds=[add(), add(name=out)]),
    "source": lambda out: record(adds=[add(source=out)]),
    "aborts": lambda out: record(aborts=[add(source=out)]),
    "staged": lambda out: record(**staged(add(source=out))),
    "staged name": lambda out: record(**staged(add(name=out))),
    "staged folder": lambda out: record(**staged(add(), folder=out)),
    "staged schema": lambda out: record(**staged(add(), schema=out)),
    "staged rejects": lambda out: record(**staged(add(), rejects=[reject(out)])),
    "snapshot": lambda out: record(snapshot={"s": {"folder": "p/s", "schema": "c0", "files": LIVE | {out: LIVE["f"]}}}),
    "snapshot folder": lambda out: record(snapshot={"s": {"folder": out, "schema": "c0", "files": LIVE}}),
    "snapshot schema": lambda out: record(snapshot={"s": {"folder": "p/s", "schema": out, "files": LIVE}}),
    "rejects": lambda out: record(rejects=[reject(out)]),
    "consumed": lambda out: record(consumed=[out]),
    "rejected": lambda out: record(rejected={out: reject(GOOD)}),
    "rejected file": lambda out: record(rejected={GOOD: reject(out)}),
}
ODD = ["/", "t/", "t//f", "./t", "t/.", "..\\victim", "t\\..\\victim", "\ud800"]
"""Texts that are no key, wherever they stand."""


@pytest.mark.parametrize("out", [*OUT, *ODD])
@pytest.mark.parametrize("where", CRAFTED)
def test_a_crafted_record_is_refused(lake: LocalStorage, victim: Path, where: str, out: str) -> None:
    """A record of the log with a key that leads elsewhere stops everything; the error names the file and the key."""
    log = Log(lake, "p")
    name = out.format(victim=victim)
    lake.write(log.key(1), json.dumps(CRAFTED[where](name)).encode())
    with pytest.raises(CorruptLake, match=f"names a file of another place file={log.key(1)}") as caught:
        log.snapshot(1)
    assert (caught.value.facts["key"], "who may write" in caught.value.hint) == (name, True)


ELSEWHERE = {
    "folder": [".bridge", ".bridge/other", ".hidden/t"],
    "schema": ["../state", "a/b"],
    "source": ["f", "other/s/f", "p/sf", ".bridge/p/commits/1", ".bridge/other/pending/f", ".bridge/p/trashed"],
    "aborts": ["p/s/f", ".bridge/p/state.json", ".bridge/other/trash/f"],
    "staged": ["p/s/f", ".bridge/p/lease.json"],
    "rejects": [".bridge/p/state.json", ".bridge/other/rejects/s/r-1.jsonl", "p/s/f"],
    "consumed": [".bridge/p/state.json", ".bridge/other/rejects/s/r-1.jsonl"],
    "rejected file": [".bridge/p/runs/r.json"],
}


@pytest.mark.parametrize(("where", "key"), [(where, key) for where, keys in ELSEWHERE.items() for key in keys])
def test_a_key_of_the_bucket_that_is_not_the_pipelines(lake: LocalStorage, where: str, key: str) -> None:
    """What lies in the bucket, but where this pipeline keeps no such file, is refused as well."""
    log = Log(lake, "p")
    lake.write(log.key(1), json.dumps(CRAFTED[where](key)).encode())
    with pytest.raises(CorruptLake, match="names a file of another place"):
        log.snapshot(1)


@pytest.mark.parametrize("where", CRAFTED)
def test_what_runs_write_is_read(lake: LocalStorage, where: str) -> None:
    """The same records with the keys of a run are no damage."""
    good = {"folder": "p/s", "schema": "c1", "source": ".bridge/p/trash/1/p/s/f.removed", "name": "day=1/g"}
    kind = where.split()[-1]
    key = GOOD if kind in ("rejects", "consumed", "rejected", "file") else good.get(kind, good["source"])
    log = Log(lake, "p")
    lake.write(log.key(1), json.dumps(CRAFTED[where](key)).encode())
    assert log.snapshot(1).n == 1


@pytest.mark.parametrize("verb", ["recover", "verify --repair", "rollback 1 --yes", "compact --yes"])
@pytest.mark.parametrize("where", ["removes", "aborts"])
def test_a_verb_that_repairs(lake: LocalStorage, victim: Path, typed: Typed, where: str, verb: str) -> None:
    """After a run that seems to have died: exit code 3, and an error that names the record and the key."""
    key, out = Log(lake, "p").key(1), "../../../../victim"
    lake.write(key, json.dumps(CRAFTED[where](out)).encode())
    lake.write(".bridge/p/lease.json", b'{"format": 1, "head": null, "closed": null}')
    done = typed(f"{verb} --to {lake.root} --name p")
    assert done.code == 3
    assert f"file={key}" in done.err + done.out
    assert f"key={out}" in done.err + done.out
    assert victim.read_text() == "ours"


def test_what_could_not_be_read_is_not_written(lake: LocalStorage) -> None:
    """A record with a key that a reader would refuse is an error before it is in the log, which stays as it was."""
    crafted = commit_record(1, table_change([add(name="t//f")]))
    with pytest.raises(LakeError, match="cannot be kept in the commit log key=t//f"):
        Log(lake, "p").create(Snapshot(), crafted)
    assert Log(lake, "p").head() == 0


def test_a_gap_hides_nothing(lake: LocalStorage) -> None:
    """Fields that are null do not end the look at those after them."""
    log = Log(lake, "p")
    crafted = record(removes=["../../victim"], snapshot=None, rejected=None, groups=None)
    lake.write(log.key(1), json.dumps(crafted).encode())
    with pytest.raises(CorruptLake, match="names a file of another place"):
        log.snapshot(1)


def test_the_table_of_another_pipeline(lake: LocalStorage) -> None:
    """A record that removes files of another pipeline's table is refused by the next run; the files stay."""
    claim(lake, "q/s", Owner("q", "s"), shared=False)
    lake.write("q/s/f", b"rows")
    lake.write(Log(lake, "p").key(1), json.dumps(record(folder="q/s", removes=["f"])).encode())
    with pytest.raises(CorruptLake, match="a table of another pipeline folder=q/s pipeline=p owner=q"):
        open_committer(lake, "p", "run", last=DEAD)
    assert lake.read("q/s/f") == b"rows"


@pytest.mark.parametrize("name", ["day=../f.parquet", "..f", "f..", "a..b/c", "~2E~2E"])
def test_odd_names_are_names(lake: LocalStorage, name: str) -> None:
    """Dots within a name lead nowhere: such files are published like others."""
    log = Log(lake, "p")
    one = commit_record(1, table_change([add(name=name)]))
    lake.write(one.tables[0].adds[0].source, b"rows")
    assert log.create(Snapshot(), one)[0]
    again = log.record(1)
    assert again == one
    lake.publish(storage_changes("p", again))
    assert lake.read(f"p/s/{name}") == b"rows"
