"""Single requests to a bucket: what each of them sends, and what the answers mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from boto3.s3.transfer import TransferConfig

from bridge.errors import SettingsError
from bridge.lake.storage.conditional import Passing, Refused
from bridge.lake.storage.parallel import parallel_map
from bridge.lake.storage.protocol import VersionedObject, refuse_outside
from bridge.lake.storage.s3.clients import clients
from bridge.lake.storage.s3.errors import FAILURES, TORN, code_of, explain, explained, is_gone, is_passing, is_refused
from bridge.settings.values.stores import S3Options

_LARGEST_COPY = 5 * 1024**3
_BATCH = 1000
_READS = 4
MADE_OF = "singer-bridge-made-of"
"""The metadata that names the pending file of an upload that replaces an object."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The answer to a HEAD of an object."""

    size: int
    """Bytes."""
    etag: str
    made_of: str
    """Its `MADE_OF`; empty without."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket or a folder of it. Keys are below the folder: `prefix` is empty or ends in a slash."""

    name: str
    prefix: str
    options: S3Options
    parallel: int = 16

    @classmethod
    def of(cls, uri: str, options: S3Options) -> Bucket:
        """The bucket of `s3://name/folder`."""
        name, _, folder = uri.removeprefix("s3://").partition("/")
        if not name:
            raise SettingsError("the bucket has no name", hint="write it as s3://bucket/folder", bucket=uri)
        folder = folder.strip("/")
        return cls(name, f"{folder}/" if folder else "", options)

    @property
    def once(self) -> Any:
        """The client that sends each request once."""
        with self.explained("open the bucket", ""):
            return clients(self.options).once

    @property
    def patient(self) -> Any:
        """The client that tries again."""
        with self.explained("open the bucket", ""):
            return clients(self.options).patient

    def at(self, key: str) -> dict[str, str]:
        """How a request names an object. Raises `CorruptLake` for a key that a store may take for a path elsewhere."""
        refuse_outside(key)
        return {"Bucket": self.name, "Key": self.prefix + key}

    def place(self, key: str) -> str:
        """An object's URI, for people."""
        return f"s3://{self.name}/{self.prefix}{key}"

    def explained(self, action: str, key: str) -> Any:
        """Turn what boto3 raises into a `LakeError` about this object."""
        return explained(action, self.place(key))

    def write_options(self, key: str) -> dict[str, str]:
        """Encryption, ACL and storage class of a new object. Logs are small and often read: no storage class."""
        options = self.options
        chosen = {
            "ServerSideEncryption": options.sse or ("aws:kms" if options.kms_key_id else None),
            "SSEKMSKeyId": options.kms_key_id,
            "ACL": options.acl,
            "StorageClass": None if _is_small(key) else options.storage_class,
        }
        return {name: value for name, value in chosen.items() if value}

    def put(self, key: str, data: bytes) -> None:
        """Create or replace an object."""
        with self.explained("write", key):
            self.patient.put_object(Body=data, **self.at(key), **self.write_options(key))

    def get(self, key: str, **how: str) -> VersionedObject | None:
        """An object or a range of it, complete; None when there is none."""
        for attempt in range(_READS):
            try:
                answer = self.patient.get_object(**self.at(key), **how)
                return VersionedObject(answer["Body"].read(), answer["ETag"])
            except FAILURES as error:
                if is_gone(error):
                    return None
                if not isinstance(error, TORN) or attempt == _READS - 1:
                    raise explain(error, "read", self.place(key)) from error
        raise AssertionError("unreachable")

    def get_range(self, key: str, start: int, count: int, etag: str) -> VersionedObject | None:
        """These bytes of an object that still has this ETag; None when there is none."""
        return self.get(key, Range=f"bytes={start}-{start + count - 1}", IfMatch=etag)

    def put_once(self, key: str, data: bytes, etag: str | None) -> str:
        """One conditional put, as `bridge.lake.storage.conditional` describes it."""
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        try:
            answer = self.once.put_object(Body=data, **self.at(key), **self.write_options(key), **condition)
            return str(answer["ETag"])
        except FAILURES as error:
            if is_refused(error) or (etag is not None and code_of(error) == "NoSuchKey"):
                raise Refused from error
            if is_passing(error):
                raise Passing from error
            raise explain(error, "write", self.place(key)) from error

    def head(self, key: str) -> Seen | None:
        """Size, ETag and `MADE_OF` of an object; None when there is none."""
        try:
            answer = self.patient.head_object(**self.at(key))
        except FAILURES as error:
            if is_gone(error):
                return None
            raise explain(error, "look for", self.place(key)) from error
        made_of = answer.get("Metadata", {}).get(MADE_OF, "")
        return Seen(int(answer["ContentLength"]), str(answer["ETag"]), str(made_of))

    def size(self, key: str) -> int | None:
        """An object's size in bytes; None when there is none."""
        seen = self.head(key)
        return seen.size if seen else None

    def copy(self, source: str, key: str, size: int, etag: str = "") -> None:
        """Copy an object within the store, if it still has this ETag. Raises what boto3 raises."""
        how = self.write_options(key) | ({"CopySourceIfMatch": etag} if etag else {})
        if size > _LARGEST_COPY:  # a single request copies no more
            parts = TransferConfig(multipart_threshold=_LARGEST_COPY, multipart_chunksize=_LARGEST_COPY // 10)
            self.patient.copy(self.at(source), **self.at(key), ExtraArgs=how, Config=parts)
        else:
            self.patient.copy_object(CopySource=self.at(source), **self.at(key), **how)

    def delete(self, key: str) -> None:
        """Delete an object; no error if it does not exist."""
        try:
            self.patient.delete_object(**self.at(key))
        except FAILURES as error:
            if not is_gone(error):
                raise explain(error, "delete", self.place(key)) from error

    def delete_all(self, keys: Sequence[str]) -> None:
        """Delete many objects; no error for those that do not exist."""
        batches = [keys[start : start + _BATCH] for start in range(0, len(keys), _BATCH)]
        left = [key for refused in parallel_map(self, self._delete_batch, batches) for key in refused]
        parallel_map(self, self.delete, left)

    def _delete_batch(self, keys: Sequence[str]) -> Sequence[str]:
        """Delete up to 1000 objects; return those that need a request of their own, whose error says why."""
        if len(keys) == 1:
            return keys
        names = [{"Key": self.at(key)["Key"]} for key in keys]
        try:
            answer = self.patient.delete_objects(Bucket=self.name, Delete={"Objects": names, "Quiet": True})
        except FAILURES:  # not every store can do this: single requests tell what is really wrong
            return keys
        return [str(error["Key"]).removeprefix(self.prefix) for error in answer.get("Errors", [])]


def _is_small(key: str) -> bool:
    """Whether an object is part of a log, ours or a table's own."""
    own_log = "/_delta_log/" in key or ("/metadata/" in key and not key.endswith(".parquet"))
    return key.startswith(".bridge/") or own_log
