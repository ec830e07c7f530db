"""Makes pending files visible and takes old ones away, in phases that may be repeated, even by two writers at once.

Uploads to abort go first, and all adds are visible before anything is taken away. So a writer that only slept, while
somebody took its commit back, makes nothing visible and takes nothing away.

A file that is replaced under its name is copied to the trash before. The copy demands the ETag that the object
had before the upload was completed, so the trash never gets the bytes of a later commit. An upload is completed only
once, so it never puts back the bytes of an earlier commit. The object's metadata tells which of the two is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bridge.errors import LakeError
from bridge.lake.storage.parallel import parallel_map
from bridge.lake.storage.protocol import Add, Change, Missing, Remove, Rewrite, made_of
from bridge.lake.storage.s3.bucket import Bucket, Seen
from bridge.lake.storage.s3.errors import FAILURES, explain, is_gone, is_refused

Parts = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Target:
    """A file to publish."""

    add: Add
    trash: str = ""
    """Where the bytes that it replaces go; empty: it replaces none."""

    def is_visible(self, bucket: Bucket) -> bool:
        """A file with a new name is known by its size, a rewritten one by what it was made of."""
        seen = bucket.head(self.add.key)
        if seen is None or seen.size != self.add.size:
            return False
        return not self.trash or seen.made_of == made_of(self.add.source)


@dataclass(frozen=True, slots=True)
class _Status:
    """The state of a file to publish: it is visible, or pending."""

    target: _Target
    parts: Parts
    """The parts of its upload."""
    visible: bool = False
    old: Seen | None = None
    """The object that a rewritten file replaces, as it was before the upload was completed."""


def publish(bucket: Bucket, changes: Sequence[Change]) -> None:
    """As the protocol says."""
    adds = [add for change in changes for add in change.adds]
    removes = [remove for change in changes for remove in change.removes]
    targets = [*(_Target(add) for add in adds), *(_Target(one.add, one.trash) for one in _rewrites(changes))]
    looks = parallel_map(bucket, partial(_look, bucket), targets)
    if missing := [target.add.key for target, status in zip(targets, looks, strict=True) if status is None]:
        raise Missing(missing)
    parallel_map(bucket, partial(abort, bucket), [add for change in changes for add in change.aborts])
    pending = [status for status in looks if status and not status.visible]
    pending = [status for status in parallel_map(bucket, partial(_keep_old, bucket), pending) if not status.visible]
    parallel_map(bucket, partial(_show, bucket), pending)
    parallel_map(bucket, partial(_keep, bucket), removes)
    # A source that stays could be published once more, after a later commit has removed the file.
    sources = [add.source for add in adds if not add.upload]
    bucket.delete_all([*sources, *(remove.key for remove in removes)])


def _rewrites(changes: Sequence[Change]) -> list[Rewrite]:
    return [one for change in changes for one in change.rewrites]


def missing_pending(bucket: Bucket, adds: Sequence[Add]) -> list[Add]:
    """As the protocol says."""
    pending = parallel_map(bucket, partial(_pending, bucket), adds)
    return [add for add, parts in zip(adds, pending, strict=True) if parts is None]


def abort(bucket: Bucket, add: Add) -> None:
    """As the protocol says."""
    if add.source:  # beside an upload there is one if a view has read it
        bucket.delete(add.source)
    if not add.upload:
        return
    try:
        bucket.patient.abort_multipart_upload(**bucket.at(add.key), UploadId=add.upload)
    except FAILURES as error:
        if not is_gone(error):
            raise explain(error, "abort an upload", bucket.place(add.key)) from error


def settle_rewrites(bucket: Bucket, changes: Sequence[Change]) -> list[Rewrite]:
    """As the protocol says."""
    rewrites = _rewrites(changes)
    parallel_map(bucket, partial(abort, bucket), [one.add for one in rewrites])
    visible = parallel_map(bucket, lambda one: _Target(one.add, one.trash).is_visible(bucket), rewrites)
    return [one for one, is_visible in zip(rewrites, visible, strict=True) if is_visible]


def _look(bucket: Bucket, target: _Target) -> _Status | None:
    """Look at a file: it is visible or pending; None if it is neither."""
    # Before the upload is completed or aborted, the object is the one that this commit replaces, and no later one.
    old = bucket.head(target.add.key) if target.trash else None
    # In this order: a file that another writer publishes in between is seen as visible, never as missing.
    if (parts := _pending(bucket, target.add)) is not None:
        return _Status(target, parts, old=old)
    return _Status(target, [], visible=True) if target.is_visible(bucket) else None


def _pending(bucket: Bucket, add: Add) -> Parts | None:
    """The parts of a pending file's upload, none for an object; None unless the file exists whole."""
    if not add.upload:
        return [] if bucket.size(add.source) == add.size else None
    try:
        pages = bucket.patient.get_paginator("list_parts").paginate(**bucket.at(add.key), UploadId=add.upload)
        parts = [part for page in pages for part in page.get("Parts", [])]
    except FAILURES as error:
        if is_gone(error):
            return None
        raise explain(error, "look for an upload", bucket.place(add.key)) from error
    if sum(part["Size"] for part in parts) != add.size:
        return None
    return [{"PartNumber": part["PartNumber"], "ETag": part["ETag"]} for part in parts]


