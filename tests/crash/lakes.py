"""A lake looked at from outside, with no code of ours: a folder, or a bucket of an S3 server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit


class Lake(Protocol):
    """Where a pipeline's destination is. A key is a `/`-separated path below `uri`."""

    uri: str
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

    def filesystem(self) -> Any:
        """pyarrow's own client of the store."""
        from pyarrow.fs import S3FileSystem

        scheme, endpoint = self.environ["AWS_ENDPOINT_URL"].split("://")
        return S3FileSystem(
            access_key=self.environ["AWS_ACCESS_KEY_ID"],
            secret_key=self.environ["AWS_SECRET_ACCESS_KEY"],
            region=self.environ["AWS_DEFAULT_REGION"],
            endpoint_override=endpoint,
            scheme=scheme,
        )

    def close(self) -> None:
        """Let go of the connections."""
        self.client.close()
