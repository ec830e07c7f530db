"""Where the rows of a key are: in tables, half loaded tables, rejects, and in files that are of no table any more."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bridge.errors import LakeError, SettingsError
from bridge.lake.file_records import RejectFile
from bridge.lake.log import Log, Snapshot, storage_changes
from bridge.lake.paths import pipeline_key
from bridge.lake.records import CommitRecord
from bridge.lake.schemas import columns_of
from bridge.lake.storage.parallel import parallel_map
from bridge.load.maintain.forget.keys import Key, Target
from bridge.load.maintain.rejects.survey import Criteria, find, orphans, read
from bridge.load.run.checks.forgotten import field_of
from bridge.load.write.rejects import raw_of
from bridge.protocol.mask.masks import Masks
from bridge.protocol.schema.json_schema import source
from bridge.settings.options import Pipeline
from bridge.settings.sql.view import View, read_views, root_stream

_COMMIT = re.compile(r"[0-9]{20}")
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
    old_rejects: list[str] = field(default_factory=list)
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

    Raises `SettingsError` if rows cannot be found by the key: no table, no key, another mask than `hash`.
    """

    def __init__(
        self,
        log: Log,
        pipeline: Pipeline,
        snapshot: Snapshot,
        columns: Mapping[str, tuple[str, ...]],
        keys: Iterable[Key],
    ) -> None:
        """`columns`: as `columns_in` says it."""
        self._log, self._storage, self._pipeline, self._snapshot = log, log.storage, pipeline, snapshot
        self._masks = Masks(pipeline.mask, pipeline.mask_key or "")
        self.keys = list(keys)
        self.columns = columns
        targets = [self._target(name, names, self.keys) for name, names in columns.items()]
        self.targets = {target.stream: target for target in targets}
        self._views = [view for view in read_views(pipeline.views) if self._root(view) in self.targets]
        self._closed = dict(self._closed_tables())

    @staticmethod
    def is_of(pipeline: Pipeline, snapshot: Snapshot, stream: str) -> bool:
        """Whether the pipeline has a table of the stream, or of one that the settings relate to it."""
        names = pipeline.names_of(stream)
        related = [other for name in (stream, *names) for other in pipeline.forget.get(name, {})]
        return any(snapshot.table(pipeline.names_of(one)) is not None for one in (stream, *related))

    def _target(self, stream: str, columns: tuple[str, ...], keys: Sequence[Key]) -> Target:
        names = self._pipeline.names_of(stream)
        name = next(one for one in (stream, *names) if one in self._snapshot.tables)
        if len(columns) != len(keys[0]):
            hint = f"it has {len(columns)} column(s), and the key {len(keys[0])}: correct `forget` in the settings"
            raise SettingsError("a relation has another number of columns than the key", hint=hint, stream=stream)
        schema = columns_of(self._storage, self._log.pipeline, self._snapshot.tables[name])
        fields = [field_of(schema, column, name) for column in columns]
        masks = [self._masks.of(names, source(one)) for one in fields]
        for mask in masks:
            if mask in _MASKED:
                hint = "the lake does not have its values any more: hash a key that you want to find rows by"
                raise SettingsError(f"rows cannot be found by a column that {mask} masks", hint=hint, stream=stream)
        texts = {key: tuple(map(self._texts, masks, key)) for key in keys}
        return Target(name, tuple(map(source, fields)), tuple(one.name for one in fields), texts)

    def _texts(self, mask: str, text: str) -> frozenset[str]:
        """The texts that a value may have in a table: older rows are perhaps not hashed."""
        return frozenset({text, self._masks.code(text)} if mask == "hash" else {text})

    def _root(self, view: View) -> str:
        names = self._pipeline.names_of(root_stream(view.name, self._pipeline.views))
        return next((name for name in names if name in self._snapshot.tables), "")

    def _closed_tables(self) -> Iterator[tuple[str, tuple[Target, tuple[str, ...]]]]:
        """Tables of closed windows whose groups name the key: their rows do not change with the stream's."""
        for view in self._views:
            target = self.targets[self._root(view)]
            fields = tuple(view.plain_keys.get(name.lower(), "") for name in target.fields)
            if view.closes in self._snapshot.tables and all(fields):
                yield view.closes, (target, fields)

    @property
    def tables(self) -> dict[str, tuple[Target, tuple[str, ...]]]:
        """By name, the tables whose rows are looked at, and the columns that have the key."""
        return {name: (target, target.fields) for name, target in self.targets.items()} | self._closed

    def occurrences(self) -> Occurrences:
        """Search all of it."""
        result = Occurrences()
        for name, (target, fields) in self.tables.items():
            table = self._snapshot.tables[name]
            counts = self._counts([f"{table.folder}/{file}" for file in table.files], target, fields, result)
            if counts:
                result.tables[name] = {key.removeprefix(f"{table.folder}/"): rows for key, rows in counts.items()}
        for name, stage in self._snapshot.staged.items():
            if whose := self.targets.get(name):
                counts = self._counts([file.source for file in stage.files], whose, whose.fields, result)
                if counts or any(file.upload for file in stage.files):  # an upload cannot be read before its commit
                    result.staged[name] = sum(counts.values())
        self._look_at_rejects(result)
        self._look_at_old(result)
        return result

    def _counts(
        self, keys: Sequence[str], target: Target, fields: Sequence[str], result: Occurrences
    ) -> dict[str, int]:
        """The files among these that have rows of the keys, and how many."""
        counts = parallel_map(self._storage, lambda key: self._count(key, target, fields), keys)
        result.searched += len(keys)
        return {key: count for key, count in zip(keys, counts, strict=True) if count}

    def _count(self, key: str, target: Target, fields: Sequence[str]) -> int:
        try:
            with self._storage.open(key) as source, pq.ParquetFile(source) as file:
                if not set(fields) <= set(file.schema_arrow.names):
                    return 0
                batches = file.iter_batches(1 << 16, columns=list(fields))
                return sum(pc.sum(target.among(pa.table(batch), fields)).as_py() or 0 for batch in batches)
        except (pa.ArrowInvalid, OSError) as error:
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
            loose = RejectFile(stream=None, file=key, lines=0, reasons={})
            with suppress(LakeError):  # one that cannot be read is nobody's
                if any(self._is_of_any(reject) for reject in read(self._storage, loose)):
                    result.old_rejects.append(key)

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
                if change.stream in views:
                    of_views |= dict.fromkeys(left, 1)
                elif target := self.targets.get(change.stream):
                    of_tables |= self._counts(left, target, target.fields, result)
        if result.tables or of_tables:  # those of tables go last: as long as they are there, the rest is not done
            result.old = of_views | of_tables

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
