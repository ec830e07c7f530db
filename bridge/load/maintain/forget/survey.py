"""Where the rows of a key are: in tables, half loaded tables, rejects, and in files that are of no table any more."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bridge.errors import LakeError, SettingsError
from bridge.exact_json import NotJson, loads
from bridge.lake.file_records import RejectFile
from bridge.lake.log import Log, Snapshot, storage_changes
from bridge.lake.paths import folder_name, pipeline_key
from bridge.lake.records import CommitRecord
from bridge.lake.schemas import columns_of, read_schema
from bridge.lake.storage.parallel import parallel_map
from bridge.load.maintain.forget.keys import Key, Target, Way
from bridge.load.maintain.rejects.survey import Criteria, find, orphans, read
from bridge.load.run.checks.forgotten import Columns, fields_of, has_table, text_of, value_of
from bridge.load.write.rejects import raw_of
from bridge.protocol.mask.masks import Masks
from bridge.protocol.schema.json_schema import source
from bridge.settings.options import Pipeline
from bridge.settings.sql.view import View, read_views, root_stream

_COMMIT = re.compile(r"[0-9]{20}")
_TAP = "_tap"
"""The folder of rejects that are lines of no stream."""
_MASKED = ("redact", "last4", "year", "drop")
"""Masks that leave nothing to find a row by."""


@dataclass(slots=True)
class Occurrences:
    """Where rows of the keys are. Nobody reads `old` files any more, but a rollback could bring them back."""

    tables: dict[str, dict[str, int]] = field(default_factory=dict)
    """By stream, the files that have such rows, and how many."""
    rejects: dict[str, int] = field(default_factory=dict)
    """By reject file."""
    staged: dict[str, int] = field(default_factory=dict)
    """By stream, rows in files of a half loaded table."""
    old: dict[str, int] = field(default_factory=dict)
    """By key of the bucket, rows of tables; files of views count as one, as nobody looks into them."""
    old_rejects: dict[str, bytes] = field(default_factory=dict)
    """By key, reject files that no commit counts any more, with what stays of them."""
    searched: int = 0
    """Files that were read."""

    @property
    def changes_tables(self) -> bool:
        """Whether there is something that a commit has to take out."""
        return bool(self.tables or self.rejects or self.staged)

    @property
    def is_empty(self) -> bool:
        return not (self.changes_tables or self.old or self.old_rejects)


class Survey:
    """Searches one pipeline for keys of a stream, and of the streams that the settings relate to it.

    Raises `SettingsError` if rows cannot be found by the key: a column that there is not, another mask than `hash`,
    values that were hashed in another way.
    """

    def __init__(self, log: Log, pipeline: Pipeline, snapshot: Snapshot, columns: Columns, keys: Iterable[Key]) -> None:
        """`columns`: as `columns_in` says it."""
        self._log, self._storage, self._pipeline, self._snapshot = log, log.storage, pipeline, snapshot
        self._masks = Masks(pipeline.mask, pipeline.mask_key or "")
        self.keys, self.columns = list(keys), columns
        self.targets: dict[str, Target] = {}
        for stream, names in columns:
            if not has_table(pipeline, snapshot, stream):
                continue  # its half loaded table is to start again
            table = self._name(stream)
            self.targets.setdefault(table, Target()).ways.append(self._way(table, stream, names))
        self._views = [view for view in read_views(pipeline.views) if self._root(view) in self.targets]
        self._closed = dict(self._closed_tables())

    def _name(self, stream: str) -> str:
        names = (stream, *self._pipeline.names_of(stream))
        return next(one for one in names if one in self._snapshot.tables or one in self._snapshot.staged)

    def _schema(self, table: str) -> pa.Schema:
        if table in self._snapshot.tables and self._snapshot.tables[table].schema is not None:
            return columns_of(self._storage, self._log.pipeline, self._snapshot.tables[table])
        return read_schema(self._storage, self._log.pipeline, self._snapshot.staged[table].schema).arrow

    def _way(self, table: str, stream: str, columns: tuple[str, ...]) -> Way:
        if len(columns) != len(self.keys[0]):
            hint = f"it has {len(columns)} column(s), and the key {len(self.keys[0])}: correct `forget` in the settings"
            raise SettingsError("a relation has another number of columns than the key", hint=hint, stream=stream)
        schema = self._schema(table)
        fields = [fields_of(schema, column, table) for column in columns]
        masks = [self._mask(table, source(each[0])) for each in fields]
        types = [each[0].type for each in fields]
        texts = {key: tuple(map(self._texts, masks, types, key)) for key in self.keys}
        names = tuple(tuple(one.name for one in each) for each in fields)
        return Way(tuple(source(each[0]) for each in fields), names, texts)

    def _mask(self, table: str, column: str) -> str:
        """The mask of a column. Raises `SettingsError` if its values cannot be told, or were masked in another way."""
        mask = self._masks.of(self._pipeline.names_of(table), column)
        if mask in _MASKED:
            hint = "the lake does not have its values any more: hash a key that you want to find rows by"
            raise SettingsError(f"rows cannot be found by a column that {mask} masks", hint=hint, stream=table)
        masks = self._snapshot.tables[table].masks if table in self._snapshot.tables else {}
        is_other = "*" in masks and masks["*"] != self._masks.facts["key"]
        if (column in masks and mask != "hash") or (is_other and (mask == "hash" or not self._masks.facts["key"])):
            hint = "set mask and mask_key back to those of the last run"
            raise SettingsError("the table's values were hashed in another way than now", hint=hint, stream=table)
        return mask

    def _texts(self, mask: str, type_: pa.DataType, text: str) -> frozenset[str]:
        """The texts that a value may have, in a table or a record: older rows are perhaps not hashed."""
        value = value_of(text, type_)
        plain = {text} if value is None else {text, text_of(value)}
        return frozenset(plain | {self._masks.code(one) for one in plain} if mask == "hash" else plain)

    def code_of(self, key: Key) -> str:
        """The code of a key, however it was written. Raises `SettingsError` for one that its columns cannot have."""
        stream, columns = self.columns[0]
        table, parts = self._name(stream), list[str]()
        schema = self._schema(table)
        for column, text in zip(columns, key, strict=True):
            one = fields_of(schema, column, table)[0]
            value = value_of(text, one.type)
            if value is None:
                hint = f"write it as the source does; the column {one.name} has the type {one.type}"
                raise SettingsError("the column cannot have such a value", hint=hint, stream=stream)
            parts.append(text_of(value))
        return self._masks.code(*parts)

    @property
    def left(self) -> list[str]:
        """Sentences about tables in which rows of the keys may count, and cannot be found."""
        closed = "its windows are closed, and their groups do not name the key"
        closes = [view.closes for view in self._views if view.closes in self._snapshot.tables]
        notes = [f"{name}: {closed}" for name in closes if name not in self._closed]
        for name, table in self._snapshot.tables.items():
            if table.is_of_view and name not in self._pipeline.views and name not in closes:
                notes.append(f"{name}: its view is not in the settings any more, so its table does not change")
        for stream, others in self._pipeline.forget.items():
            names = [other for other in others if not has_table(self._pipeline, self._snapshot, other)]
            notes += [f"{stream}.{other} of the settings' forget: there is no such table" for other in names]
        made = [name for name in self.targets if self._pipeline.stream(name).transform is not None]
        notes += [f"{name}: a transform makes its rows, so the key is looked for as the table has it" for name in made]
        return notes

    def _root(self, view: View) -> str:
        names = self._pipeline.names_of(root_stream(view.name, self._pipeline.views))
        return next((name for name in names if name in self._snapshot.tables), "")

    def _closed_tables(self) -> Iterator[tuple[str, Target]]:
        """Tables of closed windows whose groups name the key: their rows do not change with the stream's."""
        for view in self._views:
            ways = []
            for way in self.targets[self._root(view)].ways:
                fields = tuple(view.plain_keys.get(names[0].lower(), "") for names in way.fields)
                ways += [replace(way, fields=tuple((name,) for name in fields))] if all(fields) else []
            if view.closes in self._snapshot.tables and len(ways) == len(self.targets[self._root(view)].ways):
                yield view.closes, Target(ways)

    @property
    def tables(self) -> dict[str, Target]:
        """By name, the tables whose rows are looked at."""
        return {name: one for name, one in self.targets.items() if name in self._snapshot.tables} | self._closed

    def occurrences(self) -> Occurrences:
        """Search all of it."""
        result = Occurrences()
        for name, target in self.tables.items():
            table = self._snapshot.tables[name]
            counts = self._counts([f"{table.folder}/{file}" for file in table.files], target, result)
            if counts:
                result.tables[name] = {key.removeprefix(f"{table.folder}/"): rows for key, rows in counts.items()}
        for name, stage in self._snapshot.staged.items():
            if whose := self.targets.get(name):
                counts = self._counts([file.source for file in stage.files], whose, result)
                if counts or any(file.upload for file in stage.files):  # an upload cannot be read before its commit
                    result.staged[name] = sum(counts.values())
        self._look_at_rejects(result)
        self._look_at_old(result)
        return result

    def _counts(self, keys: Sequence[str], target: Target, result: Occurrences, *, old: bool = False) -> dict[str, int]:
        """The files among these that have rows of the keys, and how many. `old`: as `_count` has it."""
        counts = parallel_map(self._storage, lambda key: self._count(key, target, old=old), keys)
        result.searched += len(keys)
        return {key: count for key, count in zip(keys, counts, strict=True) if count}

    def _count(self, key: str, target: Target, *, old: bool) -> int:
        """How many rows of a file are of the keys. An `old` one that does not show it, or cannot be read, counts."""
        try:
            with self._storage.open(key) as data, pq.ParquetFile(data) as file:
                names = file.schema_arrow.names
                if old and not target.can_search(names):
                    return 1
                columns = [name for name in names if name in target.fields]
                batches = file.iter_batches(1 << 16, columns=columns) if columns else ()
                return sum(int(pc.sum(target.among(pa.table(batch))).as_py() or 0) for batch in batches)
        except (pa.ArrowInvalid, OSError) as error:
            if old:
                return 1
            hint = "nothing was changed; `singer-bridge verify` says what else is wrong"
            raise LakeError("a file of the table cannot be read", hint=hint, file=key, cause=error) from error

    def _look_at_rejects(self, result: Occurrences) -> None:
        files = find(self._storage, self._log.pipeline, self._snapshot, Criteria())
        for file in files:
            if count := sum(self.is_of_key(file, reject) for reject in read(self._storage, file)):
                result.rejects[file.file] = count
        result.searched += len(files)
        for key in orphans(self._storage, self._log.pipeline, self._snapshot, Criteria()):
            result.searched += 1
            result.old_rejects |= self._rest_of(key)

    def _rest_of(self, key: str) -> dict[str, bytes]:
        """A reject file that no commit counts, without records of the keys; none if it has no such record."""
        folder, data = key.split("/")[-2], self._storage.read(key) or b""
        of_tables = [target for name, target in self.targets.items() if folder_name(name, ()) == folder]
        targets = list(self.targets.values()) if folder == _TAP else of_tables
        stay = []
        for line in data.splitlines(keepends=True) if targets else ():
            try:
                raw = raw_of(loads(line))
            except (NotJson, LakeError, AttributeError):
                raw = line
            if not any(target.has(raw) for target in targets):
                stay.append(line)
        return {key: b"".join(stay)} if targets and b"".join(stay) != data else {}

    def is_of_key(self, file: RejectFile, reject: Mapping[str, Any]) -> bool:
        """Whether a reject is a record of the keys; a line of no stream, if it has the words of a key."""
        if file.stream is None:
            return self._is_of_any(reject)
        names = self._pipeline.names_of(file.stream)
        return any(self.targets[name].has(raw_of(dict(reject))) for name in names if name in self.targets)

    def _is_of_any(self, reject: Mapping[str, Any]) -> bool:
        return any(target.has(raw_of(dict(reject))) for target in self.targets.values())

    def _look_at_old(self, result: Occurrences) -> None:
        """Look at files that commits removed, and that are still there."""
        views = {view.name for view in self._views} | {view.closes for view in self._views}
        live = {f"{table.folder}/{name}" for table in self._snapshot.tables.values() for name in table.files}
        of_views, of_tables = dict[str, int](), dict[str, int]()
        for record in self._records():
            for change, places in zip(record.tables, _places(self._log.pipeline, record), strict=True):
                left = [key for key in places if key not in live and self._storage.size(key) is not None]
                target = self.targets.get(change.stream)
                if change.stream in views or (target and left and self._was_masked_otherwise(change.stream, record.n)):
                    (of_views if change.stream in views else of_tables).update(dict.fromkeys(left, 1))
                elif target:
                    of_tables |= self._counts(left, target, result, old=True)
        if result.tables or of_tables:  # those of tables go last: as long as they are there, the rest is not done
            result.old = of_views | of_tables

    def _was_masked_otherwise(self, table: str, n: int) -> bool:
        """Whether files that commit `n` removed were hashed in another way than now, so that nobody can search them."""
        if not self._masks.facts["key"]:
            return False
        before, now = (snapshot.tables.get(table) for snapshot in (self._log.snapshot(n - 1), self._snapshot))
        return bool(before and before.masks and (now is None or before.masks != now.masks))

    def _records(self) -> Iterator[CommitRecord]:
        """The commits of whose removed files some may be left."""
        names = filter(_COMMIT.fullmatch, self._storage.list(pipeline_key(self._log.pipeline, "trash")))
        for name in sorted(names):
            if record := self._log.record(int(name)):
                yield record


def _places(pipeline: str, record: CommitRecord) -> Iterator[list[str]]:
    """For each table that a commit changed, where the files are that it removed: in the trash, or in their places."""
    for change, moved in zip(record.tables, storage_changes(pipeline, record), strict=True):
        stay = [f"{change.folder}/{name}" for name in change.removes] if change.has_own_log else []
        yield [*stay, *(one.trash for one in moved.removes), *(one.trash for one in moved.rewrites)]
