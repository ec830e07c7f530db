"""What a run needs of an S3 bucket: each right is tried, and the rules of the bucket itself are looked up.

All trials are below a prefix that no reader sees, and are removed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta

from bridge.durations import duration
from bridge.errors import LakeError
from bridge.findings import Check, Finding, fine, run_checks, warning
from bridge.lake.storage import Storage
from bridge.lake.storage.objects.checks import rights, swap
from bridge.lake.storage.s3.bucket import Bucket
from bridge.lake.storage.s3.facts import Place, Rule, lock_mode, look, rules, try_copy, try_upload, versioning
from bridge.settings.options import Pipeline
from bridge.settings.values.stores import S3Options

_SKEW = timedelta(seconds=5)
_LONGEST_RUN = 3
"""Days that an upload may wait: a long run, and a night until somebody starts the next one."""
_GIVEN_UP = "uploads that crashes leave behind: they cost space, and `singer-bridge` finds most of them itself"


def s3_checks(pipeline: Pipeline, storage: Storage, further: list[Check]) -> list[Check]:
    """The checks of an S3 bucket. If it cannot be reached, only the first is made, and none of the `further`."""
    section = pipeline.destination.s3
    bucket = Bucket.of(storage.uri, section.options if section else S3Options())
    return [("bucket", lambda: _bucket(bucket, storage, further))]


def _bucket(bucket: Bucket, storage: Storage, further: list[Check]) -> Iterator[Finding]:
    place = look(bucket)
    server = f" on {bucket.options.endpoint_url}" if bucket.options.endpoint_url else ""
    yield fine("bucket", f"{storage.uri}{server} exists" + (f", in {place.region}" if place.region else ""))
    prefix = f".doctor-{uuid.uuid4().hex}"
    checks: list[Check] = [
        ("rights", lambda: rights(storage, prefix)),
        ("swap", lambda: swap(storage, f"{prefix}/swapped")),
        ("uploads", lambda: _uploads(bucket, f"{prefix}/upload")),
        ("copies", lambda: _copies(bucket, f"{prefix}/copied")),
        *further,
        ("lifecycle", lambda: _lifecycle(bucket, place)),
        ("versioning", lambda: _versioning(bucket)),
        ("object lock", lambda: _object_lock(bucket)),
        ("clock", lambda: _clock(place)),
        ("region", lambda: _region(place)),
    ]
    yield from run_checks(checks)


def _uploads(bucket: Bucket, key: str) -> Iterator[Finding]:
    try_upload(bucket, key)
    yield fine("uploads", "large files can be uploaded in parts; uploads can be listed and aborted")


def _copies(bucket: Bucket, key: str) -> Iterator[Finding]:
    if try_copy(bucket, key):
        yield fine("copies", "an object is copied, and only in the requested version")
        return
    yield warning(
        "copies",
        "the store copies an object whatever version is requested",
        "it ignores x-amz-copy-source-if-match, which matters where files are replaced under their names (upsert): "
        "never `unlock` a pipeline whose run may be alive, or `rollback` may bring back rows that are too new",
    )


def _unreadable(check: str, failure: LakeError) -> Finding:
    return fine(check, f"could not be read ({failure.message.partition(' at=')[0]}); nothing depends on it")


def _lifecycle(bucket: Bucket, place: Place) -> Iterator[Finding]:
    try:
        covering = [rule for rule in rules(bucket) if rule.covers(bucket.prefix)]
    except LakeError as failure:
        yield _unreadable("lifecycle", failure)
        return
    harmful = [finding for rule in covering for finding in _harm(rule)]
    yield from harmful
    days = min((rule.abort_days for rule in covering if rule.abort_days is not None), default=None)
    purges = ". This server itself ends uploads after 24 hours: let no run be longer" if _is_minio(place) else ""
    if days is None:
        text = f"no rule ends {_GIVEN_UP}. Advice: AbortIncompleteMultipartUpload after 7 days"
        yield fine("lifecycle", text + purges)
    elif not harmful:
        yield fine("lifecycle", f"unfinished uploads end after {days} days, and no rule deletes files{purges}")


def _harm(rule: Rule) -> Iterator[Finding]:
    who = f"rule {rule.name or 'without a name'} on {rule.prefix or 'the whole bucket'}"
    if rule.expires:
        fix = "exclude this prefix from it: old files of a table still count, and the commit log has to be whole"
        yield warning("lifecycle", f"{who} deletes objects of the lake: tables would lose rows", fix)
    if rule.archives:
        fix = "exclude this prefix from it, or move objects to GLACIER_IR, which can be read at once"
        yield warning("lifecycle", f"{who} moves objects into an archive: tables could not be read", fix)
    if rule.abort_days is not None and rule.abort_days < _LONGEST_RUN:
        fix = f"let it wait {_LONGEST_RUN} days or more: otherwise a long run loses what it has not committed yet"
        yield warning("lifecycle", f"{who} ends uploads after {rule.abort_days} days", fix)


def _is_minio(place: Place) -> bool:
    return "minio" in place.server.lower()


def _versioning(bucket: Bucket) -> Iterator[Finding]:
    try:
        status = versioning(bucket)
    except LakeError as failure:
        yield _unreadable("versioning", failure)
        return
    if status == "Enabled":
        text = "on: deleted objects stay as old versions. Advice: NoncurrentVersionExpiration after 30 days"
        yield fine("versioning", text)
    else:
        yield fine("versioning", "off; a lake does not need it, but it can bring back what somebody deletes by mistake")


def _object_lock(bucket: Bucket) -> Iterator[Finding]:
    try:
        mode = lock_mode(bucket)
    except LakeError as failure:
        yield _unreadable("object lock", failure)
        return
    if mode:
        fix = "use a bucket without a default retention: removed files would stay, and puts may be refused"
        yield warning("object lock", f"every new object is locked ({mode.lower()})", fix)
    else:
        yield fine("object lock", "off")


def _clock(place: Place) -> Iterator[Finding]:
    if place.skew > _SKEW:
        fix = "set this machine's clock by NTP; a store refuses requests that are 15 minutes off"
        yield warning("clock", f"the store's clock and ours differ by {duration(place.skew)}", fix)
    else:
        yield fine("clock", "the store's clock agrees with ours")


def _region(place: Place) -> Iterator[Finding]:
    if place.region and place.asked not in ("aws-global", place.region):
        fix = f"set destination.s3.region, or AWS_REGION, to {place.region}: each first request takes a detour"
        yield warning("region", f"the bucket is in {place.region}, but {place.asked or 'no region'} is set", fix)
    elif place.region:
        yield fine("region", place.region)
