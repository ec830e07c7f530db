"""What a run needs of an S3 bucket: each right tried out, and what the bucket does by itself looked up.

All trials are below a prefix that no reader sees, and are removed again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial

from bridge.errors import LakeError
from bridge.maintain.doctor.finding import Check, Finding, error, fine, looked_at, warning
from bridge.settings.options import Pipeline
from bridge.settings.values.s3options import S3Options
from bridge.storage import Storage
from bridge.storage.s3.bucket import Bucket
from bridge.storage.s3.facts import Place, Rule, lock_mode, look, rules, try_copy, try_upload, versioning

_SKEW = timedelta(seconds=5)
_LONGEST_RUN = 3
"""Days that an upload may have to wait: a long run, and a night until somebody starts the next."""
_GIVEN_UP = "uploads that crashes leave behind: they cost space, and `singer-bridge` finds most of them itself"


def s3_checks(pipeline: Pipeline, storage: Storage, further: list[Check]) -> list[Check]:
    """Return the checks of an S3 bucket; all but the first, and the `further`, are made only where it is reached."""
    bucket = Bucket.of(storage.uri, pipeline.destination.s3_options or S3Options())
    return [("bucket", lambda: _bucket(bucket, storage, further))]


def _bucket(bucket: Bucket, storage: Storage, further: list[Check]) -> Iterator[Finding]:
    place = look(bucket)
    server = f" on {bucket.options.endpoint_url}" if bucket.options.endpoint_url else ""
    yield fine("bucket", f"{storage.uri}{server} is there" + (f", in {place.region}" if place.region else ""))
    prefix = f".doctor-{uuid.uuid4().hex}"
    checks: list[Check] = [
        ("rights", lambda: _rights(storage, prefix)),
        ("swap", lambda: _swap(storage, f"{prefix}/swapped")),
        ("uploads", lambda: _uploads(bucket, f"{prefix}/upload")),
        ("copies", lambda: _copies(bucket, f"{prefix}/copied")),
        *further,
        ("lifecycle", lambda: _lifecycle(bucket, place)),
        ("versioning", lambda: _versioning(bucket)),
        ("object lock", lambda: _object_lock(bucket)),
        ("clock", lambda: _clock(place)),
        ("region", lambda: _region(place)),
    ]
    yield from looked_at(checks)


def _rights(storage: Storage, prefix: str) -> Iterator[Finding]:
    """Try each request of a run; one that is refused must not hide the others."""
    key, data = f"{prefix}/probe", b"is anybody there?"
    trials: list[tuple[str, Callable[[], object], object]] = [
        ("written", partial(storage.write, key, data), None),
        ("read", partial(storage.read, key), data),
        ("looked for", partial(storage.size, key), len(data)),
        ("listed", lambda: list(storage.list(prefix)), ["probe"]),
        ("deleted", partial(storage.delete, key), None),
    ]
    refused = 0
    for done, act, expected in trials:
        try:
            if (answer := act()) != expected:
                hint = "the store does not answer as S3 does: look into its manual, or choose another"
                raise LakeError(f"an object cannot be {done} as it should be", hint=hint, answer=answer)
        except LakeError as failure:
            refused += 1
            yield error("rights", failure)
    if not refused:
        yield fine("rights", "objects can be written, read, looked for, listed and deleted")


def _swap(storage: Storage, key: str) -> Iterator[Finding]:
    """Two that swap one version: only the first may win."""
    try:
        first = storage.compare_and_swap(key, b"first", None)
        second = storage.compare_and_swap(key, b"second", first)
        late, kept = storage.compare_and_swap(key, b"late", first), storage.read(key)
    finally:
        storage.delete(key)
    if not first or not second or late or kept != b"second":
        hint = "two runs could both hold a pipeline here: the store must honour If-Match; choose another"
        raise LakeError("the bucket lets an old version replace a newer one", hint=hint, bucket=storage.uri)
    yield fine("swap", "a version that is not the newest is refused")


def _uploads(bucket: Bucket, key: str) -> Iterator[Finding]:
    try_upload(bucket, key)
    yield fine("uploads", "large files can be uploaded in parts, looked at and given up")


def _copies(bucket: Bucket, key: str) -> Iterator[Finding]:
    if try_copy(bucket, key):
        yield fine("copies", "an object is copied, and only in the version that was asked for")
        return
    yield warning(
        "copies",
        "the store copies an object whichever version was asked for",
        "it ignores x-amz-copy-source-if-match, which matters where files are replaced under their names (upsert): "
        "never `unlock` a pipeline whose run may live, or `rollback` may bring back rows that are newer than it says",
    )


def _lifecycle(bucket: Bucket, place: Place) -> Iterator[Finding]:
    try:
        found = [rule for rule in rules(bucket) if rule.covers(bucket.prefix)]
    except LakeError as failure:
        yield fine("lifecycle", f"could not be read ({failure.message.partition(' at=')[0]}); nothing depends on it")
        return
    harmful = [finding for rule in found for finding in _harm(rule)]
    yield from harmful
    days = min((rule.abort_days for rule in found if rule.abort_days is not None), default=None)
    purges = ". This server ends uploads after 24 hours by itself: let no run be longer" if _is_minio(place) else ""
    if days is None:
        text = f"no rule ends {_GIVEN_UP}. Advice: AbortIncompleteMultipartUpload after 7 days"
        yield fine("lifecycle", text + purges)
    elif not harmful:
        yield fine("lifecycle", f"unfinished uploads end after {days} days, and no rule takes files away{purges}")


def _harm(rule: Rule) -> Iterator[Finding]:
    who = f"rule {rule.name or 'without a name'} on {rule.prefix or 'the whole bucket'}"
    if rule.expires:
        fix = "leave this prefix out of it: tables have no files that are too old, and the commit log has to be whole"
        yield warning("lifecycle", f"{who} deletes objects of the lake: tables would lose rows", fix)
    if rule.archives:
        fix = "leave this prefix out of it, or move objects to GLACIER_IR, which can be read at once"
        yield warning("lifecycle", f"{who} moves objects into an archive: tables could not be read", fix)
    if rule.abort_days is not None and rule.abort_days < _LONGEST_RUN:
        fix = f"let it wait {_LONGEST_RUN} days or more: else a long run loses what it has not committed yet"
        yield warning("lifecycle", f"{who} ends uploads after {rule.abort_days} days", fix)


def _is_minio(place: Place) -> bool:
    return "minio" in place.server.lower()


def _versioning(bucket: Bucket) -> Iterator[Finding]:
    try:
        status = versioning(bucket)
    except LakeError as failure:
        yield fine("versioning", f"could not be read ({failure.message.partition(' at=')[0]}); nothing depends on it")
        return
    if status == "Enabled":
        text = "on: what is deleted stays as an old version. Advice: NoncurrentVersionExpiration after 30 days"
        yield fine("versioning", text)
    else:
        yield fine("versioning", "off; it is not needed, and would bring back what somebody deletes by mistake")


def _object_lock(bucket: Bucket) -> Iterator[Finding]:
    try:
        mode = lock_mode(bucket)
    except LakeError as failure:
        yield fine("object lock", f"could not be read ({failure.message.partition(' at=')[0]}); nothing depends on it")
        return
    if mode:
        fix = "take a bucket without a default retention: what is removed from tables stays, and puts may be refused"
        yield warning("object lock", f"every new object is locked ({mode.lower()})", fix)
    else:
        yield fine("object lock", "off")


def _clock(place: Place) -> Iterator[Finding]:
    if place.skew > _SKEW:
        fix = "set this machine's clock by NTP; a store refuses requests that are 15 minutes off"
        yield warning("clock", f"the store's clock and ours differ by {place.skew.total_seconds():.0f} s", fix)
    else:
        yield fine("clock", "the store's clock agrees with ours")


def _region(place: Place) -> Iterator[Finding]:
    if place.region and place.asked not in ("aws-global", place.region):
        fix = f"set destination.s3.region to {place.region}, or AWS_REGION: each first request goes a long way round"
        yield warning("region", f"the bucket is in {place.region}, and {place.asked or 'no region'} is asked", fix)
    elif place.region:
        yield fine("region", place.region)
