"""What a run needs of an object store: each right is tried, each condition, a copy and an upload.

All trials are below a prefix that no reader sees, and are removed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

from bridge.errors import LakeError
from bridge.findings import Check, Finding, error, fine, run_checks
from bridge.lake.storage import Storage
from bridge.lake.storage.conditional import Refused
from bridge.lake.storage.objects import ObjectStorage
from bridge.lake.storage.objects.store import Absent, Headers, ObjectStore

_PART = 256 * 1024


def object_checks(storage: ObjectStorage, where: str, further: list[Check]) -> list[Check]:
    """The checks of a bucket. If it cannot be reached, only the first is made, and none of the `further`."""
    return [("bucket", lambda: _bucket(storage, where, further))]


def _bucket(storage: ObjectStorage, where: str, further: list[Check]) -> Iterator[Finding]:
    next(iter(storage.store.list("", deep=False)), None)
    yield fine("bucket", f"{storage.uri} exists, {where}")
    prefix = f".doctor-{uuid.uuid4().hex}"
    checks: list[Check] = [
        ("rights", lambda: rights(storage, prefix)),
        ("swap", lambda: swap(storage, f"{prefix}/swapped")),
        ("uploads", lambda: _uploads(storage.store, f"{prefix}/upload")),
        ("copies", lambda: _copies(storage.store, f"{prefix}/copied")),
    ]
    yield from run_checks([*checks, *further])


def rights(storage: Storage, prefix: str) -> Iterator[Finding]:
    """Try each request that a run makes; one that is refused must not hide the others."""
    key, data = f"{prefix}/probe", b"is anybody there?"
    trials: list[tuple[str, Callable[[], object], object]] = [
        ("written", lambda: storage.write(key, data), None),
        ("read", lambda: storage.read(key), data),
        ("looked for", lambda: storage.size(key), len(data)),
        ("listed", lambda: list(storage.list(prefix)), ["probe"]),
        ("deleted", lambda: storage.delete(key), None),
    ]
    refused = 0
    for verb, request, expected in trials:
        try:
            if (answer := request()) != expected:
                hint = "the store does not answer as it should: look into its manual, or choose another"
                raise LakeError(f"an object cannot be {verb} as it should be", hint=hint, answer=answer)
        except LakeError as failure:
            refused += 1
            yield error("rights", failure)
    if not refused:
        yield fine("rights", "objects can be written, read, listed and deleted, and their size can be asked")


def swap(storage: Storage, key: str) -> Iterator[Finding]:
    """If two swap the same version, only the first may win."""
    try:
        first = storage.compare_and_swap(key, b"first", None)
        second = storage.compare_and_swap(key, b"second", first)
        late, stored = storage.compare_and_swap(key, b"late", first), storage.read(key)
    finally:
        storage.delete(key)
    if not first or not second or late or stored != b"second":
        hint = "two runs could both hold a pipeline here: the store must honour conditional puts; choose another"
        raise LakeError("the bucket lets an old version replace a newer one", hint=hint, bucket=storage.uri)
    yield fine("swap", "a version that is not the newest is refused")


def _uploads(store: ObjectStore, key: str) -> Iterator[Finding]:
    """An object in parts is not there before it is whole."""
    upload = store.upload(key)
    try:
        upload.add(bytes(_PART))
        upload.add(b"end")
        early = store.head(key)
        upload.finish()
        _whole(store, key, _PART + 3)
    except BaseException:
        upload.discard()
        raise
    finally:
        store.delete(key)
    if early:
        raise LakeError("an upload is visible before it is finished", hint=_OTHER, at=store.place(key))
    yield fine("uploads", "large files can be uploaded in parts, and are not there before the last one")


def _copies(store: ObjectStore, key: str) -> Iterator[Finding]:
    """Publishing is a copy under conditions; one that does not hold must be refused."""
    source, copy = f"{key}.source", f"{key}.copy"
    try:
        store.put(source, b"new", "made-of")
        origin = _whole(store, source, 3)
        if _refuses(store, lambda: store.copy(source, copy), copy):
            raise LakeError("the store does not copy an object", hint=_OTHER, at=store.place(source))
        copied = _whole(store, copy, 3)
        if copied.made_of != "made-of":
            raise LakeError("a copy does not have its source's metadata", hint=_OTHER, at=store.place(copy))
        trials: list[Callable[[], None]] = [
            lambda: store.copy(source, copy),
            lambda: store.copy(source, copy, etag=origin.etag),
            lambda: store.copy(source, copy, source_etag=copied.etag, etag=copied.etag),
            lambda: store.replace(source, copy, source_etag=copied.etag),
        ]
        if not all(_refuses(store, trial, copy) for trial in trials):
            raise LakeError("the store copies an object whatever version is requested", hint=_OTHER, at=store.place(""))
    finally:
        for one in (source, copy):
            store.delete(one)
    yield fine(
        "copies",
        "an object is copied within the store, with its metadata, and only over and from the requested version",
    )


def _refuses(store: ObjectStore, trial: Callable[[], None], key: str) -> bool:
    try:
        trial()
    except Refused:
        return True
    except Absent:
        raise LakeError("an object that was just written is not there", hint=_OTHER, at=store.place(key)) from None
    return False


def _whole(store: ObjectStore, key: str, size: int) -> Headers:
    seen = store.head(key)
    if seen is None or seen.size != size:
        raise LakeError("an object is not as it was written", hint=_OTHER, at=store.place(key))
    return seen


_OTHER = "two runs could damage each other here: an emulator or a gateway before the store may be the reason"
