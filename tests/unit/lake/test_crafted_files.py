"""A fuzzer of what lies in a bucket: whatever somebody writes there, no file elsewhere changes, and no verb crashes.

Each case takes a real lake, gives one JSON file of it another value in one or two places, and types the verbs that
read, repair and delete. `SEED` and `CASES` choose others.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bridge.errors import BridgeError, CorruptLake
from bridge.lake.commit.open import open_committer, open_pipeline
from bridge.lake.commit.retention import Sweep
from bridge.lake.commit.rollback import roll_back
from bridge.lake.commit.trail import Trail
from bridge.lake.log import SNAPSHOT_EVERY, Log, Snapshot
from bridge.lake.ownership import Owner, claim
from bridge.lake.runs import RunFile
from bridge.lake.storage.local.storage import LocalStorage
from bridge.settings.options import Retention
from tests.support.lake import DEAD
from tests.support.shell import Typed
from tests.support.tables import INTEGER, STRING, Shop

SEED = int(os.environ.get("SEED", "14"))
CASES = int(os.environ.get("CASES", "60"))
OPTIONS = "--to lake --name shop"
VERBS = [
    "status",
    "recover",
    "verify",
    "verify --repair",
    "commits list",
    "commits show 3",
    "runs list",
    "runs show",
    "runs show --logs",
    "rejects list",
    "rejects show",
    "rejects purge --yes",
    "state list",
    "state show",
    "tables list",
    "tables history --diff",
    "tables head -s t",
    "rollback 2 --yes",
    "compact --yes",
    "unlock",
    "sql 'SELECT * FROM bridge.runs, bridge.files, bridge.rejects'",
    "sql 'SELECT * FROM bridge.commits, bridge.streams'",
    "tables ddl -s t",
]
NOW = Retention(**dict.fromkeys(("commits", "runs", "logs", "rejects", "trash"), timedelta()))
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
HUGE = "1e999999999"
"""A number of a few letters that would be a gigabyte as an integer."""
LATER = datetime.now(timezone.utc) + timedelta(days=1000)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with a record of each kind, with a snapshot, rejects, trash, staged rows and run records."""
    root = tmp_path_factory.mktemp("real")
    shop = Shop(root)
    storage = shop.storage
    for stream in ("t", "o"):
        claim(storage, f"shop/{stream}", Owner("shop", stream), shared=False)
    for n in range(2):
        shop.load("t", {"id": INTEGER, "v": INTEGER}, [{"id": n, "v": n}])
    shop.load("t", {"id": INTEGER, "v": STRING}, [{"id": 2, "v": "x"}, {"id": "no"}], max_rejects=9)
    shop.load("o", {"id": INTEGER}, [{"id": 1}], mode="overwrite")
    shop.load("o", {"id": INTEGER}, [{"id": 2}], mode="overwrite")
    shop.lose("o", {"id": INTEGER}, [{"id": 3}])
    roll_back(storage, "shop", 4)
    with open_pipeline(storage, "shop") as committer:
        while committer.snapshot.n < SNAPSHOT_EVERY + 2:
            committer.set_state({"bookmarks": {"t": committer.snapshot.n}}, "to reach a snapshot")
        RunFile(storage, "shop", "20260101T000000Z-aaaa", tap="tap-x").finish(status="success", commits=3)
        storage.write(".bridge/shop/logs/20260101T000000Z-aaaa.log", b"a line\n")
    storage.write(".bridge/shop/begins.json", b'{"format": 1, "first": 1, "swept": 1}')
    shop._head = committer.snapshot.n
    shop.load("t", {"id": INTEGER, "v": STRING}, [{"id": 5, "v": "last"}])
    return shop.root


