"""Builds a commit's entry for one table: which pending files become visible, and which files are removed.

Files with older columns are rewritten, and the rows of an upsert are merged into the table. Executors do this work, and
it may take a while.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from msgspec import structs

from bridge.errors import DataError
from bridge.lake.commit.committer import Committer
from bridge.lake.file_records import FileAdd, PendingFile, RejectFile
from bridge.lake.records import StagedTable, TableChange, TableState
from bridge.lake.schemas import keep_schema
from bridge.load.run.barriers import Barrier
from bridge.load.run.checks.table_guard import Outcome
from bridge.load.run.tables.table_key import key_after
from bridge.load.write.context import MapOnExecutors, WriteContext
from bridge.load.write.layout import RowWindow
from bridge.load.write.merge.match import MergeSpec, VersionSweep, WindowSweep
from bridge.load.write.merge.plan import Merged, Merger
from bridge.load.write.report import RowChanges, SpillFile
from bridge.load.write.rewrite import Rewriting
from bridge.load.write.shared_spool import delete_files
from bridge.load.write.task import write_empty
from bridge.protocol.schema.json_schema import DELETED_AT, TIMESTAMP, VERSION_COLUMN
from bridge.protocol.schema.table_schema import TableSchema, with_extra
from bridge.settings.destination import OVERWRITE


@dataclass(slots=True)
class Pending:
    """The files of one stream that Spark has stored and no commit has published."""

    files: list[PendingFile] = field(default_factory=list)
    spills: list[SpillFile] = field(default_factory=list)
    versions: set[int | None] = field(default_factory=set)
    rejects: list[RejectFile] = field(default_factory=list)
    filtered: int = 0
    """Rows that the stream's SQL filtered out, or that lie outside of the window of a backfill."""


@dataclass(frozen=True, slots=True)
class BuiltChange:
    """A table's part of a commit. `change` is None if nothing is new, `outcome` if the guard has nothing to judge."""

    change: TableChange | None = None
    outcome: Outcome | None = None
    unneeded: Sequence[FileAdd] = ()
    """Pending files that the commit does not need."""
    rows: Sequence[RowChanges] = ()
    """Changes in files that were written again, as far as they were noted."""


