"""Where a stream's table is and how it is loaded: method with its reason, folder, owner, columns so far."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from bridge.errors import LakeError, SettingsError, did_you_mean
from bridge.exact_json import dumps
from bridge.lake.formats.registry import TableLogs
from bridge.lake.log import Log, Snapshot
from bridge.lake.ownership import Owner, claim, claim_all, others_of, strangers, tables_of
from bridge.lake.paths import folder_name
from bridge.lake.records import TableState
from bridge.lake.schemas import read_schema
from bridge.lake.storage import Storage
from bridge.load.run.barriers import StreamProgress
from bridge.load.run.tables.column_plan import ColumnPlan, IncomingSchema
from bridge.load.run.tables.methods import Method, decide, of_catalog, refusal
from bridge.load.run.tables.new_key import allows_null, sweeps, take_key, was_swept, without_key
from bridge.load.write.keys import check_keys, refuse_new_columns
from bridge.load.write.layout import TableLayout
from bridge.load.write.partition import check_layout
from bridge.protocol.schema.merging import Evolution
from bridge.protocol.schema.table_schema import TableSchema, merge
from bridge.protocol.singer.catalog import (
    Catalog,
    declares_keys,
    entries_by_name,
    namesakes,
    replication_key,
    replication_method,
)
from bridge.protocol.singer.messages import Schema
from bridge.protocol.singer.replication import yaml_value
from bridge.protocol.singer.state import continues, is_empty, is_flat, resume_point
from bridge.settings.commands import reload, selecting
from bridge.settings.destination import APPEND_ONLY, OVERWRITE, UPSERT, LoadMethod
from bridge.settings.options import Pipeline
from bridge.settings.view_sql import ROWS, View, read_view


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
    """Decides at each stream's first SCHEMA where its table is and how it is loaded.

    `layouts` maps the decided streams to where their rows go. `shared` are streams whose tables other pipelines add
    files to.
    """

    def __init__(
        self,
        storage: Storage,
        pipeline: Pipeline,
        view: Snapshot,
        catalog: dict[str, Any] | None,
        *,
        full: bool,
        append: bool,
        piped: bool = False,
        whole: Collection[str] = (),
    ) -> None:
        """`piped`: another program starts the tap, so we do not choose its replication.

        `whole`: streams of which each run extracts all rows, as the tap said when it was asked before the run.
        """
        self._storage, self._pipeline, self._view, self._catalog = storage, pipeline, view, catalog
        self._entries = entries_by_name(catalog) if catalog else {}
        self._full, self._append, self._piped, self._whole = full, append, piped, whole
        self._folders = {table.folder.rsplit("/", 1)[-1].casefold() for table in view.tables.values()}
        self.methods: dict[str, Method] = {}
        self.layouts: dict[str, TableLayout] = {}
        self.shared: set[str] = set()
        self._unclaimed: dict[str, Owner] = {}

    def loaded(self, deselected: Collection[str]) -> dict[str, TableState]:
        """The existing tables of the streams that this run loads."""
        catalog, tables = self._catalog, self._view.tables.items()
        named = (s for s, _ in tables if catalog is None or s in self._entries)
        streams = {stream for stream in named if stream not in deselected}
        return {stream: table for stream, table in tables if stream in streams and not table.view}

    def replaced(self, streams: Iterable[str]) -> set[str]:
        """Those of the streams whose tables this run replaces."""
        return {stream for stream in streams if self.method(stream, None)[0] == OVERWRITE}

    def open(self, message: Schema) -> tuple[StreamProgress, TableSchema | None]:
        """A stream's progress, and its table's columns, if any. Raises `LakeError` if somebody else owns the table."""
        refuse_namesakes(self._pipeline.name, self._catalog, [message.stream])
        method = self._method(message)
        mode, reason = self._of_run(method)
        table = self._view.tables.get(message.stream)
        self.layouts[message.stream] = target = self._keyed(message, self._layout(message.stream))
        others = self._claim(message.stream, mode)
        staged = None if self._full else self._view.staged.get(message.stream)
        extends = mode == OVERWRITE and not self._full and not staged and self._continues(message.stream, table)
        # Otherwise the old table is replaced, and only files that an earlier run staged have columns to keep.
        evolution = self.evolution(message)
        # A table that is to keep its columns keeps them when its rows are replaced, too.
        stays = mode != OVERWRITE or extends or (evolution.schema_policy != "evolve" and not (self._full or staged))
        name = (table.schema if table else None) if stays else (staged.schema if staged else None)
        columns = read_schema(self._storage, self._pipeline.name, name) if name else None
        self._refuse_view(message.stream, table, columns)
        if columns and table and table.rows and not self._pipeline.stream(message.stream).key_properties:
            refuse_new_columns(columns.arrow, message.stream, target.keys)
        if staged:
            self._check_folders(message.stream, staged.partition_by or ())
        elif table and table.files and (mode != OVERWRITE or extends):
            self._check_folders(message.stream, table.partition_by)
        for owner, other in tables_of(self._storage, others).items():
            if other.files:
                self._check_folders(message.stream, other.partition_by)
            if other.schema:  # their rows are in the same table: no column may mean two things
                columns = merge(columns, read_schema(self._storage, owner.pipeline, other.schema), Evolution("fail"))
        self.layouts[message.stream] = target = without_key(mode, target, swept=was_swept(message, columns))
        stream = StreamProgress(message.stream, mode, reason, TableSchema(pa.schema([])), 0, self._keys(message))
        stream.evolution, stream.keyed, stream.resumes = evolution, bool(target.keys), bool(message.bookmark_properties)
        stream.other_names = tuple(n for n in self._pipeline.names_of(message.stream) if n != message.stream)
        stream.former = table.version if table else None
        stream.sweeps = sweeps(mode, target)
        self.methods[message.stream] = method
        if mode == APPEND_ONLY and self._repeats(message.stream, method):
            stream.refused = refusal(self._pipeline, [message.stream], piped=self._piped)
        if extends and table:
            stream.swapped, stream.version = True, table.version
        return stream, columns

    def evolution(self, message: Schema) -> Evolution:
        """How the table's columns may change. We must not rewrite files of another pipeline."""
        settings = self._pipeline.stream(message.stream)
        change, policy = settings.on_type_change or "rewrite", settings.schema_policy or "evolve"
        if self._pipeline.destination.shared:  # its rows are not merged, so its keys may have variants, too
            return Evolution("fail" if change == "rewrite" else change, policy)
        return Evolution(change, policy, tuple(self._keys(message)))

    def _layout(self, stream: str) -> TableLayout:
        """Where the stream's rows go: folder, format, partitions, order."""
        destination, own = self._pipeline.destination, self._pipeline.stream(stream).partition_by
        partition_by = destination.partition_by if own is None else own
        layout = TableLayout.of(self._pipeline, stream, self._folder(stream), destination.format, partition_by)
        return replace(layout, readable=True) if self._feeds_view(stream) else layout

    def _feeds_view(self, stream: str) -> bool:
        names = self._pipeline.names_of(stream)
        return any(read_view(*view).stream in names for view in self._pipeline.views.items())

    def _refuse_view(self, stream: str, table: TableState | None, columns: TableSchema | None) -> None:
        """Raise `SettingsError` for a stream with the name of a view, or of one that there was."""
        of_view = bool(table and table.view) or bool(columns and ROWS in columns.arrow.names)
        if stream in self._pipeline.views or of_view:
            hint = "give the view another name; or leave the stream out by source.select"
            raise SettingsError("a view has the name of this stream", hint=hint, stream=stream)

    def open_view(self, view: View) -> None:
        """Decide where a view's table is. Raises `SettingsError` if a stream has it, `LakeError` if somebody else."""
        name, table = view.name, self._view.tables.get(view.name)
        if table and table.schema:
            columns = read_schema(self._storage, self._pipeline.name, table.schema).arrow
            if not table.view and ROWS not in columns.names:
                raise SettingsError("a stream's table has the name of this view", hint="rename the view", view=name)
        self.layouts[name] = TableLayout(
            self._folder(name),
            self._pipeline.destination.format,
            sort_by=view.keys,
            file_size=self._pipeline.destination.file_size,
        )
        self._claim(name, APPEND_ONLY)

    def incoming(self, message: Schema) -> IncomingSchema:
        """What a SCHEMA brings to its table, as the settings shape it. Raises `SettingsError`, `DataError`."""
        stream = message.stream
        log_based = replication_method(self._catalog_of(stream), stream) == "LOG_BASED"
        key = replication_key(self._catalog_of(stream), stream)
        shaping = ColumnPlan.of(self._pipeline, stream, key, log_based=log_based)
        return shaping.incoming(message, self.keys(message), self._keys(message))

    def _keyed(self, message: Schema, target: TableLayout) -> TableLayout:
        """The layout with keys and the handling of deletions. Raises `SettingsError` without a key."""
        stream = message.stream
        own, method = self._pipeline.stream(stream).hard_delete, self._method(message)
        hard = self._pipeline.destination.hard_delete if own is None else own
        target = replace(target, hard_delete=hard, watched=method.watched)
        if method.usual != UPSERT:
            return target
        keys = self._keys(message)
        if not keys:
            hint = "set key_properties for it under streams, or another load_method"
            raise SettingsError("an upsert needs a key, and the tap declares none", hint=hint, stream=stream)
        changes = replication_method(self._catalog_of(stream), stream) == "LOG_BASED"
        return replace(target, keys=tuple(keys), changes=changes, hard_delete=bool(hard))

    def check(self, stream: str, schema: TableSchema) -> None:
        """Raise `SettingsError` unless a table with these columns can be partitioned and sorted as the settings say."""
        target = self.layouts[stream]
        check_layout(schema.arrow, stream, target.partition_by, target.sort_by)
        if target.keys:
            check_keys(schema.arrow, stream, target.keys)

    def _check_folders(self, stream: str, before: Sequence[Any]) -> None:
        """Raise `SettingsError` if files that stay were partitioned in another way than new ones would be."""
        now = [partition.setting for partition in self.layouts[stream].partition_by]
        if now == list(before):
            return
        was = f"keep partition_by: {dumps(before).decode()}" if before else "remove partition_by"
        hint = f"{was}; or load the table anew: {reload(self._pipeline, [stream])}"
        raise SettingsError("a table with rows keeps its partitions", hint=hint, stream=stream)

    def _continues(self, stream: str, table: TableState | None) -> bool:
        """Whether the tap may still be sending a table that was replaced at a STATE before the tap's end."""
        return (
            table is not None
            and table.version is not None
            and continues(self._view.state, self._pipeline.names_of(stream), table.version)
        )

    def keys(self, message: Schema) -> list[str]:
        """The columns that are never null: the table's keys; an upsert's where null is not allowed."""
        keys = self._keys(message)
        if self._method(message).usual != UPSERT:
            return keys
        properties = message.schema.get("properties") or {}
        return [key for key in keys if not allows_null(properties.get(key))]

    def _keys(self, message: Schema) -> list[str]:
        """The table's keys: those of the settings, else those that the tap declares. Raises `SettingsError`."""
        keys = self._pipeline.stream(message.stream).key_properties
        if keys is None:
            return message.key_properties or []
        columns = message.schema.get("properties") or {}
        if missing := [key for key in keys if key not in columns]:
            hint = did_you_mean(missing[0], columns) or f"the tap's columns are: {', '.join(list(columns)[:20])}"
            raise SettingsError("key_properties names no column", hint=hint, stream=message.stream, key=missing[0])
        return list(dict.fromkeys(keys))

    def changes_key(self, stream: StreamProgress, message: Schema) -> bool:
        """Whether a later SCHEMA of the run has rows merged by another key."""
        other = set(self._keys(message)) != set(stream.key_properties)
        return other and (stream.keyed or self._method(message).usual == UPSERT)

    def rekey(self, stream: StreamProgress, message: Schema) -> None:
        """Go on by the key of a later SCHEMA. Raises `DataError`, `SettingsError` where that cannot be."""
        method, layout = self._method(message), self.layouts[stream.name]
        layout = self._keyed(message, replace(layout, keys=(), changes=False))
        layout = without_key(self._of_run(method)[0], layout, swept=stream.keyed)
        take_key(stream, *self._of_run(method), self._keys(message), layout)
        self.layouts[stream.name], self.methods[stream.name] = layout, method
        stream.evolution = self.evolution(message)
        if stream.method == APPEND_ONLY and self._repeats(stream.name, method):
            stream.refused = refusal(self._pipeline, [stream.name], piped=self._piped)

    def is_new(self, stream: str) -> bool:
        """Whether the stream had no table before this run."""
        return stream not in self._view.tables

    def method(self, stream: str, bookmarks: list[str] | None, keys: Sequence[str] = ()) -> tuple[LoadMethod, str]:
        """A stream's mode and the reason for it."""
        return self._of_run(self._decide(stream, bookmarks, keys))

    def expected(self, stream: str) -> tuple[Method, LoadMethod, str]:
        """A stream's method as its catalog entry says it; and the mode of this run, and its reason."""
        method = self._or_whole(stream, of_catalog(self._pipeline, self._catalog_of(stream), stream))
        return method, *self._of_run(method)

    def _catalog_of(self, stream: str) -> Catalog | None:
        """The catalog with this stream alone: to look it up among thousands takes long."""
        if self._catalog is None:
            return None
        return {"streams": [self._entries[stream]] if stream in self._entries else []}

    def _decide(self, stream: str, bookmarks: list[str] | None, keys: Sequence[str]) -> Method:
        return self._or_whole(stream, decide(self._pipeline, self._catalog_of(stream), stream, bookmarks, keys))

    def _or_whole(self, stream: str, method: Method) -> Method:
        if stream in self._whole and self._pipeline.load_method(stream) == "auto":
            return replace(method, usual=OVERWRITE, reason="the tap discovers it as FULL_TABLE", is_known=True)
        return method

    def _of_run(self, method: Method) -> tuple[LoadMethod, str]:
        if self._full and not (method.usual != OVERWRITE and self._append):
            return OVERWRITE, "--full"
        return method.usual, method.reason

    def _method(self, message: Schema) -> Method:
        return self._decide(message.stream, message.bookmark_properties, self._keys(message))

    def repeating(self, streams: Iterable[str]) -> list[str]:
        """Which of these streams a run would add once more, as far as the catalog says; none if it is told to.

        Only those of which the catalog says that they have no key: else their SCHEMA may still name one.
        """
        repeated = []
        for stream in streams:
            method, mode, _ = self.expected(stream)
            entry = self._entries.get(stream)
            if mode == APPEND_ONLY and entry and declares_keys(entry) and self._repeats(stream, method):
                repeated.append(stream)
        return repeated

    def _repeats(self, stream: str, method: Method) -> bool:
        """Whether the table has rows that the tap will send again, as no bookmark says where it resumes."""
        names, state = self._pipeline.names_of(stream), self._view.state
        table = self._view.table(names)
        if self._full or method.is_known or method.usual != APPEND_ONLY or not table or not table.rows:
            return False
        if is_flat(state) and not is_empty(state):
            return False  # one position for the whole tap
        points = [resume_point(state, self._pipeline.names_of(one)) for one in (stream, method.parent) if one]
        return all(point is None for point in points)

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

    def _check_format(self, stream: str, table: TableState | None) -> None:
        """Raise if the table has another format, or if somebody else's table is in the folder of a new one."""
        format_ = self.layouts[stream].format
        if table and table.format != format_:
            hint = f"keep format: {table.format}; or load it into another destination.path, under another pipeline name"
            facts = {"stream": stream, "format": table.format, "wanted": format_}
            raise SettingsError("a table keeps its format", hint=hint, **facts)
        if format_ != "parquet" and table is None:
            logs = TableLogs(Log(self._storage, self._pipeline.name))
            logs.of(self.layouts[stream].folder, stream, format_).check(None)

    def _claim(self, stream: str, method: LoadMethod) -> list[Owner]:
        """Claim the table's folder, or refuse: rows of another pipeline must not be deleted or mixed with ours.

        A table that nobody may share is only claimed by `claim_tables`.
        """
        shared, folder, me = self._may_share(stream, method), self.layouts[stream].folder, self._owner(stream)
        if shared:
            others = claim(self._storage, folder, me, shared=True)
            self.shared.add(stream)
        else:
            others = others_of(self._storage, folder, me, shared=False)
            self._unclaimed[folder] = me
        self._check_contents(stream, others)
        return others

    def _owner(self, stream: str) -> Owner:
        return Owner(self._pipeline.name, stream)

    def claim_tables(self) -> None:
        """Claim the tables that were opened since the last call, all at once. Raises `LakeError` like `open`.

        Comes before anything is written for them.
        """
        unclaimed, self._unclaimed = self._unclaimed, {}
        claim_all(self._storage, unclaimed)

    def check_table(self, stream: str) -> None:
        """Raise what `open` would raise for a stream before its SCHEMA has come; nothing is written."""
        self.layouts[stream] = layout = self._layout(stream)
        mode, table = self.expected(stream)[1], self._view.tables.get(stream)
        others = others_of(self._storage, layout.folder, self._owner(stream), shared=self._may_share(stream, mode))
        self._check_contents(stream, others)
        self._refuse_view(stream, table, None)
        if table and table.files and mode != OVERWRITE:
            self._check_folders(stream, table.partition_by)

    def _may_share(self, stream: str, method: LoadMethod) -> bool:
        shared = self._pipeline.destination.shared
        if shared and method != APPEND_ONLY:
            hint = "set load_method to append-only, or give the pipeline a table of its own"
            raise SettingsError("a shared table can only be appended to", hint=hint, stream=stream)
        return shared

    def _check_contents(self, stream: str, others: list[Owner]) -> None:
        """Raise for a table of another format, and for files in its folder that no owner's log names."""
        folder, table = self.layouts[stream].folder, self._view.tables.get(stream)
        self._check_format(stream, table)
        if table and table.has_own_log:
            return  # nobody reads files that the table's own log does not name
        if strange := strangers(self._storage, table or TableState(folder, None), others):
            hint = "`run --adopt` makes them part of the table; or move them away, or choose another destination.path"
            raise LakeError("the table's folder holds files of others", hint=hint, folder=folder, file=strange[0])
