"""What the local backend promises beyond the contract: power cuts, exchanged folders, a death at each system call."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.lake.log import Snapshot, storage_changes, undo
from bridge.lake.storage import Change
from bridge.lake.storage.local.storage import LocalStorage
from bridge.lake.storage.parallel import MANY, on_disk
from bridge.lake.storage.protocol import Swap
from tests.support.records import commit_record

from .crashing import crashing
from .lakes import AFTER, CHANGES, PENDING, TRASH, pend, record, replacing, table, tree

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="renameat2 and /proc are Linux's")


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("name", CHANGES)
def test_publish_goes_on_where_it_died(
    tmp_path: Path, name: str, exchange: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Publishing dies anywhere and is repeated, and repeated once more: the same files, and no mix on the way."""
    if not exchange:
        monkeypatch.setattr("bridge.lake.storage.local.publish.exchange", lambda one, other: False)
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
    """Wherever a swap died, its undo brings the old files back and leaves no new one for any reader to find."""
    if not exchange:
        monkeypatch.setattr("bridge.lake.storage.local.publish.exchange", lambda one, other: False)
    step, crashed = 0, True
    while crashed:
        storage = LocalStorage(tmp_path / str(step))
        old = record(1, pend(storage, "o1.parquet", "o2.parquet"), [])
        storage.publish(storage_changes("p", old))
        before = Snapshot().after(old)
        half = record(2, pend(storage, "n1.parquet", "n2.parquet"), ["o1.parquet", "o2.parquet"])
        with crashing(storage.root, step) as faults:
            storage.publish(storage_changes("p", half))
        crashed = faults.crashed
        back = commit_record(3, *undo("p", half, before), kind="void")
        for _ in range(2):
            storage.publish(storage_changes("p", back))
            assert table(storage) == {"o1.parquet", "o2.parquet"}
            assert not [path for path in tree(storage) if path.startswith(".bridge") and path.endswith(".parquet")]
        step += 1
    assert step > 5


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
        (lambda s: s.compare_and_swap("a/k", b"x", None), ["fsync .tmp", "os.rename k", "fsync a"]),
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


def test_many_tables_at_once(tmp_path: Path) -> None:
    """Threads wait for the disk together; every file is published and every manifest swapped, none of them twice."""
    storage, names = LocalStorage(tmp_path), [f"t{number}" for number in range(2 * MANY)]
    storage.publish([Change(name, pend(storage, f"{name}.parquet", folder=name)) for name in names])
    assert all((tmp_path / name / f"{name}.parquet").exists() for name in names)
    swapped = storage.swap_all([Swap(f"m/{name}", name.encode(), None) for name in names])
    assert None not in swapped
    assert {storage.read(f"m/{name}") for name in names} == {name.encode() for name in names}
    winners = on_disk(lambda name: storage.compare_and_swap("m/one", name.encode(), None), names)
    assert sum(etag is not None for etag in winners) == 1
    # The same bytes from many: each has written what stands there.
    assert None not in on_disk(
        lambda number: storage.compare_and_swap(f"m/{number // MANY}", b"x", None), range(4 * MANY)
    )
    assert not list(tmp_path.rglob(".*.tmp"))
