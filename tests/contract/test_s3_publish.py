"""Publishing over S3: it dies at every request, its answers are lost, and its writers sleep while others go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from bridge.errors import LakeError
from bridge.lake.log import Snapshot, storage_changes, undo
from bridge.lake.records import CommitRecord
from bridge.lake.storage import Change, Missing, Remove, Storage
from tests.support.records import commit_record
from tests.support.s3server import S3Server

from .lakes import AFTER, CHANGES, TRASH, pend, record, table, tree, waiting

Lakes = Callable[[], Storage]


@pytest.fixture(params=["plain", "uploads"])
def lakes(request: pytest.FixtureRequest, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Lakes:
    """New, empty lakes, reached by a client that tries nothing twice; pending files are objects or uploads."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    if request.param == "uploads":
        monkeypatch.setattr("bridge.lake.storage.s3.pending._SMALL", 0)
    bucket = s3.bucket(uuid.uuid4().hex)
    return lambda: s3.storage(f"s3://{bucket}/{uuid.uuid4().hex}")


def _requests(storage: Storage) -> str:
    return f"/{storage.uri.split('/')[2]}[/?]"


def _half(storage: Storage) -> tuple[CommitRecord, CommitRecord]:
    """A table of two old files, a commit that replaces them, and the one that takes it back."""
    old = record(1, pend(storage, "o1", "o2"), [])
    storage.publish(storage_changes("p", old))
    half = record(2, pend(storage, "n1", "n2"), ["o1", "o2"])
    return half, commit_record(3, *undo("p", half, Snapshot().after(old)), kind="void")


@pytest.mark.parametrize("name", ["append and remove", "two tables"])
def test_publish_goes_on_where_it_died(s3: S3Server, lakes: Lakes, name: str) -> None:
    """Publishing dies at each request and is repeated, twice: the same files; none goes before all new are there."""
    step, died = 0, True
    while died:
        s3.clear()
        storage = lakes()
        storage.publish([Change("t", pend(storage, "o1", "o2"))])
        changes = CHANGES[name](storage)
        s3.fault("reset", _requests(storage), skip=step, times=None)
        try:
            storage.publish(changes)
            died = False
        except LakeError as error:
            assert error.hint
        s3.release()
        if not table(storage) >= {"o1", "o2"}:
            assert all(storage.size(add.key) == add.size for change in changes for add in change.adds)
        for _ in range(2):
            storage.publish(changes)
            assert (table(storage), waiting(storage)) == (AFTER[name], set())
        kept = {key.rpartition("/")[2] for key in tree(storage) if key.startswith(TRASH)}
        assert kept == {f"{old}.removed" for old in {"o1", "o2"} - AFTER[name]}
        step += 1
    assert step > 6


def test_taking_back_what_died_half_published(s3: S3Server, lakes: Lakes) -> None:
    """Wherever a replacement died, its undo brings the old files back, and nobody can go on with it any more."""
    step, died = 0, True
    while died:
        s3.clear()
        storage = lakes()
        half, back = _half(storage)
        s3.fault("reset", _requests(storage), skip=step, times=None)
        try:
            storage.publish(storage_changes("p", half))
            died = False
        except LakeError:
            pass
        s3.release()
        for _ in range(2):
            storage.publish(storage_changes("p", back))
            assert (table(storage), waiting(storage)) == ({"o1", "o2"}, set())
        with pytest.raises(Missing):
            storage.publish(storage_changes("p", half))
        assert {storage.read(f"t/{name}") for name in table(storage)} == {b"o1", b"o2"}
        step += 1
    assert step > 6


@pytest.mark.parametrize("habit", ["NoSuchUpload", "500"])
def test_a_writer_that_slept_changes_nothing(s3: S3Server, lakes: Lakes, habit: str) -> None:
    """A writer sleeps at any request, its commit is taken back meanwhile for lost files: it makes nothing visible."""
    step, taken_back = 0, 0
    while True:
        s3.clear()
        s3.habit(second_complete=habit)
        storage = lakes()
        half, back = _half(storage)
        s3.fault("hold", _requests(storage), skip=step)
        errors: list[Exception] = []
        writer = threading.Thread(target=_publish, args=(storage, half, errors))
        writer.start()
        while writer.is_alive() and not s3.held():
            writer.join(0.02)
        if not writer.is_alive():
            break
        _lose(storage, half)
        try:
            storage.publish(storage_changes("p", half))
            expected = {"n1", "n2"}
        except Missing:
            storage.publish(storage_changes("p", back))
            expected = {"o1", "o2"}
        s3.release()
        writer.join()
        assert (table(storage), waiting(storage)) == (expected, set())
        assert (len(errors), all(isinstance(error, (Missing, LakeError)) for error in errors)) == (
            int("o1" in expected),
            True,
        )
        taken_back += "o1" in expected
        step += 1
    s3.release()
    assert (errors, table(storage)) == ([], {"n1", "n2"})
    assert taken_back >= 3  # at each look, and before the first file is visible; later it depends on the threads


def _publish(storage: Storage, half: CommitRecord, errors: list[Exception]) -> None:
    try:
        storage.publish(storage_changes("p", half))
    except Exception as error:
        errors.append(error)


def _lose(storage: Storage, half: CommitRecord) -> None:
    for add in storage_changes("p", half)[0].adds:
        storage.abort(add)


def test_purged_uploads_are_missing(s3: S3Server, lakes: Lakes) -> None:
    """A lifecycle rule that aborts unfinished uploads loses those pending files, and only those: publishing says so."""
    storage = lakes()
    half, back = _half(storage)
    adds = storage_changes("p", half)[0].adds
    s3.purge()
    uploads = [add for add in adds if add.upload]
    assert list(storage.missing_pending(adds)) == uploads
    if uploads:
        with pytest.raises(Missing) as caught:
            storage.publish(storage_changes("p", half))
        assert caught.value.keys == [add.key for add in uploads]
        storage.publish(storage_changes("p", back))
        assert table(storage) == {"o1", "o2"}


@pytest.mark.parametrize("habit", ["200", "NoSuchUpload", "500"])
def test_an_answer_is_lost(s3: S3Server, lakes: Lakes, habit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a store says to a completion or a copy that it has done before, the files are published once."""
    for action in ({"action": "reset"}, {"action": "error", "status": 500, "code": "InternalError"}):
        for attempts in ("1", "2"):
            monkeypatch.setenv("AWS_MAX_ATTEMPTS", attempts)
            storage = lakes()
            half, _ = _half(storage)
            s3.habit(second_complete=habit)
            s3.fault(**action, match=r"^(POST .*\?uploadId|PUT /\w+/\w+/t/)", when="after", times=2)
            storage.publish(storage_changes("p", half))
            assert (table(storage), waiting(storage)) == ({"n1", "n2"}, set())
            assert storage.read("t/n1") == b"n1"
            s3.clear()


def test_a_completion_lands_late(s3: S3Server, lakes: Lakes) -> None:
    """A completion or a copy that lands after its commit was taken back brings nothing back."""
    storage = lakes()
    half, back = _half(storage)
    s3.fault("late", r"^(POST .*\?uploadId|PUT /\w+/\w+/t/)", times=2)
    with pytest.raises(LakeError) as caught:
        storage.publish(storage_changes("p", half))
    assert caught.value.hint
    storage.publish(storage_changes("p", back))
    s3.release()
    s3.wait_for_held(0)
    assert (table(storage), waiting(storage)) == ({"o1", "o2"}, set())


@pytest.mark.parametrize(
    "answer",
    [
        {"status": 501, "code": "NotImplemented"},
        {"status": 400, "code": "MissingContentMD5"},
        {"status": 403, "code": "AccessDenied"},
        {
            "status": 200,
            "code": "",
            "body": "<DeleteResult><Error><Key>{}</Key><Code>InternalError</Code></Error></DeleteResult>",
        },
    ],
)
def test_stores_that_delete_one_by_one(s3: S3Server, lakes: Lakes, answer: dict[str, Any]) -> None:
    """Where many objects cannot be deleted at once, in whole or in part, each is deleted by itself."""
    storage = lakes()
    half, _ = _half(storage)
    if "body" in answer:  # one of them is left, the others are not there any more
        folder = storage.uri.split("/", 3)[3]
        answer = answer | {"body": answer["body"].format(f"{folder}/t/o2")}
        storage.publish([Change("t", (), (Remove("t/o1", f"{TRASH}/2/t/o1.removed"),))])
    s3.fault("error", r"^POST .*\?delete", times=None, **answer)
    storage.publish(storage_changes("p", half))
    assert table(storage) == {"n1", "n2"}


@pytest.mark.parametrize("lakes", ["plain"], indirect=True)
def test_more_than_a_page(s3: S3Server, lakes: Lakes) -> None:
    """Listings and deletions go on past the thousand that a store gives or takes at once."""
    storage = lakes()
    _, _, bucket, folder = storage.uri.split("/")
    keys = [f"t/{number:04}" for number in range(1003)]
    s3.fill(bucket, [f"{folder}/{key}" for key in keys])
    assert table(storage) == {key.removeprefix("t/") for key in keys}
    storage.store.delete_all(keys)  # type: ignore[attr-defined]
    assert table(storage) == set()


_PUBLISH = """
import os, sys
from bridge.lake.storage import Add, Change, open_storage
storage = open_storage(sys.argv[1])
print(os.getpid(), flush=True)
sys.stdin.readline()
storage.publish([Change("t", (Add(sys.argv[2], "t/n1", 2, sys.argv[3]),))])
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_for_real(s3: S3Server, lakes: Lakes, when: str) -> None:
    """A process that is killed while a file becomes visible has published it or not; another one goes on."""
    storage = lakes()
    (add,) = pend(storage, "n1")
    command = [sys.executable, "-c", _PUBLISH, storage.uri, add.source, add.upload]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ)
    assert process.stdout is not None
    process.stdout.readline()
    s3.fault("kill", r"^(POST .*\?uploadId|PUT /\w+/\w+/t/)", when=when, pid=process.pid)
    process.communicate("\n", timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert table(storage) == ({"n1"} if when == "after" else set())
    storage.publish([Change("t", (add,))])
    assert (table(storage), waiting(storage)) == ({"n1"}, set())


def test_nothing_pending_is_listed_where_it_may_not_be(s3: S3Server, lakes: Lakes) -> None:
    """Where a store refuses to list uploads what is pending is what can be listed; nobody depends on the rest."""
    storage = lakes()
    adds = pend(storage, "n1")
    s3.fault("error", r"\?uploads", status=403, code="AccessDenied", times=None)
    assert waiting(storage) == {add.source for add in adds if not add.upload}
