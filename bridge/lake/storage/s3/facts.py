"""How a bucket is set up, and what it lets us do: for `doctor`. No run depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import Any

from bridge.errors import LakeError
from bridge.lake.storage.protocol import Add
from bridge.lake.storage.reading import require
from bridge.lake.storage.s3.errors import FAILURES, code_of, explain, is_refused
from bridge.lake.storage.s3.store import S3Store

_ARCHIVES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
_NOT_SET = frozenset({"NoSuchLifecycleConfiguration", "ObjectLockConfigurationNotFoundError"})


@dataclass(frozen=True, slots=True)
class Place:
    """Where a bucket is."""

    server: str
    region: str
    """The region that the store names; empty if it names none."""
    asked: str
    """The region that we ask."""
    skew: timedelta
    """By how much the store's clock and ours differ at least; the store's tells whole seconds only."""


@dataclass(frozen=True, slots=True)
class Rule:
    """An enabled lifecycle rule."""

    name: str
    prefix: str
    expires: bool
    archives: bool
    abort_days: int | None
    """Days after which it aborts unfinished uploads; None: never."""

    def covers(self, prefix: str) -> bool:
        """Whether it applies to objects below a prefix."""
        return prefix.startswith(self.prefix) or self.prefix.startswith(prefix)


def look(store: S3Store) -> Place:
    """Where the bucket is. Raises `LakeError` unless it exists and may be listed."""
    client, before = store.patient, datetime.now(timezone.utc)
    with store.explained("list", ""):
        answer = client.list_objects_v2(Bucket=store.name, Prefix=store.prefix, MaxKeys=1)
    headers, after = answer["ResponseMetadata"].get("HTTPHeaders", {}), datetime.now(timezone.utc)
    clock = parsedate_to_datetime(headers["date"]) if "date" in headers else before
    return Place(
        str(headers.get("server", "")),
        str(headers.get("x-amz-bucket-region", "")),
        str(client.meta.region_name or ""),
        max(before - clock - timedelta(seconds=1), clock - after, timedelta()),
    )


def rules(store: S3Store) -> list[Rule]:
    """The lifecycle rules that may apply to our objects, which have no tags."""
    answer = _setting(store, "get_bucket_lifecycle_configuration", "read the lifecycle rules")
    return [_rule(one) for one in answer.get("Rules", []) if one.get("Status") == "Enabled" and not _by_tags(one)]


def _by_tags(rule: dict[str, Any]) -> bool:
    which = rule.get("Filter", {})
    return "Tag" in which or bool(which.get("And", {}).get("Tags"))


def _rule(rule: dict[str, Any]) -> Rule:
    which = rule.get("Filter", {})
    expiration = rule.get("Expiration", {})
    return Rule(
        name=str(rule.get("ID", "")),
        prefix=str(rule.get("Prefix") or which.get("Prefix") or which.get("And", {}).get("Prefix") or ""),
        expires="Days" in expiration or "Date" in expiration,
        archives=any(move.get("StorageClass") in _ARCHIVES for move in rule.get("Transitions", [])),
        abort_days=rule.get("AbortIncompleteMultipartUpload", {}).get("DaysAfterInitiation"),
    )


def versioning(store: S3Store) -> str:
    """`Enabled`, `Suspended`, or empty where it never was enabled."""
    return str(_setting(store, "get_bucket_versioning", "read the versioning").get("Status", ""))


def lock_mode(store: S3Store) -> str:
    """How new objects are locked: `GOVERNANCE`, `COMPLIANCE`, or empty where they are not."""
    answer = _setting(store, "get_object_lock_configuration", "read the object lock")
    return str(answer.get("ObjectLockConfiguration", {}).get("Rule", {}).get("DefaultRetention", {}).get("Mode", ""))


def _setting(store: S3Store, operation: str, action: str) -> dict[str, Any]:
    try:
        return dict(getattr(store.patient, operation)(Bucket=store.name))
    except FAILURES as error:
        if code_of(error) in _NOT_SET:
            return {}
        raise explain(error, action, store.place("")) from error


def try_upload(store: S3Store, key: str) -> None:
    """Begin an upload, list its parts and abort it, as a run does. Raises `LakeError` where one of these fails."""
    upload = store.begin_upload(key)
    try:
        store.put_part(key, upload, 1, b"part")
        if [part["Size"] for part in store.parts(key, upload) or ()] != [4]:
            hint = "the store loses parts of uploads: see its manual, or choose another"
            raise LakeError("an upload does not have the part that was sent", hint=hint, at=store.place(key))
    finally:
        store.abort(Add("", key, 0, upload))
    if store.parts(key, upload):
        hint = "the store keeps uploads that were aborted: see its manual, or choose another"
        raise LakeError("an upload that was aborted is still there", hint=hint, at=store.place(key))


def try_copy(store: S3Store, key: str) -> bool:
    """Copy an object, as a run does before it replaces one; return whether the store refuses a wrong ETag.

    Raises `LakeError` where a copy fails. Deletes `key` and `KEY.copy` afterwards.
    """
    copy = f"{key}.copy"
    try:
        store.put(key, b"old")
        seen = require(store, key)
        with store.explained("copy an object", key):
            store.copy(key, copy, seen.size, seen.etag)
        try:
            store.copy(key, copy, seen.size, '"00000000000000000000000000000000"')
        except FAILURES as error:
            if not is_refused(error):
                raise explain(error, "copy an object", store.place(key)) from error
            return True
        return False
    finally:
        store.delete_all([key, copy])
