"""What every backend promises to the commit protocol, whatever else runs, dies or fails at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from bridge.errors import NotAvailable
from bridge.log import View, changes_of, inverse
from bridge.storage import Add, Change, Missing, Remove, Storage, open_storage
from bridge.storage.local import LocalStorage
from tests.crash.faults import crashing

BACKENDS: dict[str, Callable[[Path], Storage]] = {"local": LocalStorage}

PENDING, TRASH = ".bridge/p/pending", ".bridge/p/trash"


LINUX = pytest.mark.skipif(sys.platform != "linux", reason="renameat2 and /proc are Linux's")


@pytest.fixture(params=BACKENDS)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return BACKENDS[request.param](tmp_path / "bucket")


def pend(storage: Storage, *names: str) -> tuple[Add, ...]:
    """Write pending files and return how to publish them into the table `t`."""
    for name in names:
        with closing(storage.open_pending(f"{PENDING}/{name}.pending")) as file:
            file.write(name.encode())
    return tuple(Add(f"{PENDING}/{name}.pending", f"t/{name}", len(name)) for name in names)


def replacing(storage: Storage, number: int, new: tuple[str, ...], old: tuple[str, ...]) -> Change:
    """The change by which commit `number` replaces the table's files."""
    trash = f"{TRASH}/{number}/t"
    removes = tuple(Remove(f"t/{name}", f"{trash}/{name}.removed") for name in old)
    return Change("t", pend(storage, *new), removes, replace=True, trash=trash)


def table(storage: Storage) -> set[str]:
    return set(storage.list("t"))


def tree(storage: Storage) -> dict[str, bytes]:
    root = Path(storage.uri)
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


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


def test_put_if_absent_changes_nothing_the_second_time(storage: Storage) -> None:
    """The first put wins for good; a second one says so and leaves no trace."""
    assert storage.put_if_absent("a/1", b"first") is True
    before = tree(storage)
    assert storage.put_if_absent("a/1", b"second") is False
    assert tree(storage) == before == {"a/1": b"first"}


_RACE = """
import sys
from bridge.storage import open_storage
storage, me = open_storage(sys.argv[1]), sys.argv[2].encode()
print("ready", flush=True)
sys.stdin.readline()
for key in range(40):
    print(int(storage.put_if_absent(f"race/{key}", me * 50_000)), flush=True)
"""


def test_put_if_absent_among_processes(storage: Storage) -> None:
    """Of eight processes that put the same key exactly one is told it won, and nobody ever reads a part of it."""
    processes = [_python(_RACE, storage.uri, str(number)) for number in range(8)]
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
    assert [sum(wins) for wins in zip(*won, strict=True)] == [1] * 40
    winners = [next(number for number, wins in enumerate(won) if wins[key]) for key in range(40)]
    assert [storage.read(f"race/{key}") for key in range(40)] == [str(n).encode() * 50_000 for n in winners]
    assert {name for name in tree(storage) if not name.startswith("race/")} == set()


