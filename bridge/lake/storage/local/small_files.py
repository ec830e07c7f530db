"""Writes small files durably, many at once: a reader sees the old bytes or the new, never a part.

Each file is written beside its place under a dotted name, which every listing ignores, and renamed. Threads wait for
the disk together, and a folder with many of the files is made durable once.
"""

from __future__ import annotations

import os
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from bridge.lake.storage.local.folders import fsync_folder, locked, make_folders, write_durably
from bridge.lake.storage.parallel import on_disk


def etag_of(data: bytes) -> str:
    """The version of a file with these bytes."""
    return blake2b(data, digest_size=16).hexdigest()


def _version(path: str) -> str | None:
    try:
        with open(path, "rb", buffering=0) as file:
            return etag_of(file.read())
    except FileNotFoundError:
        return None


class Draft:
    """A file's new bytes, first beside its place."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path, self._data = path, data
        self.folder = os.path.dirname(self.path)
        self.draft = f"{self.folder}/.{uuid.uuid4().hex}.tmp"
        self._is_placed = False

    def write(self) -> None:
        """Write the bytes durably, in a folder that exists."""
        write_durably(self.draft, self._data)

    def replace(self) -> None:
        """Put the new bytes in their place."""
        os.replace(self.draft, self.path)
        self._is_placed = True

    def discard(self) -> None:
        """Delete what `write` left, unless it was put in its place."""
        if not self._is_placed:
            with suppress(FileNotFoundError):
                os.unlink(self.draft)


@dataclass(slots=True)
class _Swap:
    draft: Draft
    expected: str | None
    new: str
    current: str | None


def write_all(files: Sequence[tuple[str, bytes]]) -> None:
    """Create or replace files. Raises `OSError`; some may be written then."""
    drafts = [Draft(path, data) for path, data in files]
    folders = _make_folders_of(drafts)
    try:
        on_disk(Draft.write, drafts)
        for draft in drafts:
            draft.replace()
    except BaseException:
        for draft in drafts:
            draft.discard()
        raise
    on_disk(fsync_folder, folders)


def swap_all(files: Sequence[tuple[str, bytes, str | None]]) -> list[str | None]:
    """Replace each file that has the expected version (None: that does not exist).

    Returns the new versions; None for a file that is another's. Raises `OSError`; some may be replaced then.
    """
    swaps = [_Swap(Draft(path, data), expected, etag_of(data), _version(path)) for path, data, expected in files]
    due = [swap for swap in swaps if swap.current == swap.expected != swap.new]
    _make_folders_of(swap.draft for swap in due)
    try:
        on_disk(Draft.write, [swap.draft for swap in due])  # before the locks: others wait for them
        _replace(due)
    finally:
        for swap in due:
            swap.draft.discard()  # also where another one has written the same bytes
    # Also what another process has renamed just now.
    on_disk(fsync_folder, list({swap.draft.folder: None for swap in swaps if swap.current == swap.new}))
    return [swap.new if swap.current == swap.new else None for swap in swaps]


def _replace(swaps: Iterable[_Swap]) -> None:
    of_folder: defaultdict[str, list[_Swap]] = defaultdict(list)
    for swap in swaps:
        of_folder[swap.draft.folder].append(swap)
    for folder, here in of_folder.items():
        with locked(Path(folder)):
            for swap in here:
                swap.current = _version(swap.draft.path)
                if swap.current == swap.expected:
                    swap.draft.replace()
                    swap.current = swap.new


def _make_folders_of(drafts: Iterable[Draft]) -> list[str]:
    folders = list({draft.folder: None for draft in drafts})
    make_folders(folders)
    return folders