class TableChangeBuilder:
    """Builds the table changes of one run's commits."""

    def __init__(self, committer: Committer, context: WriteContext, *, shared: bool, each: MapOnExecutors) -> None:
        """`shared`: other pipelines add files to the tables, too. `each` runs pieces of work on executors."""
        self._committer, self._context, self._shared = committer, context, shared
        self._merger = Merger(context, each)
        self.rewriting = Rewriting(committer.storage, context, each)
        self.extra: set[str] = set()
        """Streams with fields outside their SCHEMA, which need a column for them."""
        self._keyed: set[str] = set()
        """Streams of which rows were merged in this run; they may have lost their key since."""

    def build(self, stream: str, pending: Pending, barrier: Barrier, through: int) -> BuiltChange:
        """The change of a stream's table at a barrier. Raises `DataError` for rows of several versions."""
        active, anew = barrier.activate.get(stream), barrier.replaces(stream)
        table, has_rows = self._table(stream), bool(pending.files or pending.spills)
        unchanged = BuiltChange(outcome=Outcome(stream, table.rows) if stream in barrier.publish else None)
        window = self._window(stream, barrier)
        if not has_rows and active is None and not window and (not barrier.end or (not anew and table.files)):
            return unchanged
        version = table.version if active is None else active
        if barrier.publish.get(stream) == OVERWRITE:
            versions = pending.versions - {None} if anew else pending.versions | {version}
            version = _one_version(stream, versions)
        schema = self._kept_schema(stream, pending, barrier.schemas[stream], active)
        if pending.files:
            pending.files = self.rewriting.pending(stream, pending.files, schema)
        merged = self._merged(stream, pending, barrier, schema, through)
        if not has_rows and not anew and version == table.version and not merged.removes and table.files:
            return unchanged
        if not merged.adds and not table.files.keys() - set(merged.removes):
            merged.adds = [write_empty(self._context, through, stream, schema).add()]
        rewritten, replaced = self.rewriting.live(stream, table, schema, merged.removes)
        layout = self._context.layouts[stream]
        key = key_after(self._committer.storage, table, schema.arrow, layout.row_key, anew=anew)
        after = structs.replace(table, schema=schema.hash, version=version, upserts=bool(layout.keys), key=key)
        after = structs.replace(after, masks=layout.masks)
        change = after.change(
            stream,
            [*merged.adds, *rewritten],
            [*merged.removes, *(one.old for one in replaced)],
            replaces=anew,
            shared=self._shared,
            merged=merged.facts(),
            partition_by=self._layout(stream),
        )
        soft = not self._context.layouts[stream].hard_delete
        outcome = _outcome(stream, table, merged, anew=anew, soft=soft) or unchanged.outcome
        if window:
            outcome = Outcome(stream, merged.swept, merged.counts["inserted"], replaces=True, is_window=True)
        return BuiltChange(change, outcome, merged.empty, [*merged.changes, *replaced])

    def forget(self, built: BuiltChange) -> None:
        """Delete from the spool what was noted of rows."""
        delete_files(self._context, [one.name for one in built.rows if one.name])

    def stage(self, stream: str, version: int, pending: Pending, barrier: Barrier) -> StagedTable:
        """A commit's entry for a table that is half loaded. Raises `DataError` for rows of several versions."""
        if stream not in barrier.schemas:  # the tap has not reached it in this run
            return self._committer.snapshot.staged[stream]
        _one_version(stream, pending.versions | {version})
        schema = self._kept_schema(stream, pending, barrier.schemas[stream])
        pending.files = self.rewriting.pending(stream, pending.files, schema)
        return StagedTable(
            version=version,
            schema=schema.hash,
            folder=self._table(stream).folder,
            files=pending.files,
            rejects=pending.rejects or (),
            partition_by=self._layout(stream),
        )

    def _merged(self, stream: str, pending: Pending, barrier: Barrier, schema: TableSchema, seq: int) -> Merged:
        """The files to add and remove. If a version is complete, rows of older ones are removed or marked deleted."""
        active, anew = barrier.activate.get(stream), barrier.replaces(stream)
        files, table, target = pending.files, self._table(stream), self._context.layouts[stream]
        soft = not target.hard_delete
        sweep = None if active is None else VersionSweep(active, int(time.time() * 1000) if soft else None)
        batch = MergeSpec(stream, schema.to_json(), seq, not soft, sweep)
        if target.keys:
            self._keyed.add(stream)
            if active == table.version:
                batch = replace(batch, sweep=None)  # done when this version became active
            return self._merger.merge(batch, table, pending.spills, anew=anew)
        if anew:
            return Merged([file.add() for file in files], list(table.files))
        if active is None and table.version is not None and any(file.stale for file in table.files.values()):
            batch = replace(batch, sweep=VersionSweep(table.version, int(time.time() * 1000) if soft else None))
        if window := self._window(stream, barrier):
            return self._merger.replace(replace(batch, sweep=WindowSweep(window)), table, files)
        if batch.sweep:
            return self._merger.extend(batch, table, files, activated=active is not None)
        return Merged([file.add() for file in files])

    def _window(self, stream: str, barrier: Barrier) -> RowWindow | None:
        """The window whose rows the commit replaces in a table without a key, if any."""
        layout = self._context.layouts[stream]
        return layout.window if stream in barrier.publish and not layout.keys else None

    def _layout(self, stream: str) -> tuple[Any, ...] | None:
        """The table's partitioning for the commit; None if it has none and had none."""
        layout = tuple(partition.setting for partition in self._context.layouts[stream].partition_by)
        return layout if layout or self._table(stream).partition_by else None

    def _kept_schema(
        self, stream: str, pending: Pending, schema: TableSchema, active: int | None = None
    ) -> TableSchema:
        """The columns of the stream's files, after storing them in the bucket under their hash."""
        schema = schema.stored
        if stream in self.extra:
            schema = with_extra(schema)
        versions = {*pending.versions, self._table(stream).version, active}
        if marks := [column for column in self._marks(stream, versions) if column.name not in schema.arrow.names]:
            schema = TableSchema(pa.schema([*schema.arrow, *marks]))
        if history := self._context.layouts[stream].history:
            schema = TableSchema(history.columns(schema.arrow))
        keep_schema(self._committer.storage, self._context.pipeline, schema)
        return schema

    def _marks(self, stream: str, versions: set[int | None]) -> list[pa.Field]:
        """The columns for a row's version and the time of its deletion, if the table needs them."""
        target = self._context.layouts[stream]
        if versions == {None} or (target.hard_delete is None and not target.keys):
            return []
        deleted = [] if target.hard_delete or target.history else [pa.field(DELETED_AT, TIMESTAMP)]
        merges = target.keys or stream in self._keyed
        return [*deleted, pa.field(VERSION_COLUMN, pa.int64())] if merges else deleted

    def _table(self, stream: str) -> TableState:
        target = self._context.layouts[stream]
        return self._committer.snapshot.tables.get(stream) or TableState(target.folder, None, format=target.format)


def _outcome(stream: str, table: TableState, merged: Merged, *, anew: bool, soft: bool) -> Outcome | None:
    """The rows before and after, for the guard to judge, if the commit removes rows; `soft`: or marks them."""
    if anew:
        return Outcome(stream, table.rows, sum(add.rows for add in merged.adds), replaces=True)
    if merged.swept or merged.dropped:
        after = table.rows - (0 if soft else merged.swept) - merged.dropped + merged.counts["inserted"]
        return Outcome(stream, table.rows, after, replaces=bool(merged.swept), merges=bool(merged.dropped))
    return None


def _one_version(stream: str, versions: Collection[int | None]) -> int | None:
    if len(versions) > 1:
        hint = "the tap began the table anew within one run; run again, or with --full to start over"
        raise DataError("a full table's rows are of several versions", hint=hint, stream=stream, versions=versions)
    return next(iter(versions), None)
