"""Pending files become visible and old ones go, in phases; each may be repeated, and by two writers at once.

All adds are visible before anything is taken away, and what is aborted is gone before anything is: so a writer that
only slept, and whose commit was taken back meanwhile, can make nothing visible and can take nothing away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bridge.errors import LakeError
from bridge.storage.parallel import each
from bridge.storage.protocol import Add, Change, Missing, Remove
from bridge.storage.s3.bucket import Bucket
from bridge.storage.s3.errors import FAILURES, explain, is_gone

__all__ = ["abort", "lost", "publish"]

Parts = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Found:
    """Where a file to publish was found: visible, or pending with the parts of its upload."""

    add: Add
    parts: Parts
    visible: bool = False


def publish(bucket: Bucket, changes: Sequence[Change]) -> None:
    """Make adds visible and removes invisible, as the protocol says."""
    adds = [add for change in changes for add in change.adds]
    removes = [remove for change in changes for remove in change.removes]
    found = each(bucket, partial(_look, bucket), adds)
    if missing := [add.key for add, where in zip(adds, found, strict=True) if where is None]:
        raise Missing(missing)
    each(bucket, partial(abort, bucket), [add for change in changes for add in change.aborts])
    each(bucket, partial(_bring_in, bucket), [where for where in found if where and not where.visible])
    each(bucket, partial(_keep, bucket), removes)
    # A source that stayed could be published once more, after a later commit has removed the file again.
    sources = [add.source for add in adds if not add.upload]
    bucket.delete_all([*sources, *(remove.key for remove in removes)])


def lost(bucket: Bucket, adds: Sequence[Add]) -> list[Add]:
    """Return those of these pending files that are not there, whole."""
    pending = each(bucket, partial(_pending, bucket), adds)
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


def _look(bucket: Bucket, add: Add) -> _Found | None:
    # In this order: a file that another writer publishes in between is then seen as visible, never as missing.
    if (parts := _pending(bucket, add)) is not None:
        return _Found(add, parts)
    return _Found(add, [], visible=True) if bucket.size(add.key) == add.size else None


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


def _keep(bucket: Bucket, remove: Remove) -> None:
    """Copy a file that is to go into the trash. One that is not there was removed before, or never came."""
    if (size := bucket.size(remove.key)) is None:
        return
    try:
        bucket.copy(remove.key, remove.trash, size)
    except FAILURES as error:
        if not is_gone(error):
            raise explain(error, "copy to the trash", bucket.place(remove.key)) from error


def _bring_in(bucket: Bucket, found: _Found) -> None:
    """Make a pending file visible. Whatever the store answers, what is at the key afterwards counts."""
    add = found.add
    try:
        if add.upload:
            bucket.patient.complete_multipart_upload(
                **bucket.at(add.key), UploadId=add.upload, MultipartUpload={"Parts": found.parts}
            )
        else:
            bucket.copy(add.source, add.key, add.size)
    except FAILURES as error:
        # Stores answer a second completion with success, "no such upload" or an internal error.
        if bucket.size(add.key) == add.size:
            return
        if (again := _look(bucket, add)) is None:
            raise Missing([add.key]) from error
        if not again.visible:
            raise explain(error, "publish", bucket.place(add.key)) from error
        return
    if (size := bucket.size(add.key)) != add.size:
        hint = "look who else writes to this bucket; the next run tries again"
        raise LakeError("a file that was published is not whole", hint=hint, at=bucket.place(add.key), size=size)