def _keep_old(bucket: Bucket, status: _Status) -> _Status:
    """Copy the bytes that a file is about to replace to the trash; return its status afterwards."""
    add, trash, old = status.target.add, status.target.trash, status.old
    if not trash or old is None:  # somebody deleted it: there is nothing to keep, and the new file has all its rows
        return status
    try:
        bucket.copy(add.key, trash, old.size, old.etag)
    except FAILURES as error:
        if not is_gone(error) and not is_refused(error):
            raise explain(error, "copy to the trash", bucket.place(add.key)) from error
        # Another writer has published this file meanwhile, and maybe gone on to later commits.
        again = _look(bucket, status.target)
        if again is None:
            raise Missing([add.key]) from error
        if not again.visible:
            hint = "find out who else writes to this bucket; the next run tries again"
            raise LakeError("somebody else changed a file", hint=hint, at=bucket.place(add.key)) from error
        return again
    return status


def _keep(bucket: Bucket, remove: Remove) -> None:
    """Copy a file that is to go to the trash. One that does not exist was removed before, or was never visible."""
    if (size := bucket.size(remove.key)) is None:
        return
    try:
        bucket.copy(remove.key, remove.trash, size)
    except FAILURES as error:
        if not is_gone(error):
            raise explain(error, "copy to the trash", bucket.place(remove.key)) from error


def _show(bucket: Bucket, status: _Status) -> None:
    (_rewrite if status.target.trash else _make_visible)(bucket, status)


def _rewrite(bucket: Bucket, status: _Status) -> None:
    """Make a file visible whose old bytes are in the trash. The crash tests recognise this step by its name."""
    _make_visible(bucket, status)


def _make_visible(bucket: Bucket, status: _Status) -> None:
    """Make a file visible. What counts is not the store's answer, but the object afterwards."""
    add = status.target.add
    try:
        if add.upload:
            bucket.patient.complete_multipart_upload(
                **bucket.at(add.key), UploadId=add.upload, MultipartUpload={"Parts": status.parts}
            )
        else:
            bucket.copy(add.source, add.key, add.size)
    except FAILURES as error:
        # Stores answer a second completion with success, "no such upload" or an internal error.
        if status.target.is_visible(bucket):
            return
        if (again := _look(bucket, status.target)) is None:
            raise Missing([add.key]) from error
        if not again.visible:
            raise explain(error, "publish", bucket.place(add.key)) from error
        return
    if not status.target.is_visible(bucket):
        hint = "find out who else writes to this bucket; the next run tries again"
        size = bucket.size(add.key)
        raise LakeError("a file that was published is not whole", hint=hint, at=bucket.place(add.key), size=size)
