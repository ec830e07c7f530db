"""The commit log: what its records say together, and what is done about records that say nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from bridge.errors import CorruptLake
from bridge.exact_json import dumps
from bridge.lake.commit.open import open_committer
from bridge.lake.commit.retention import Sweep
from bridge.lake.log import Log, Snapshot, bookmarks, storage_changes, undo
from bridge.lake.record_json import commit_bytes
from bridge.lake.records import TableChange, TableState
from bridge.lake.storage.local.storage import LocalStorage
from bridge.settings.options import Retention
from tests.support.records import commit_record, staged_table, table_change
from tests.support.shell import children_seconds


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(LocalStorage(tmp_path), "p")


def entry(name: str, *removes: str, stream: str = "s", mode: str = "append") -> TableChange:
    """What a commit does to one table: adds the file `name`, five rows."""
    add = {"name": name, "source": f".bridge/p/pending/{name}.pending", "size": 9, "rows": 5}
    return table_change([add], removes, stream, schema="c0", mode=mode)


def fill(log: Log, last: int, tables: Callable[[int], list[TableChange]] = lambda n: [entry(f"f{n}")]) -> Snapshot:
    """Write records 1 to `last` as a run would and return the view after them."""
    view = Snapshot()
    for n in range(1, last + 1):
        created, view = log.create(view, commit_record(n, *tables(n)))
        assert created
    return view


def damage(log: Log, n: int, data: bytes | None) -> None:
    """Replace a record's bytes, or delete it."""
    path = Path(log.storage.uri) / log.key(n)
    path.unlink()
    if data is not None:
        path.write_bytes(data)


def test_an_empty_log_has_no_head(log: Log) -> None:
    """A bucket without a log is a lake without tables and without STATE."""
    assert log.head() == 0
    assert log.head(7) == 0
    assert log.snapshot(0) == Snapshot()
    assert log.record(1) is None
    assert list(log.history(0)) == []


@pytest.mark.parametrize("hint", [None, 0, 1, 4, 5, 6, 400])
def test_head(log: Log, hint: int | None) -> None:
    """The head is the last record whatever hint is given: right, too old, too new or none."""
    fill(log, 5)
    assert log.head(hint) == 5


def test_head_ignores_what_is_no_commit_record(log: Log) -> None:
    """A backup copy that somebody left beside the records, or a file half written, is not a record."""
    fill(log, 3)
    folder = Path(log.storage.uri) / ".bridge/p/commits"
    for name in ("00000000000000000009.json.bak", ".0af.tmp", "readme.txt", "7.json"):
        (folder / name).write_bytes(b"x")
    assert log.head() == 3


def test_a_gap_is_never_read_over(log: Log) -> None:
    """With a record missing the STATE cannot be known: the listing still shows the last one, the view refuses."""
    fill(log, 6)
    damage(log, 4, None)
    assert log.head() == 6
    with pytest.raises(CorruptLake, match=r"a commit record is missing file=.*0004\.json") as caught:
        log.snapshot(6)
    assert caught.value.hint
    with pytest.raises(CorruptLake):
        list(log.history(6))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"format": 1, "n": 2, "sta',
        b"[]",
        b"null",
        b'"text"',
        b"{}",
        b'{"format": 1, "n": 2}',
        b'{"format": 1, "n": 3, "state": null}',
        b'{"format": "one", "n": 2, "state": null}',
        b"\xff\xfe",
    ],
)
def test_a_corrupt_record_stops_everything(log: Log, data: bytes) -> None:
    """Nothing is guessed from a record that is torn, empty, of another number or without STATE."""
    fill(log, 3)
    damage(log, 2, data)
    with pytest.raises(CorruptLake, match="unreadable") as caught:
        log.snapshot(3)
    assert "backup" in caught.value.hint


