"""A pending file while it is written: a small one becomes an object, a large one an upload that is not completed.

An upload goes to the file's final key, which nobody sees before it is completed: publishing moves no bytes. A file that
replaces an object is always an upload, however small: an upload can be completed only once, a copy made again.

One that is to be read before it is published becomes an object in any case. If it replaces another, the store copies
it into the upload; whoever asked for it deletes the object after the commit, or else the next run does.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol

from bridge.errors import LakeError
from bridge.lake.storage.parts import PartWriter
from bridge.lake.storage.protocol import Add, made_of

_SMALL = 8 * 1024**2
"""Up to this size an object needs no more requests, and no clean-up of unfinished uploads deletes it."""
_COPIED_PART = 1024**3
"""The store itself copies parts, of up to 5 GiB."""
_AT_ONCE = 3


class Uploads(Protocol):
    """The requests of `S3Store` that write a pending file."""

    @property
    def patient(self) -> Any: ...
    def at(self, key: str) -> dict[str, str]: ...
    def explained(self, action: str, key: str) -> Any: ...
    def put(self, key: str, data: bytes) -> None: ...
    def begin_upload(self, key: str, made_of: str) -> str: ...
    def put_part(self, key: str, upload: str, number: int, data: bytes) -> str: ...
    def complete_upload(self, key: str, upload: str, parts: list[dict[str, Any]]) -> None: ...
    def abort(self, add: Add) -> None: ...


class PendingObject(PartWriter):
    """A file for writing, start to end. Memory holds a part, and up to three that are being sent."""

    def __init__(self, store: Uploads, source: str, key: str, *, over: bool, readable: bool = False) -> None:
        super().__init__()
        self.upload = ""
        self._store, self._source, self._key, self._over = store, source, key, over
        self._readable = readable
        self._to = source if readable else key
        self._sent: dict[int, str] = {}
        self._parts = 0
        self._sending: deque[Future[None]] = deque()
        self._pool: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """Make the file durable."""
        if self.closed:
            return
        self.closed = True
        try:
            if not self.upload and (self._readable or not self._over) and self._written <= _SMALL:
                self._store.put(self._source, bytes(self._buffer))
            else:
                if self._buffer or not self._parts:
                    self._send(bytes(self._buffer))
                while self._sending:
                    self._sending.popleft().result()
            if self._readable:
                self._make_readable()
        except BaseException:
            with suppress(LakeError):  # what is left only takes up space, and the next run looks for it again
                self.discard()
            raise
        finally:
            self._buffer.clear()
            if self._pool:
                self._pool.shutdown()

    def discard(self) -> None:
        """Abort its upload."""
        self.closed = True
        if self._pool:
            self._pool.shutdown(cancel_futures=True)
        if self.upload:
            self._store.abort(Add("", self._to, 0, self.upload))

    def _make_readable(self) -> None:
        """Complete the object. If it is to replace another, have the store copy it into an upload."""
        if self.upload:
            parts = [{"PartNumber": number, "ETag": etag} for number, etag in sorted(self._sent.items())]
            with self._store.explained("complete an upload", self._to):
                self._store.complete_upload(self._to, self.upload, parts)
            self.upload = ""
        if not self._over:
            return
        self._to = self._key
        self._begin()
        for number, start in enumerate(range(0, max(self._written, 1), _COPIED_PART), 1):
            last = min(start + _COPIED_PART, self._written) - 1
            with self._store.explained("copy into an upload", self._key):
                self._store.patient.upload_part_copy(
                    **self._store.at(self._key),
                    UploadId=self.upload,
                    PartNumber=number,
                    CopySource=self._store.at(self._source),
                    **({"CopySourceRange": f"bytes={start}-{last}"} if self._written > _COPIED_PART else {}),
                )

    def _begin(self) -> None:
        replaces = self._over and self._to == self._key
        self.upload = self._store.begin_upload(self._to, made_of(self._source) if replaces else "")

    def _send(self, part: bytes) -> None:
        if self._pool is None:
            self._begin()
            self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="upload")
        while len(self._sending) >= _AT_ONCE:
            self._sending.popleft().result()
        self._parts += 1
        self._sending.append(self._pool.submit(self._put_part, self._parts, part))

    def _put_part(self, number: int, part: bytes) -> None:
        self._sent[number] = self._store.put_part(self._to, self.upload, number, part)

    # What Arrow asks a file that it writes to.

    def flush(self) -> None:
        """Do nothing: only `close` makes bytes durable."""

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False
