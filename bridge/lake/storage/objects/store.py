"""The calls of an object store of which `ObjectStorage` is made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

from bridge.errors import LakeError
from bridge.lake.storage.conditional import Conditional, Passing, Refused, patient_attempts
from bridge.lake.storage.protocol import Add, PendingFile, VersionedObject

Parts: TypeAlias = list[dict[str, Any]]
"""The parts of an upload, as the store names them; none for an object."""


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


class ObjectStore(Conditional, Protocol):
    """One bucket, or a folder of it. Calls raise `LakeError` with a hint, after the store's library has tried again.

    The last five say how a file waits, and how it becomes visible: as an object that is copied (`CopyingStore`), or as
    an upload that is completed (S3).
    """

    parallel: int
    """How many calls to make at once."""
    other_etag: ClassVar[str]
    """An ETag that no object has."""
    conditions_hint: ClassVar[str]
    """The remedy if the store does not honour conditional puts."""

    def get_range(self, key: str, start: int, count: int, etag: str, /) -> VersionedObject | None:
        """These bytes of the object; None when there is none. Raises `LakeError` if it has another ETag."""

    def head(self, key: str, /) -> Headers | None:
        """None when there is no such object."""

    def put(self, key: str, data: bytes, /) -> None:
        """Create or replace an object."""

    def refuses(self, key: str, data: bytes, etag: str | None, /) -> bool:
        """Whether the store refuses a put whose condition does not hold; the bytes are the object's own."""
        for _ in patient_attempts():
            try:
                self.put_once(key, data, etag)
            except Refused:
                return True
            except Passing:
                continue
            return False
        hint = "check the network and the store, then run again"
        raise LakeError("the store does not answer", hint=hint, at=self.place("").rstrip("/"))

    def replace(self, source: str, key: str, seen: Headers | None, /) -> None:
        """Copy an object to the trash, over whatever there is, if it is still the one that was seen (None: any).

        Raises `Absent` if it does not exist, and `Refused` if it is another one.
        """

    def delete(self, key: str, /) -> None:
        """Delete an object; no error if it does not exist."""

    def delete_all(self, keys: Sequence[str], /) -> None:
        """Delete many objects."""

    def list(self, folder: str, /, *, deep: bool) -> Iterator[str]:
        """The keys below a folder; if not `deep`, those directly in it, and its folders with a slash at the end."""

    def for_libraries(self) -> dict[str, str]:
        """The `storage_options` of delta-rs and Polars. Keys in it may expire."""

    def open_pending(self, source: str, key: str, /, *, over: bool, readable: bool) -> PendingFile:
        """As `Storage` says."""

    def pending(self, folder: str, /) -> Iterator[Add]:
        """As `Storage` says; the folder ends in a slash."""

    def pending_parts(self, add: Add, /) -> Parts | None:
        """The parts of a pending file; None unless it exists whole."""

    def show(self, add: Add, parts: Parts, old: Headers | None, /) -> None:
        """Make a pending file visible; `old` is the object that it replaces.

        Its answer proves nothing, whether it returns or raises `Absent`, `Refused` or `LakeError`: look at the object.
        """

    def abort(self, add: Add, /) -> None:
        """As `Storage` says."""