@pytest.mark.parametrize("tables", [[{}], {"s": 1}, [{"stream": "s"}], "s"])
def test_an_incomplete_record_stops_everything(log: Log, tables: object) -> None:
    """A record that does not say what became of its tables is damage, not a traceback."""
    fill(log, 3)
    damage(log, 2, json.dumps(json.loads(commit_bytes(commit_record(2))) | {"tables": tables}).encode())
    with pytest.raises(CorruptLake, match="incomplete") as caught:
        log.snapshot(3)
    assert "backup" in caught.value.hint


def test_a_newer_format_is_refused(log: Log) -> None:
    """A bucket that a newer version wrote is not touched; the operator is told to upgrade."""
    fill(log, 2)
    damage(log, 2, commit_bytes(commit_record(2, format=2)))
    with pytest.raises(CorruptLake, match="newer format") as caught:
        log.snapshot(2)
    assert "upgrade" in caught.value.hint


def test_create_never_replaces(log: Log) -> None:
    """Of two that create the same number one is told that it lost, and the winner's record stands."""
    view = fill(log, 1)
    assert log.create(view, commit_record(2, nonce="winner"))[0] is True
    assert log.create(view, commit_record(2, nonce="loser"))[0] is False
    assert next(log.history(2)).nonce == "winner"


def test_view_follows_adds_and_removes(log: Log) -> None:
    """A table is what its commits added and did not remove; tables that a commit does not name stay."""
    steps = {
        1: [entry("a1"), entry("b1", stream="b")],
        2: [entry("a2")],
        3: [entry("a3", "a1", "a2", mode="replace")],
        4: [],
    }
    assert fill(log, 4, lambda n: steps[n]) == log.snapshot(4)
    assert {s: list(t.files) for s, t in log.snapshot(2).tables.items()} == {"s": ["a1", "a2"], "b": ["b1"]}
    assert {s: list(t.files) for s, t in log.snapshot(4).tables.items()} == {"s": ["a3"], "b": ["b1"]}
    assert (log.snapshot(2).tables["s"].rows, log.snapshot(4).state) == (10, {"n": 4})


def at(n: int) -> str:
    return f"2026-01-01T00:00:00.{n:06}+00:00"


def test_view_knows_when_bookmarks_moved(log: Log) -> None:
    """Each stream's bookmark has the time of the commit that last changed it, across snapshots too."""
    states = {1: {"a": 1, "b": 1}, 2: {"a": 2, "b": 1}, 3: {"a": 2, "b": 1, "c": {}}, 150: {"a": 2, "c": {}}, 151: {}}
    view, said = Snapshot(), {}
    for n in range(1, 152):
        said = states.get(n, said)
        view = log.create(view, commit_record(n, at=at(n), state={"bookmarks": said}))[1]
        assert n not in (*states, 100, 101) or log.snapshot(n) == view
    moved = {n: log.snapshot(n).bookmark_changed_at for n in (1, 2, 100, 149, 150, 151)}
    assert moved[1] == {"a": at(1), "b": at(1)}
    assert moved[2] == {"a": at(2), "b": at(1)}
    assert moved[100] == moved[149] == {"a": at(2), "b": at(1), "c": at(3)}
    assert (moved[150], moved[151]) == ({"a": at(2), "c": at(3)}, {})


@pytest.mark.parametrize(
    ("state", "found"),
    [
        (None, {}),
        ("x", {}),
        ([1], {}),
        ({}, {}),
        ({"bookmarks": {"a": 1}, "currently_syncing": "a"}, {"a": 1}),
        ({"bookmarks": None, "a": 1}, {"bookmarks": None, "a": 1}),
        ({"a": {"b": 1}, "currently_syncing": "a"}, {"a": {"b": 1}}),
    ],
)
def test_bookmarks_of_any_state(state: Any, found: dict[str, Any]) -> None:
    """A STATE is the tap's own: whatever it is, it has some bookmarks or none."""
    assert bookmarks(state) == found


