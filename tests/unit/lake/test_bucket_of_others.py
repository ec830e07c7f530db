"""A bucket into which others may write: what they put there leads no file outside of it to be changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import CorruptLake, LakeError
from bridge.lake.lease import take
from bridge.lake.log import Log, Snapshot, changes_of
from bridge.storage import Add, Change, Remove, Rewrite
from bridge.storage.local.storage import LocalStorage
from tests.support.records import commit_record, table_change

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
READING = {"read", "open", "list"}


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


@pytest.mark.parametrize("act", sorted(ACTS.keys() - READING - {"folder"}))
def test_a_linked_folder_leads_nowhere(lake: LocalStorage, tmp_path: Path, act: str) -> None:
    """A folder of the bucket that is a link to one elsewhere is refused before a file there is changed."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "f").write_text("ours")
    (lake.root / "s").symlink_to(mine)
    before = everything(tmp_path)
    with pytest.raises(CorruptLake, match="a link in the bucket leads out of it") as caught:
        ACTS[act](lake, "s" if act == "tidy" else "s/f")
    assert "mount" in caught.value.hint
    assert everything(tmp_path) == before


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
    table |= {key: facts.pop(key) for key in ("folder", "adds", "removes", "aborts") if key in facts}
    return {"format": 1, "n": 1, "kind": "data", "nonce": "1", "state": None, "tables": [table]} | facts


def add(**facts: str) -> dict[str, Any]:
    return {"name": "f", "source": ".bridge/p/pending/f.pending", "size": 4, "rows": 1} | facts


CRAFTED: dict[str, Callable[[str], dict[str, Any]]] = {
    "folder": lambda out: record(folder=out),
    "removes": lambda out: record(removes=["fine", out]),
    "name": lambda out: record(adds=[add(), add(name=out)]),
    "source": lambda out: record(adds=[add(source=out)]),
    "aborts": lambda out: record(aborts=[add(source=out)]),
    "staged": lambda out: record(staged={"s": {"version": 1, "folder": "p/s", "files": [add(source=out)]}}),
    "staged folder": lambda out: record(staged={"s": {"version": 1, "folder": out, "files": []}}),
    "snapshot": lambda out: record(snapshot={"s": {"folder": "p/s", "schema": "c0", "files": {out: {"rows": 1}}}}),
    "rejects": lambda out: record(rejects=[{"stream": "s", "file": out, "lines": 1}]),
    "consumed": lambda out: record(consumed=[out]),
    "rejected": lambda out: record(rejected={out: {"stream": "s", "lines": 1}}),
}


@pytest.mark.parametrize("out", OUT)
@pytest.mark.parametrize("where", CRAFTED)
def test_a_crafted_record_is_refused(lake: LocalStorage, victim: Path, where: str, out: str) -> None:
    """A record of the log that names a file outside of the bucket stops everything, with the name and the record."""
    log = Log(lake, "p")
    name = out.format(victim=victim)
    lake.write(log.key(1), json.dumps(CRAFTED[where](name)).encode())
    with pytest.raises(CorruptLake, match="names a file out of the bucket") as caught:
        log.view(1)
    assert "who may write" in caught.value.hint


@pytest.mark.parametrize("name", ["day=../f.parquet", "..f", "f..", "a..b/c", "~2E~2E"])
def test_odd_names_are_names(lake: LocalStorage, name: str) -> None:
    """Dots within a name lead nowhere: such files are published like others."""
    log = Log(lake, "p")
    one = commit_record(1, table_change([add(name=name)]))
    lake.write(one.tables[0].adds[0].source, b"rows")
    assert log.create(Snapshot(), one)[0]
    again = log.record(1)
    assert again == one
    lake.publish(changes_of("p", again))
    assert lake.read(f"p/s/{name}") == b"rows"
