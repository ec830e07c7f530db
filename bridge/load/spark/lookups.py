"""The tables in which a `transform` looks rows up, each as one commit had it, read once a run into memory.

A look-up gives each row at most one other: the table has no two rows of one key, which is checked here. So a row stays
one row, and Spark sends the table to all workers instead of moving rows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from bridge.errors import LakeError, SettingsError, did_you_mean
from bridge.lake.log import Log, Snapshot
from bridge.lake.records import TableState
from bridge.lake.schemas import columns_of
from bridge.lake.storage import Storage, lake_of
from bridge.load.spark.view_files import rows_of
from bridge.load.write.context import WriteContext
from bridge.load.write.signed_file import SignedFile
from bridge.settings.options import Pipeline
from bridge.settings.sql.lookup import Lookup

_MOST = 64 << 20
"""Bytes that a table may take in the memory of each worker."""
_LOOKS = 5
_PAUSE = 0.5
"""Seconds between two looks, in which a commit that is being published is likely to finish."""


class Lookups:
    """Reads them from a bucket: of this pipeline as its run began, of others as they are when first asked for."""

    def __init__(self, storage: Storage, context: WriteContext, snapshot: Snapshot) -> None:
        self._storage, self._context = storage, context
        self._snapshots = {context.pipeline: snapshot}
        self._rows = dict[Lookup, pa.Table]()

    @classmethod
    def of(cls, pipeline: Pipeline, storage: Storage, snapshot: Snapshot) -> Lookups:
        """Those of a pipeline that loads into this bucket. A trial, whose bucket has no tables, reads the real one."""
        if pipeline.looks_up_in:
            pipeline = pipeline.model_copy(update={"destination": pipeline.looks_up_in})
            storage = lake_of(pipeline.destination)
            log = Log(storage, pipeline.name)
            snapshot = log.snapshot(log.latest())
        return cls(storage, WriteContext.of(pipeline, storage.uri, "", 0, {}), snapshot)

    @property
    def commits(self) -> dict[str, int]:
        """By pipeline, the commit whose tables were read."""
        return {self._pipeline(lookup): self._snapshots[self._pipeline(lookup)].n for lookup in self._rows}

    def columns(self, lookup: Lookup) -> pa.Schema:
        """The columns that a statement may read. Raises `SettingsError` for a table or a key that is not there."""
        pipeline, table = self._pipeline(lookup), self._table(lookup)
        every = columns_of(self._storage, pipeline, table)
        by_name = {field.name.lower(): field for field in every}
        for key in lookup.keys:
            field = by_name.get(key.lower())
            if field is None:
                hint = did_you_mean(key, every.names) or f"its columns are: {', '.join(every.names)}"
                raise SettingsError("a look-up needs a column that the table does not have", hint=hint, column=key)
            if pa.types.is_floating(field.type) or pa.types.is_nested(field.type):
                hint = "keys of a look-up are integers, decimals, texts, times or booleans"
                raise SettingsError(f"a {field.type} is no key of a look-up", hint=hint, table=lookup, column=key)
        names = by_name.keys() if lookup.columns is None else lookup.columns
        fields = [field for name, field in by_name.items() if name in names]
        return pa.schema([pa.field(field.name, field.type) for field in fields])

    def rows(self, lookup: Lookup) -> pa.Table:
        """The table's rows with these columns. Raises `LakeError` if they cannot be read, `SettingsError` for a table
        that is too large, or has two rows of one key."""
        if lookup not in self._rows:
            self._rows[lookup] = _by_key(lookup, self._read(lookup))
        return self._rows[lookup]

    def _pipeline(self, lookup: Lookup) -> str:
        return lookup.pipeline or self._context.pipeline

    def _snapshot(self, pipeline: str) -> Snapshot:
        if pipeline not in self._snapshots:
            log = Log(self._storage, pipeline)
            self._snapshots[pipeline] = log.snapshot(log.latest())
        return self._snapshots[pipeline]

    def _table(self, lookup: Lookup) -> TableState:
        pipeline = self._pipeline(lookup)
        snapshot = self._snapshot(pipeline)
        table = snapshot.tables.get(lookup.table)
        if table is None or table.schema is None:
            hint = f"load it first: singer-bridge run {pipeline}"
            if names := sorted(snapshot.tables):
                hint = did_you_mean(lookup.table, names) or f"it has: {', '.join(names)}"
            facts = {"pipeline": pipeline, "table": lookup.table}
            raise SettingsError("a transform looks rows up in a table that there is not", hint=hint, **facts)
        return table

    def _read(self, lookup: Lookup) -> pa.Table:
        """The rows at the commit that is noted; of another pipeline at a later one if its files were replaced."""
        pipeline = self._pipeline(lookup)
        for left in reversed(range(_LOOKS)):
            try:
                return self._rows_at(lookup, self._table(lookup), self.columns(lookup))
            except LakeError:
                if not left:
                    raise
                time.sleep(_PAUSE)
                columns = self.columns(lookup)
                if pipeline != self._context.pipeline and pipeline not in self.commits:
                    self._snapshots.pop(pipeline)
                if self.columns(lookup) != columns:
                    raise LakeError(
                        "a table changed while rows were looked up in it", hint="run again", table=lookup
                    ) from None
        raise AssertionError

    def _rows_at(self, lookup: Lookup, table: TableState, columns: pa.Schema) -> pa.Table:
        batches, size = list[pa.RecordBatch](), 0
        for name, file in sorted(table.files.items()):
            one = SignedFile(f"{table.folder}/{name}", file.size, file.rows)
            for batch in rows_of(self._context, one, list(columns), {}):
                batches.append(pa.RecordBatch.from_arrays(batch.columns[: len(columns)], schema=columns))
                size += batch.nbytes
                if size > _MOST:
                    hint = f"more than {_MOST >> 20} MiB: select fewer of its columns, or join them where you query"
                    raise SettingsError("a table is too large to look rows up in it", hint=hint, table=lookup)
        return pa.Table.from_batches(batches, columns)


def _by_key(lookup: Lookup, rows: pa.Table) -> pa.Table:
    """The rows that can be found: a NULL equals nothing. Raises `SettingsError` for two rows of one key."""
    names = _names(lookup, rows)
    keys = rows.select(names)
    rows = rows.filter(reduce(pc.and_, (pc.is_valid(column) for column in keys.columns)))
    counted = rows.select(names).group_by(names).aggregate([([], "count_all")])
    if len(twice := counted.filter(pc.greater(counted.column("count_all"), 1))):
        key = ", ".join(f"{name}={value}" for name, value in twice.select(names).slice(0, 1).to_pylist()[0].items())
        hint = f"{len(twice):,} keys have several rows, such as {key}: a row would become several"
        raise SettingsError("a look-up finds several rows", hint=hint, table=lookup)
    return rows.combine_chunks()


def _names(lookup: Lookup, rows: pa.Table) -> Sequence[str]:
    by_name = {name.lower(): name for name in rows.column_names}
    return list(dict.fromkeys(by_name[key.lower()] for key in lookup.keys))
