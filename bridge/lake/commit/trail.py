"""Follows files through the log: into the trash, back from there under another name, and so on."""

from __future__ import annotations

from bridge.errors import CorruptLake
from bridge.lake.log import Snapshot, storage_changes
from bridge.lake.records import CommitRecord

File = tuple[str, int]


class Trail:
    """Where each file went since a commit: into the trash, from there back under another name, and so on.

    A file is its key and the commit that wrote it: a later one may have rewritten it under the same name.
    """

    def __init__(self, then: Snapshot) -> None:
        self._places: dict[File, list[str]] = {}
        self._at: dict[str, list[File]] = {}
        self._written: dict[str, list[int]] = {}
        for table in then.tables.values():
            for name in table.files:
                self._begin(f"{table.folder}/{name}", then.n)

    def _begin(self, key: str, n: int) -> None:
        self._places[key, n] = [key]
        self._at.setdefault(key, []).append((key, n))
        self._written.setdefault(key, []).append(n)

    def file(self, key: str, n: int) -> File:
        """The file that a key stands for after commit `n`. Raises `CorruptLake` if the log does not say so."""
        written = [written for written in self._written.get(key, ()) if written <= n]
        if not written:
            hint = "see who may write to the bucket; restore the records from a backup of it"
            raise CorruptLake("the commit log has a file that no commit wrote", hint=hint, file=key, commit=n)
        return key, max(written)

    def follow(self, pipeline: str, record: CommitRecord) -> None:
        """Take in what the next commit moved, and the files that it added."""
        changes = storage_changes(pipeline, record)
        moves = {remove.key: remove.trash for change in changes for remove in change.removes}
        moves |= {one.add.key: one.trash for change in changes for one in change.rewrites}
        moves |= {add.source: add.key for change in changes for add in change.adds}
        moved = [(target, self._at.pop(source, [])) for source, target in moves.items()]
        for target, files in moved:
            for file in files:
                self._places[file].append(target)
            self._at.setdefault(target, []).extend(files)
        rewritten = {one.add.key for change in changes for one in change.rewrites}
        for key in _added(record):
            if key not in self._written or key in rewritten:
                self._begin(key, record.n)
        if record.voids is not None:
            self._forget(record)

    def _forget(self, record: CommitRecord) -> None:
        """Forget that files were to be rewritten by a commit that was taken back before it came to that."""
        for key in _added(record):
            if self._written[key][-1] == record.voids and len(self._written[key]) > 1:
                self._written[key].pop()
                before = (key, self._written[key][-1])
                self._places[before].append(key)
                self._at[key] = [before]

    def rewritten_by(self, file: File) -> int | None:
        """The commit that wrote another file under the same key, as its next one."""
        key, n = file
        return min((later for later in self._written[key] if later > n), default=None)

    def places(self, file: File) -> list[str]:
        """Where a file has been, the latest place first."""
        return self._places[file][::-1]


def _added(record: CommitRecord) -> list[str]:
    return [f"{change.folder}/{add.name}" for change in record.tables for add in change.adds]
