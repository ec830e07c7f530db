"""Try whether a store that speaks S3 keeps two writers apart."""

from __future__ import annotations

from bridge.errors import LakeError
from bridge.lake.storage.conditional import patient_attempts
from bridge.lake.storage.s3.bucket import Bucket
from bridge.lake.storage.s3.errors import FAILURES, code_of, explain, is_passing, status_of


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
    for _ in patient_attempts():
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
