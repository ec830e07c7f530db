"""A folder as a bucket. Durable by fsync of file and folder; atomic by rename, link and exchange.

Where a look and a change belong together (`swap`, the exchange of a table) a `flock` on the folder holds them together.

Guarantee to listing readers: an append shows 0..k of its k files for an instant; a replaced table is exchanged
whole (`renameat2`), so a listing sees the old table or the new one, never a mix. Where the kernel or the filesystem
cannot exchange, two renames do it and the folder is absent for an instant between them.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

from bridge.errors import LakeError
from bridge.storage.protocol import Add, Change, Missing, PendingFile, Stored
from bridge.verbatim import dumps

__all__ = ["LocalStorage"]

_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
_PATIENCE = 30.0
"""Seconds to wait for another process that looks at a folder and changes it: it needs milliseconds."""

_HINTS = {
    errno.ENOSPC: "the disk is full: free some space and run again; nothing that was committed is lost",
    errno.EDQUOT: "the disk quota is used up: free some space and run again; nothing that was committed is lost",
    errno.EACCES: "the user that runs singer-bridge needs read and write rights on the bucket folder",
    errno.EPERM: "the user that runs singer-bridge needs read and write rights on the bucket folder",
    errno.EROFS: "the filesystem is mounted read-only; choose another bucket folder",
    errno.ENOTDIR: "a part of the bucket's path is a file; choose another bucket folder",
    errno.EEXIST: "a part of the bucket's path is a file; choose another bucket folder",
}


@contextmanager
def _explained(action: str, path: Path) -> Iterator[None]:
    """Turn an OSError into a LakeError that names the action and the path."""
    try:
        yield
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, "see the system's message; `ls -ld` the folder shows its owner and rights")
        raise LakeError(f"cannot {action}: {error.strerror}", hint=hint, path=path) from error


def _fsync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _make_folder(folder: Path) -> None:
    """Create a folder and its parents so that they survive a power cut."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _fsync_folder(folder.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders atomically; False where the kernel or the filesystem cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        return False
    result = libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), ctypes.c_uint(_RENAME_EXCHANGE))
    if result == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(one))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Be the only one for whom a look at this folder and a change of it belong together."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > end:
                    hint = "a process of singer-bridge seems to be stopped in the middle of a change: end it"
                    raise LakeError("the folder stays locked", hint=hint, path=folder) from error
            time.sleep(0.01)
        yield
    finally:
        os.close(fd)


