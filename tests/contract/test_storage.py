"""What every backend promises to the commit protocol, whatever else runs, dies or fails at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bridge.errors import CorruptLake, LakeError, SettingsError
from bridge.lake.storage import Add, Change, Missing, Remove, Storage, open_storage
from bridge.lake.storage.protocol import Swap

from .lakes import AFTER, CHANGES, PENDING, TRASH, pend, replacing, table, tree, waiting

EVERY_KIND = pytest.mark.parametrize("storage", ["local", "s3", "s3 uploads"], indirect=True)


def test_what_is_not_there(storage: Storage) -> None:
    """A bucket that does not exist yet is empty, not an error; deleting nothing is done already."""
    assert (storage.read("a/b"), storage.size("a/b"), list(storage.list("a"))) == (None, None, [])
    storage.delete("a/b")
    storage.publish([])


def test_write_read_list_delete(storage: Storage) -> None:
    """What was written is read back whole, listed by its name, replaced by the next write, and gone when deleted."""
    for data in (b"", b"one", b"\x00" * 100_000):
        storage.write("a/b/c.json", data)
        assert (storage.read("a/b/c.json"), storage.size("a/b/c.json")) == (data, len(data))
    storage.write("a/d", b"")
    assert (set(storage.list("a")), set(storage.list("a/b"))) == ({"b", "d"}, {"c.json"})
    storage.delete("a/b/c.json")
    assert (storage.read("a/b/c.json"), list(storage.list("a/b"))) == (None, [])


@pytest.mark.parametrize("key", ["../victim", "a/../../victim", "/victim", "a/..", "a\0"])
def test_a_key_that_leads_out(storage: Storage, key: str) -> None:
    """Whatever somebody else wrote into the bucket, a key that is a path out of it is refused, and nothing changes."""
    storage.write("a/b", b"x")
    before = tree(storage)
    acts: list[Callable[[], object]] = [
        lambda: storage.read(key),
        lambda: storage.size(key),
        lambda: storage.open(key),
        lambda: storage.write(key, b"y"),
        lambda: storage.put_if_absent(key, b"y"),
        lambda: storage.delete(key),
        lambda: storage.abort(Add(key, "a/b", 1)),
        lambda: storage.publish([Change("a", removes=(Remove(key, "trash/b"),))]),
        lambda: storage.publish([Change("a", aborts=(Add(key, "a/b", 1),))]),
    ]
    for act in acts:
        with pytest.raises(CorruptLake, match="leads out of the bucket"):
            act()
    assert tree(storage) == before


def test_put_if_absent_changes_nothing_the_second_time(storage: Storage) -> None:
    """The first put wins for good; a second one says so and leaves no trace."""
    assert storage.put_if_absent("a/1", b"first") is True
    before = tree(storage)
    assert storage.put_if_absent("a/1", b"second") is False
    assert tree(storage) == before == {"a/1": b"first"}


_RACE = """
import sys
from bridge.lake.storage import open_storage
storage, me = open_storage(sys.argv[1]), sys.argv[2].encode()
print("ready", flush=True)
sys.stdin.readline()
for key in range(int(sys.argv[3])):
    print(int(storage.put_if_absent(f"race/{key}", me * 50_000)), flush=True)
