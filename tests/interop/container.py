"""A lake in a container of Azurite for the crash tests: put back before each crash; each request is a step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.crash.faults import Watcher
from tests.crash.places import Place
from tests.interop.azurite import Azurite, Container

Frozen = dict[str, tuple[bytes, dict[str, str]]]
"""Bytes and metadata by name."""


class InContainer(Place):
    """A lake in a container of its own."""

    name = "azurite"

    def __init__(self, folder: Path, server: Azurite) -> None:
        self.scratch = folder / "spool"
        self.uri = f"az://{server.bucket('lake')}/team"
        self.lake: Container = Container(self.uri, server.environ)

    def freeze(self) -> Frozen:
        blobs = self.lake.client.list_blobs(include=["metadata"])
        return {blob.name: (self.lake.client.download_blob(blob.name).readall(), blob.metadata) for blob in blobs}

    @contextmanager
    def thawed(self, frozen: Frozen | None = None) -> Iterator[None]:
        self.put_back(frozen or {})
        try:
            yield
        finally:
            self.put_back({})

    def put_back(self, frozen: Frozen) -> None:
        for name in list(self.lake.client.list_blob_names()):
            self.lake.client.delete_blob(name)
        for name, (data, metadata) in frozen.items():
            self.lake.client.upload_blob(name, data, metadata=metadata)

    def forget(self, frozen: Frozen) -> None:
        frozen.clear()

    def lose(self, key: str, upload: bool = False) -> None:
        self.lake.client.delete_blob(f"team/{key}")

    def put(self, key: str, data: bytes) -> None:
        self.lake.client.upload_blob(f"team/{key}", data, overwrite=True)


def see_requests(watcher: Watcher) -> None:
    """See the requests of Azure's library."""
    from azure.core.pipeline.transport import RequestsTransport

    send = RequestsTransport.send

    def seen(transport: Any, request: Any, **how: Any) -> Any:
        return watcher.sent(*_objects(request), lambda: send(transport, request, **how))

    RequestsTransport.send = seen  # type: ignore[method-assign]


def _objects(request: Any) -> tuple[str, str, str]:
    target, origin = _name(request.url), request.headers.get("x-ms-copy-source")
    if origin:
        return "COPY", _name(origin), target
    verb = {"block": "PART", "blocklist": "COMPLETE"}.get(parse_qs(urlsplit(request.url).query).get("comp", [""])[0])
    return verb or request.method, target, target


def _name(url: str) -> str:
    """Container and key: the path without the account before them."""
    return unquote(urlsplit(url).path).lstrip("/").partition("/")[2]