def test_latest_survives_any_lease(log: Log) -> None:
    """A lease that is missing, torn, from elsewhere or from long ago costs a listing, never a wrong answer."""
    fill(log, 5)
    for lease in (None, b"", b"{", b"[]", b'{"head": null}', b'{"head": "3"}', b'{"head": 2}', b'{"head": 900}'):
        if lease is not None:
            log.storage.write(".bridge/p/lease.json", lease)
        assert log.latest() == 5


def test_staged_files_are_the_last_records(log: Log) -> None:
    """Staged files live exactly as long as each record names them again."""
    stage = {
        "t": staged_table(3, {"name": "x", "source": ".bridge/p/pending/x.pending", "size": 1, "rows": 1}, stream="t")
    }
    view = log.create(Snapshot(), commit_record(1, staged=stage))[1]
    assert log.snapshot(1).staged == view.staged == stage
    log.create(view, commit_record(2, staged={}))
    assert log.snapshot(2).staged == {}


def test_snapshot_equals_the_fold(log: Log) -> None:
    """However far back the history goes, the view read from a snapshot is the view folded from the first record."""
    fill(log, 205, lambda n: [entry(f"f{n}", *([f"f{n - 3}"] if n > 3 else [])), entry(f"g{n}", stream=f"s{n % 7}")])
    folded = Snapshot()
    for n in range(1, 206):
        folded = folded.after(next(log.history(n)))
        if n in (99, 100, 101, 199, 200, 205):
            assert log.snapshot(n) == folded
    assert [next(log.history(n)).snapshot is not None for n in (99, 100, 101, 200)] == [False, True, False, True]


def test_a_long_log_opens_quickly(log: Log) -> None:
    """Opening a log of 1,000 records reads less than a hundred of them, and none that is older than the snapshot."""
    fill(log, 1000)
    damage(log, 500, b"nobody reads this")
    began = time.process_time()
    assert len(log.snapshot(log.head()).tables["s"].files) == 1000
    assert len(log.snapshot(log.head(1000)).tables["s"].files) == 1000
    assert time.process_time() - began < 2


