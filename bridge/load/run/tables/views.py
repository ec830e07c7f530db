"""The views of a pipeline: what the commit that changes a stream's table changes in the views of that stream.

A view is a table of the pipeline whose change says its SELECT. It is filled anew if the log has another SELECT for it,
or none; if its stream's table is replaced; and if the columns that it reads, or has, are of other types than before.
Otherwise the rows of the files that the commit adds to the stream's table are added to its groups, and those of the
files that it removes are taken away. A table whose view left the settings stays as it is, and is no view any more.

A view may select from another view, whose table is then its stream's: the same commit changes both, in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from msgspec import structs

from bridge.errors import LakeError, SettingsError, did_you_mean
from bridge.lake.commit.committer import Committer
from bridge.lake.file_records import LiveFile, PendingFile
from bridge.lake.log import Snapshot
from bridge.lake.records import TableChange, TableState, Watermark
from bridge.lake.schemas import columns_of, keep_schema
from bridge.load.run.tables.table_plan import TablePlanner
from bridge.load.spark.at_need import InSpark
from bridge.load.write.context import WriteContext
from bridge.load.write.report import RowChanges
from bridge.load.write.task import write_empty
from bridge.protocol.schema.table_schema import TableSchema
from bridge.settings.options import Pipeline
from bridge.settings.sql.view import View, read_view, read_views, root_stream

if TYPE_CHECKING:
    from bridge.load.views.algebra import TypedView
    from bridge.load.write.signed_file import ViewChange

Result = TypeVar("Result")
LATE = "late"
"""The name, in a view's change, of the number of rows that came too late."""


@dataclass(frozen=True, slots=True)
class _Source:
    """The table of a view's stream: before the commit, what the commit changes, and after it."""

    before: TableState | None
    change: TableChange | None
    after: TableState
    columns: pa.Schema
    """After the commit."""
    rows: Sequence[RowChanges] = ()
    """The changes in files that the commit replaces, as far as they are known without reading the files."""

    @property
    def files(self) -> Iterator[tuple[str, LiveFile]]:
        """All files after the commit: where their bytes are now, and what the log knows of them."""
        added = {add.name: add.source for add in self.change.adds} if self.change else {}
        for name, file in self.after.files.items():
            yield added.get(name, f"{self.after.folder}/{name}"), file

    @property
    def removed(self) -> Iterator[tuple[str, LiveFile]]:
        """The files that the commit removes, all rows of which count."""
        noted = {one.old for one in self.rows}
        for name in self.change.removes if self.change and self.before else ():
            assert self.before
            if name not in noted:
                yield f"{self.before.folder}/{name}", self.before.files[name]

    @property
    def added(self) -> Iterator[tuple[str, LiveFile]]:
        """The files that the commit adds, all rows of which count."""
        noted = {one.new for one in self.rows}
        for add in self.change.adds if self.change else ():
            if add.name not in noted:
                yield add.source, add.live


def names_of(pipeline: Pipeline, view: View) -> tuple[str, ...]:
    """The names that the table behind FROM may have; of several such tables the view selects from the first."""
    others = () if view.stream in pipeline.views else pipeline.names_of(view.stream)
    return tuple(dict.fromkeys((view.stream, *others)))


@contextmanager
def placed(pipeline: Pipeline, view: View) -> Iterator[None]:
    """Say in a `SettingsError` in which file and line the view stands."""
    try:
        yield
    except SettingsError as error:
        if not (place := pipeline.view_places.get(view.name)):
            raise
        raise SettingsError(f"{place}: {error.message}", hint=error.hint) from error


def not_loaded(view: View, streams: Collection[str]) -> str:
    """The warning for a view whose stream is not among those that are loaded, or have a table."""
    hint = did_you_mean(view.stream, streams)
    return f"view {view.name}: no stream {view.stream} is loaded, so no run fills it{f'; {hint}' if hint else ''}"