"""


def test_put_if_absent_among_processes(storage: Storage) -> None:
    """Of eight processes that put the same key exactly one is told it won, and nobody ever reads a part of it."""
    keys = 40 if storage.folder else 10
    processes = [_python(_RACE, storage.uri, str(number), str(keys)) for number in range(8)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    while any(process.poll() is None for process in processes):
        for key in storage.list("race"):
            data = storage.read(f"race/{key}")
            assert data is not None
            assert data == data[:1] * 50_000
    won = [[int(line) for line in process.communicate()[0].split()] for process in processes]
    assert [sum(wins) for wins in zip(*won, strict=True)] == [1] * keys
    winners = [next(number for number, wins in enumerate(won) if wins[key]) for key in range(keys)]
    assert [storage.read(f"race/{key}") for key in range(keys)] == [str(n).encode() * 50_000 for n in winners]
    assert {name for name in tree(storage) if not name.startswith("race/")} == set()


def _python(script: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_write_is_atomic_under_a_reader(storage: Storage) -> None:
    """A reader sees the old bytes or the new ones while a key is replaced, never a part and never nothing."""
    storage.write("k", b"0" * 200_000)
    writer = threading.Thread(
        target=lambda: [storage.write("k", b"%d" % (n % 10) * 200_000) for n in range(100 if storage.folder else 20)]
    )
    writer.start()
    seen = set()
    while writer.is_alive():
        data = storage.read("k")
        assert data is not None
        assert data == data[:1] * 200_000
        seen.add(data[:1])
    assert storage.read("k") == b"9" * 200_000


@EVERY_KIND
def test_pending_file_is_invisible_until_published(storage: Storage) -> None:
    """A pending file is durable and in no table; publishing moves it there and nowhere else."""
    adds = pend(storage, "a.parquet")
    assert (table(storage), list(storage.missing_pending(adds)), len(waiting(storage))) == (set(), [], 1)
    storage.publish([Change("t", adds)])
    assert (table(storage), storage.read("t/a.parquet")) == ({"a.parquet"}, b"a.parquet")
    assert (waiting(storage), list(storage.missing_pending(adds))) == (set(), list(adds))


@EVERY_KIND
def test_missing_is_raised_before_anything_is_touched(storage: Storage) -> None:
    """If any file of any table is neither pending nor visible nothing is published at all, and each one is named."""
    good = Change("good", pend(storage, "g", folder="good"))
    bad = replacing(storage, 1, ("x", "y", "z"), ())
    for add in (bad.adds[0], bad.adds[2]):
        storage.abort(add)
    before = tree(storage)
    with pytest.raises(Missing) as caught:
        storage.publish([good, bad])
    assert (caught.value.keys, tree(storage)) == (["t/x", "t/z"], before)


@EVERY_KIND
def test_large_and_small_pending_files(storage: Storage) -> None:
    """What was written in whatever pieces, also more than one part of an upload, is what becomes visible."""
    block = os.urandom(1_000_003)
    for name, count in (("empty", 0), ("small", 3), ("large", 36)):
        with closing(storage.open_pending(f"{PENDING}/{name}", f"t/{name}")) as file:
            for _ in range(count):
                assert file.write(block) == len(block)
            assert file.tell() == count * len(block)
        file.close()
        add = Add(f"{PENDING}/{name}", f"t/{name}", count * len(block), file.upload)
        assert (storage.missing_pending([add]), storage.size(f"t/{name}")) == ([], None)
        storage.publish([Change("t", (add,))])
        assert storage.read(f"t/{name}") == count * block


def test_parquet_written_and_read_in_place(storage: Storage) -> None:
    """Arrow writes to a pending file as to any other, and reads back single columns of the visible one."""
    rows = pa.table({"id": range(50_000), "name": [f"name {n}" for n in range(50_000)]})
    with closing(storage.open_pending(f"{PENDING}/f", "t/f.parquet")) as file:
        with pq.ParquetWriter(file, rows.schema) as writer:
            for start in range(0, 50_000, 10_000):
                writer.write_table(rows.slice(start, 10_000))
        size = file.tell()
    storage.publish([Change("t", (Add(f"{PENDING}/f", "t/f.parquet", size, file.upload),))])
    with storage.open("t/f.parquet") as visible:
        parquet = pq.ParquetFile(visible)
        assert parquet.read_row_group(3, ["name"]) == rows.slice(30_000, 10_000).select(["name"])
        assert parquet.read() == rows


def test_open_reads_here_and_there(storage: Storage) -> None:
    """An open object can be read from any place to any other; one that is not there is an error of the lake."""
    data = os.urandom(3 * 1024**2)
    storage.write("k", data)
    with storage.open("k") as file:
        for start, count in ((0, 10), (2_999_999, 100_000), (5, 2_000_000), (3 * 1024**2, 1), (1_048_570, 20)):
            file.seek(start)
            assert file.read(count) == data[start : start + count]
        assert file.seek(-4, os.SEEK_END) == len(data) - 4
        assert (file.read(), file.read()) == (data[-4:], b"")
    with pytest.raises(LakeError) as caught:
        storage.open("none")
    assert caught.value.hint


@EVERY_KIND
@pytest.mark.parametrize("name", CHANGES)
def test_publish_can_be_repeated(storage: Storage, name: str) -> None:
    """After the second publishing of the same change everything is as after the first."""
    storage.publish([Change("t", pend(storage, "o1", "o2"))])
    changes = CHANGES[name](storage)
    storage.publish(changes)
    once = tree(storage)
    storage.publish(changes)
    assert tree(storage) == once
    assert (table(storage), waiting(storage)) == (AFTER[name], set())
    assert {key.rpartition("/")[2] for key in once if key.startswith(TRASH)} == {
        f"{old}.removed" for old in {"o1", "o2"} - AFTER[name]
    }


@EVERY_KIND
def test_lost_and_aborted_files(storage: Storage) -> None:
    """A pending file is lost when it is gone or not whole; an aborted one is gone for good, however often it is."""
    whole, short, gone = pend(storage, "whole", "short", "gone")
    short = Add(short.source, short.key, short.size + 1, short.upload)
    assert waiting(storage) == {add.key if add.upload else add.source for add in (whole, short, gone)}
    for _ in range(2):
        storage.abort(gone)
    assert list(storage.missing_pending([whole, short, gone])) == [short, gone]
    with pytest.raises(Missing) as caught:
        storage.publish([Change("t", (whole, gone))])
    assert (caught.value.keys, table(storage)) == (["t/gone"], set())
    for add in storage.pending(PENDING):
        storage.abort(add)
    assert (waiting(storage), list(storage.missing_pending([whole]))) == (set(), [whole])


@EVERY_KIND
def test_aborts_come_with_the_change(storage: Storage) -> None:
    """What a change aborts nobody can publish any more, also if it was there to the last moment."""
    slow = pend(storage, "n1", "n2")
    storage.publish([Change("t", pend(storage, "o1"), aborts=slow)])
    with pytest.raises(Missing):
        storage.publish([Change("t", slow)])
    assert (table(storage), waiting(storage)) == ({"o1"}, set())


def test_swap(storage: Storage) -> None:
    """A swap needs the version that is there, changes nothing otherwise, and gives the one that is there then."""
    assert storage.read_versioned("k") is None
    assert storage.compare_and_swap("k", b"zero", "0" * 32) is None
    first = storage.compare_and_swap("k", b"one", None)
    assert first is not None
    assert storage.compare_and_swap("k", b"two", None) is None
    second = storage.compare_and_swap("k", b"two", first)
    assert second not in (None, first)
    assert storage.compare_and_swap("k", b"three", first) is None
    there = storage.read_versioned("k")
    assert there is not None
    assert (there.data, there.etag) == (b"two", second)


def test_many_at_once(storage: Storage) -> None:
    """Of many swaps each is judged by itself, and of many writes each replaces what is there."""
    first = storage.compare_and_swap("m/changed", b"one", None)
    storage.write("m/changed", b"two")
    seen = storage.compare_and_swap("m/seen", b"one", None)
    swaps = [Swap("m/changed", b"three", first), Swap("m/seen", b"two", seen), Swap("m/seen-late", b"x", seen)]
    swaps += [Swap(f"m/{number}/new", b"new", None) for number in range(100)]
    changed, swapped, absent, *new = storage.swap_all(swaps)
    assert (changed, absent) == (None, None)
    assert {key: storage.read(f"m/{key}") for key in ("changed", "seen", "seen-late")} == {
        "changed": b"two",
        "seen": b"two",
        "seen-late": None,
    }
    stored = storage.read_versioned("m/seen")
    assert stored is not None and stored.etag == swapped
    assert new == [getattr(storage.read_versioned(f"m/{number}/new"), "etag", None) for number in range(100)]
    storage.write_all({f"m/{number}/new": b"%d" % number for number in range(100)})
    assert [storage.read(f"m/{number}/new") for number in range(100)] == [b"%d" % number for number in range(100)]
    assert storage.swap_all([]) == []
    storage.write_all({})


_COUNT = """
import sys
from bridge.lake.storage import open_storage
storage = open_storage(sys.argv[1])
for turn in range(8):
    while True:
        there = storage.read_versioned("counter")
        lines = there.data if there else b""
        mine = lines + f"{sys.argv[2]}-{turn}\\n".encode()
        if storage.compare_and_swap("counter", mine, there.etag if there else None):
            break
"""


def test_swap_among_processes(storage: Storage) -> None:
    """Four processes that count in one object by swaps lose no count."""
    processes = [_python(_COUNT, storage.uri, str(number)) for number in range(4)]
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    lines = (storage.read("counter") or b"").decode().split()
    assert sorted(lines) == sorted(f"{number}-{turn}" for number in range(4) for turn in range(8))


def test_prepare(storage: Storage) -> None:
    """A bucket is made a lake once, and stays the same one."""
    storage.prepare()
    once = tree(storage)
    storage.prepare()
    assert tree(storage) == once
    assert list(once) == [".bridge/lake.json"]


def test_other_buckets_are_refused() -> None:
    """A bucket of a kind that there is no backend for is refused by name; `file://` is a folder."""
    with pytest.raises(SettingsError, match="ftp://lake") as caught:
        open_storage("ftp://lake")
    assert caught.value.hint
    assert open_storage("file:///lake").uri == open_storage("/lake").uri == "/lake"
    assert open_storage("s3://lake/team/").uri == "s3://lake/team"
