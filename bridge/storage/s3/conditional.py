"""Puts that only one of two writers can win, even if the answer to one is lost."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from bridge.errors import LakeError
from bridge.storage.s3.bucket import Bucket
from bridge.storage.s3.errors import FAILURES, code_of, explain, is_passing, is_refused, status_of

_PATIENCE = 15.0
"""Seconds for which a put is tried again."""


def put_if(bucket: Bucket, key: str, data: bytes, condition: dict[str, str]) -> str | None:
    """Put an object under a condition. Returns its new ETag; None if the store then holds other bytes, or no object.

    A 412 does not prove that somebody else won: perhaps our own put had won, and its answer was lost. The bytes tell.
    Raises `LakeError` if the outcome stays unknown; the put may then land at any later time.
    """
    unknown: BaseException | None = None
    for _ in _attempts():
        try:
            return str(
                bucket.once.put_object(Body=data, **bucket.at(key), **bucket.write_options(key), **condition)["ETag"]
            )
        except FAILURES as error:
            if _is_refusal(error, condition):
                current = bucket.get(key)
                if current and current.data == data:
                    return current.etag
                if current or "IfMatch" in condition:
                    return None
            elif not is_passing(error):
                raise explain(error, "write", bucket.place(key)) from error
            unknown = error
    try:
        current = bucket.get(key)
    except LakeError as error:
        raise _unknown(bucket, key, unknown) from error
    if current and current.data == data:
        return current.etag
    if current and current.etag != condition.get("IfMatch"):
        return None
    raise _unknown(bucket, key, unknown) from unknown


def _attempts() -> Iterator[None]:
    until, wait = time.monotonic() + _PATIENCE, 0.2
    while True:
        yield
        pause = wait * random.uniform(0.5, 1)  # noqa: S311 - keeps writers from coming back all at once
        if time.monotonic() + pause > until:
            return
        time.sleep(pause)
        wait = min(2 * wait, 4)


def _is_refusal(error: BaseException, condition: dict[str, str]) -> bool:
    if is_refused(error):
        return True
    return "IfMatch" in condition and code_of(error) == "NoSuchKey"


def _unknown(bucket: Bucket, key: str, cause: BaseException | None) -> LakeError:
    hint = "check the network and the store, then run again: the next run finds it out, and nothing is lost"
    return LakeError(f"it is not known whether an object was written: {cause}", hint=hint, at=bucket.place(key))


def check_conditions(bucket: Bucket, key: str) -> None:
    """Raise `LakeError` unless the store refuses a put over an object that exists, or that has another ETag.

    It puts the object's own bytes: a store that takes them has changed nothing.
    """
    current = bucket.get(key)
    if current is None:
        raise LakeError("an object that was just written is not there", hint=_OTHER_STORE, at=bucket.place(key))
    for condition in ({"IfNoneMatch": "*"}, {"IfMatch": '"00000000000000000000000000000000"'}):
        if not _refuses(bucket, key, current.data, condition):
            raise LakeError("the bucket does not keep two writers apart", hint=_OTHER_STORE, at=bucket.place(""))


_OTHER_STORE = (
    "the store must honour conditional puts (If-None-Match and If-Match), as Amazon S3, MinIO, Cloudflare R2 and Ceph "
    "from Squid on do: update it or choose another, or a folder"
)


def _refuses(bucket: Bucket, key: str, data: bytes, condition: dict[str, str]) -> bool:
    passing: BaseException | None = None
    for _ in _attempts():
        try:
            bucket.once.put_object(Body=data, **bucket.at(key), **bucket.write_options(key), **condition)
        except FAILURES as error:
            if status_of(error) == 412:
                return True
            if status_of(error) in (400, 501) and code_of(error) in _CANNOT:
                return False
            if not is_passing(error):
                raise explain(error, "write", bucket.place(key)) from error
            passing = error
        else:
            return False
    assert passing is not None
    raise explain(passing, "write", bucket.place(key)) from passing


_CANNOT = ("NotImplemented", "InvalidArgument", "InvalidRequest", "UnsupportedOperation", "501", "400")
