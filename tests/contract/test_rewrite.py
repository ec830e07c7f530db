"""Files that are replaced under their name: atomic for each, repeatable, never undone by anybody who was overtaken."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from bridge.errors import LakeError
from bridge.lake.file_records import FileAdd
from bridge.lake.log import Snapshot, storage_changes, undo
from bridge.lake.paths import file_name
from bridge.lake.records import CommitRecord
from bridge.lake.storage import Add, Change, Missing, Storage
from bridge.lake.storage.local.storage import LocalStorage
from tests.support.records import commit_record
from tests.support.s3server import S3Server

from .crashing import crashing
from .lakes import kept, pend, record, rewriting, table, tree, waiting

EVERY_KIND = pytest.mark.parametrize("storage", ["local", "s3", "s3 uploads"], indirect=True)
Lakes = Callable[[], Storage]
OLD, NEW = {"a=1/k1": b"a=1/k1", "k2": b"k2"}, {"a=1/k1": b"A=1/K1", "k2": b"K2"}
"""Two files before and after; a file's size says nothing of which it is."""


def _first(storage: Storage) -> Snapshot:
    """A table of two files, one of them in a Hive folder."""
    first = record(1, pend(storage, *OLD), [])
    storage.publish(storage_changes("p", first))
    return Snapshot().after(first)


def _publish(storage: Storage, whole: CommitRecord) -> None:
    storage.publish(storage_changes("p", whole))


def _rows(storage: Storage) -> dict[str, bytes]:
    return {name: storage.read(f"t/{name}") or b"" for name in table(storage)}


def _take_back(storage: Storage, half: CommitRecord, before: Snapshot) -> CommitRecord:
    """The commit that takes a rewriting back, made as recovery makes it."""
    done = storage.settle_rewrites(storage_changes("p", half))
    names = {one.add.key: file_name(9, seq, one.add.key.removeprefix("t/")) for seq, one in enumerate(done)}
    return commit_record(half.n + 1, *undo("p", half, before, names), kind="void")


def _lose(storage: Storage, half: CommitRecord, name: str) -> None:
    for change in storage_changes("p", half):
        for add in change.adds:
            if add.key == f"t/{name}":
                storage.abort(add)


def _is_old(rows: dict[str, bytes]) -> bool:
    return sorted(rows.values()) == sorted(OLD.values())


@EVERY_KIND
def test_a_file_is_rewritten(storage: Storage) -> None:
    """New bytes under the old name, the old ones in the trash; once more changes nothing."""
    _first(storage)
    half = rewriting(storage, 2, NEW, "n1")
    adds = [one.add for one in storage_changes("p", half)[0].rewrites]
    assert (_rows(storage), list(storage.missing_pending(adds))) == (OLD, [])
    for _ in range(2):
        _publish(storage, half)
        assert (_rows(storage), waiting(storage)) == (NEW | {"n1": b"n1"}, set())
        assert kept(storage, 2) == OLD
    assert [one.add for one in storage.settle_rewrites(storage_changes("p", half))] == adds


@EVERY_KIND
def test_what_is_not_there_is_missing(storage: Storage) -> None:
    """If the new bytes of one file are gone nothing is touched, though a file of that name and size is there."""
    before = _first(storage)
    half = rewriting(storage, 2, NEW, "n1")
    storage.abort(storage_changes("p", half)[0].rewrites[0].add)
    there = tree(storage)
    with pytest.raises(Missing) as caught:
        _publish(storage, half)
    assert (caught.value.keys, tree(storage)) == (["t/a=1/k1"], there)
    back = _take_back(storage, half, before)
    for _ in range(2):
        _publish(storage, back)
        assert (_rows(storage), waiting(storage)) == (OLD, set())
    assert Snapshot().after(record(1, (), [])).after(back).tables["t"].files.keys() == set(OLD)


@EVERY_KIND
def test_a_lost_file_of_the_same_bytes(storage: Storage) -> None:
    """Not even the same bytes make a lost file a published one."""
    _first(storage)
    half = rewriting(storage, 2, {"k2": OLD["k2"]})
    storage.abort(storage_changes("p", half)[0].rewrites[0].add)
    with pytest.raises(Missing):
        _publish(storage, half)


def test_a_file_that_somebody_deleted(storage: Storage) -> None:
    """The new bytes have all rows of the file, also where the old ones are not there to be kept."""
    _first(storage)
    half = rewriting(storage, 2, NEW)
    storage.delete("t/k2")
    for _ in range(2):
        _publish(storage, half)
        assert _rows(storage) == NEW


