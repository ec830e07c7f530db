"""Reads a view by key: `bridge.Lake(...).view(...)`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from bridge.errors import LakeError, SettingsError, did_you_mean
from bridge.lake.log import Log, Snapshot
from bridge.lake.records import TableState
from bridge.lake.storage.parallel import parallel_map
from bridge.read.query.files import CommitFiles
from bridge.read.query.follow import LatestCommit
from bridge.read.query.keys import typed_key
from bridge.read.query.lookup import IndexedFile, Open, find_row
from bridge.read.query.snapshot import TablesAt
from bridge.read.query.values import values
from bridge.settings.sql.view import read_view

_TRIES = 3
"""Files of a commit may vanish while they are read: retention deletes what later commits replaced."""
_COMMITS = 4
"""How many commits stay open, those that were opened last."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ViewRow:
    """A row of a view."""

    row: dict[str, Any]
    """Its columns by name, the key's among them."""
    commit: int
    """The number of the commit that it is of."""


class View:
    """A view of a pipeline, to be read by key. Threads may share it.

    Opening it reads the footers of its files. Each `get` looks for new commits first, so it sees a commit as soon as
    all of its files are visible, and never half of one. Files that no commit changed stay known.
    """

    def __init__(self, head: LatestCommit, name: str, at: int | None = None) -> None:
        """`at`: the commit that is read where `get` names none; None: the last one."""
        self.name = name
        self._head, self._at = head, at
        self._lock = threading.Lock()
        self._opened: dict[int, _ViewAt] = {}
        self._read(at, lambda opened: opened)

    def __repr__(self) -> str:
        return f"View({self._head.log.pipeline!r}, {self.name!r})"

    @property
    def commit(self) -> int:
        """The number of the commit that is read now."""
        return self._read(None, lambda opened: opened.n)

    @property
    def key_columns(self) -> Sequence[pa.Field]:
        """The columns that the SELECT groups by: names and types, in the order of SELECT."""
        return self._read(None, lambda opened: opened.keys)

    def get(self, key: Mapping[str, Any] | None = None, /, *, at: int | None = None, **columns: Any) -> ViewRow | None:
        """The row with this key and the commit that it is of; None if there is none.

        Each key column is an argument: `get(customer_id=42)`. For names that Python does not allow, or `at`, there is
        `get({"customer id": 42})`. NULL is `None`. `at`: a commit whose files are still kept.

        Raises `SettingsError` for a wrong name, a value of another type, or a commit that does not exist, `LakeError`
        for a commit that is no longer kept, and if the bucket cannot be read.
        """
        row, commit = self.look_up({**(key or {}), **columns}, at)
        return None if row is None else ViewRow(row, commit)

    def look_up(self, key: Mapping[str, Any], at: int | None = None) -> tuple[dict[str, Any] | None, int]:
        """Look up a row as `get` does; also return the commit at which that is so."""
        return self._read(at, lambda opened: (opened.find(key), opened.n))

    def _read(self, at: int | None, work: Callable[[_ViewAt], T]) -> T:
        """Do something with the view as a commit left it; once more if files vanish while it reads."""
        for left in reversed(range(_TRIES)):
            snapshot = self._snapshot(self._at if at is None else at)
            try:
                return work(self._open(snapshot))
            except LakeError:
                self._forget()
                if not left:
                    raise
        raise AssertionError("unreachable")

    def _snapshot(self, at: int | None) -> Snapshot:
        """The lake after a commit, None: after the last one."""
        if at is not None and (opened := self._opened.get(at)) is not None:
            return opened.snapshot
        snapshot = self._head.now()
        return snapshot if at is None or at == snapshot.n else TablesAt.of(self._head.log, at).snapshot

    def _open(self, snapshot: Snapshot) -> _ViewAt:
        """The view with the footers of its files; those of one commit are known to the next."""
        with self._lock:
            opened = self._opened.get(snapshot.n)
            if opened is None or opened.snapshot is not snapshot:
                before = self._opened[max(self._opened)] if self._opened else None
                opened = _ViewAt.of(self._head.log, snapshot, self.name, before)
                self._opened = dict([*self._opened.items(), (snapshot.n, opened)][-_COMMITS:])
            return opened

    def _forget(self) -> None:
        with self._lock:
            self._opened = {}


@dataclass(frozen=True, slots=True)
class _ViewAt:
    """A view after one commit, with the footers of its files."""

    snapshot: Snapshot
    table: TableState
    name: str
    keys: tuple[pa.Field, ...]
    columns: tuple[pa.Field, ...]
    """The columns that are not hidden."""
    open_file: Open
    files: Mapping[str, IndexedFile]

    @property
    def n(self) -> int:
        return self.snapshot.n

    @classmethod
    def of(cls, log: Log, snapshot: Snapshot, name: str, before: _ViewAt | None) -> _ViewAt:
        """Open a view; what is as `before` is not read again. Raises `SettingsError` if the commit has no such view."""
        table = _table(log, snapshot, name)
        same = before is not None and (before.table.view, before.table.schema) == (table.view, table.schema)
        if before is not None and same:
            keys, columns = before.keys, before.columns
            # A file that is replaced under its name is another object of the log, even if it has as many bytes.
            old = {one: before.files[one] for one, file in table.files.items() if before.table.files.get(one) is file}
        else:
            columns, old = tuple(TablesAt(log, snapshot).columns(table)), {}
            by_name = {field.name: field for field in columns}
            keys = tuple(by_name[key] for key in read_view(name, table.view).keys)
        opener = CommitFiles(log, snapshot.n, table).open_input_file
        new = [one for one in table.files if one not in old]
        read = parallel_map(log.storage, lambda one: IndexedFile.read(one, opener, keys), new)
        return cls(snapshot, table, name, keys, columns, opener, old | dict(zip(new, read, strict=True)))

    def find(self, given: Mapping[str, Any]) -> dict[str, Any] | None:
        """The row with this key, None without one."""
        key = typed_key(self.name, self.keys, given)
        row = find_row(key, self.files.values(), self.open_file, self.keys, self.columns)
        return None if row is None else {name: values(row.column(name))[0] for name in row.column_names}


def _table(log: Log, snapshot: Snapshot, name: str) -> TableState:
    table = snapshot.tables.get(name)
    if table is not None and table.view and table.schema is not None:
        return table
    views = sorted(stream for stream, one in snapshot.tables.items() if one.view)
    hint = did_you_mean(name, views) or f"there are: {', '.join(views) or 'none'}"
    if table is not None and not table.view:
        hint = f"it is a table: read it in SQL, or with Lake.table; views: {', '.join(views) or 'none'}"
    raise SettingsError("no such view", hint=hint, pipeline=log.pipeline, view=name, commit=snapshot.n)
