"""A lake looked at from outside, with no code of ours: a folder, or a bucket of a store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from tests.support.gcs import client_of


class Lake(Protocol):
    """Where a pipeline's destination is. A key is a `/`-separated path below `uri`."""

    uri: str
    store: str
    """Which store it is in, by the word of a lake's name: `s3` of `s3-mixed`; empty: a folder."""
    exchanges: bool
    """Whether a table is replaced whole, so that no listing shows anything between old and new."""

    def read(self, key: str) -> bytes | None:
        """Return an object's bytes, None if there is none."""

    def files(self, prefix: str) -> dict[str, int]:
        """Return all that is below a folder: size in bytes by the path below it."""

    def uploads(self, prefix: str) -> list[str]:
        """Return the keys below a folder to which an upload is under way; a folder knows no such thing."""


class Folder:
    """A lake on this machine."""

    store = ""
    exchanges = True

    def __init__(self, root: Path) -> None:
        self.root, self.uri = root, str(root)

    def read(self, key: str) -> bytes | None:
        try:
            return (self.root / key).read_bytes()
        except FileNotFoundError:
            return None

    def files(self, prefix: str) -> dict[str, int]:
        top = self.root / prefix
        found = {}
        for folder, _, names in os.walk(top):  # a folder that goes away meanwhile is passed over
            for name in names:
                path = Path(folder, name)
                try:
                    found[str(path.relative_to(top))] = path.stat().st_size
                except FileNotFoundError:
                    continue
        return found

    def uploads(self, prefix: str) -> list[str]:
        return []


class Bucket:
    """A lake on an S3 server. `environ` is what a command needs to reach it: keys, region, endpoint."""

    store = "s3"
    exchanges = False

    def __init__(self, uri: str, environ: Mapping[str, str]) -> None:
        import boto3
        from botocore.config import Config

        self.uri = uri
        self.environ = dict(environ)
        where = urlsplit(uri)
        self.bucket, self.prefix = where.netloc, where.path.strip("/")
        session = boto3.session.Session(
            environ["AWS_ACCESS_KEY_ID"], environ["AWS_SECRET_ACCESS_KEY"], region_name=environ["AWS_DEFAULT_REGION"]
        )
        # witnesses look from several threads
        config = Config(s3={"addressing_style": "path"}, max_pool_connections=16, retries={"mode": "standard"})
        self.client: Any = session.client("s3", endpoint_url=environ["AWS_ENDPOINT_URL"], config=config)

    def _key(self, key: str) -> str:
        return f"{self.prefix}/{key}" if self.prefix else key

    def read(self, key: str) -> bytes | None:
        try:
            return bytes(self.client.get_object(Bucket=self.bucket, Key=self._key(key))["Body"].read())
        except self.client.exceptions.NoSuchKey:
            return None

    def files(self, prefix: str) -> dict[str, int]:
        top = self._key(prefix).rstrip("/") + "/"
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=top)
        return {item["Key"][len(top) :]: item["Size"] for page in pages for item in page.get("Contents", [])}

    def uploads(self, prefix: str) -> list[str]:
        top = self._key(prefix).rstrip("/") + "/"
        pages = self.client.get_paginator("list_multipart_uploads").paginate(Bucket=self.bucket)
        keys = [upload["Key"] for page in pages for upload in page.get("Uploads", [])]
        return [key for key in keys if key.startswith(top)]

    def close(self) -> None:
        """Let go of the connections."""
        self.client.close()


class GcsBucket:
    """A lake on an emulator of Google Cloud Storage. `environ` is what a command needs to reach it."""

    store = "gcs"
    exchanges = False

    def __init__(self, uri: str, environ: Mapping[str, str]) -> None:
        self.uri, self.environ = uri, dict(environ)
        where = urlsplit(uri)
        self.bucket, self.prefix = where.netloc, where.path.strip("/")
        self.client: Any = client_of(environ["STORAGE_EMULATOR_HOST"])

    def read(self, key: str) -> bytes | None:
        from google.cloud.exceptions import NotFound

        try:
            return bytes(self.client.bucket(self.bucket).blob(f"{self.prefix}/{key}").download_as_bytes())
        except NotFound:
            return None

    def files(self, prefix: str) -> dict[str, int]:
        top = f"{self.prefix}/{prefix}".rstrip("/") + "/"
        return {blob.name[len(top) :]: blob.size for blob in self.client.list_blobs(self.bucket, prefix=top)}

    def uploads(self, prefix: str) -> list[str]:
        return []  # nobody can list them

    def close(self) -> None:
        """Nothing: the connections are shared."""


Stored = Bucket | GcsBucket
"""A lake in a store, which is reached by its `environ`."""

_STORES: dict[str, tuple[str, type[Bucket | GcsBucket]]] = {"s3": ("s3", Bucket), "gcs": ("gs", GcsBucket)}


def store_of(name: str) -> str:
    """The store in the name of a lake, such as `s3` of `s3-mixed`; empty for a folder."""
    return name.rpartition("-")[0]


def in_store(name: str, environ: Mapping[str, str]) -> Stored:
    """The lake of this name, in the bucket of this name, of the store that its name begins with."""
    scheme, kind = _STORES[name.partition("-")[0]]
    return kind(f"{scheme}://{name}/team", environ)
