"""A folder as a bucket. Durable by fsync of file and folder; atomic by rename, link and exchange.

`compare_and_swap`, the exchange of a table and the rewriting of a file hold a `flock` on the folder.

Guarantee to listing readers: an append shows 0..k of its k files for an instant. A replaced table is exchanged whole
(`renameat2`): a listing sees the old table or the new one, never a mix. Where the kernel or the filesystem cannot
exchange, two renames do it, and the folder is absent for an instant between them. A rewritten file is renamed over: its
name exists at all times, with the old bytes or the new.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO

from bridge.exact_json import dumps
from bridge.lake.storage.local import publish
from bridge.lake.storage.local.folders import (
    explained,
    fsync_folder,
    make_folder,
    place,
    remove_empty,
    require_inside,
)
from bridge.lake.storage.local.small_files import Draft, etag_of, swap_all, write_all
from bridge.lake.storage.protocol import Add, Change, PendingFile, Rewrite, Swap, VersionedObject

_TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp")
"""The names of drafts."""


class _PendingFile:
    """A file whose `close` makes it durable."""

    upload = ""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("xb")

    def write(self, data: bytes) -> int:
        try:  # as `explained` does, at a tenth of its price: Parquet writes in very small pieces
            return self._file.write(data)
        except OSError:
            with explained("write a pending file", self._path):
                raise

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        if self._file.closed:
            return
        with explained("write a pending file", self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            fsync_folder(self._path.parent)

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


class LocalStorage:
    """One folder of a local (or mounted POSIX) filesystem."""

    parallel = 1

    def __init__(self, root: Path) -> None:
        self.root = root.expanduser().absolute()
        self.uri = str(self.root)
        self.folder: Path | None = self.root
        self._read_from = set[str]()

    def _path(self, key: str) -> Path:
        """The path of what is read. Raises `CorruptLake` where it leads out of the bucket.

        Links on the way are looked for once a folder, as a log may have a hundred thousand records.
        """
        path, folder = place(self.root, key), key.rpartition("/")[0]
        if folder not in self._read_from or os.path.islink(path):
            require_inside(self.root, [f"{key}/x" if key else "x"])
            self._read_from.add(folder)
        return path

    def _inside(self, key: str) -> Path:
        """The path of a file to change. Raises `CorruptLake` where it leads out of the bucket."""
        return Path(self._all_inside([key])[0])

    def _all_inside(self, keys: Collection[str]) -> list[str]:
        require_inside(self.root, keys)
        return [f"{self.uri}/{key}" for key in keys]

    def _place_of(self, paths: Sequence[str]) -> Path:
        """The path that an error names: the file, or of many the bucket."""
        return Path(paths[0]) if len(paths) == 1 else self.root

    def for_libraries(self) -> dict[str, str]:
        return {}

    def prepare(self) -> None:
        lake = {"format": 1, "id": str(uuid.uuid4()), "made_by": "singer-bridge"}
        if self.size(".bridge/lake.json") is None:
            self.put_if_absent(".bridge/lake.json", dumps(lake))

    def read(self, key: str) -> bytes | None:
        path = self._path(key)
        with explained("read", path):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None

    def read_versioned(self, key: str) -> VersionedObject | None:
        data = self.read(key)
        return None if data is None else VersionedObject(data, etag_of(data))

    def open(self, key: str) -> BinaryIO:
        path = self._path(key)
        with explained("read", path):
            return path.open("rb")

    def size(self, key: str) -> int | None:
        path = self._path(key)
        with explained("read", path):
            try:
                return path.stat().st_size
            except FileNotFoundError:
                return None

    def list(self, prefix: str) -> Iterator[str]:
        path = self._path(prefix)
        with explained("list", path):
            try:
                names = os.listdir(path)
            except FileNotFoundError:
                return
        yield from (name for name in names if not name.startswith("."))

    def walk(self, prefix: str) -> Iterator[str]:
        top = self._path(prefix)
        with explained("list", top):
            for folder, folders, names in os.walk(top, onerror=_unless_gone):
                folders[:] = [name for name in folders if not name.startswith(".")]
                below = Path(folder).relative_to(top)
                yield from (str(below / name) for name in names if not name.startswith("."))

    def put_if_absent(self, key: str, data: bytes) -> bool:
        path = self._inside(key)
        with explained("create", path):
            # Never O_EXCL and then write: a crash in between would leave a torn commit under its final name.
            make_folder(path.parent)
            draft = Draft(str(path), data)
            draft.write()
            try:
                os.link(draft.draft, path)
            except FileExistsError:
                return False
            finally:
                draft.discard()
            fsync_folder(path.parent)
        return True

    def compare_and_swap(self, key: str, data: bytes, etag: str | None) -> str | None:
        return self.swap_all([Swap(key, data, etag)])[0]

    def swap_all(self, swaps: Sequence[Swap]) -> Sequence[str | None]:
        paths = self._all_inside([swap.key for swap in swaps])
        for path, swap in zip(paths, swaps, strict=True):
            if os.path.islink(path):
                self._path(swap.key)  # raises where it leads out of the bucket: what is compared is read
        with explained("write", self._place_of(paths)):
            return swap_all([(path, swap.data, swap.etag) for path, swap in zip(paths, swaps, strict=True)])

    def write(self, key: str, data: bytes) -> None:
        self.write_all({key: data})

    def write_all(self, objects: Mapping[str, bytes]) -> None:
        paths = self._all_inside(objects)
        with explained("write", self._place_of(paths)):
            write_all(list(zip(paths, objects.values(), strict=True)))

    def delete(self, key: str) -> None:
        path = self._inside(key)
        with explained("delete", path):
            path.unlink(missing_ok=True)
            if "/trash/" in key:  # somebody may be about to write to any other folder
                remove_empty(path.parent, self._path(key.partition("/trash/")[0]) / "trash")

    def open_pending(self, source: str, key: str, over: bool = False, readable: bool = False) -> PendingFile:
        path = self._inside(source)
        with explained("create a pending file", path):
            make_folder(path.parent)
            return _PendingFile(path)

    def pending(self, folder: str) -> Iterator[Add]:
        return (Add(f"{folder}/{name}", "", 0) for name in self.walk(folder))

    def abort(self, pending: Add) -> None:
        self.delete(pending.source)

    def missing_pending(self, adds: Sequence[Add]) -> Sequence[Add]:
        return [add for add in adds if self.size(add.source) != add.size]

    def publish(self, changes: Sequence[Change]) -> None:
        publish.publish(self.root, changes)

    def settle_rewrites(self, changes: Sequence[Change]) -> Sequence[Rewrite]:
        return publish.settle_rewrites(self.root, changes)

    def tidy(self, folder: str, older: timedelta) -> int:
        before, count = time.time() - older.total_seconds(), 0
        require_inside(self.root, [f"{folder}/x"])  # the folder itself must not be a link either
        for at, _, names in os.walk(self._path(folder)):
            for path in (Path(at, name) for name in names if _TEMPORARY.fullmatch(name)):
                with suppress(OSError):  # somebody else was faster, or we have no right to
                    if path.stat().st_mtime < before:
                        path.unlink()
                        count += 1
        return count


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
