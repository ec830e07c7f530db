"""Makes pending files visible and takes old ones away, in phases that may be repeated, even by two writers at once.

Pending files to abort go first, and all adds are visible before anything is taken away. So a writer that only slept,
while somebody took its commit back, finds nothing to publish, makes nothing visible and takes nothing away.

A file that is replaced under its name is copied to the trash before, and only if it still has the ETag that it had
while its successor was pending; so the trash never gets the bytes of a later commit. A copy that replaces it demands
the same ETag, and an upload is completed only once; so the file never gets the bytes of an earlier commit. An object's
metadata tells what it was made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from bridge.errors import LakeError
from bridge.lake.storage.conditional import Refused
from bridge.lake.storage.objects.store import Absent, Headers, ObjectStore, Parts
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
    parts: Parts
    """Those of the pending file."""
    visible: bool = False
    old: Headers | None = None
    """The object that a rewritten file replaces, as it was while its successor was pending."""


def publish(store: ObjectStore, changes: Sequence[Change]) -> None:
    """As the protocol says."""
    adds = [add for change in changes for add in change.adds]
    removes = [remove for change in changes for remove in change.removes]
    targets = [*(_Target(add) for add in adds), *(_Target(one.add, one.trash) for one in _rewrites(changes))]
    looks = parallel_map(store, partial(_look, store), targets)
    if missing := [target.add.key for target, status in zip(targets, looks, strict=True) if status is None]:
        raise Missing(missing)
    parallel_map(store, store.abort, [add for change in changes for add in change.aborts])
    pending = [status for status in looks if status and not status.visible]
    pending = [status for status in parallel_map(store, partial(_keep_old, store), pending) if not status.visible]
    parallel_map(store, partial(_show, store), pending)
    parallel_map(store, partial(_keep, store), removes)
    # A source that stays could be published once more, after a later commit has removed the file.
    sources = [target.add.source for target in targets if not target.add.upload]
    store.delete_all([*sources, *(remove.key for remove in removes)])


def _rewrites(changes: Sequence[Change]) -> list[Rewrite]:
    return [one for change in changes for one in change.rewrites]


def missing_pending(store: ObjectStore, adds: Sequence[Add]) -> list[Add]:
    """As the protocol says."""
    pending = parallel_map(store, store.pending_parts, adds)
    return [add for add, parts in zip(adds, pending, strict=True) if parts is None]


def settle_rewrites(store: ObjectStore, changes: Sequence[Change]) -> list[Rewrite]:
    """As the protocol says."""
    rewrites = _rewrites(changes)
    parallel_map(store, store.abort, [one.add for one in rewrites])
    seen = parallel_map(store, store.head, [one.add.key for one in rewrites])
    return [one for one, now in zip(rewrites, seen, strict=True) if _Target(one.add, one.trash).is_there(now)]


def _look(store: ObjectStore, target: _Target) -> _Status | None:
    """Look at a file: it is visible or pending; None if it is neither."""
    # While its successor is pending, the object is the one that this commit replaces, and no later one.
    old = store.head(target.add.key) if target.trash else None
    if target.trash and target.is_there(old):
        return _Status(target, [], visible=True)
    # In this order: a file that another writer publishes in between is seen as visible, never as missing.
    if (parts := store.pending_parts(target.add)) is not None:
        return _Status(target, parts, old=old)
    return _Status(target, [], visible=True) if target.is_there(store.head(target.add.key)) else None


def _keep_old(store: ObjectStore, status: _Status) -> _Status:
    """Copy the bytes that a file is about to replace to the trash; return its status afterwards."""
    target, old = status.target, status.old
    if not target.trash or old is None:  # somebody deleted it: nothing to keep, and the new file has all its rows
        return status
    try:
        store.replace(target.add.key, target.trash, old)
    except (Absent, Refused) as error:
        return _look_again(store, target, error)
    return status


def _keep(store: ObjectStore, remove: Remove) -> None:
    """Copy a file that is to go to the trash. One that does not exist was removed before, or was never visible."""
    try:
        store.replace(remove.key, remove.trash, None)
    except Absent:
        return


def _show(store: ObjectStore, status: _Status) -> None:
    (_rewrite if status.target.trash else _make_visible)(store, status)


def _rewrite(store: ObjectStore, status: _Status) -> None:
    """Make a file visible whose old bytes are in the trash. The crash tests recognise this step by its name."""
    _make_visible(store, status)


def _make_visible(store: ObjectStore, status: _Status) -> None:
    """Make a file visible. What counts is not the store's answer, but the object afterwards."""
    target, key = status.target, status.target.add.key
    try:
        store.show(target.add, status.parts, status.old)
    except (Absent, Refused, LakeError) as error:
        _look_again(store, target, error)
        return
    if not target.is_there(seen := store.head(key)):
        size = seen.size if seen else None
        raise LakeError("a file that was published is not whole", hint=_SOMEBODY, at=store.place(key), size=size)


def _look_again(store: ObjectStore, target: _Target, error: Absent | Refused | LakeError) -> _Status:
    """Return the status of a file that another writer has published meanwhile, and maybe gone on to later commits.

    So has this one, if only its answer was lost. Raises the error, or what is behind it, if the file is not visible.
    """
    key = target.add.key
    if not target.trash and target.is_there(store.head(key)):
        return _Status(target, [], visible=True)
    again = _look(store, target)
    if again is None:
        raise Missing([key]) from error
    if again.visible:
        return again
    if isinstance(error, LakeError):
        raise error
    raise LakeError("somebody else changed a file", hint=_SOMEBODY, at=store.place(key)) from error


_SOMEBODY = "find out who else writes to this bucket; the next run tries again"
