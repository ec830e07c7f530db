"""Pending files become visible and old ones go, in phases; each may be repeated, and by two writers at once.

All adds are visible before anything is taken away, and what is aborted is gone before anything is: so a writer that
only slept, and whose commit was taken back meanwhile, can make nothing visible and can take nothing away.

A file that is replaced under its name has to be copied to the trash before: the copy asks for the version that was
there while the upload was not completed, so it never has the bytes of a later commit. An upload is completed only once,
so it never puts back those of an earlier one. By the object's metadata everybody knows which of the two is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bridge.errors import LakeError
from bridge.storage.parallel import parallel_map
from bridge.storage.protocol import Add, Change, Missing, Remove, Rewrite
from bridge.storage.s3.bucket import Bucket, Seen
from bridge.storage.s3.errors import FAILURES, explain, is_gone, is_refused
from bridge.storage.s3.pending import made_of

Parts = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Coming:
    """A file to publish; `trash` is where the bytes that it replaces are kept, empty if it replaces none."""

    add: Add
    trash: str = ""

    def is_there(self, bucket: Bucket) -> bool:
        """Return whether it is visible: a new name by its size, a rewritten file by what it was made of."""
        there = bucket.head(self.add.key)
        if there is None or there.size != self.add.size:
            return False
        return not self.trash or there.made_of == made_of(self.add.source)


@dataclass(frozen=True, slots=True)
class _Found:
    """Where a file to publish was found: visible, or pending with the parts of its upload.

    `old` is what a rewritten file was while the upload was not completed.
    """

    coming: _Coming
    parts: Parts
    visible: bool = False
    old: Seen | None = None


def publish(bucket: Bucket, changes: Sequence[Change]) -> None:
    """Make adds visible and removes invisible, as the protocol says."""
    adds = [add for change in changes for add in change.adds]
    removes = [remove for change in changes for remove in change.removes]
    coming = [*(_Coming(add) for add in adds), *(_Coming(one.add, one.trash) for one in _rewrites(changes))]
    found = parallel_map(bucket, partial(_look, bucket), coming)
    if missing := [one.add.key for one, where in zip(coming, found, strict=True) if where is None]:
        raise Missing(missing)
    parallel_map(bucket, partial(abort, bucket), [add for change in changes for add in change.aborts])
    pending = [where for where in found if where and not where.visible]
    pending = [where for where in parallel_map(bucket, partial(_keep_old, bucket), pending) if not where.visible]
    parallel_map(bucket, partial(_show, bucket), pending)
    parallel_map(bucket, partial(_keep, bucket), removes)
    # A source that stayed could be published once more, after a later commit has removed the file again.
    sources = [add.source for add in adds if not add.upload]
    bucket.delete_all([*sources, *(remove.key for remove in removes)])


def _rewrites(changes: Sequence[Change]) -> list[Rewrite]:
    return [one for change in changes for one in change.rewrites]


def missing_pending(bucket: Bucket, adds: Sequence[Add]) -> list[Add]:
    """Return those of these pending files that are not there, whole."""
    pending = parallel_map(bucket, partial(_pending, bucket), adds)
    return [add for add, parts in zip(adds, pending, strict=True) if parts is None]


def abort(bucket: Bucket, add: Add) -> None:
    """Have a pending file be gone for good; no error if it is already."""
    if not add.upload:
        bucket.delete(add.source)
        return
    try:
        bucket.patient.abort_multipart_upload(**bucket.at(add.key), UploadId=add.upload)
    except FAILURES as error:
        if not is_gone(error):
            raise explain(error, "abort an upload", bucket.place(add.key)) from error


def settle_rewrites(bucket: Bucket, changes: Sequence[Change]) -> list[Rewrite]:
    """Have the uploads of rewritten files be gone, and return those that are completed already."""
    rewrites = _rewrites(changes)
    parallel_map(bucket, partial(abort, bucket), [one.add for one in rewrites])
    done = parallel_map(bucket, lambda one: _Coming(one.add, one.trash).is_there(bucket), rewrites)
    return [one for one, is_done in zip(rewrites, done, strict=True) if is_done]


def _look(bucket: Bucket, coming: _Coming) -> _Found | None:
    # What is there while the upload is not completed, nor aborted, is what this commit replaces, and nothing later.
    old = bucket.head(coming.add.key) if coming.trash else None
    # In this order: a file that another writer publishes in between is then seen as visible, never as missing.
    if (parts := _pending(bucket, coming.add)) is not None:
        return _Found(coming, parts, old=old)
    return _Found(coming, [], visible=True) if coming.is_there(bucket) else None


def _pending(bucket: Bucket, add: Add) -> Parts | None:
    """Return the parts of a pending file's upload, none for a plain one; None unless the file is there, whole."""
    if not add.upload:
        return [] if bucket.size(add.source) == add.size else None
    try:
        pages = bucket.patient.get_paginator("list_parts").paginate(**bucket.at(add.key), UploadId=add.upload)
        there = [part for page in pages for part in page.get("Parts", [])]
    except FAILURES as error:
        if is_gone(error):
            return None
        raise explain(error, "look for an upload", bucket.place(add.key)) from error
    if sum(part["Size"] for part in there) != add.size:
        return None
    return [{"PartNumber": part["PartNumber"], "ETag": part["ETag"]} for part in there]