@dataclass(frozen=True, slots=True)
class _Closed:
    """The table of the closed windows of a view. One that begins anew gets all windows that are closed by now."""

    view: str
    table: TableState | None
    schema: TableSchema
    begins: bool
    before: Watermark | None
    """The view's watermark before the commit, as far as it still counts."""

    @staticmethod
    def of(lake: Snapshot, typed: TypedView) -> _Closed:
        view, schema = typed.view, TableSchema(typed.visible)
        old, table = lake.tables.get(view.name), lake.tables.get(view.closes)
        text = old.view if old else ""
        is_other = text not in ("", view.text) and read_view(view.name, text).words != view.words
        before = old.watermark if old and not is_other else None
        begins = before is None or table is None or table.schema != schema.hash
        if before and begins and view.closes:
            before = structs.replace(before, closed=None)
        return _Closed(view.name, table, schema, begins, before)


class ViewTables:
    """Builds what a run's commits change in the views of the settings."""

    def __init__(
        self, pipeline: Pipeline, committer: Committer, context: WriteContext, tables: TablePlanner, spark: InSpark
    ) -> None:
        """Claims the views' folders. Raises `SettingsError` for a view with the name of a stream that has a table."""
        self._pipeline, self._committer, self._context, self._spark = pipeline, committer, context, spark
        self._views = {view.name: view for view in read_views(pipeline.views)}
        self._typed: dict[tuple[str, str], TypedView] = {}
        self._late: Counter[str] = Counter()
        self._schemas: dict[tuple[str | None, bool], pa.Schema] = {}
        for view in self._views.values():
            with placed(pipeline, view):
                tables.open_view(view)

    @property
    def views(self) -> Sequence[View]:
        """All views, each after the one that it selects from."""
        return list(self._views.values())

    @property
    def warnings(self) -> Iterator[str]:
        """Yield what the operator should know of views that have no table to select from."""
        tables = self._committer.snapshot.stream_tables
        for view in self._views.values():
            if view.stream not in self._views and not tables.keys() & {*self._names(view)}:
                yield not_loaded(view, tables)
            if times := self._late[view.name]:
                often = "once" if times == 1 else f"{times:,} times"
                what = f"{view.closes} does not change" if view.closes else "the view does not count it"
                yield f"view {view.name}: {often} a row came too late for its window: {what}"

    def _names(self, view: View) -> tuple[str, ...]:
        return names_of(self._pipeline, view)

    def stream(self, view: View) -> str:
        """The stream whose rows are in the end in the view."""
        return root_stream(view.name, self._pipeline.views)

    def names(self, view: View) -> tuple[str, ...]:
        """The names that the table of this stream may have."""
        stream = self.stream(view)
        return tuple(dict.fromkeys((stream, *self._pipeline.names_of(stream))))

    def _is_outdated(self, view: View) -> bool:
        """Whether the log has another SELECT for the view, or none."""
        tables = self._committer.snapshot.tables
        return view.name not in tables or tables[view.name].view != view.text

    @property
    def outdated(self) -> Sequence[View]:
        """The views whose stream has a table, and of which the log has another SELECT, or none."""
        return [view for view in self.views if self._is_outdated(view) and self._source(view, None)]

    def fill(self, view: View, others: Mapping[str, TableChange], seq: int) -> list[TableChange]:
        """The changes that fill a view from the table as it is; none if it lacks a column that the tap may still bring.

        `others`: the changes of views that the same commit fills. Raises as `build`.
        """
        base = self._views.get(view.stream)
        if base and base.name not in others and self._is_outdated(base):
            return []  # it is filled once the view that it selects from is
        change = self.feeds(view, others)
        try:
            return self.build(view, change, seq)
        except SettingsError:
            source = self._source(view, change)
            columns = {name.lower() for name in source.columns.names} if source else set()
            if base or columns.issuperset(map(str.lower, view.needs)):
                raise
            return []

    def emptied(self, name: str) -> TableChange | None:
        """The change by which a view's table is no view any more, and so filled anew later; None if it is none."""
        old = self._committer.snapshot.tables.get(name)
        return structs.replace(old, view="").change(name) if old and old.view else None

    def feeds(self, view: View, changes: Mapping[str, TableChange]) -> TableChange | None:
        """The change among these of the table that the view selects from."""
        tables = self._committer.snapshot.tables
        return next((changes.get(name) for name in self._names(view) if name in changes or name in tables), None)

    def build(
        self,
        view: View,
        change: TableChange | None,
        seq: int,
        *,
        rows: Sequence[RowChanges] = (),
        anew: bool = False,
    ) -> list[TableChange]:
        """The changes that a commit makes to a view and its closed windows by this change to the stream's table.

        `rows`: what is known of files that the change replaces. `anew`: fill it from the whole table in any case. If
        rows cannot be read yet, the table is no view any more after the commit, and outdated. Raises `SettingsError` if
        the view does not fit the stream, `DataError` for a row on which it fails.
        """
        source = self._source(view, change, rows)
        if source is None:
            return []
        old, is_outdated = self._committer.snapshot.tables.get(view.name), self._is_outdated(view)
        if change and (not self._is_readable(change) or self._is_unfilled(view, change)):
            return [emptied] if (emptied := self.emptied(view.name)) else []
        is_same = source.before is not None and source.before.schema == source.after.schema
        if not anew and not is_outdated and is_same and not (change and (change.adds or change.removes)):
            return []
        with placed(self._pipeline, view):
            typed = self._typed_view(view, source)
        schema = TableSchema(typed.schema)
        anew = anew or is_outdated or (change is not None and change.replaces) or self._is_other(view, source)
        if old is None or old.schema != schema.hash:
            anew = True
        closed = _Closed.of(self._committer.snapshot, typed)
        written = self._written(typed, source, None if anew else old, closed.before, seq)
        layout, existing = self._context.layouts[view.name], old.files if old else {}
        adds, replaced = (
            [file.add() for file in written.files],
            {file.key.rpartition("/")[2] for file in written.replaced},
        )
        removes = [name for name, file in existing.items() if anew or name in replaced or (adds and not file.rows)]
        if not anew and not adds and not removes and not written.late:
            return []
        if not adds and len(removes) == len(existing):
            adds = [write_empty(self._context, seq, view.name, schema).add()]
        keep_schema(self._committer.storage, self._pipeline.name, schema)
        state = TableState(
            layout.folder, schema.hash, format=layout.format, view=view.text, watermark=written.watermark
        )
        whole, late = removes and len(removes) == len(existing), {LATE: written.late} if written.late else {}
        changed = state.change(view.name, adds, removes, replaces=bool(whole), merged=late)
        return [changed, *(self._closed(view.closes, closed, written.closed, seq) if view.closes else ())]

    def _closed(self, name: str, closed: _Closed, files: Sequence[PendingFile], seq: int) -> Iterator[TableChange]:
        """Yield the change of the table of closed windows, to which these files come."""
        old, anew = closed.table, closed.begins
        if files or anew:
            keep_schema(self._committer.storage, self._pipeline.name, closed.schema)
            layout, existing = self._context.layouts[name], old.files if old else {}
            adds = [one.add() for one in files or [write_empty(self._context, seq, name, closed.schema)]]
            removes = [name for name, file in existing.items() if anew or not file.rows]
            state = TableState(
                layout.folder, closed.schema.hash, format=layout.format, upserts=False, closes=closed.view
            )
            yield state.change(name, adds, removes, replaces=bool(removes) and len(removes) == len(existing))

    def _source(self, view: View, change: TableChange | None, rows: Sequence[RowChanges] = ()) -> _Source | None:
        """The table of the view's stream; None if there is none."""
        lake = self._committer.snapshot
        before = lake.tables.get(change.stream) if change else lake.table(self._names(view))
        after = (before or TableState(change.folder, None)).after(change) if change else before
        if after is None or after.schema is None or after.closes:
            return None
        return _Source(before, change, after, self._columns(after), rows)

    def _columns(self, table: TableState) -> pa.Schema:
        key = table.schema, bool(table.view)
        if key not in self._schemas:
            self._schemas[key] = columns_of(self._committer.storage, self._pipeline.name, table)
        return self._schemas[key]

    def _typed_view(self, view: View, source: _Source) -> TypedView:
        key = view.name, str(source.after.schema)
        if key not in self._typed:

            def analyse(spark: Any, _context: WriteContext, _shipped: str | None) -> TypedView:
                # Not before Spark is up: where two threads import pyspark at once, both may find half of a module.
                from bridge.load.spark.view_types import analysed

                return analysed(spark, view, source.columns)

            self._typed[key] = self._spark(analyse)
        return self._typed[key]

    def _is_other(self, view: View, source: _Source) -> bool:
        """Whether a column that the view reads has another type than before the commit."""
        if source.before is None or source.before.schema is None:
            return True
        if source.before.schema == source.after.schema:
            return False
        needs = {name.lower() for name in view.needs}
        before, after = (
            {field.name: field.type for field in schema if field.name.lower() in needs}
            for schema in (self._columns(source.before), source.columns)
        )
        return before != after

    def _written(
        self, typed: TypedView, source: _Source, old: TableState | None, before: Watermark | None, seq: int
    ) -> ViewChange:
        """Write the view's files, some of which take the place of files of `old`, its table; None to fill it anew."""
        from bridge.load.views.windows import Windows
        from bridge.load.write.signed_file import SignedFile, ViewChange

        def signed(files: Iterator[tuple[str, LiveFile]], sign: int = 1) -> list[SignedFile]:
            return [SignedFile(key, file.size, file.rows, sign) for key, file in files if file.rows]

        after = signed(source.files)
        changed = after if old is None else [*signed(source.removed, -1), *signed(source.added)]
        changed += [SignedFile(one.name, one.bytes, one.rows, 0) for one in source.rows if old and one.name]
        state = signed((f"{old.folder}/{name}", file) for name, file in old.files.items()) if old else []
        if not changed:
            return ViewChange(Windows.of(typed, before, None).watermark)

        def change(spark: Any, context: WriteContext, shipped: str | None) -> ViewChange:
            from bridge.load.spark.views import ViewWork, change_view  # not before Spark is up, as above

            work = ViewWork(typed, source.columns, changed, state, after, seq, before, anew=old is None)
            return change_view(spark, context, shipped, work)

        return self._spark(change)

    def _is_readable(self, change: TableChange) -> bool:
        """Whether all rows that a commit adds can be read before it: of an upload only if its run knew of a view."""
        size = self._committer.storage.size
        return all(size(add.source) == add.size for add in change.adds if add.upload)

    def _is_unfilled(self, view: View, change: TableChange) -> bool:
        """Whether the change is of a view that is none any more after the commit."""
        return view.stream in self._views and not change.view

    def former(self) -> Iterator[TableChange]:
        """The changes by which tables whose views left the settings are no views any more."""
        tables = self._committer.snapshot.tables
        for name in sorted(tables.keys() - self._views.keys()):
            if tables[name].view:
                yield structs.replace(tables[name], view="", watermark=None).change(name)

    def committed(self, tables: Sequence[TableChange]) -> None:
        """Delete the copies of uploads that were read. Best effort: the next run looks for them again."""
        self._late.update({change.stream: change.merged[LATE] for change in tables if LATE in change.merged})
        streams = {name for view in self._views.values() for name in self._names(view)}
        with suppress(LakeError):
            for add in (add for change in tables if change.stream in streams for add in change.adds if add.upload):
                self._committer.storage.delete(add.source)
