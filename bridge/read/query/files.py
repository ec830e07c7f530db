"""Opens a table's files as of one commit, for Arrow, wherever later commits have moved them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Any, BinaryIO, NoReturn

import pyarrow as pa
from pyarrow import fs

from bridge.errors import BridgeError, CommitExpired
from bridge.lake.commit.state_file import read_state_file
from bridge.lake.commit.trail import Trail
from bridge.lake.log import Log, Snapshot
from bridge.lake.paths import REMOVED, pipeline_key
from bridge.lake.records import CommitRecord, TableState
from bridge.lake.storage.local.folders import require_inside

_TRIES = 3
"""A file may move between a look at its old place and a look at its new one."""


class CommitFiles(fs.FileSystemHandler):  # type: ignore[misc]
    """A file system of one table at commit `n`: its paths are the file names that the log has."""

    def __init__(self, log: Log, n: int, table: TableState) -> None:
        self._log, self._n, self._table = log, n, table
        self._trail: Trail | None = None
        self._last = n
        """The last commit that the trail follows."""
        self.failed: BridgeError | None = None
        """Why a file could not be opened: engines that read through Arrow keep only the text of an error."""

    def get_type_name(self) -> str:
        return "singer-bridge"

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        return [fs.FileInfo(path, fs.FileType.File, size=self._table.files[path].size) for path in paths]

    def rows(self, name: str) -> int:
        """The rows of a file, as the log has them."""
        return self._table.files[name].rows

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open a file by its name in the log. Raises `CommitExpired` if its bytes are nowhere any more."""
        try:
            return self._open(path)
        except BridgeError as error:
            self.failed = error
            raise

    open_input_stream = open_input_file

    def _open(self, name: str) -> pa.NativeFile:
        for _ in range(_TRIES):
            for key in self._places(name):
                file = self._of_size(key, self._table.files[name].size)
                if file is not None and not self._is_rewritten(name, key):
                    return file
        file = f"{self._log.storage.uri}/{self._table.folder}/{name}"
        if by := self._taken_back_by():
            raise CommitExpired("this commit was taken back", hint="its files were lost", commit=self._n, by=by)
        hint = "`retention.trash` says for how long removed files are kept; `singer-bridge verify` looks for damage"
        raise CommitExpired("a file of this commit is gone", hint=hint, file=file, commit=self._n)

    def _taken_back_by(self) -> int | None:
        """The commit that took this one back, as its files were lost before they were visible."""
        return next((record.n for record in self._later() if record.voids and record.voids <= self._n), None)

    def _later(self) -> Iterator[CommitRecord]:
        """The records after this commit, newest first."""
        records = self._log.history(self._log.latest(), fences=False)
        return takewhile(lambda record: record.n > self._n, records)

    def _places(self, name: str) -> Iterator[str]:
        """Where a file of the commit may be, as later commits moved it: the latest place first.

        In the folder there may be another file of that name, even of that size: `_is_rewritten`.
        """
        key = f"{self._table.folder}/{name}"
        if self._table.has_own_log:  # its files stay where they are
            yield key
            return
        if self._trail is None:
            self._trail = Trail(Snapshot(self._n, tables={"": self._table}))
            for record in reversed(list(self._later())):
                self._trail.follow(self._log.pipeline, record)
                self._last = record.n
        for place in self._trail.places((key, self._n)):
            yield from _variants(self._log.pipeline, self._table.folder, place)
        self._trail = None  # it may have moved since

    def _is_rewritten(self, name: str, key: str) -> bool:
        """Whether what was opened at a file's first place may be what a later commit wrote there under its name.

        Before that is visible, the old bytes are in the trash; from there they are deleted only once it is published.
        """
        place = f"{self._table.folder}/{name}"
        by = self._trail.rewritten_by((place, self._n)) if self._trail and key == place else None
        if by is None or self._trail is None:
            return False
        storage, places = self._log.storage, self._trail.places((place, self._n))
        if any(storage.size(other) is not None for other in places if other != place):
            return True
        return by < self._last or read_state_file(storage, self._log.pipeline).published()[0] >= by

    def _of_size(self, key: str, size: int) -> pa.NativeFile | None:
        """The open file, None if there is none with so many bytes: one of another size was written again."""
        storage = self._log.storage
        if storage.folder is not None:
            require_inside(storage.folder, [key])
            try:
                local = pa.OSFile(str(storage.folder / key))
            except FileNotFoundError:
                return None
            return local if local.size() == size else None
        if storage.size(key) != size:
            return None
        opened: BinaryIO = storage.open(key)
        return pa.PythonFile(opened, mode="r")

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError("a commit is only read")

    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = _refuse
    delete_file = move = copy_file = open_output_stream = open_append_stream = _refuse


def _variants(pipeline: str, folder: str, place: str) -> Iterator[str]:
    """A place of a file; in the trash it has no suffix while a folder is exchanged whole."""
    yield place
    trash = pipeline_key(pipeline, "trash", "")
    if place.startswith(trash):
        n, _, rest = place.removeprefix(trash).partition("/")
        name = rest.removeprefix(f"{folder}/").removesuffix(REMOVED)
        yield from (f"{trash}{n}/{folder}{new}/{name}" for new in ("", ".new"))
