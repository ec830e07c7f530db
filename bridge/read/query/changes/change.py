"""The change that one commit made to one table, as far as the log tells, and its rows when they are asked for.

It is made of the commit's record alone, so that it may be looked at in one process and read in another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from bridge.lake.log import Log
from bridge.lake.records import CommitRecord, TableChange, TableState
from bridge.lake.times import read_time
from bridge.protocol.schema.json_schema import DELETED_AT, TIMESTAMP
from bridge.read.query.changes.diff import Rows, changed, key_texts
from bridge.read.query.changes.json_text import slices
from bridge.read.query.changes.parts import DELETED, ChosenPart, DeletedPart, FilePart, Part, in_order
from bridge.read.query.files import CommitFiles

INSERT, UPDATE, DELETE = "insert", "update", "delete"
"""The kinds of change of a row."""
_NO_TEXTS = pa.nulls(0, pa.large_string())  # `pa.array` would load pandas


@dataclass(frozen=True, slots=True)
class Position:
    """A commit, with the random text in its record: the log of a lake that was made anew has other ones."""

    commit: int
    nonce: str


@dataclass(frozen=True, slots=True)
class CommitChange:
    """One commit's change of a table that was `old`, of whose files only those that go matter."""

    at: Position
    time: str
    """When the commit was made: ISO 8601 in UTC."""
    kind: str
    """As in `CommitRecord`."""
    change: TableChange
    old: TableState

    @classmethod
    def of(cls, record: CommitRecord, change: TableChange, old: TableState) -> CommitChange:
        """Take what matters from a record."""
        removed = {name: old.files[name] for name in change.removes if name in old.files}
        position = Position(record.n, record.nonce)
        return cls(position, record.at, record.kind, change, structs.replace(old, files=removed))

    @property
    def is_rolled_back(self) -> bool:
        """Whether the commit took back others, so that a reader has rows which never were."""
        return self.kind in ("rollback", "void")

    def replaces(self, keys: Sequence[str]) -> str:
        """Why the rows of the table cannot be told from those before; empty if they can."""
        if self.is_rolled_back:
            return "the table was rolled back"
        if self.change.replaces or self.change.view != self.old.view:
            return "the table was replaced"
        if self.old.schema is not None and self.change.key != self.old.key:
            return "the table's key was changed"
        return "" if keys or self._only_adds() else "rows were removed from a table without a key"

    def _only_adds(self) -> bool:
        """Whether files that go have successors with the same rows."""
        again = {add.name: add.rows for add in self.change.adds if add.rewritten}
        if self.change.has_own_log:  # there a successor has another name
            return sum(again.values()) == sum(self.old.files[name].rows for name in self.change.removes)
        return again.keys() >= set(self.change.removes)

    def merges(self, keys: Sequence[str]) -> bool:
        """Whether the rows that differ have to be looked for; else each row of each new file is a new row."""
        return bool(keys and self.change.removes)

    @property
    def new_files(self) -> list[str]:
        """The files whose rows were in the table in no form before, if nothing was merged."""
        return in_order(add.name for add in self.change.adds if not add.rewritten)

    @property
    def table(self) -> TableState:
        """The table after the commit, of whose files it has those that were added."""
        return self.old.after(self.change)

    def rows(self, log: Log, fields: Sequence[pa.Field], keys: Sequence[str]) -> ChangedRows:
        """The rows, with these columns; `keys` are those that tell them apart."""
        return ChangedRows(self, log, fields, keys)


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """The rows of a change, in parts whose order never changes."""

    of: CommitChange
    log: Log
    fields: Sequence[pa.Field]
    keys: Sequence[str]

    def parts(self) -> Iterator[Part]:
        """The rows that differ, those that are new, and the keys that went."""
        if self.of.merges(self.keys):
            yield from self._differences()
            return
        for name in self.of.new_files:
            yield self._new(name)

    def labelled(self) -> Iterator[tuple[str, pa.Table]]:
        """The rows of a merge, each table with what became of them: `INSERT`, `UPDATE`, or `DELETE` with the key alone.

        A row that only moved to another file is none of them. Memory holds the keys of all rows of the parts.
        """
        parts, keys = list(self.parts()), self._key_fields
        before = self._before(parts)
        for part in parts:
            for rows in part.tables():
                if part.name == DELETED:
                    yield DELETE, rows
                    continue
                for piece in slices(rows):
                    new = Rows.of_slice(piece, keys)
                    is_old = pc.is_in(new.texts, value_set=before.texts)
                    yield UPDATE, piece.filter(pc.and_(is_old, changed(before, new)))
                    yield INSERT, piece.filter(pc.invert(is_old))

    def _before(self, parts: Sequence[Part]) -> Rows:
        """The rows of the parts as they were before, in a file that the commit removed."""
        keys, rows = self._key_fields, (table for part in parts if part.name != DELETED for table in part.tables())
        new = pa.concat_arrays([_NO_TEXTS, *(key_texts(piece, keys) for table in rows for piece in slices(table))])
        old = (Rows.of([self._old(name)], keys) for name in in_order(self.of.old.files))
        return Rows.joined([one.filter(pc.is_in(one.texts, value_set=new)) for one in old], keys)

    @property
    def _key_fields(self) -> pa.Schema:
        return pa.schema([one for one in self.fields if one.name in self.keys])

    def _differences(self) -> Iterator[Part]:
        change, keys = self.of.change, self._key_fields
        own_log = change.has_own_log
        again = {add.name for add in change.adds if add.rewritten and not own_log}
        adds = in_order(add.name for add in change.adds if add.name not in again)
        removed = [name for name in in_order(change.removes) if name not in again]
        rewritten = adds if own_log else [name for name in adds if name in set(removed)]
        everything = Rows.of(map(self._old, removed), keys) if own_log else None
        missing = [everything or Rows.of((self._old(name) for name in removed if name not in set(rewritten)), keys)]
        present = []
        for name in rewritten:
            new, old = Rows.of([self._new(name)], keys), everything or Rows.of([self._old(name)], keys)
            chosen = changed(old, new)
            missing += [] if everything else [old.missing_in(new.texts)]
            present.append(new.texts if everything else new.texts.filter(chosen))
            yield ChosenPart(self._new(name), chosen)
        fresh = [self._new(name) for name in adds if name not in set(rewritten)]
        yield from fresh
        yield from self._deleted(Rows.joined(missing, keys), present, fresh, keys)

    def _deleted(
        self, missing: Rows, present: list[pa.Array], fresh: list[FilePart], keys: pa.Schema
    ) -> Iterator[Part]:
        """The keys that are in no file any more: a row may have moved to another file."""
        if not len(missing.texts):
            return
        moved = [*present, *(Rows.of([file], keys).texts for file in fresh)]
        rows = missing.missing_in(pa.concat_arrays([_NO_TEXTS, *moved])).keys
        if len(rows):
            at = pa.scalar(read_time(self.of.time), TIMESTAMP)
            yield DeletedPart(rows.append_column(pa.field(DELETED_AT, TIMESTAMP), pa.repeat(at, len(rows))))

    def _new(self, name: str) -> FilePart:
        return FilePart(CommitFiles(self.log, self.of.at.commit, self.of.table), name, self.fields)

    def _old(self, name: str) -> FilePart:
        return FilePart(CommitFiles(self.log, self.of.at.commit - 1, self.of.old), name, self.fields)
