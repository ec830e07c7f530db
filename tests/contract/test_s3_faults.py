"""A store that answers late, wrongly, twice or not at all: each call keeps its promise or is an error with a hint."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from bridge.errors import LakeError
from bridge.lake.storage import Add, Change, Storage
from tests.support.s3server import S3Server

from .lakes import PENDING, pend, table, tree, waiting


@pytest.fixture
def storage(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """A bucket that is tried twice, and conditional puts for a second, so that a test need not wait."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    monkeypatch.setattr("bridge.lake.storage.conditional._PATIENCE", 1.0)
    storage: Storage = s3.storage(f"s3://{uuid.uuid4().hex}/team")
    storage.write("old", b"old bytes")
    return storage


def _large(storage: Storage) -> Add:
    with closing(storage.open_pending(f"{PENDING}/large", "t/large")) as file:
        for _ in range(18):
            file.write(b"%1048576d" % 7)
    return Add(f"{PENDING}/large", "t/large", file.tell(), file.upload)


def _published(storage: Storage) -> set[str]:
    storage.publish([Change("t", pend(storage, "small"))])
    return table(storage)


def _swapped(storage: Storage) -> bytes | None:
    there = storage.read_versioned("old")
    assert there
    assert storage.compare_and_swap("old", b"new bytes", there.etag)
    return storage.read("old")


ACTS: dict[str, tuple[str, Callable[[Storage], Any], Any]] = {
    "read": ("GET", lambda s: s.read("old"), b"old bytes"),
    "open": ("GET", lambda s: s.open("old").read(), b"old bytes"),
    "size": ("HEAD", lambda s: s.size("old"), 9),
    "list": ("GET", lambda s: set(s.list("")), {"old"}),
    "write": ("PUT", lambda s: (s.write("k", b"new"), s.read("k"))[1], b"new"),
    "delete": ("DELETE", lambda s: (s.delete("old"), s.read("old"))[1], None),
    "put if absent": ("PUT", lambda s: (s.put_if_absent("k", b"new"), s.read("k")), (True, b"new")),
    "put if absent, taken": ("PUT", lambda s: (s.put_if_absent("old", b"new"), s.read("old")), (False, b"old bytes")),
    "swap": ("PUT", _swapped, b"new bytes"),
    "small pending": ("PUT", lambda s: list(s.missing_pending(pend(s, "n1"))), []),
    "large pending": ("PUT|POST", lambda s: list(s.missing_pending([_large(s)])), []),
    "publish": ("PUT|HEAD|DELETE", _published, {"small"}),
}
ONCE: dict[str, dict[str, Any]] = {
    "slow down": {"action": "error", "status": 503, "code": "SlowDown"},
    "500": {"action": "error", "status": 500, "code": "InternalError"},
    "500 after success": {"action": "error", "status": 500, "code": "InternalError", "when": "after"},
    "reset": {"action": "reset"},
    "reset after success": {"action": "reset", "when": "after"},
}


@pytest.mark.parametrize("fault", ONCE)
@pytest.mark.parametrize("act", ACTS)
def test_one_fault_is_overcome(s3: S3Server, storage: Storage, act: str, fault: str) -> None:
    """A fault that passes changes nothing in what a call does, also where the request was done before it."""
    methods, do, expected = ACTS[act]
    s3.fault(match=f"^({methods}) ", **ONCE[fault])
    assert do(storage) == expected


