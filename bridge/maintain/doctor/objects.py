"""What a run needs of any object store: each right is tried. All trials are below a prefix that no reader sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from bridge.errors import LakeError
from bridge.maintain.doctor.finding import Check, Finding, error, fine
from bridge.storage import Storage
from bridge.storage.conditional import Refused
from bridge.storage.objects.store import ObjectStore
from bridge.storage.reading import require

_OTHER_STORE = "use the store itself, or another one: an emulator or a gateway before it may not do this"
_PART = 256 * 1024


def object_checks(storage: Storage, store: ObjectStore, prefix: str, other_etag: str) -> list[Check]:
    """The trials of a store that copies under a condition. `other_etag`: an ETag that no object has."""
    return [
        ("rights", lambda: rights(storage, prefix)),
        ("swap", lambda: swap(storage, f"{prefix}/swapped")),
        ("uploads", lambda: _uploads(store, f"{prefix}/upload")),
        ("copies", lambda: _copies(store, f"{prefix}/copied", other_etag)),
    ]


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
    upload = store.upload(key)
    try:
        upload.add(b"p" * _PART)
        upload.add(b"end")
        upload.finish()
        if require(store, key).size != _PART + 3:
            raise LakeError("an upload has other bytes than were sent", hint=_OTHER_STORE, at=store.place(key))
    finally:
        upload.discard()
        _remove(store, key)
    yield fine("uploads", "large files can be uploaded in parts")


def _copies(store: ObjectStore, key: str, other_etag: str) -> Iterator[Finding]:
    """Copy an object as a run does to publish it, with the conditions that keep a late writer from undoing anything."""
    copy = f"{key}.copy"
    try:
        store.put(key, b"new", "trial")
        store.copy(key, copy)
        seen = require(store, copy)
        conditions = [
            lambda: store.copy(key, copy),
            lambda: store.copy(key, copy, etag=other_etag),
            lambda: store.copy(key, copy, source_etag=other_etag, etag=seen.etag),
            lambda: store.replace(key, copy, source_etag=other_etag),
        ]
        ignored = sum(not _refuses(attempt) for attempt in conditions)
        made_of = getattr(store.head(copy), "made_of", "trial" if ignored else "")
    finally:
        _remove(store, key, copy)
    if ignored:
        text = "the store copies an object whatever its conditions are"
        raise LakeError(text, hint=_OTHER_STORE, at=store.place(key), ignored=f"{ignored} of {len(conditions)}")
    if made_of != "trial":
        raise LakeError("a copy does not have the metadata of its source", hint=_OTHER_STORE, at=store.place(key))
    yield fine("copies", "an object is copied with its metadata, and only over and from the requested version")


def _refuses(attempt: Callable[[], None]) -> bool:
    try:
        attempt()
    except Refused:
        return True
    return False


def _remove(store: ObjectStore, *keys: str) -> None:
    for key in keys:
        with suppress(LakeError):
            store.delete(key)
