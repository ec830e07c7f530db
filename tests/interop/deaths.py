"""Publishing in an object store dies at every call, its answers are lost, and its writers sleep while others go on.

Import the tests where a fixture `lakes` makes new, empty lakes of a store. The calls are those of `ObjectStore`.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable
from types import MethodType
from typing import Any

import pytest

from bridge.errors import LakeError
from bridge.lake.log import storage_changes
from bridge.lake.records import CommitRecord
from bridge.lake.storage import Change, Missing
from bridge.lake.storage.objects import ObjectStorage
from bridge.lake.storage.objects.copying import CopyingStore
from tests.contract.lakes import AFTER, CHANGES, TRASH, kept, pend, rewriting, table, tree, waiting
from tests.contract.test_rewrite import (
    NEW,
    OLD,
    _finished,
    _first,
    _lose,
    _overtake,
    _rows,
    _trash_is_right,
    _tried,
)
from tests.contract.test_s3_publish import _half

Lakes = Callable[[], ObjectStorage]
WHEN = pytest.mark.parametrize("when", ["before", "after"])


class Dead(BaseException):
    """The process ended here. No `except Exception` survives it."""


class _Calls:
    """A store that makes one call after another, and does `act` before or after call `at`, from 0."""

    parallel = 1

    def __init__(self, store: Any, at: int, when: str, act: Callable[[], None]) -> None:
        self._store, self._at, self._after, self._act = store, at, when == "after", act
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        made_of_calls = vars(CopyingStore).get(name)
        if callable(made_of_calls) and not getattr(made_of_calls, "__isabstractmethod__", False):
            return MethodType(made_of_calls, self)
        whole = getattr(self._store, name)
        if not callable(whole) or name == "place":
            return whole

        def call(*args: Any, **how: Any) -> Any:
            number, self.count = self.count, self.count + 1
            if number == self._at and not self._after:
                self._act()
            result = whole(*args, **how)
            if number == self._at and self._after:
                self._act()
            return result

        return call


class _Process(_Calls):
    """The store of a process that dies at a call: it makes none afterwards."""

    def __init__(self, store: Any, at: int, when: str) -> None:
        super().__init__(store, at, when, self._die)
        self.dead = False

    def __getattr__(self, name: str) -> Any:
        if self.dead:
            raise Dead
        return super().__getattr__(name)

    def _die(self) -> None:
        self.dead = True
        raise Dead


def _by(storage: ObjectStorage, calls: _Calls) -> ObjectStorage:
    other = copy.copy(storage)
    other.store = calls
    return other


def _dies(storage: ObjectStorage, changes: list[Change], at: int, when: str) -> bool:
    """Publish in a process that dies at a call; return whether it came to it."""
    process = _Process(storage.store, at, when)
    with contextlib.suppress(Dead):
        _by(storage, process).publish(changes)
    return process.dead


@WHEN
@pytest.mark.parametrize("name", ["append and remove", "two tables"])
def test_publish_goes_on_where_it_died(lakes: Lakes, name: str, when: str) -> None:
    """Publishing dies at each call and is repeated, twice: the same files; none goes before all new are there."""
    step, died = 0, True
    while died:
        storage = lakes()
        storage.publish([Change("t", pend(storage, "o1", "o2"))])
        changes = CHANGES[name](storage)
        died = _dies(storage, changes, step, when)
        if not table(storage) >= {"o1", "o2"}:
            assert all(storage.size(add.key) == add.size for change in changes for add in change.adds)
        for _ in range(2):
            storage.publish(changes)
            assert (table(storage), waiting(storage)) == (AFTER[name], set())
        trash = {key.rpartition("/")[2] for key in tree(storage) if key.startswith(TRASH)}
        assert trash == {f"{old}.removed" for old in {"o1", "o2"} - AFTER[name]}
        step += 1
    assert step > 8


@WHEN
def test_taking_back_what_died_half_published(lakes: Lakes, when: str) -> None:
    """Wherever a replacement died, its undo brings the old files back, and nobody can go on with it any more."""
    step, died = 0, True
    while died:
        storage = lakes()
        half, back = _half(storage)
        died = _dies(storage, storage_changes("p", half), step, when)
        for _ in range(2):
            storage.publish(storage_changes("p", back))
            assert (table(storage), waiting(storage)) == ({"o1", "o2"}, set())
        with pytest.raises(Missing):
            storage.publish(storage_changes("p", half))
        assert {storage.read(f"t/{name}") for name in table(storage)} == {b"o1", b"o2"}
        step += 1
    assert step > 8


@WHEN
@pytest.mark.parametrize("take_back", [False, True])
def test_rewriting_goes_on_where_it_died(lakes: Lakes, take_back: bool, when: str) -> None:
    """A file that is replaced under its name is old or new at each death, then finished or taken back."""
    step, died = 0, True
    while died:
        storage = lakes()
        before = _first(storage)
        half = rewriting(storage, 2, NEW, "n1")
        died = _dies(storage, storage_changes("p", half), step, when)
        assert all(data in (OLD[name], NEW[name]) for name, data in _rows(storage).items() if name in OLD)
        if take_back:
            _lose(storage, half, "n1")
        _finished(storage, half, before, take_back=take_back)
        step += 1
    assert step > 10


@pytest.mark.parametrize("files", ["added", "rewritten"])
def test_an_answer_is_lost(lakes: Lakes, files: str) -> None:
    """A call has its effect and fails all the same: publishing goes on, or says so and can be repeated."""

    def fail() -> None:
        raise LakeError("the answer was lost", hint="run again")

    step, reached = 0, True
    while reached:
        storage = lakes()
        before = _first(storage) if files == "rewritten" else None
        half = rewriting(storage, 2, NEW, "n1") if before else _half(storage)[0]
        store = _Calls(storage.store, step, "after", fail)
        try:
            _by(storage, store).publish(storage_changes("p", half))
        except LakeError as error:
            assert error.hint
        reached = store.count > step
        if before:
            _finished(storage, half, before, take_back=False)
        else:
            storage.publish(storage_changes("p", half))
            assert (table(storage), waiting(storage)) == ({"n1", "n2"}, set())
        step += 1
    assert step > 8


class _Sleeper:
    """A writer that publishes in a thread and sleeps at a call until it is woken."""

    def __init__(self, storage: ObjectStorage, half: CommitRecord, at: int, when: str) -> None:
        self.errors: list[Exception] = []
        self._settled, self._awake, self._asleep = threading.Event(), threading.Event(), False
        by = _by(storage, _Calls(storage.store, at, when, self._sleep))
        self._thread = threading.Thread(target=self._publish, args=(by, half))
        self._thread.start()

    def sleeps(self) -> bool:
        """Whether it sleeps at that call; else it has ended without it."""
        self._settled.wait()
        return self._asleep

    def wake(self) -> None:
        self._awake.set()
        self._thread.join()

    def _sleep(self) -> None:
        self._asleep = True
        self._settled.set()
        self._awake.wait()

    def _publish(self, storage: ObjectStorage, half: CommitRecord) -> None:
        _tried(storage, half, self.errors)
        self._settled.set()


@WHEN
def test_a_writer_that_slept_changes_nothing(lakes: Lakes, when: str) -> None:
    """A writer sleeps at any call, its commit is taken back meanwhile for lost files: it makes nothing visible."""
    step, taken_back = 0, 0
    while True:
        storage = lakes()
        half, back = _half(storage)
        sleeper = _Sleeper(storage, half, step, when)
        if not sleeper.sleeps():
            sleeper.wake()
            break
        for add in storage_changes("p", half)[0].adds:
            storage.abort(add)
        try:
            storage.publish(storage_changes("p", half))
            expected = {"n1", "n2"}
        except Missing:
            storage.publish(storage_changes("p", back))
            expected = {"o1", "o2"}
        sleeper.wake()
        assert (table(storage), waiting(storage)) == (expected, set())
        assert all(isinstance(error, (Missing, LakeError)) for error in sleeper.errors)
        taken_back += "o1" in expected
        step += 1
    assert (sleeper.errors, table(storage)) == ([], {"n1", "n2"})
    assert (step > 8, taken_back >= 3) == (True, True)


@WHEN
@pytest.mark.parametrize("take_back", [False, True])
def test_a_writer_that_slept_undoes_nothing(lakes: Lakes, take_back: bool, when: str) -> None:
    """A writer sleeps at any call while others go on to later commits of the same names, or take its commit back."""
    step = 0
    while True:
        storage = lakes()
        before = _first(storage)
        half = rewriting(storage, 2, {"k2": b"K2"}, "n1")
        sleeper = _Sleeper(storage, half, step, when)
        if not sleeper.sleeps():
            sleeper.wake()
            break
        latest = _overtake(storage, half, before, take_back=take_back)
        trash = {n: kept(storage, n) for n in (2, 4, 5)}
        sleeper.wake()
        assert _rows(storage) == latest
        assert all(isinstance(error, (Missing, LakeError)) for error in sleeper.errors)
        _trash_is_right(storage, trash)
        step += 1
    assert step > 7
