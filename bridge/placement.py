"""Where a stream's table is and how it is loaded: method with its reason, folder, owner, columns so far."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from bridge.catalog import replication_method
from bridge.columns import read_schema
from bridge.config import Pipeline
from bridge.epoch import Mode, Stream
from bridge.errors import LakeError, SettingsError
from bridge.log import LiveTable, View
from bridge.messages import Schema
from bridge.names import folder_name
from bridge.owners import Owner, claim, tables_of
from bridge.schema import TableSchema, merge
from bridge.settings.explain import did_you_mean
from bridge.state import continues
from bridge.storage import Storage
from bridge.tables.target import Target

__all__ = ["Placement", "load_method", "strangers"]


def load_method(setting: str, method: str | None, bookmarks: list[str] | None) -> tuple[Mode, str]:
    """Return how to load a stream and why; `method` is the catalog's replication method. Never deletes on a guess."""
    if setting != "auto":
        return ("replace" if setting == "overwrite" else "append"), "as set"
    if method:
        return ("replace" if method == "FULL_TABLE" else "append"), f"the catalog says {method}"
    if bookmarks:
        return "append", f"incremental: bookmark {', '.join(bookmarks)}"
    return "append", "no catalog, no bookmark: nothing is deleted on a guess"


def strangers(storage: Storage, table: LiveTable, others: list[Owner]) -> list[str]:
    """Return the names of a folder's Parquet files that neither our log nor the logs of those who share it know."""
    names = [name for name in storage.list(table.folder) if name.endswith(".parquet")]  # before the logs are read
    known = set(table.files).union(*(other.files for other in tables_of(storage, others).values()))
    return sorted(name for name in names if name not in known)


class Placement:
    """Decides on each stream's first SCHEMA. `targets` maps the streams decided on to where their rows go.

    `shared` are those whose tables other pipelines add files to as well.
    """

    def __init__(
        self,
        storage: Storage,
        pipeline: Pipeline,
        view: View,
        catalog: dict[str, Any] | None,
        *,
        full: bool,
        append: bool,
    ) -> None:
        self._storage, self._pipeline, self._view, self._catalog = storage, pipeline, view, catalog
        self._full, self._append = full, append
        self.targets: dict[str, Target] = {}
        self.shared: set[str] = set()

    def open(self, message: Schema) -> tuple[Stream, TableSchema | None]:
        """Return the stream and the columns its table has. Raises `LakeError` if the table is not ours to write."""
        mode, reason = self.method(message.stream, message.bookmark_properties)
        table = self._view.tables.get(message.stream)
        self.targets[message.stream] = Target(self._folder(message.stream))
        others = self._claim(message.stream, mode)
        staged = {} if self._full else self._view.staged.get(message.stream, {})
        extends = mode == "replace" and not self._full and not staged and self._continues(message.stream, table)
        # Else the old table goes; only what an earlier run staged of the new one has columns to keep.
        stays = mode == "append" or extends
        known = (table.schema if table else None) if stays else staged.get("schema")
        columns = read_schema(self._storage, self._pipeline.name, known) if known else None
        for owner, other in tables_of(self._storage, others).items():
            if other.schema:  # their rows are in the table, too: no column may mean two things
                columns = merge(columns, read_schema(self._storage, owner.pipeline, other.schema))
        stream = Stream(message.stream, mode, reason, TableSchema(pa.schema([])), 0, self.keys(message))
        if extends and table:
            stream.swapped, stream.version = True, table.version
        return stream, columns

    def _continues(self, stream: str, table: LiveTable | None) -> bool:
        """Return whether the tap may still be inside a table that was swapped in at a STATE before its end."""
        return table is not None and table.version is not None and continues(self._view.state, stream, table.version)

    def keys(self, message: Schema) -> list[str]:
        """Return the table's keys: those of the settings, else those that the tap declares. Raises `SettingsError`."""
        keys = self._pipeline.stream(message.stream).key_properties
        if keys is None:
            return message.key_properties or []
        columns = message.schema.get("properties") or {}
        if missing := [key for key in keys if key not in columns]:
            hint = did_you_mean(missing[0], columns) or f"the tap's columns are: {', '.join(list(columns)[:20])}"
            raise SettingsError("key_properties names no column", hint=hint, stream=message.stream, key=missing[0])
        return keys

    def method(self, stream: str, bookmarks: list[str] | None) -> tuple[Mode, str]:
        """Return a stream's mode and the reason for it."""
        method = replication_method(self._catalog, stream)
        setting, glob = self._pipeline.load_method(stream), self._pipeline.glob_of(stream, "load_method")
        mode, reason = load_method(setting, method, bookmarks)
        if glob and setting != "auto":
            reason = f"as set for {glob}"
        if self._full and not (mode == "append" and self._append):
            return "replace", "--full"
        return mode, reason

    def _folder(self, stream: str) -> str:
        root = self._pipeline.table_root
        table = self._view.tables.get(stream)
        if table is None:
            taken = [*(t.folder for t in self._view.tables.values()), *(t.folder for t in self.targets.values())]
            return f"{root}/{folder_name(stream, [folder.rsplit('/', 1)[-1] for folder in taken])}"
        if table.folder.rsplit("/", 1)[0] != root:
            hint = "keep destination.path, or give the pipeline a new name to start over there"
            raise SettingsError("the table is in another folder", hint=hint, stream=stream, folder=table.folder)
        return table.folder

    def _claim(self, stream: str, mode: Mode) -> list[Owner]:
        """Own the table's folder, or refuse: rows of another pipeline must not be deleted or mixed with ours."""
        folder, me = self.targets[stream].folder, Owner(self._pipeline.name, stream)
        shared = self._pipeline.destination.shared
        if shared and mode != "append":
            hint = "set load_method to append-only, or give the pipeline a table of its own"
            raise SettingsError("a shared table can only be appended to", hint=hint, stream=stream)
        others = claim(self._storage, folder, me, shared=shared)
        if shared:
            self.shared.add(stream)
        table = self._view.tables.get(stream) or LiveTable(folder, None)
        if strange := strangers(self._storage, table, others):
            hint = "`run --adopt` makes them part of the table; or move them away, or choose another destination.path"
            raise LakeError("the table's folder holds files of others", hint=hint, folder=folder, file=strange[0])
        return others
