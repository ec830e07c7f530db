"""Single requests to a bucket: what each of them sends, and what the answers mean.

A pending file is an object, or an upload to its final key that is not completed (`pending.py`). A copy has no condition
on what it replaces, as most stores know none; so a file that replaces an object is always an upload, which can be
completed only once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from boto3.s3.transfer import TransferConfig

from bridge.errors import SettingsError
from bridge.lake.storage.conditional import Passing, Refused, patient_attempts
from bridge.lake.storage.objects.store import Absent, Headers, ObjectStore, Parts
from bridge.lake.storage.parallel import parallel_map
from bridge.lake.storage.protocol import Add, PendingFile, VersionedObject, refuse_outside
from bridge.lake.storage.s3.clients import clients
from bridge.lake.storage.s3.errors import (
    FAILURES,
    TORN,
    code_of,
    explain,
    explained,
    is_gone,
    is_passing,
    is_refused,
    status_of,
)
from bridge.lake.storage.s3.foreign import object_store_options
from bridge.lake.storage.s3.pending import PendingObject
from bridge.settings.values.stores import S3Options

_LARGEST_COPY = 5 * 1024**3
_BATCH = 1000
_READS = 4
MADE_OF = "singer-bridge-made-of"
"""The metadata that names the pending file of an upload that replaces an object."""
_CANNOT = ("NotImplemented", "InvalidArgument", "InvalidRequest", "UnsupportedOperation", "501", "400")
"""With status 400 or 501: the store knows no such condition."""


@dataclass(slots=True)
class S3Store(ObjectStore):
    """A bucket or a folder of it. Keys are below the folder: `prefix` is empty or ends in a slash."""

    name: str
    prefix: str
    options: S3Options
    parallel: int = 16
    other_etag: ClassVar[str] = '"00000000000000000000000000000000"'
    conditions_hint: ClassVar[str] = (
        "the store must honour conditional puts (If-None-Match and If-Match), as Amazon S3, MinIO, Cloudflare R2 and "
        "Ceph from Squid on do: update it or choose another, or a folder"
    )

    @classmethod
    def of(cls, uri: str, options: S3Options) -> S3Store:
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
        with self.explained("write", key):
            self.patient.put_object(Body=data, **self.at(key), **self.write_options(key))

    def get(self, key: str) -> VersionedObject | None:
        return self._get(key)

    def get_range(self, key: str, start: int, count: int, etag: str) -> VersionedObject | None:
        return self._get(key, Range=f"bytes={start}-{start + count - 1}", IfMatch=etag)

    def _get(self, key: str, **how: str) -> VersionedObject | None:
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

    def put_once(self, key: str, data: bytes, etag: str | None) -> str:
        try:
            return self._put_once(key, data, etag)
        except FAILURES as error:
            if is_refused(error) or (etag is not None and code_of(error) == "NoSuchKey"):
                raise Refused from error
            if is_passing(error):
                raise Passing from error
            raise explain(error, "write", self.place(key)) from error

    def _put_once(self, key: str, data: bytes, etag: str | None) -> str:
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        answer = self.once.put_object(Body=data, **self.at(key), **self.write_options(key), **condition)
        return str(answer["ETag"])

    def refuses(self, key: str, data: bytes, etag: str | None) -> bool:
        """Unlike others, a store that speaks S3 may also refuse the condition itself: then it honours none."""
        passing: BaseException | None = None
        for _ in patient_attempts():
            try:
                self._put_once(key, data, etag)
            except FAILURES as error:
                if status_of(error) == 412:
                    return True
                if status_of(error) in (400, 501) and code_of(error) in _CANNOT:
                    return False
                if not is_passing(error):
                    raise explain(error, "write", self.place(key)) from error
                passing = error
            else:
                return False
        assert passing is not None
        raise explain(passing, "write", self.place(key)) from passing

    def head(self, key: str) -> Headers | None:
        try:
            answer = self.patient.head_object(**self.at(key))
        except FAILURES as error:
            if is_gone(error):
                return None
            raise explain(error, "look for", self.place(key)) from error
        made_of = answer.get("Metadata", {}).get(MADE_OF, "")
        return Headers(int(answer["ContentLength"]), str(answer["ETag"]), str(made_of))

    def replace(self, source: str, key: str, seen: Headers | None) -> None:
        current = seen or self.head(source)
        if current is None:
            raise Absent
        try:
            self.copy(source, key, current.size, seen.etag if seen else "")
        except FAILURES as error:
            if is_gone(error):
                raise Absent from error
            if seen and is_refused(error):
                raise Refused from error
            raise explain(error, "copy to the trash", self.place(source)) from error

    def copy(self, source: str, key: str, size: int, etag: str = "") -> None:
        """Copy an object within the store, if it still has this ETag. Raises what boto3 raises."""
        how = self.write_options(key) | ({"CopySourceIfMatch": etag} if etag else {})
        if size > _LARGEST_COPY:  # a single request copies no more
            parts = TransferConfig(multipart_threshold=_LARGEST_COPY, multipart_chunksize=_LARGEST_COPY // 10)
            self.patient.copy(self.at(source), **self.at(key), ExtraArgs=how, Config=parts)
        else:
            self.patient.copy_object(CopySource=self.at(source), **self.at(key), **how)

    def delete(self, key: str) -> None:
        try:
            self.patient.delete_object(**self.at(key))
        except FAILURES as error:
            if not is_gone(error):
                raise explain(error, "delete", self.place(key)) from error

    def delete_all(self, keys: Sequence[str]) -> None:
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

    def list(self, folder: str, *, deep: bool) -> Iterator[str]:
        how = {} if deep else {"Delimiter": "/"}
        with self.explained("list", folder.rstrip("/")):
            for page in self._pages("list_objects_v2", Prefix=self.prefix + folder, **how):
                keys = [item["Key"] for item in page.get("Contents", [])]
                keys += [item["Prefix"] for item in page.get("CommonPrefixes", [])]
                yield from (str(key).removeprefix(self.prefix) for key in keys)

    def for_libraries(self) -> dict[str, str]:
        with self.explained("open the bucket", ""):
            return object_store_options(self.name, self.options)

    def open_pending(self, source: str, key: str, *, over: bool, readable: bool) -> PendingFile:
        return PendingObject(self, source, key, over=over, readable=readable)

    def pending(self, folder: str) -> Iterator[Add]:
        try:
            for page in self._pages("list_objects_v2", Prefix=self.prefix + folder):
                for item in page.get("Contents", []):
                    yield Add(item["Key"].removeprefix(self.prefix), "", 0)
            for page in self._pages("list_multipart_uploads", Prefix=self.prefix):
                for item in page.get("Uploads", []):
                    yield Add("", item["Key"].removeprefix(self.prefix), 0, item["UploadId"])
        except FAILURES:  # it needs rights of its own, and some stores cannot list uploads; nothing depends on it
            return

    def pending_parts(self, add: Add) -> Parts | None:
        if not add.upload:
            seen = self.head(add.source)
            return [] if seen and seen.size == add.size else None
        parts = self.parts(add.key, add.upload)
        if parts is None or sum(part["Size"] for part in parts) != add.size:
            return None
        return [{"PartNumber": part["PartNumber"], "ETag": part["ETag"]} for part in parts]

    def show(self, add: Add, parts: Parts, old: Headers | None) -> None:
        with self.explained("publish", add.key):
            if add.upload:
                self.complete_upload(add.key, add.upload, parts)
            else:
                self.copy(add.source, add.key, add.size)

    def abort(self, add: Add) -> None:
        if add.source:  # beside an upload there is one if a view has read it
            self.delete(add.source)
        if not add.upload:
            return
        try:
            self.patient.abort_multipart_upload(**self.at(add.key), UploadId=add.upload)
        except FAILURES as error:
            if not is_gone(error):
                raise explain(error, "abort an upload", self.place(add.key)) from error

    def begin_upload(self, key: str, made_of: str = "") -> str:
        """Begin an object in parts; return the upload's name."""
        metadata = {"Metadata": {MADE_OF: made_of}} if made_of else {}
        with self.explained("begin an upload", key):
            answer = self.patient.create_multipart_upload(**self.at(key), **self.write_options(key), **metadata)
        return str(answer["UploadId"])

    def put_part(self, key: str, upload: str, number: int, data: bytes) -> str:
        """Send a part, from 1; return its ETag."""
        with self.explained("upload a part", key):
            answer = self.patient.upload_part(**self.at(key), UploadId=upload, PartNumber=number, Body=data)
        return str(answer["ETag"])

    def parts(self, key: str, upload: str) -> Parts | None:
        """All parts of an upload; None if it was completed or aborted."""
        try:
            pages = self._pages("list_parts", **self.at(key), UploadId=upload)
            return [part for page in pages for part in page.get("Parts", [])]
        except FAILURES as error:
            if is_gone(error):
                return None
            raise explain(error, "look for an upload", self.place(key)) from error

    def complete_upload(self, key: str, upload: str, parts: Parts) -> None:
        """Make the object visible. Raises what boto3 raises."""
        self.patient.complete_multipart_upload(**self.at(key), UploadId=upload, MultipartUpload={"Parts": parts})

    def _pages(self, operation: str, **how: str) -> Iterator[dict[str, Any]]:
        yield from self.patient.get_paginator(operation).paginate(**{"Bucket": self.name, **how})


def _is_small(key: str) -> bool:
    """Whether an object is part of a log, ours or a table's own."""
    own_log = "/_delta_log/" in key or ("/metadata/" in key and not key.endswith(".parquet"))
    return key.startswith(".bridge/") or own_log