def test_walk_and_empty_folders(storage: Storage) -> None:
    """Files are found in any depth; a Hive folder goes with its last file, and its table's folder stays."""
    adds = pend(storage, "a=1/b=x/f1", "a=1/b=y/f2", "f3")
    whole = record(1, adds, [])
    _publish(storage, whole)
    assert table(storage) == {"a=1/b=x/f1", "a=1/b=y/f2", "f3"}
    assert set(storage.walk("none")) == set()
    gone = record(2, (), ["a=1/b=x/f1", "f3"])
    gone = structs.replace(gone, tables=[structs.replace(gone.tables[0], mode="append")])
    for _ in range(2):
        _publish(storage, gone)
        assert set(storage.list("t")) == {"a=1"}
        assert set(storage.list("t/a=1")) == {"b=y"}
    assert kept(storage, 2) == {"a=1/b=x/f1": b"a=1/b=x/f1", "f3": b"f3"}
    back = commit_record(3, *undo("p", gone, Snapshot().after(whole)), kind="void")
    for _ in range(2):
        _publish(storage, back)
        assert (table(storage), kept(storage, 2)) == ({"a=1/b=x/f1", "a=1/b=y/f2", "f3"}, {})


@pytest.mark.parametrize("exchange", [True, False])
def test_a_partitioned_table_is_replaced(tmp_path: Path, exchange: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replacement that dies anywhere, in Hive folders: the next one finishes it, and its undo brings all back."""
    if not exchange:
        monkeypatch.setattr("bridge.lake.storage.local.publish.exchange", lambda one, other: False)
    step, crashed = 0, True
    while crashed:
        for take_back in (False, True):
            storage = LocalStorage(tmp_path / f"{step}{take_back}")
            before = _first(storage)
            half = record(2, pend(storage, "a=1/n1", "a=2/n2"), list(OLD))
            with crashing(storage.root, step) as faults:
                _publish(storage, half)
            crashed = faults.crashed
            back = commit_record(3, *undo("p", half, before), kind="void") if take_back else half
            for _ in range(2):
                _publish(storage, back)
                assert table(storage) == (set(OLD) if take_back else {"a=1/n1", "a=2/n2"})
            assert [path for path in (storage.root / "t").rglob("*") if path.is_dir() and not any(path.iterdir())] == []
        step += 1
    assert step > 5


def test_rewriting_goes_on_where_it_died_in_a_folder(tmp_path: Path) -> None:
    """Wherever it dies each file is the old one or the new one; done again it is new, taken back it is old."""
    step, crashed, mixed = 0, True, 0
    while crashed:
        for take_back in (False, True):
            storage = LocalStorage(tmp_path / f"{step}{take_back}")
            before = _first(storage)
            half = rewriting(storage, 2, NEW, "n1")
            with crashing(storage.root, step) as faults:
                _publish(storage, half)
            crashed = faults.crashed
            rows = _rows(storage)
            assert all(rows[name] in (OLD[name], NEW[name]) for name in OLD)
            mixed += len({rows[name] == OLD[name] for name in OLD}) > 1
            if take_back:
                _lose(storage, half, "n1")
            _finished(storage, half, before, take_back=take_back)
        step += 1
    assert (step > 8, mixed > 0) == (True, True)


def _finished(storage: Storage, half: CommitRecord, before: Snapshot, *, take_back: bool) -> None:
    back = _take_back(storage, half, before) if take_back else half
    for _ in range(2):
        _publish(storage, back)
        assert waiting(storage) == set()
        if take_back:
            assert _is_old(_rows(storage))
        else:
            assert (_rows(storage), kept(storage, 2)) == (NEW | {"n1": b"n1"}, OLD)


@pytest.fixture
def lakes(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Lakes:
    """New, empty lakes, reached by a client that tries nothing twice."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    bucket = s3.bucket(uuid.uuid4().hex)
    return lambda: s3.storage(f"s3://{bucket}/{uuid.uuid4().hex}")


def _requests(storage: Storage) -> str:
    return f"/{storage.uri.split('/')[2]}[/?]"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("take_back", [False, True])
def test_rewriting_goes_on_where_it_died_in_a_bucket(s3: S3Server, lakes: Lakes, take_back: bool, when: str) -> None:
    """The same at each request, done or not."""
    step, died = 0, True
    while died:
        s3.clear()
        storage = lakes()
        before = _first(storage)
        half = rewriting(storage, 2, NEW, "n1")
        s3.fault("reset", _requests(storage), skip=step, times=1, when=when)
        s3.fault("reset", _requests(storage), skip=step + 1, times=None)
        try:
            _publish(storage, half)
            died = False
        except (LakeError, Missing):
            pass
        s3.release()
        assert all(data in (OLD[name], NEW[name]) for name, data in _rows(storage).items() if name in OLD)
        if take_back:
            _lose(storage, half, "n1")
        _finished(storage, half, before, take_back=take_back)
        step += 1
    assert step > 10


@pytest.mark.parametrize("habit", ["200", "NoSuchUpload", "500"])
def test_an_answer_is_lost(s3: S3Server, lakes: Lakes, habit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a store says to a completion that it has done before, or does not say: the file is rewritten, once."""
    for action in ({"action": "reset"}, {"action": "error", "status": 500, "code": "InternalError"}):
        for attempts in ("1", "2"):
            monkeypatch.setenv("AWS_MAX_ATTEMPTS", attempts)
            storage = lakes()
            before = _first(storage)
            half = rewriting(storage, 2, NEW, "n1")
            s3.habit(second_complete=habit)
            s3.fault(**action, match=r"^POST .*\?uploadId", when="after", times=2)
            _finished(storage, half, before, take_back=False)
            s3.clear()


@pytest.mark.parametrize("take_back", [False, True])
def test_a_completion_lands_late(s3: S3Server, lakes: Lakes, take_back: bool) -> None:
    """A completion that comes late undoes nothing of what was committed meanwhile."""
    storage = lakes()
    before = _first(storage)
    half = rewriting(storage, 2, {"k2": b"K2"}, "n1")
    s3.fault("late", r"^POST .*\?uploadId", times=1)
    with pytest.raises(LakeError) as caught:
        _publish(storage, half)
    assert caught.value.hint
    latest = _overtake(storage, half, before, take_back=take_back)
    s3.release()
    s3.wait_for_held(0)
    assert _rows(storage) == latest


def _overtake(storage: Storage, half: CommitRecord, before: Snapshot, *, take_back: bool) -> dict[str, bytes]:
    """Finish a commit or take it back, and commit two more that rewrite what it did; return the table then."""
    last = half
    if take_back:
        _lose(storage, half, "n1")
        try:
            _publish(storage, half)
        except Missing:
            last = _take_back(storage, half, before)
    view = before.after(half)
    if last is not half:
        view = view.after(last)
    _publish(storage, last)
    for turn in (b"+", b"-"):
        rows = _rows(storage)
        assert set(rows) == view.tables["t"].files.keys()
        wanted = {name: data[:-1] + turn for name, data in rows.items() if data[-1:] in b"2+"}
        last = rewriting(storage, last.n + 1, wanted)
        view = view.after(last)
        _publish(storage, last)
        assert kept(storage, last.n) == {name: data for name, data in rows.items() if name in wanted}
    return _rows(storage)


@pytest.mark.parametrize(
    ("take_back", "habit", "when"),
    [(False, "200", "before"), (False, "500", "after"), (True, "NoSuchUpload", "before"), (True, "200", "after")],
)
def test_a_writer_that_slept_undoes_nothing(s3: S3Server, lakes: Lakes, take_back: bool, habit: str, when: str) -> None:
    """A writer sleeps at any request while others go on to later commits of the same names, or take its commit back."""
    step = 0
    while True:
        s3.clear()
        s3.habit(second_complete=habit)
        storage = lakes()
        before = _first(storage)
        half = rewriting(storage, 2, {"k2": b"K2"}, "n1")
        s3.fault("hold", _requests(storage), skip=step, when=when)
        errors: list[Exception] = []
        writer = threading.Thread(target=_tried, args=(storage, half, errors))
        writer.start()
        while writer.is_alive() and not s3.held():
            writer.join(0.01)
        if not writer.is_alive():
            break
        latest = _overtake(storage, half, before, take_back=take_back)
        trash = {n: kept(storage, n) for n in (2, 4, 5)}
        s3.release()
        writer.join()
        assert _rows(storage) == latest
        assert all(isinstance(error, (Missing, LakeError)) for error in errors)
        _trash_is_right(storage, trash)
        step += 1
    assert step > 7


def _trash_is_right(storage: Storage, before: dict[int, dict[str, bytes]]) -> None:
    """Who slept has put nothing into the trash but, at most, what its own commit was to replace."""
    for n, files in before.items():
        now = kept(storage, n)
        assert {name: now.get(name) for name in files} == files
        late = {name: now[name] for name in now.keys() - files.keys()}
        assert not late or (n == 2 and all(data == OLD[name] for name, data in late.items()))


def _tried(storage: Storage, whole: CommitRecord, errors: list[Exception]) -> None:
    try:
        _publish(storage, whole)
    except Exception as error:
        errors.append(error)


def test_purged_uploads_are_missing(s3: S3Server, lakes: Lakes) -> None:
    """A lifecycle rule that aborts uploads loses rewritten files: what was not published is taken back."""
    storage = lakes()
    before = _first(storage)
    half = rewriting(storage, 2, NEW, "n1")
    s3.purge()
    with pytest.raises(Missing) as caught:
        _publish(storage, half)
    assert caught.value.keys == ["t/a=1/k1", "t/k2"]
    _finished(storage, half, before, take_back=True)


def test_a_stranger_changes_the_file(s3: S3Server, lakes: Lakes) -> None:
    """What somebody else writes while its trash copy is made is not lost without a word."""
    storage = lakes()
    _first(storage)
    half = rewriting(storage, 2, {"k2": b"K2"})
    s3.fault("hold", r"^PUT .*/trash/")
    errors: list[Exception] = []
    writer = threading.Thread(target=_tried, args=(storage, half, errors))
    writer.start()
    s3.wait_for_held()
    storage.write("t/k2", b"theirs")
    s3.release()
    writer.join()
    assert "somebody else changed a file" in str(errors[0])
    assert storage.read("t/k2") == b"theirs"


def test_a_name_is_there_at_all_times(tmp_path: Path) -> None:
    """A reader that opens a file by its name while it is rewritten again and again finds it, old or new."""
    storage = LocalStorage(tmp_path)
    _first(storage)
    done, seen, errors = threading.Event(), set(), list[Exception]()

    def look() -> None:
        while not done.is_set():
            try:
                seen.add((tmp_path / "t/a=1/k1").read_bytes())
            except OSError as error:
                errors.append(error)

    reader = threading.Thread(target=look)
    reader.start()
    for n in range(2, 80):
        _publish(storage, rewriting(storage, n, {"a=1/k1": b"%6d" % n}))
    done.set()
    reader.join()
    assert (errors, len(seen) > 3) == ([], True)


def test_tidy(tmp_path: Path) -> None:
    """What a write that died has left is deleted when it is old; nothing else is."""
    import os
    import time
    from datetime import timedelta

    storage = LocalStorage(tmp_path)
    _first(storage)
    left = [tmp_path / "t" / f".{uuid.uuid4().hex}.tmp", tmp_path / "t/a=1" / f".{uuid.uuid4().hex}.tmp"]
    kept_ones = [tmp_path / "t/.other.tmp", tmp_path / "t" / f".{uuid.uuid4().hex}.tmp"]
    for path in (*left, *kept_ones):
        path.write_bytes(b"x")
    for path in (*left, kept_ones[0]):
        os.utime(path, (time.time() - 90_000,) * 2)
    assert storage.tidy("t", timedelta(days=1)) == 2
    assert [path.exists() for path in (*left, *kept_ones)] == [False, False, True, True]
    assert _rows(storage) == OLD


def test_nobody_moves_a_change_without_rewrites(storage: Storage) -> None:
    """To settle what rewrites nothing does nothing: its files are pending still."""
    adds = pend(storage, "n1")
    assert list(storage.settle_rewrites([Change("t", adds)])) == []
    assert list(storage.missing_pending([Add(add.source, add.key, add.size, add.upload) for add in adds])) == []


@EVERY_KIND
@pytest.mark.parametrize("size", [10, 20 << 20])
@pytest.mark.parametrize("over", [False, True])
def test_a_readable_file_is_read_before_it_is_published(storage: Storage, size: int, *, over: bool) -> None:
    """Its bytes are at its source, it is published like any other, and what was read can be deleted."""
    first, data = _first(storage), bytes(number % 251 for number in range(1 << 10)) * max(size >> 10, 1)
    name = "k2" if over else "n1"
    source = f".bridge/p/pending/{file_name(2, 1)}.pending"
    file = storage.open_pending(source, f"t/{name}", over=over, readable=True)
    for start in range(0, len(data), 1 << 20):
        file.write(data[start : start + (1 << 20)])
    file.close()
    with storage.open(source) as pending:
        assert pending.read() == data
    add = Add(source, f"t/{name}", len(data), file.upload)
    assert not storage.missing_pending([add])
    new = FileAdd(name=name, source=source, size=len(data), rows=1, upload=file.upload)
    half = commit_record(2, first.tables["t"].change("t", [new], ["k2"] if over else []))
    for _ in range(2):
        _publish(storage, half)
        assert storage.read(f"t/{name}") == data
        storage.delete(source)
    assert waiting(storage) == set()


@EVERY_KIND
@pytest.mark.parametrize("over", [False, True])
def test_a_readable_file_is_aborted_whole(storage: Storage, *, over: bool) -> None:
    """Neither an upload nor what it was copied from stays."""
    _first(storage)
    source = f".bridge/p/pending/{file_name(2, 1)}.pending"
    file = storage.open_pending(source, "t/k2", over=over, readable=True)
    file.write(b"x" * (17 << 20))
    file.close()
    storage.abort(Add(source, "t/k2", 17 << 20, file.upload))
    assert (waiting(storage), storage.size(source)) == (set(), None)
