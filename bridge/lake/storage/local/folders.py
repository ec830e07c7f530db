"""A local filesystem: durable folders, atomic replacement, locks, exchange; its errors with a hint."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bridge.errors import CorruptLake, LakeError
from bridge.lake.storage.protocol import refuse_outside

_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
_PATIENCE = 30.0
"""Seconds to wait for another process's lock on a folder, which it holds for milliseconds."""

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
def explained(action: str, path: Path) -> Iterator[None]:
    """Turn an OSError into a LakeError that names the action and the path."""
    try:
        yield
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, "see the system's message; `ls -ld` the folder shows its owner and rights")
        raise LakeError(f"cannot {action}: {error.strerror}", hint=hint, path=path) from error


def nearest(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(place for place in (folder, *folder.parents) if place.exists())


def place(root: Path, key: str) -> Path:
    """A key's path. Raises `CorruptLake` for one that leads out of the bucket."""
    refuse_outside(key)
    return root / key


def require_inside(root: Path, keys: Iterable[str]) -> None:
    """Raise `CorruptLake` if a key, or a linked folder on its way, leads out of the bucket.

    Others who may write to the bucket must not make us read or change files elsewhere that only we may.
    """
    folders = set()
    for key in keys:
        refuse_outside(key)
        folders.add(key.rpartition("/")[0])
    top = os.path.realpath(root)
    places = {"": top}
    for folder in folders:
        if not f"{_real(root, folder, places)}/".startswith(f"{top.rstrip('/')}/"):
            hint = "put the folder itself there, or mount it there with `mount --bind`; nothing was changed"
            raise CorruptLake("a link in the bucket leads out of it", hint=hint, path=root / folder)


def _real(root: Path, folder: str, places: dict[str, str]) -> str:
    """Where a folder of the bucket is without links; `places` are those of others, as many share a parent."""
    if folder not in places:
        path, (parent, _, name) = f"{root}/{folder}", folder.rpartition("/")
        places[folder] = os.path.realpath(path) if os.path.islink(path) else f"{_real(root, parent, places)}/{name}"
    return places[folder]


def fsync_folder(folder: Path | str) -> None:
    """Make a folder's entries durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents so that they survive a power cut."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    fsync_folder(folder.parent)


def make_folders(folders: Iterable[Path | str]) -> None:
    """The same for many folders: a parent is made durable once for all that are new in it."""
    missing = [Path(folder) for folder in dict.fromkeys(folders) if not os.path.isdir(folder)]
    parents = list(dict.fromkeys(folder.parent for folder in missing))
    for parent in parents:
        make_folder(parent)
    for folder in missing:
        folder.mkdir(exist_ok=True)
    for parent in parents:
        fsync_folder(parent)


def write_durably(path: Path | str, data: bytes) -> None:
    """Write a new file. Raises `OSError`, and leaves none then."""
    try:
        with open(path, "xb", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
            os.fsync(file.fileno())
    except OSError:
        with suppress(FileNotFoundError):
            os.unlink(path)
        raise


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """A draft beside a file of the user's, which replaces it unless the block raises; the file keeps its mode.

    A reader sees the old file or the new one, never a part. A link stays one, and leads to the new file.
    """
    path = path.resolve()
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield draft
        if path.exists():
            shutil.copymode(path, draft)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def exchange(one: Path, other: Path) -> bool:
    """Exchange two folders atomically; False where the kernel or the filesystem cannot."""
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


_OF_THREADS: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)
"""Threads of this process take turns here; the folder's own lock, which is asked again and again, is for others."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder, for what reads it and then changes it."""
    with _OF_THREADS[folder], _locked(folder):
        yield


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > end:
                    hint = "another process of singer-bridge seems to have stopped in the middle of a change: end it"
                    raise LakeError("the folder stays locked", hint=hint, path=folder) from error
            time.sleep(0.01)
        yield
    finally:
        os.close(fd)


def remove_empty(folder: Path, top: Path) -> None:
    """Remove a folder and its parents below `top`, as far as they are empty."""
    while folder != top:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent
