"""What a bucket is set to, and what it lets us do: for those who look after it. No run depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import Any

from bridge.errors import LakeError
from bridge.storage.s3.bucket import Bucket
from bridge.storage.s3.errors import FAILURES, code_of, explain, is_refused

_ARCHIVES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
_NOT_SET = frozenset({"NoSuchLifecycleConfiguration", "ObjectLockConfigurationNotFoundError"})


@dataclass(frozen=True, slots=True)
class Place:
    """Where a bucket is. `region` is the one that the store names, empty if it names none; `asked` the one we ask.

    `skew` is how much the store's clock and ours differ at least; it tells whole seconds only.
    """

    server: str
    region: str
    asked: str
    skew: timedelta


@dataclass(frozen=True, slots=True)
class Rule:
    """A lifecycle rule that is on: whose keys it is about, and what it does to them."""

    name: str
    prefix: str
    expires: bool
    archives: bool
    abort_days: int | None
    """Days after which an unfinished upload is ended; None: never."""

    def covers(self, prefix: str) -> bool:
        """Whether objects below a prefix are among those that it is about."""
        return prefix.startswith(self.prefix) or self.prefix.startswith(prefix)


def look(bucket: Bucket) -> Place:
    """Return where the bucket is. Raises `LakeError` unless it is there and may be listed."""
    client, before = bucket.patient, datetime.now(timezone.utc)
    with bucket.explained("list", ""):
        answer = client.list_objects_v2(Bucket=bucket.name, Prefix=bucket.prefix, MaxKeys=1)
    headers, after = answer["ResponseMetadata"].get("HTTPHeaders", {}), datetime.now(timezone.utc)
    there = parsedate_to_datetime(headers["date"]) if "date" in headers else before
    return Place(
        str(headers.get("server", "")),
        str(headers.get("x-amz-bucket-region", "")),
        str(client.meta.region_name or ""),
        max(before - there - timedelta(seconds=1), there - after, timedelta()),
    )


def rules(bucket: Bucket) -> list[Rule]:
    """Return the lifecycle rules that may touch our objects, which have no tags."""
    found = _setting(bucket, "get_bucket_lifecycle_configuration", "read the lifecycle rules").get("Rules", [])
    return [_rule(one) for one in found if one.get("Status") == "Enabled" and not _by_tags(one)]


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


def versioning(bucket: Bucket) -> str:
    """Return `Enabled`, `Suspended`, or nothing where there never was any."""
    return str(_setting(bucket, "get_bucket_versioning", "read the versioning").get("Status", ""))


def lock_mode(bucket: Bucket) -> str:
    """Return how new objects are locked, `GOVERNANCE` or `COMPLIANCE`; empty where they are not."""
    said = _setting(bucket, "get_object_lock_configuration", "read the object lock")
    return str(said.get("ObjectLockConfiguration", {}).get("Rule", {}).get("DefaultRetention", {}).get("Mode", ""))


def _setting(bucket: Bucket, operation: str, action: str) -> dict[str, Any]:
    try:
        return dict(getattr(bucket.patient, operation)(Bucket=bucket.name))
    except FAILURES as error:
        if code_of(error) in _NOT_SET:
            return {}
        raise explain(error, action, bucket.place("")) from error


def try_upload(bucket: Bucket, key: str) -> None:
    """Begin an upload, look at its parts and end it, as a run does. Raises `LakeError` where one of these fails."""
    client, at = bucket.patient, bucket.at(key)
    with bucket.explained("begin an upload", key):
        upload = client.create_multipart_upload(**at, **bucket.kept_as(key))["UploadId"]
    try:
        with bucket.explained("upload a part", key):
            client.upload_part(**at, UploadId=upload, PartNumber=1, Body=b"part")
        with bucket.explained("look for an upload", key):
            there = client.list_parts(**at, UploadId=upload).get("Parts", [])
        if [part["Size"] for part in there] != [4]:
            hint = "the store loses parts of uploads: look into its manual, or choose another"
            raise LakeError("an upload does not have the part that was sent", hint=hint, at=bucket.place(key))
    finally:
        with bucket.explained("abort an upload", key):
            client.abort_multipart_upload(**at, UploadId=upload)
    _expect_none(bucket, key, upload)


def try_copy(bucket: Bucket, key: str) -> bool:
    """Copy an object, as a run does with one that it is about to replace; return whether the wrong version is refused.

    Raises `LakeError` where a copy fails. `key` and `KEY.copy` are gone afterwards.
    """
    copy = f"{key}.copy"
    try:
        bucket.put(key, b"old")
        there = bucket.require(key)
        with bucket.explained("copy an object", key):
            bucket.copy(key, copy, there.size, there.etag)
        try:
            bucket.copy(key, copy, there.size, '"00000000000000000000000000000000"')
        except FAILURES as error:
            if not is_refused(error):
                raise explain(error, "copy an object", bucket.place(key)) from error
            return True
        return False
    finally:
        bucket.delete_all([key, copy])


def _expect_none(bucket: Bucket, key: str, upload: str) -> None:
    try:
        parts = bucket.patient.list_parts(**bucket.at(key), UploadId=upload).get("Parts", [])
    except FAILURES as error:
        if code_of(error) in ("NoSuchUpload", "404"):
            return
        raise explain(error, "look for an upload", bucket.place(key)) from error
    if parts:
        hint = "the store keeps uploads that were given up: look into its manual, or choose another"
        raise LakeError("an upload that was aborted is still there", hint=hint, at=bucket.place(key))
