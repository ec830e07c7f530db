"""Where a stream's table is: folder, owner, format, columns so far."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from bridge.errors import LakeError, SettingsError
from bridge.exact_json import dumps
from bridge.lake.formats.registry import TableLogs
from bridge.lake.log import Log, Snapshot
from bridge.lake.ownership import Owner, claim, claim_all, others_of, strangers, tables_of
from bridge.lake.paths import folder_name
from bridge.lake.records import TableState
from bridge.lake.schemas import read_schema
from bridge.lake.storage import Storage
from bridge.load.run.masking import Masking
from bridge.load.run.streams import StreamPlan, StreamProgress, Streams
from bridge.load.run.tables.column_plan import IncomingSchema
from bridge.load.run.tables.undeclared import refusal
from bridge.load.write.keys import check_keys, refuse_new_columns
from bridge.load.write.layout import RowWindow, TableLayout
from bridge.load.write.metadata_columns import METADATA
from bridge.load.write.partition import check_layout
from bridge.protocol.schema.json_schema import VERSION_COLUMN, VersionColumn
from bridge.protocol.schema.merging import Evolution
from bridge.protocol.schema.table_schema import TableSchema, merge
from bridge.protocol.singer.catalog import Catalog, namesakes
from bridge.protocol.singer.messages import Schema
from bridge.protocol.singer.replication import yaml_value
from bridge.protocol.singer.state import continues
from bridge.settings.commands import reload, selecting
from bridge.settings.destination import APPEND_ONLY, HISTORY, OVERWRITE, UPSERT
from bridge.settings.options import Pipeline
from bridge.settings.sql.view import ROWS, View, read_view
from bridge.settings.values.request import Window


def refuse_namesakes(pipeline: str, catalog: Catalog | None, names: Iterable[str]) -> None:
    """Raise `SettingsError` where RECORDs of several selected streams have one name: they would share a table."""
    for name in names:
        if ids := namesakes(catalog, name):
            apart = " and ".join(f"select: [{yaml_value(one)}]" for one in ids[:3]) + (" ..." if len(ids) > 3 else "")
            hint = (
                f"load them by pipelines of their own, each with one of them under source: {apart}; "
                f"or leave all but one out: {selecting(pipeline, f'!{ids[-1]}')}"
            )
            what = "the tap calls the records of several streams by one name, so they would share a table"
            raise SettingsError(what, hint=hint, name=name, streams=", ".join(ids))


class TablePlanner:
    """Decides at each stream's first SCHEMA where its table is, and what of it stays.

    `layouts` maps the decided streams and views to where their rows go, for the workers.
    """

    def __init__(
        self,
        storage: Storage,
        pipeline: Pipeline,
        snapshot: Snapshot,
        catalog: dict[str, Any] | None,
        *,
        full: bool,
        append: bool,
        piped: bool = False,
        whole: Collection[str] = (),
        backfill: Window | None = None,
        masking: Masking | None = None,
        corrects: bool = False,
    ) -> None:
        """`piped`: another program starts the tap, so we do not choose its replication.

        `whole`: streams of which each run extracts all rows, as the tap said when it was asked before the run.
        `backfill`: only rows of this window are loaded. `corrects`: rows are as the source has them now.
        """
        self._storage, self._pipeline, self._view, self._catalog = storage, pipeline, snapshot, catalog
        self.streams = Streams(pipeline, catalog, snapshot, full=full, append=append, whole=whole, masking=masking)
        self._full, self._piped, self._backfill, self._corrects = full, piped, backfill, corrects
        self._folders = {table.folder.rsplit("/", 1)[-1].casefold() for table in snapshot.tables.values()}
        self.layouts: dict[str, TableLayout] = {}
        self._unclaimed: dict[str, Owner] = {}
        self._starts: dict[str, pa.DataType] = {}

    def loaded(self, deselected: Collection[str]) -> dict[str, TableState]:
        """The existing tables of the streams that this run loads."""
        catalog, tables = self._catalog, self._view.tables.items()
        named = (s for s, _ in tables if catalog is None or s in self.streams.entries)
        streams = {stream for stream in named if stream not in deselected}
        return {stream: table for stream, table in tables if stream in streams and not table.is_of_view}

    def replaced(self, streams: Iterable[str]) -> set[str]:
        """Those of the streams whose tables this run replaces."""
        return {stream for stream in streams if self.streams.expected(stream).method == OVERWRITE}

    def open(self, message: Schema) -> tuple[StreamProgress, TableSchema | None]:
        """A stream's progress, and its table's columns, if any. Raises `LakeError` if somebody else owns the table."""
        refuse_namesakes(self._pipeline.name, self._catalog, [message.stream])
        plan = self.streams.with_schema(message)
        plan = self._keyed(plan, self._layout(plan))
        table, replaces = self._view.tables.get(plan.name), plan.method == OVERWRITE
        if not replaces:
            self._refuse_other_masks(plan, table)
        self._check_versions(plan, table)
        others = self._claim(plan)
        staged = None if self._full else self._view.staged.get(plan.name)
        extends = replaces and not self._full and not staged and self._continues(plan, table)
        # Otherwise the old table is replaced, and only files that an earlier run staged have columns to keep.
        # A table that is to keep its columns keeps them when its rows are replaced, too.
        stays = not replaces or extends or (plan.evolution.schema_policy != "evolve" and not (self._full or staged))
        name = (table.schema if table else None) if stays else (staged.schema if staged else None)
        columns = read_schema(self._storage, self._pipeline.name, name) if name else None
        self._refuse_view(plan.name, table, columns)
        if columns and table and table.rows and not plan.settings.key_properties:
            refuse_new_columns(columns.arrow, plan.name, plan.layout.keys)
        if staged:
            self._check_folders(plan, staged.partition_by or ())
        elif table and table.files and (not replaces or extends):
            self._check_folders(plan, table.partition_by)
        for owner, other in tables_of(self._storage, others).items():
            if other.files:
                self._check_folders(plan, other.partition_by)
            if other.schema:  # their rows are in the same table: no column may mean two things
                columns = merge(columns, read_schema(self._storage, owner.pipeline, other.schema), Evolution("fail"))
        stream = StreamProgress(plan.without_key(swept=_was_swept(message, columns)))
        stream.former = table.version if table else None
        if extends and table:
            stream.swapped, stream.version = True, table.version
        self._note(stream)
        return stream, columns

    def _refuse_other_masks(self, plan: StreamPlan, table: TableState | None) -> None:
        """Raise `SettingsError` where rows would not be found by their keys, as those are masked in another way."""
        if plan.usual != UPSERT or table is None or not table.rows:
            return
        before, now = table.masks, plan.layout.masks
        hashed = (before.keys() | now.keys()) & set(plan.keys)
        if hashed and any(before.get(name) != now.get(name) for name in (*hashed, "*")):
            hint = f"set mask and mask_key back; or have all hashed anew: {reload(self._pipeline, [])}"
            what = "the key is masked in another way than in the table, so no row would be found by it"
            raise SettingsError(what, hint=hint, stream=plan.name)

    def _note(self, stream: StreamProgress) -> None:
        """Take over the plan of a stream, for good. It is refused at its first row if that would come once more."""
        plan = stream.plan
        self.streams.opened[plan.name], self.layouts[plan.name] = plan, plan.layout
        if self.streams.repeats(plan):
            stream.refused = refusal(self._pipeline, [plan.name], piped=self._piped)

    def _layout(self, plan: StreamPlan) -> TableLayout:
        """Where the stream's rows go: folder, format, partitions, order."""
        destination, own = self._pipeline.destination, plan.settings.partition_by
        partition_by = destination.partition_by if own is None else own
        layout = TableLayout.of(self._pipeline, plan.name, self._folder(plan.name), destination.format, partition_by)
        return replace(layout, readable=True) if self._feeds_view(*plan.names) else layout

    def _feeds_view(self, *names: str) -> bool:
        """Whether a view selects from a table of one of these names, before the commit that changes both."""
        return any(read_view(*view).stream in names for view in self._pipeline.views.items())

    def _refuse_view(self, stream: str, table: TableState | None, columns: TableSchema | None) -> None:
        """Raise `SettingsError` for a stream with the name of a view, or of one that there was."""
        of_view = bool(table and table.is_of_view) or bool(columns and ROWS in columns.arrow.names)
        closed = {read_view(*view).closes for view in self._pipeline.views.items()}
        if stream in self._pipeline.views or stream in closed or of_view:
            hint = "give the view another name; or leave the stream out by source.select"
            raise SettingsError("a view has the name of this stream", hint=hint, stream=stream)

    def open_view(self, view: View) -> None:
        """Decide where a view's table is. Raises `SettingsError` if a stream has it, `LakeError` if somebody else."""
        name, table = view.name, self._view.tables.get(view.name)
        if table and table.schema:
            columns = read_schema(self._storage, self._pipeline.name, table.schema).arrow
            if not table.is_of_view and ROWS not in columns.names:
                raise SettingsError("a stream's table has the name of this view", hint="rename the view", view=name)
        closed, of_stream = view.closes, self._view.stream_tables
        if closed in of_stream:
            hint = f"it is where closed windows go: rename the view {name}"
            raise SettingsError("a stream's table has the name of a table of closed windows", hint=hint, stream=closed)
        for one in filter(None, (name, closed)):
            to = self._pipeline.destination
            layout = TableLayout(self._folder(one), to.format, sort_by=view.keys, file_size=to.file_size)
            self.layouts[one] = replace(layout, readable=self._feeds_view(one))
            self._claim(StreamPlan(one, (one,), layout=self.layouts[one]))

    def incoming(self, message: Schema) -> IncomingSchema:
        """The columns that a SCHEMA brings, as the settings shape them. Raises `SettingsError`, `DataError`."""
        plan = self.streams.with_schema(message)
        incoming = self.streams.columns(plan).incoming(message, plan.never_null(message), plan.keys)
        if plan.history:
            plan.history.refuse_own(incoming.columns.arrow)
        return incoming

    def _keyed(self, plan: StreamPlan, layout: TableLayout) -> StreamPlan:
        """The plan, and in its layout its keys and the handling of deletions. Raises `SettingsError` without a key."""
        own = plan.settings.hard_delete
        hard = self._pipeline.destination.hard_delete if own is None else own
        window = RowWindow(plan.backfilled_by, self._backfill) if self._backfill else None
        masks = self.streams.masking.of_table(plan.name, plan.keys)
        layout = replace(layout, hard_delete=hard, watched=plan.watched, window=window, masks=masks)
        history = plan.history and replace(plan.history, corrects=self._corrects)
        if plan.usual != UPSERT:
            return replace(plan, layout=layout)
        if not plan.keys:
            hint = "set key_properties for it under streams, or another load_method"
            what = f"load_method: {plan.word} needs a key, and the tap declares none"
            raise SettingsError(what, hint=hint, stream=plan.name)
        changes = plan.replication == "LOG_BASED"
        hard = bool(hard) and not history  # a deletion closes a version
        return replace(plan, layout=replace(layout, keys=plan.keys, changes=changes, hard_delete=hard, history=history))

    def check(self, stream: str, schema: TableSchema) -> None:
        """Raise `SettingsError` unless a table with these columns can be partitioned and sorted as the settings say."""
        target, columns = self.layouts[stream], schema.arrow
        if target.history:
            columns = target.history.columns(columns, self._starts.get(stream))
            self._starts[stream] = columns.field(VersionColumn.START).type
        check_layout(columns, stream, target.partition_by, target.sort_by)
        if target.keys:
            check_keys(columns, stream, target.keys)

    def _check_folders(self, plan: StreamPlan, before: Sequence[Any]) -> None:
        """Raise `SettingsError` if files that stay were partitioned in another way than new ones would be."""
        now = [partition.setting for partition in plan.layout.partition_by]
        if now == list(before):
            return
        was = f"keep partition_by: {dumps(before).decode()}" if before else "remove partition_by"
        hint = f"{was}; or load the table anew: {reload(self._pipeline, [plan.name])}"
        raise SettingsError("a table with rows keeps its partitions", hint=hint, stream=plan.name)

    def _continues(self, plan: StreamPlan, table: TableState | None) -> bool:
        """Whether the tap may still be sending a table that was replaced at a STATE before the tap's end."""
        return (
            table is not None and table.version is not None and continues(self._view.state, plan.names, table.version)
        )

    def changes_key(self, stream: StreamProgress, message: Schema) -> bool:
        """Whether a later SCHEMA of the run has rows merged by another key."""
        plan = self.streams.with_schema(message)
        return set(plan.keys) != set(stream.plan.keys) and (stream.keyed or plan.usual == UPSERT)

    def rekey(self, stream: StreamProgress, message: Schema) -> None:
        """Go on by the key of a later SCHEMA. Raises `DataError`, `SettingsError` where that cannot be."""
        layout = replace(stream.plan.layout, keys=(), changes=False)
        plan = self._keyed(self.streams.with_schema(message), layout)
        stream.take_key(plan.without_key(swept=stream.keyed))
        self._note(stream)

    def is_new(self, stream: str) -> bool:
        """Whether the stream had no table before this run."""
        return stream not in self._view.tables

    def _folder(self, stream: str) -> str:
        root = self._pipeline.table_root
        table = self._view.tables.get(stream)
        if table is None:
            name = folder_name(stream, ())
            if name.casefold() in self._folders:  # few are: to compare each with all takes long for thousands
                name = folder_name(stream, self._folders)
            self._folders.add(name.casefold())
            return f"{root}/{name}"
        if table.folder.rsplit("/", 1)[0] != root:
            hint = "keep destination.path, or give the pipeline a new name to start over there"
            raise SettingsError("the table is in another folder", hint=hint, stream=stream, folder=table.folder)
        return table.folder

    def _check_format(self, plan: StreamPlan, table: TableState | None) -> None:
        """Raise if the table has another format, or if somebody else's table is in the folder of a new one."""
        format_ = plan.layout.format
        if table and table.format != format_:
            hint = f"keep format: {table.format}; or load it into another destination.path, under another pipeline name"
            facts = {"stream": plan.name, "format": table.format, "wanted": format_}
            raise SettingsError("a table keeps its format", hint=hint, **facts)
        if format_ != "parquet" and table is None:
            logs = TableLogs(Log(self._storage, self._pipeline.name))
            logs.of(plan.layout.folder, plan.name, format_).check(None)

    def _claim(self, plan: StreamPlan) -> list[Owner]:
        """Claim the table's folder, or refuse: rows of another pipeline must not be deleted or mixed with ours.

        A table that nobody may share is only claimed by `claim_tables`.
        """
        shared, folder, me = self._may_share(plan), plan.layout.folder, Owner(self._pipeline.name, plan.name)
        if shared:
            others = claim(self._storage, folder, me, shared=True)
        else:
            others = others_of(self._storage, folder, me, shared=False)
            self._unclaimed[folder] = me
        self._check_contents(plan, others)
        return others

    def claim_tables(self) -> None:
        """Claim the tables that were opened since the last call, all at once. Raises `LakeError` like `open`.

        Comes before anything is written for them.
        """
        unclaimed, self._unclaimed = self._unclaimed, {}
        claim_all(self._storage, unclaimed)

    def check_table(self, stream: str) -> None:
        """Raise what `open` would raise for a stream before its SCHEMA has come; nothing is written."""
        plan = self.streams.expected(stream)
        plan, table = replace(plan, layout=self._layout(plan)), self._view.tables.get(stream)
        me = Owner(self._pipeline.name, stream)
        self._check_contents(plan, others_of(self._storage, plan.layout.folder, me, shared=self._may_share(plan)))
        self._refuse_view(stream, table, None)
        self._check_versions(plan, table)
        if table and table.files and plan.method != OVERWRITE:
            self._check_folders(plan, table.partition_by)

    def _check_versions(self, plan: StreamPlan, table: TableState | None) -> None:
        """Raise `SettingsError` where a table with rows would begin to have versions of them, or no longer have any."""
        if self._full or not table or not table.rows or not table.schema:
            return
        if not plan.history and (not table.upserts or (table.key and VersionColumn.START not in table.key)):
            return  # known from the log alone, as for most tables of most runs
        columns = read_schema(self._storage, self._pipeline.name, table.schema).arrow
        has_versions, anew = any(map(VersionColumn.has, columns)), reload(self._pipeline, [plan.name])
        if plan.history and has_versions:
            plan.history.refuse_other(columns)
        elif plan.history:
            hint = f"set load_method back; or begin anew, with what the tap sends then: {anew}"
            raise SettingsError("a table that was loaded without history gets none", hint=hint, stream=plan.name)
        elif has_versions:
            hint = f"keep load_method: {HISTORY}; or lose all earlier versions: {anew}"
            raise SettingsError("a history table stays one", hint=hint, stream=plan.name)

    def _may_share(self, plan: StreamPlan) -> bool:
        shared = self._pipeline.destination.shared
        if shared and plan.method != APPEND_ONLY:
            hint = "set load_method to append-only, or give the pipeline a table of its own"
            raise SettingsError("a shared table can only be appended to", hint=hint, stream=plan.name)
        return shared

    def _check_contents(self, plan: StreamPlan, others: list[Owner]) -> None:
        """Raise for a table of another format, and for files in its folder that no owner's log names."""
        folder, table = plan.layout.folder, self._view.tables.get(plan.name)
        self._check_format(plan, table)
        if table and table.has_own_log:
            return  # nobody reads files that the table's own log does not name
        if strange := strangers(self._storage, table or TableState(folder, None), others):
            hint = "`run --adopt` makes them part of the table; or move them away, or choose another destination.path"
            raise LakeError("the table's folder holds files of others", hint=hint, folder=folder, file=strange[0])


def _was_swept(message: Schema, columns: TableSchema | None) -> bool:
    """Whether merges swept a table's rows so far: its column for versions is neither the tap's own nor metadata."""
    own, names = message.schema.get("properties") or {}, columns.arrow.names if columns else []
    return VERSION_COLUMN in names and VERSION_COLUMN not in own and not set(METADATA) <= set(names)