class Counting(LocalStorage):
    """A bucket that keeps a note of each call."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.calls: list[str] = []

    def read(self, key: str) -> bytes | None:
        self.calls.append(f"read {key}")
        return super().read(key)

    def size(self, key: str) -> int | None:
        self.calls.append(f"size {key}")
        return super().size(key)

    def list(self, prefix: str) -> Iterator[str]:
        self.calls.append(f"list {prefix}")
        return super().list(prefix)

    def spent(self) -> int:
        """The number of calls since the last time; none of them has listed the log."""
        assert "list .bridge/p/commits" not in self.calls
        number, self.calls = len(self.calls), []
        return number


def test_what_a_long_log_costs(log: Log, tmp_path: Path) -> None:
    """In a log of 2,000 records reading the present and opening a run look at the last hundred, and list nothing."""
    replaced = fill(log, 1999, lambda n: [entry(f"f{n}", *([f"f{n - 1}"] if n > 1 else []))])
    storage = Counting(tmp_path)
    counted = Log(storage, "p")
    storage.write(".bridge/p/lease.json", b'{"format": 1, "head": 1950, "closed": null}')
    storage.write(".bridge/p/state.json", dumps(replaced.state))
    assert counted.latest() == 1999
    assert storage.spent() <= 1 + 51, "the lease, and each record since"
    assert counted.snapshot(1999) == replaced
    assert storage.spent() == 100
    assert open_committer(storage, "p", "run", last={"head": 1999, "closed": 1999}).snapshot == replaced
    assert storage.spent() <= 2 + 100 + 5, "`state.json` and `published.json` are looked at, and the second is noted"
    old = datetime.now(timezone.utc) + timedelta(days=1)
    Sweep(storage, "p", Retention(), now=old, snapshot=replaced).all(1999)
    assert storage.spent() <= 10
    assert counted.head(1200) == 1999, "far behind: a listing is cheaper than a step for each record"
    assert len([call for call in storage.calls if call.startswith("size")]) <= 103


def test_a_row_of_fences_is_one_step(log: Log, tmp_path: Path) -> None:
    """A pipeline that fails a thousand times in a row opens as quickly as ever: each fence knows what was before."""
    storage = Counting(tmp_path)
    open_committer(storage, "p", "run", last={}).set_state({"n": 1}, "test")
    for _ in range(50):
        open_committer(storage, "p", "run", last={"head": None, "closed": None})
    storage.calls.clear()
    open_committer(storage, "p", "run", last={"head": None, "closed": None})
    records = [call for call in storage.calls if call.startswith("read .bridge/p/commits")]
    assert len(records) == 51 + 2, "the view's, and two steps to the last change"
    assert [record.kind for record in log.history(52, fences=False)] == ["state"]
    assert len(list(log.history(52))) == 52


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_hundred_thousand_commits(log: Log, tmp_path: Path) -> None:
    """With 100,000 records `state get` and `status` answer at once, and `run` starts as it does with none."""
    fill(log, 100_000, lambda n: [entry(f"f{n}", *([f"f{n - 1}"] if n > 1 else []))])
    lease = b'{"format": 1, "run": "r", "head": 100000, "closed": 100000}'
    log.storage.write(".bridge/p/lease.json", lease)
    log.storage.write(".bridge/p/state.json", b'{"n": 100000}')
    log.storage.write("p/s/f100000", b"123456789")  # the one file that the table still has
    for lake, seconds in (("empty", 0.0), (str(tmp_path), 1.0)):
        for words in (["run", "--tap", "true"], ["run", "--tap", "true"], ["status"], ["state", "get"]):
            command = [sys.executable, "-m", "bridge", *words, "--to", lake, "--name", "p"]
            with children_seconds() as taken:
                done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
            print(f"{lake} {' '.join(words)}: {taken():.2f} s")
            assert done.returncode == (2 if lake == "empty" and words[0] == "state" else 0), done.stderr
            assert not seconds or taken() < 1.5 + seconds, words
    began = time.monotonic()
    assert log.head() == 100_000
    print(f"listing: {time.monotonic() - began:.3f} s")


def test_changes_name_every_file_by_its_place(log: Log) -> None:
    """A commit's changes say where each file comes from and where a removed one is kept, apart for each commit."""
    (change,) = storage_changes("p", commit_record(7, entry("new", "old", mode="replace")))
    assert (change.folder, change.replace) == ("p/s", True)
    assert [(add.source, add.key, add.size) for add in change.adds] == [(".bridge/p/pending/new.pending", "p/s/new", 9)]
    assert [(remove.key, remove.trash) for remove in change.removes] == [
        ("p/s/old", ".bridge/p/trash/00000000000000000007/p/s/old.removed")
    ]
    assert storage_changes("p", commit_record(8, kind="fence")) == []


def test_undo_takes_a_record_back(log: Log) -> None:
    """Followed by its undo a commit changes nothing: the tables have the files and the schema they had before."""
    before = fill(log, 2)
    third = commit_record(3, entry("f3", "f1", "f2", mode="replace"), entry("t1", stream="t"))
    after = before.after(third)
    back = after.after(commit_record(4, *undo("p", third, before), kind="void"))
    assert back.tables["s"] == before.tables["s"]
    assert back.tables["t"] == TableState("p/t", None, {})
    versioned = after.after(commit_record(4, structs.replace(entry("v", mode="replace"), version=7)))
    taken_back = undo("p", commit_record(5, structs.replace(entry("w", mode="replace"), version=8)), versioned)
    assert versioned.after(commit_record(6, *taken_back, kind="void")).tables["s"].version == 7
    sources = [add.source for add in undo("p", third, before)[0].adds]
    assert sources == [remove.trash for remove in storage_changes("p", third)[0].removes]