def everything(folder: Path, but: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file() and but not in p.parents}


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value that can be replaced; the key of an object is `(..., "key", name)`."""
    yield at
    if isinstance(value, dict):
        for name, each in value.items():
            yield (*at, None, name)
            yield from places(each, (*at, name))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from places(each, (*at, number))


def put(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    """The value with another one at a place, or with another key there."""
    if not at:
        return new
    step, *rest = at
    if step is None:
        return {new if name == rest[0] and isinstance(new, str) else name: each for name, each in value.items()}
    if isinstance(value, list):
        return [put(each, tuple(rest), new) if number == step else each for number, each in enumerate(value)]
    return {name: put(each, tuple(rest), new) if name == step else each for name, each in value.items()}


def odd(random: Random, root: Path) -> Any:
    """A text that leads elsewhere, or a value of another kind."""
    up = "../" * random.randint(1, 6)
    texts = [f"{up}victim", f"{up}others/victim", str(root / "victim"), f"shop/t/{up}victim", f".bridge/shop/{up}x"]
    texts += ["", ".", "..", "/", "a//b", "t/", "..\\victim", "nul\0", "\ud800", "x" * 300, "\n", "other/t", "-1"]
    texts += ["2026-01-01T00:00:00", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "2030-01-01"]
    texts += ["\x1b[2J\x1b]0;x\a", "\x9b2J", "<script>"]
    values = [None, -1, 0, 10**30, 1e300, float("nan"), True, [], {}, [[]], {"a": 1}, ["../victim"]]
    values += [10**400, -(10**4000), float("inf"), HUGE, 2**63, [HUGE], {"a": HUGE}]
    return random.choice(texts) if random.random() < 0.6 else random.choice(values)


def craft(random: Random, root: Path) -> str:
    """Change one file of the lake; return what was changed, for the message of a failure."""
    files = sorted(path for path in (root / "lake/.bridge").rglob("*.json"))
    path = random.choice([path for path in files if random.random() < 0.2 or "commits" not in path.parts] or files)
    if random.random() < 0.5:  # the records that recovery and snapshots are read from
        path = random.choice([root / f"lake/.bridge/shop/commits/{n:020d}.json" for n in (3, 6, 7, 8, 100, 103)])
    value, text = json.loads(path.read_bytes()), ""
    for _ in range(random.randint(1, 2)):
        at, new = random.choice(list(places(value))), odd(random, root)
        value, text = put(value, at, new), f"{text} {path.name} {at} {new!r}"
    path.write_text(json.dumps(value).replace(f'"{HUGE}"', HUGE))
    return text


@pytest.mark.parametrize("case", range(CASES))
def test_whatever_stands_in_a_file(lake: Path, tmp_path: Path, typed: Typed, case: int) -> None:
    """No file outside of the lake changes, nothing ends with a traceback, and exit codes are those of the docs."""
    random = Random(SEED * 1_000_000 + case)
    shutil.copytree(lake, tmp_path / "lake", symlinks=True)
    (tmp_path / "others").mkdir()
    for name in ("victim", "others/victim", "x"):
        (tmp_path / name).write_text("ours")
    if random.random() < 0.5:
        (tmp_path / "lake/.bridge/shop/lease.json").unlink(missing_ok=True)
    changed, before = craft(random, tmp_path), everything(tmp_path, tmp_path / "lake")
    for verb in random.sample(VERBS, 5):
        done = typed(f"{verb} {OPTIONS}")
        assert done.code in (0, 1, 2, 3, 4), (changed, verb, done)
        assert "Traceback" not in done.err, (changed, verb, done)
        assert not CONTROL.search(done.out + done.err), (changed, verb, done)
    storage = LocalStorage(tmp_path / "lake")
    for act in (_recover, _sweep):
        try:
            act(storage)
        except BridgeError as error:
            assert error.message, changed
    assert everything(tmp_path, tmp_path / "lake") == before, changed


@pytest.mark.parametrize(
    "facts",
    [
        {"run_id": "/tmp/x"},
        {"run_id": "../../x"},
        {"run_id": "nul\0"},
        {"run_id": "\ud800"},
        {"run_id": "20260101T000001Z-aaaa"},
        {"pipeline": "../x"},
        {"pipeline": "\ud800"},
        {"started": "yesterday"},
        {"ended": "\0"},
        {"since": {"run_id": "20260101T000000Z-aaaa", "at": "once", "is_success": True}},
    ],
    ids=repr,
)
def test_a_run_record_that_names_another_run(lake: Path, tmp_path: Path, typed: Typed, facts: dict[str, str]) -> None:
    """`runs show` says so, exit code 3, and prints no file that the record leads to; lists show the run."""
    shutil.copytree(lake, tmp_path / "lake", symlinks=True)
    run = "20260101T000000Z-aaaa"
    path = tmp_path / f"lake/.bridge/shop/runs/{run}.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | facts))
    for verb in ("runs show", "runs show --logs", f"runs show {run}"):
        done = typed(f"{verb} {OPTIONS}")
        assert (done.code, "Traceback" in done.err, "a line" in done.out) == (3, False, False), (verb, done)
        assert ("a run record" in done.err, "delete it" in done.err) == (True, True), verb
    for verb in ("runs list", "status", "sql 'FROM bridge.runs'"):
        done = typed(f"{verb} {OPTIONS} --json")
        rows = json.loads(done.out)
        row = rows[0] if isinstance(rows, list) else rows
        assert (done.code, row["run_id"], row["status"]) == (0, run, "unreadable"), (verb, done)
        assert run in typed(f"{verb} {OPTIONS}").out


@pytest.mark.parametrize(
    "at", ["often", "", "2026-01-01T00:00:00", "2026-01-01", "9999-12-31T23:59:59.9-14:00", "0001-01-01T00:00:00+14:00"]
)
@pytest.mark.parametrize("n", [3, 100])
def test_a_commit_at_no_time(lake: Path, tmp_path: Path, typed: Typed, at: str, n: int) -> None:
    """Each verb that reads the record names it, exit code 3; of a snapshot the times of bookmarks count as well."""
    shutil.copytree(lake, tmp_path / "lake", symlinks=True)
    path = tmp_path / f"lake/.bridge/shop/commits/{n:020d}.json"
    record = json.loads(path.read_bytes())
    path.write_text(json.dumps(record | ({"moved": dict.fromkeys(record["moved"], at)} if n == 100 else {"at": at})))
    if at == "" and n == 100:  # not known
        assert typed(f"status {OPTIONS}").code == 0
        return
    for verb in ("commits show 3", "commits list -n 200") if n == 3 else ("status", "state list", "tables list"):
        done = typed(f"{verb} {OPTIONS}")
        assert (done.code, "Traceback" in done.err) == (3, False), (verb, done)
        assert "a commit record is unreadable" in done.err, (verb, done)
        assert "backup" in done.err, (verb, done)


@pytest.mark.parametrize("since", ["often", "", 3, None, "2026-01-01T00:00:00", {"a": 1}], ids=repr)
def test_a_holder_since_no_time(lake: Path, tmp_path: Path, typed: Typed, since: Any) -> None:
    """Who holds the pipeline is shown without the time."""
    shutil.copytree(lake, tmp_path / "lake", symlinks=True)
    held = {"format": 1, "run": "r", "pid": 7, "host": "h", "nonce": "n", "since": since, "renewed": since, "ttl": 60}
    (tmp_path / "lake/.bridge/shop/lease.json").write_text(json.dumps(held))
    done = typed(f"status {OPTIONS}")
    assert (done.code, "Traceback" in done.err) == (0, False), done


def _recover(storage: LocalStorage) -> None:
    open_committer(storage, "shop", "run", last=DEAD)


def _sweep(storage: LocalStorage) -> None:
    Sweep(storage, "shop", NOW, now=LATER, made=1000).all(Log(storage, "shop").latest())


@pytest.mark.timeout(60)
@pytest.mark.parametrize("number", [HUGE, "Infinity", "NaN", "1" + "0" * 400, '"1"', "true", "1.0"], ids=str)
def test_a_number_that_counts_nothing(lake: Path, tmp_path: Path, typed: Typed, number: str) -> None:
    """Where the log begins, and how far it is: neither memory nor patience is used up."""
    shutil.copytree(lake, tmp_path / "lake", symlinks=True)
    own = tmp_path / "lake/.bridge/shop"
    (own / "begins.json").write_text(f'{{"format": 1, "first": {number}, "swept": 1}}')
    done = typed(f"commits list {OPTIONS}")
    assert (done.code, "where the commit log begins is unreadable" in done.err) == (3, True)
    (own / "begins.json").unlink()
    (own / "published.json").write_text(f'{{"format": 1, "commit": {number}, "digest": "x"}}')
    (own / "lease.json").write_text(f'{{"format": 1, "run": "r", "head": {number}}}')
    done = typed(f"status {OPTIONS}")
    assert done.code == 0, done.err
    assert typed(f"sql {OPTIONS} 'SELECT count(*) FROM bridge.commits'").code == 0


def test_a_file_that_no_commit_wrote() -> None:
    """The log's records contradict each other: that is damage, and no crash."""
    with pytest.raises(CorruptLake, match="a file that no commit wrote"):
        Trail(Snapshot(1)).file("shop/t/part", 3)