def _version(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


class _PendingFile:
    """A file whose `close` makes it durable."""

    upload = ""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("xb")

    def write(self, data: bytes) -> int:
        with _explained("write a pending file", self._path):
            return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        if self._file.closed:
            return
        with _explained("write a pending file", self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            _fsync_folder(self._path.parent)

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


class LocalStorage:
    """One folder of a local (or mounted POSIX) filesystem."""

    parallel = 1

    def __init__(self, root: Path) -> None:
        self.root = root.expanduser().absolute()
        self.uri = str(self.root)
        self.folder: Path | None = self.root

    def _path(self, key: str) -> Path:
        return self.root / key

    def prepare(self) -> None:
        lake = {"format": 1, "id": str(uuid.uuid4()), "made_by": "singer-bridge"}
        if self.size(".bridge/lake.json") is None:
            self.put_if_absent(".bridge/lake.json", dumps(lake))

    def read(self, key: str) -> bytes | None:
        with _explained("read", self._path(key)):
            try:
                return self._path(key).read_bytes()
            except FileNotFoundError:
                return None

    def fetch(self, key: str) -> Stored | None:
        data = self.read(key)
        return None if data is None else Stored(data, _version(data))

    def open(self, key: str) -> BinaryIO:
        with _explained("read", self._path(key)):
            return self._path(key).open("rb")

    def size(self, key: str) -> int | None:
        with _explained("read", self._path(key)):
            try:
                return self._path(key).stat().st_size
            except FileNotFoundError:
                return None

    def list(self, prefix: str) -> Iterator[str]:
        with _explained("list", self._path(prefix)):
            try:
                names = os.listdir(self._path(prefix))
            except FileNotFoundError:
                return
        yield from (name for name in names if not name.startswith("."))

    def put_if_absent(self, key: str, data: bytes) -> bool:
        path = self._path(key)
        with _explained("create", path):
            # Never O_EXCL and then write: a crash between the two leaves a torn commit under its final name.
            whole = self._durable_temporary(path, data)
            try:
                os.link(whole, path)
            except FileExistsError:
                return False
            finally:
                os.unlink(whole)
            _fsync_folder(path.parent)
        return True

    def swap(self, key: str, data: bytes, version: str | None) -> str | None:
        path, new = self._path(key), _version(data)
        with _explained("write", path):
            _make_folder(path.parent)
            with _alone(path.parent):
                there = self.fetch(key)
                if there and there.version == new:
                    return new
                if (there.version if there else None) != version:
                    return None
                self.write(key, data)
        return new

    def write(self, key: str, data: bytes) -> None:
        path = self._path(key)
        with _explained("write", path):
            os.replace(self._durable_temporary(path, data), path)
            _fsync_folder(path.parent)

    def _durable_temporary(self, path: Path, data: bytes) -> Path:
        """Write `data` beside its final place under a dotted name that every listing ignores."""
        _make_folder(path.parent)
        temporary = path.parent / f".{uuid.uuid4().hex}.tmp"
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        return temporary

    def delete(self, key: str) -> None:
        path = self._path(key)
        with _explained("delete", path):
            path.unlink(missing_ok=True)
            if "/trash/" in key:  # other folders may be about to be written to
                _remove_empty(path.parent)

    def open_pending(self, source: str, key: str) -> PendingFile:
        with _explained("create a pending file", self._path(source)):
            _make_folder(self._path(source).parent)
            return _PendingFile(self._path(source))

    def pending(self, folder: str) -> Iterator[Add]:
        return (Add(f"{folder}/{name}", "", 0) for name in self.list(folder))

    def abort(self, pending: Add) -> None:
        self.delete(pending.source)

    def lost(self, adds: Sequence[Add]) -> Sequence[Add]:
        return [add for add in adds if self.size(add.source) != add.size]

    def publish(self, changes: Sequence[Change]) -> None:
        missing = [key for change in changes for key in self._missing(change)]
        if missing:
            raise Missing(missing)
        for change in changes:
            for add in change.aborts:
                self.abort(add)
            with _explained("publish", self._path(change.folder)):
                if change.replace and change.removes and change.adds:
                    self._swap(change)
                else:
                    self._append(change)

    def _missing(self, change: Change) -> Sequence[str]:
        places = [self._path(change.folder), _aside(self._path(change.trash))]
        return [
            add.key
            for add in change.adds
            if not self._source(add).exists() and not any((place / Path(add.key).name).exists() for place in places)
        ]

    def _source(self, add: Add) -> Path:
        """Return where a file to publish is: its source, or for one in the trash where an unfinished swap left it."""
        source, name = self._path(add.source), Path(add.key).name
        places = (source, source.parent / name, _aside(source.parent) / name)
        return next((place for place in places if place.exists()), source)

    def _append(self, change: Change) -> None:
        folder = self._path(change.folder)
        _make_folder(folder)
        unfinished = {_aside(self._path(add.source).parent) for add in change.adds}
        for add in change.adds:
            _move(self._source(add), self._path(add.key))
        for remove in change.removes:
            for place in (folder, *unfinished):
                _move(place / Path(remove.key).name, self._path(remove.trash))
        for place in unfinished:
            if place.exists():  # a swap that was taken back; both of its sides are where they belong now
                os.rmdir(place)
        _fsync_folder(folder)

    def _swap(self, change: Change) -> None:
        """Build the new folder aside, exchange, keep the old one in the trash; goes on where a crash left it."""
        folder, trash = self._path(change.folder), self._path(change.trash)
        _make_folder(folder)
        with _alone(folder.parent):
            self._bring_in(change, folder, trash)
        # The old names lose Parquet's suffix only now, when no new listing can reach their folder any more.
        for remove in change.removes:
            _move(trash / Path(remove.key).name, self._path(remove.trash))
        if trash.parent.exists():  # else this was done long ago, and the trash is emptied
            _fsync_folder(trash.parent)

    def _bring_in(self, change: Change, folder: Path, trash: Path) -> None:
        aside = _aside(trash)
        # An exchange is its own inverse: only the names tell whether it was done already.
        if not all((folder / Path(add.key).name).exists() for add in change.adds):
            if missing := self._missing(change):  # somebody took over, and went on to other files, while we slept
                raise Missing(missing)
            _make_folder(aside)
            for add in change.adds:
                _move(self._path(add.source), aside / Path(add.key).name)
            _fsync_folder(aside)
            if not _exchange(aside, folder):
                if not trash.exists():
                    os.rename(folder, trash)
                os.rename(aside, folder)
            _fsync_folder(folder.parent)
        if aside.exists():
            os.rename(aside, trash)


def _remove_empty(folder: Path) -> None:
    """Remove a trash folder and its parents, as far as nothing is left in them."""
    while folder.name != "trash":
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


def _aside(trash: Path) -> Path:
    return trash.with_name(trash.name + ".new")


def _move(source: Path, target: Path) -> None:
    """Rename if the source is still there; gone means that a run before the crash did it."""
    if source.exists():
        _make_folder(target.parent)
        os.rename(source, target)