@pytest.mark.parametrize("fault", ["500", "reset"])
@pytest.mark.parametrize("act", [act for act in ACTS if act != "put if absent, taken"])  # others' bytes say it all
def test_a_fault_that_stays_is_explained(s3: S3Server, storage: Storage, act: str, fault: str) -> None:
    """A fault that does not pass is an error of the lake with a hint, and what was there is there."""
    methods, do, _ = ACTS[act]
    s3.fault(match=f"^({methods}) ", times=None, **ONCE[fault])
    with pytest.raises(LakeError) as caught:
        do(storage)
    assert (bool(caught.value.hint), caught.value.exit_code) == (True, 3)
    s3.release()
    assert storage.read("old") == b"old bytes"
    assert table(storage) == set()


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "OperationAborted"])
def test_a_conflict_is_tried_again(s3: S3Server, storage: Storage, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is busy with another put of the same key says so; it is nobody's defeat."""
    monkeypatch.setattr("bridge.lake.storage.conditional._PATIENCE", 15.0)
    s3.fault("error", "^PUT", status=409, code=code, times=2)
    assert storage.put_if_absent("k", b"mine") is True
    s3.fault("error", "^PUT", status=409, code=code, times=1)
    there = storage.read_versioned("k")
    assert there
    assert storage.compare_and_swap("k", b"next", there.etag)
    assert storage.read("k") == b"next"


def test_a_put_that_landed_although_no_answer_came(s3: S3Server, storage: Storage) -> None:
    """A put is ours if our bytes are there at last, whatever was answered."""
    s3.fault("reset", "^PUT", when="after", times=None)
    assert storage.put_if_absent("k", b"mine") is True
    assert storage.put_if_absent("k", b"others'") is False
    there = storage.read_versioned("k")
    assert there
    version = storage.compare_and_swap("k", b"next", there.etag)
    assert (version, storage.read("k")) == (getattr(storage.read_versioned("k"), "etag", None), b"next")


def test_a_put_of_unknown_outcome(s3: S3Server, storage: Storage) -> None:
    """Nobody claims to know what came of a put while it may still land; it does land, and never over others' bytes."""
    s3.fault("late", "^PUT /.*/k$", times=None)
    for key in ("k", "taken/k"):
        with pytest.raises(LakeError, match="it is not known whether an object was written") as caught:
            storage.put_if_absent(key, b"mine")
        assert "the next run finds it out" in caught.value.hint
    _, _, bucket, folder = storage.uri.split("/")
    s3.fill(bucket, [f"{folder}/taken/k"])
    s3.release()
    s3.wait_for_held(0)
    assert (storage.read("k"), storage.read("taken/k")) == (b"mine", b"x")


def test_a_swap_of_unknown_outcome(s3: S3Server, storage: Storage) -> None:
    """A swap whose answer never comes is unknown while the old bytes stand, and lost when others' do."""
    there = storage.read_versioned("old")
    assert there
    s3.fault("reset", "^PUT", times=None)
    with pytest.raises(LakeError, match="it is not known"):
        storage.compare_and_swap("old", b"mine", there.etag)
    s3.release()
    storage.write("old", b"others'")
    s3.fault("reset", "^PUT", times=None)
    assert storage.compare_and_swap("old", b"mine", there.etag) is None


def test_an_answer_that_ends_in_the_middle(s3: S3Server, storage: Storage) -> None:
    """A part of an object is never taken for the whole."""
    s3.fault("short", "^GET", times=2)
    assert storage.read("old") == b"old bytes"
    s3.fault("short", "^GET", times=None)
    with pytest.raises(LakeError) as caught:
        storage.read("old")
    assert "check the network" in caught.value.hint


def test_an_object_that_is_replaced_while_it_is_read(s3: S3Server, storage: Storage) -> None:
    """A reader gets the bytes of the object that it opened, or an error; never some of each."""
    storage.write("k", b"1" * 3 * 1024**2)
    with storage.open("k") as file:
        assert file.read(10) == b"1" * 10
        storage.write("k", b"2" * 3 * 1024**2)
        file.seek(2 * 1024**2)
        with pytest.raises(LakeError) as caught:
            file.read(10)
    assert caught.value.hint


def test_an_upload_that_fails_in_the_middle(s3: S3Server, storage: Storage) -> None:
    """An error of a part in the background is raised at the latest when the file is closed, and nothing is left."""
    s3.fault("error", "partNumber=2", status=403, code="AccessDenied", times=None)
    with pytest.raises(LakeError, match="s3:PutObject"):
        _large(storage)
    assert waiting(storage) == set()


@pytest.mark.parametrize(
    "rule",
    [
        {"action": "ignore_conditions"},
        {"action": "ignore_conditions", "skip": 2},
        {"action": "error", "status": 501, "code": "NotImplemented", "skip": 1},
        {"action": "error", "status": 400, "code": "InvalidArgument", "skip": 1},
    ],
)
def test_a_store_that_cannot_keep_writers_apart(s3: S3Server, storage: Storage, rule: dict[str, Any]) -> None:
    """A store that does not honour both conditions is refused before anything is entrusted to it."""
    s3.fault(match="^PUT", times=None, **rule)
    with pytest.raises(LakeError, match="the bucket does not keep two writers apart") as caught:
        storage.prepare()
    assert "choose another" in caught.value.hint
    s3.release()
    storage.prepare()
    assert set(tree(storage)) == {"old", ".bridge/lake.json"}
