"""The calls of an object store of which `ObjectStorage` is made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from bridge.lake.storage.conditional import Conditional
from bridge.lake.storage.protocol import VersionedObject


class Absent(Exception):
    """A request failed because the object that it reads does not exist."""


@dataclass(frozen=True, slots=True)
class Headers:
    """The facts that a store keeps about an object."""

    size: int
    """Bytes."""
    etag: str
    """Changes with each write of the object, also of the same bytes."""
    made_of: str
    """`made_of` of the pending file that it was published from, if it replaced another object; else empty. ASCII."""


class Upload(Protocol):
    """An object that is being written. Nobody sees it before `finish`; a crash leaves nothing that counts."""

    def add(self, part: bytes, /) -> None:
        """Append these bytes. All parts but the last have the same size, a multiple of 256 KiB."""

    def finish(self) -> None:
        """Make the object visible and durable, whole."""

    def discard(self) -> None:
        """Give it up; does not raise."""


class ObjectStore(Conditional, Protocol):
    """One bucket, or a folder of it. Calls raise `LakeError` with a hint, after the store's library has tried again."""

    parallel: int
    """How many calls to make at once."""

    def get_range(self, key: str, start: int, count: int, etag: str, /) -> VersionedObject | None:
        """These bytes of the object; None when there is none. Raises `LakeError` if it has another ETag."""

    def head(self, key: str, /) -> Headers | None:
        """None when there is no such object."""

    def put(self, key: str, data: bytes, made_of: str = "", /) -> None:
        """Create or replace an object."""

    def upload(self, key: str, made_of: str = "", /) -> Upload:
        """Begin a new object of many bytes."""

    def copy(self, source: str, key: str, /, *, source_etag: str = "", etag: str | None = None) -> None:
        """Copy an object with its `made_of`, atomically, over one that has this ETag (None: that does not exist).

        Raises `Absent` if there is no source, and `Refused` if it has another ETag than `source_etag` (empty: any), or
        the object at `key` another than `etag`. After any other error it may have had its effect.
        """

    def replace(self, source: str, key: str, /, *, source_etag: str) -> None:
        """Copy an object that has this ETag over whatever there is; raises as `copy` does."""

    def delete(self, key: str, /) -> None:
        """Delete an object; no error if it does not exist."""

    def list(self, folder: str, /, *, deep: bool) -> Iterator[str]:
        """The keys below a folder; if not `deep`, those directly in it, and its folders with a slash at the end."""

    def for_libraries(self) -> dict[str, str]:
        """The `storage_options` of delta-rs and Polars. Keys in it may expire."""