def _python(script: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_write_is_atomic_under_a_reader(storage: Storage) -> None:
    """A reader sees the old bytes or the new ones while a key is replaced, never a part and never nothing."""
    storage.write("k", b"0" * 200_000)
    writer = threading.Thread(target=lambda: [storage.write("k", b"%d" % (n % 10) * 200_000) for n in range(100)])
    writer.start()
    seen = set()
    while writer.is_alive():
        data = storage.read("k")
        assert data is not None
        assert data == data[:1] * 200_000
        seen.add(data[:1])
    assert storage.read("k") == b"9" * 200_000


def test_pending_file_is_invisible_until_published(storage: Storage) -> None:
    """A pending file is durable and in no table; publishing moves it there and nowhere else."""
    adds = pend(storage, "a.parquet")
    assert (table(storage), storage.size(adds[0].source)) == (set(), 9)
    storage.publish([Change("t", adds)])
    assert (table(storage), storage.read("t/a.parquet"), storage.size(adds[0].source)) == (
        {"a.parquet"},
        b"a.parquet",
        None,
    )


def test_missing_is_raised_before_anything_is_touched(storage: Storage) -> None:
    """If any file of any table is neither pending nor visible nothing is published at all, and each one is named."""
    good = Change("good", tuple(Add(add.source, f"good/{n}", add.size) for n, add in enumerate(pend(storage, "g"))))
    bad = replacing(storage, 1, ("x", "y", "z"), ())
    for name in ("x", "z"):
        storage.delete(f"{PENDING}/{name}.pending")
    before = tree(storage)
    with pytest.raises(Missing) as caught:
        storage.publish([good, bad])
    assert (caught.value.keys, tree(storage)) == (["t/x", "t/z"], before)


CHANGES: dict[str, Callable[[Storage], list[Change]]] = {
    "append": lambda s: [Change("t", pend(s, "n1", "n2"))],
    "append and remove": lambda s: [
        Change(
            "t", pend(s, "n1"), (Remove("t/o1", f"{TRASH}/1/t/o1.removed"), Remove("t/o2", f"{TRASH}/1/t/o2.removed"))
        )
    ],
    "replace": lambda s: [replacing(s, 1, ("n1", "n2"), ("o1", "o2"))],
    "replace by nothing": lambda s: [replacing(s, 1, (), ("o1", "o2"))],
    "two tables": lambda s: [
        replacing(s, 1, ("n1", "n2"), ("o1", "o2")),
        Change("u", tuple(Add(add.source, "u/n3", add.size) for add in pend(s, "n3"))),
    ],
}

AFTER = {
    "append": {"o1", "o2", "n1", "n2"},
    "append and remove": {"n1"},
    "replace": {"n1", "n2"},
    "replace by nothing": set(),
    "two tables": {"n1", "n2"},
}


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("name", CHANGES)
def test_publish_goes_on_where_it_died(
    tmp_path: Path, name: str, exchange: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Publishing dies anywhere and is repeated, and repeated once more: the same files, and no mix on the way."""
    if not exchange:
        monkeypatch.setattr("bridge.storage.local._exchange", lambda one, other: False)
    step, crashed = 0, True
    while crashed:
        storage = LocalStorage(tmp_path / str(step))
        storage.publish([Change("t", pend(storage, "o1", "o2"))])
        changes = CHANGES[name](storage)
        with crashing(storage.root, step) as faults:
            storage.publish(changes)
        crashed = faults.crashed
        if changes[0].replace and changes[0].adds:
            assert table(storage) in ({"o1", "o2"}, AFTER[name], *([] if exchange else [set()]))
        for _ in range(2):
            storage.publish(changes)
            assert table(storage) == AFTER[name]
            assert {path: data for path, data in tree(storage).items() if path.startswith(PENDING)} == {}
            kept = {Path(path).name for path in tree(storage) if path.startswith(TRASH)}
            assert kept == {f"{old}.removed" for old in {"o1", "o2"} - AFTER[name]}
        step += 1
    assert step > 2


@pytest.mark.parametrize("exchange", [True, False])
def test_taking_back_what_died_half_published(tmp_path: Path, exchange: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a swap died, its inverse brings the old files back and leaves no new one for any reader to find."""
    if not exchange:
        monkeypatch.setattr("bridge.storage.local._exchange", lambda one, other: False)
    before = View().after(_record(1, ["o1.parquet", "o2.parquet"], []))
    step, crashed = 0, True
    while crashed:
        storage = LocalStorage(tmp_path / str(step))
        pend(storage, "o1.parquet", "o2.parquet", "n1.parquet", "n2.parquet")
        storage.publish(changes_of("p", _record(1, ["o1.parquet", "o2.parquet"], [])))
        record = _record(2, ["n1.parquet", "n2.parquet"], ["o1.parquet", "o2.parquet"])
        with crashing(storage.root, step) as faults:
            storage.publish(changes_of("p", record))
        crashed = faults.crashed
        back = {"n": 3, "tables": inverse("p", record, before)}
        for _ in range(2):
            storage.publish(changes_of("p", back))
            assert table(storage) == {"o1.parquet", "o2.parquet"}
            assert not [path for path in tree(storage) if path.startswith(".bridge") and path.endswith(".parquet")]
        step += 1
    assert step > 5


def _record(n: int, adds: list[str], removes: list[str]) -> dict[str, object]:
    files = [{"name": name, "source": f"{PENDING}/{name}.pending", "size": 10, "rows": 1} for name in adds]
    mode = "replace" if removes else "append"
    entry = {"stream": "t", "folder": "t", "schema": None, "mode": mode, "adds": files, "removes": removes}
    return {"n": n, "state": None, "tables": [entry]}


@LINUX
def test_swap_never_shows_a_mix(tmp_path: Path) -> None:
    """Readers that list a table while it is replaced again and again see one generation or the next, whole."""
    storage = LocalStorage(tmp_path)
    generations = [tuple(f"{number}-{part}" for part in range(8)) for number in range(60)]
    storage.publish([Change("t", pend(storage, *generations[0]))])
    looks, done = [0, 0], threading.Event()
    mixed: list[list[str]] = []

    def look(reader: int) -> None:
        while not done.is_set():
            names = os.listdir(tmp_path / "t")
            looks[reader] += 1
            if len({name.split("-")[0] for name in names}) != 1 or len(names) != 8:
                mixed.append(names)

    readers = [threading.Thread(target=look, args=(number,)) for number in range(2)]
    for reader in readers:
        reader.start()
    for number in range(1, len(generations)):
        storage.publish([replacing(storage, number, generations[number], generations[number - 1])])
    done.set()
    for reader in readers:
        reader.join()
    assert mixed == []
    assert min(looks) > 20


@LINUX
@pytest.mark.parametrize(
    ("act", "order"),
    [
        (lambda s: s.put_if_absent("a/k", b"x"), ["fsync .tmp", "os.link k", "fsync a"]),
        (lambda s: s.write("a/k", b"x"), ["fsync .tmp", "os.rename k", "fsync a"]),
        (lambda s: pend(s, "f"), ["fsync f.pending", "fsync pending"]),
        (lambda s: s.publish([Change("t", pend(s, "f"))]), ["fsync f.pending", "os.rename f", "fsync t"]),
    ],
)
def test_survives_a_power_cut(
    tmp_path: Path,
    act: Callable[[LocalStorage], object],
    order: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bytes are on the disk before their name is, and the name before anybody is told: in this order, each time."""
    real = os.fsync
    with crashing(tmp_path) as faults:

        def fsync(fd: int) -> None:
            faults.steps.append(f"fsync {os.readlink(f'/proc/self/fd/{fd}')}")
            real(fd)

        monkeypatch.setattr("os.fsync", fsync)
        act(LocalStorage(tmp_path))
    steps = [f"{step.split()[0]} {Path(step).name if '.tmp' not in step else '.tmp'}" for step in faults.steps]
    positions = [steps.index(wanted) for wanted in order]
    assert positions == sorted(positions), steps


def test_other_buckets_are_refused_for_now() -> None:
    """A bucket that is not a folder is refused by name, with what to use instead; `file://` is a folder."""
    with pytest.raises(NotAvailable, match="s3://lake") as caught:
        open_storage("s3://lake")
    assert caught.value.hint
    assert open_storage("file:///lake").uri == open_storage("/lake").uri == "/lake"