def _keep_old(bucket: Bucket, found: _Found) -> _Found:
    """Copy what a file is about to replace into the trash; return what to go on with."""
    add, trash, old = found.coming.add, found.coming.trash, found.old
    if not trash or old is None:  # somebody deleted it: there is nothing to keep, and what comes has all its rows
        return found
    try:
        bucket.copy(add.key, trash, old.size, old.etag)
    except FAILURES as error:
        if not is_gone(error) and not is_refused(error):
            raise explain(error, "copy to the trash", bucket.place(add.key)) from error
        # Another writer has published this file meanwhile, and maybe gone on to later commits.
        again = _look(bucket, found.coming)
        if again is None:
            raise Missing([add.key]) from error
        if not again.visible:
            hint = "look who else writes to this bucket; the next run tries again"
            raise LakeError("a file was changed by somebody", hint=hint, at=bucket.place(add.key)) from error
        return again
    return found


def _keep(bucket: Bucket, remove: Remove) -> None:
    """Copy a file that is to go into the trash. One that is not there was removed before, or never came."""
    if (size := bucket.size(remove.key)) is None:
        return
    try:
        bucket.copy(remove.key, remove.trash, size)
    except FAILURES as error:
        if not is_gone(error):
            raise explain(error, "copy to the trash", bucket.place(remove.key)) from error


def _show(bucket: Bucket, found: _Found) -> None:
    if found.coming.trash:
        _rewrite(bucket, found)
    else:
        _bring_in(bucket, found)


def _rewrite(bucket: Bucket, found: _Found) -> None:
    """Replace a file whose old bytes are in the trash."""
    _bring_in(bucket, found)


def _bring_in(bucket: Bucket, found: _Found) -> None:
    """Make a pending file visible. Whatever the store answers, what is at the key afterwards counts."""
    add = found.coming.add
    try:
        if add.upload:
            bucket.patient.complete_multipart_upload(
                **bucket.at(add.key), UploadId=add.upload, MultipartUpload={"Parts": found.parts}
            )
        else:
            bucket.copy(add.source, add.key, add.size)
    except FAILURES as error:
        # Stores answer a second completion with success, "no such upload" or an internal error.
        if found.coming.is_there(bucket):
            return
        if (again := _look(bucket, found.coming)) is None:
            raise Missing([add.key]) from error
        if not again.visible:
            raise explain(error, "publish", bucket.place(add.key)) from error
        return
    if not found.coming.is_there(bucket):
        hint = "look who else writes to this bucket; the next run tries again"
        size = bucket.size(add.key)
        raise LakeError("a file that was published is not whole", hint=hint, at=bucket.place(add.key), size=size)
