"""Makes pending objects visible and takes old ones away, in phases that may be repeated, even by two writers at once.

Pending objects to abort go first, and all adds are visible before anything is taken away. So a writer that only slept,
while somebody took its commit back, finds nothing to copy, makes nothing visible and takes nothing away.

A file that is replaced under its name is copied to the trash before, and only if it still has the ETag that it had
while its successor was pending. The copy that replaces it demands the same ETag. So the trash never gets the bytes of
a later commit, and the file never those of an earlier one. An object's metadata tells what it was made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from bridge.errors import LakeError
from bridge.lake.storage.conditional import Refused
from bridge.lake.storage.objects.store import Absent, Headers, ObjectStore
from bridge.lake.storage.parallel import parallel_map
from bridge.lake.storage.protocol import Add, Change, Missing, Remove, Rewrite, made_of


@dataclass(frozen=True, slots=True)
class _Target:
    """A file to publish."""

    add: Add
    trash: str = ""
    """Where the bytes that it replaces go; empty: it replaces none."""

    def is_there(self, seen: Headers | None) -> bool:
        """Whether this object is the published file. A rewritten one is known by what it was made of."""
        if seen is None or seen.size != self.add.size:
            return False
        return not self.trash or seen.made_of == made_of(self.add.source)


@dataclass(frozen=True, slots=True)
class _Status:
    """The state of a file to publish: it is visible, or pending."""

    target: _Target
    visible: bool = False
    old: Headers | None = None
    """The object that a rewritten file replaces, as it was while its successor was pending."""


def publish(store: ObjectStore, changes: Sequence[Change]) -> None:
    """As the protocol says."""
    adds = [add for change in changes for add in change.adds]
    removes = [remove for change in changes for remove in change.removes]
    rewrites = _rewrites(changes)
    targets = [*(_Target(add) for add in adds), *(_Target(one.add, one.trash) for one in rewrites)]
    looks = parallel_map(store, partial(_look, store), targets)
    if missing := [target.add.key for target, status in zip(targets, looks, strict=True) if status is None]:
        raise Missing(missing)
    parallel_map(store, partial(abort, store), [add for change in changes for add in change.aborts])
    pending = [status for status in looks if status and not status.visible]
    pending = [status for status in parallel_map(store, partial(_keep_old, store), pending) if not status.visible]
    parallel_map(store, partial(_show, store), pending)
    parallel_map(store, partial(_keep, store), removes)
    # A source that stays could be published once more, after a later commit has removed the file.
    sources = [target.add.source for target in targets]
    parallel_map(store, store.delete, [*sources, *(remove.key for remove in removes)])


def _rewrites(changes: Sequence[Change]) -> list[Rewrite]:
    return [one for change in changes for one in change.rewrites]


def missing_pending(store: ObjectStore, adds: Sequence[Add]) -> list[Add]:
    """As the protocol says."""
    pending = parallel_map(store, partial(_is_pending, store), adds)
    return [add for add, is_pending in zip(adds, pending, strict=True) if not is_pending]


def abort(store: ObjectStore, add: Add) -> None:
    """As the protocol says."""
    store.delete(add.source)


def settle_rewrites(store: ObjectStore, changes: Sequence[Change]) -> list[Rewrite]:
    """As the protocol says."""
    rewrites = _rewrites(changes)
    parallel_map(store, partial(abort, store), [one.add for one in rewrites])
    seen = parallel_map(store, store.head, [one.add.key for one in rewrites])
    return [one for one, now in zip(rewrites, seen, strict=True) if _Target(one.add, one.trash).is_there(now)]


def _is_pending(store: ObjectStore, add: Add) -> bool:
    seen = store.head(add.source)
    return seen is not None and seen.size == add.size


def _look(store: ObjectStore, target: _Target) -> _Status | None:
    """Look at a file: it is visible or pending; None if it is neither."""
    # Before the pending object is deleted, the object is the one that this commit replaces, or its successor.
    old = store.head(target.add.key) if target.trash else None
    if target.trash and target.is_there(old):
        return _Status(target, visible=True)
    # In this order: a file that another writer publishes in between is seen as visible, never as missing.
    if _is_pending(store, target.add):
        return _Status(target, old=old)
    return _Status(target, visible=True) if target.is_there(store.head(target.add.key)) else None


def _keep_old(store: ObjectStore, status: _Status) -> _Status:
    """Copy the bytes that a file is about to replace to the trash; return its status afterwards."""
    add, trash, old = status.target.add, status.target.trash, status.old
    if not trash or old is None:  # somebody deleted it: there is nothing to keep, and the new file has all its rows
        return status
    try:
        store.replace(add.key, trash, source_etag=old.etag)
    except (Absent, Refused) as error:
        return _look_again(store, status.target, error)
    return status


def _keep(store: ObjectStore, remove: Remove) -> None:
    """Copy a file that is to go to the trash. One that does not exist was removed before, or was never visible."""
    try:
        store.replace(remove.key, remove.trash, source_etag="")
    except Absent:
        return


def _show(store: ObjectStore, status: _Status) -> None:
    (_rewrite if status.target.trash else _make_visible)(store, status)


def _rewrite(store: ObjectStore, status: _Status) -> None:
    """Make a file visible whose old bytes are in the trash. The crash tests recognise this step by its name."""
    _make_visible(store, status)


def _make_visible(store: ObjectStore, status: _Status) -> None:
    """Make a file visible. What counts is not the store's answer, but the object afterwards."""
    add, old = status.target.add, status.old
    try:
        store.copy(add.source, add.key, etag=old.etag if old else None)
    except (Absent, Refused) as error:
        _look_again(store, status.target, error)
        return
    except LakeError:
        if not status.target.is_there(store.head(add.key)):
            raise
        return
    if not status.target.is_there(seen := store.head(add.key)):
        hint = "find out who else writes to this bucket; the next run tries again"
        size = seen.size if seen else None
        raise LakeError("a file that was published is not whole", hint=hint, at=store.place(add.key), size=size)


def _look_again(store: ObjectStore, target: _Target, error: Absent | Refused) -> _Status:
    """Another writer has published this file meanwhile, and maybe gone on to later commits."""
    if target.is_there(store.head(target.add.key)):
        return _Status(target, visible=True)
    again = _look(store, target)
    if again is None:
        raise Missing([target.add.key]) from error
    if not again.visible:
        hint = "find out who else writes to this bucket; the next run tries again"
        raise LakeError("somebody else changed a file", hint=hint, at=store.place(target.add.key)) from error
    return again
