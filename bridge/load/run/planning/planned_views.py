"""A forecast of a pipeline's views, by the columns that the tables of their streams have, or will have.

A view that an earlier run has computed from a table with these columns is not looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bridge.errors import BridgeError, DataError, SettingsError
from bridge.lake.schemas import columns_of, read_schema
from bridge.load.run.checks.view_outlook import certain_faults
from bridge.load.run.planning.run_plan import RunPlan
from bridge.load.run.tables.column_plan import IncomingSchema
from bridge.load.run.tables.table_plan import TablePlanner
from bridge.load.run.tables.views import names_of, not_loaded, placed
from bridge.load.spark.at_need import spark_at_need
from bridge.load.spark.lookups import Lookups
from bridge.load.views.fit import outline
from bridge.load.write.context import WriteContext
from bridge.protocol.schema.merging import Evolution
from bridge.protocol.schema.table_schema import TableSchema
from bridge.protocol.singer.catalog import StreamEntry, key_properties, record_name, selected_streams, stream_id
from bridge.protocol.singer.messages import Schema
from bridge.settings.destination import OVERWRITE
from bridge.settings.sql.view import View, read_views, root_stream


def _nothing(_session: Any, _context: WriteContext, _shipped: str | None) -> None:
    """Work that only has Spark started."""


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of a view's stream: what its table keeps, what the tap brings, and what comes of both."""

    stream: str
    table: TableSchema | None
    incoming: IncomingSchema | None
    evolution: Evolution

    def after(self, made: pa.Schema | None = None) -> pa.Schema | None:
        """After the run. `made`: what a transform results in, without which nothing is known of such a stream."""
        if self.incoming is None:
            return self.table.arrow if self.table else None
        if self.incoming.statement is not None and made is None:
            return None
        return self.incoming.into(self.table, self.evolution, made).arrow


class PlannedViews:
    """Judges the views of a pipeline before a run."""

    def __init__(self, plan: RunPlan, tables: TablePlanner) -> None:
        self._pipeline, self._storage, self._lake, self._tables = plan.pipeline, plan.storage, plan.snapshot, tables
        catalog = plan.catalog or plan.source.declared or {"streams": []}
        selected = selected_streams(plan.catalog) if plan.catalog else None
        entries = [entry for entry in catalog["streams"] if selected is None or stream_id(entry) in selected]
        self._entries = {name: entry for entry in entries for name in (stream_id(entry), record_name(entry))}
        self._context = WriteContext.of(plan.pipeline, plan.storage.uri, "dry-run", 0, {})
        self._lookups = Lookups.of(plan.pipeline, plan.storage, plan.snapshot)
        self._has_catalog = plan.catalog is not None
        self._outlines, self._typed = dict[str, pa.Schema](), dict[str, pa.Schema]()
        self.warnings: list[str] = []

    def refusal(self, *, in_spark: bool) -> BridgeError | None:
        """The error with which a run would be refused; where it would hold a stream back instead, there is a warning.

        `in_spark`: let Spark judge what is not certain without it.
        """
        try:
            left = list(self._uncertain())
            if left and in_spark:
                self._ask_spark(left)
        except BridgeError as error:
            return error
        return None

    def _ask_spark(self, views: list[tuple[View, _Columns | None]]) -> None:
        context = self._context
        with spark_at_need(self._pipeline, context) as spark:
            spark(_nothing)  # if Spark cannot start, no view is to blame
            for view, columns in views:
                try:
                    spark(self._analysis(view, columns))
                except SettingsError as error:
                    self._raise_or_warn(view, error)

    def _uncertain(self) -> Iterator[tuple[View, _Columns | None]]:
        """Yield the views that may not fit all the same, with the columns of their streams; None: of another view."""
        for view in read_views(self._pipeline.views):
            if view.stream in self._pipeline.views:
                columns = self._outlines.get(view.stream)
                if columns is None or not self._refused(view, columns):
                    yield view, None
                continue
            entry = next((self._entries[name] for name in self._names(view) if name in self._entries), None)
            table = self._lake.table(self._names(view))
            if entry is None and table is None:
                if self._has_catalog:
                    self.warnings.append(not_loaded(view, {*self._entries, *self._lake.stream_tables}))
                continue
            if (columns := self._columns(view, entry)) is None:
                continue
            after = columns.after()
            existing = self._lake.tables.get(view.name)
            if after is not None and existing and existing.view == view.text and self._is_same(view, after):
                self._outlines[view.name] = outline(view, after)
            elif after is None or not self._refused(view, after):
                yield view, columns

    def _refused(self, view: View, columns: pa.Schema) -> bool:
        """Whether it is certain that the view does not fit these columns; raises if the run would."""
        faults = list(certain_faults(self._pipeline, view, columns))
        for error in faults:
            self._raise_or_warn(view, error)
        if not faults:
            self._outlines[view.name] = outline(view, columns)
        return bool(faults)

    def _names(self, view: View) -> tuple[str, ...]:
        return names_of(self._pipeline, view)

    def _columns(self, view: View, entry: StreamEntry | None) -> _Columns | None:
        """None if the run refuses the stream itself, which the plan says already."""
        table = self._table(view)
        if entry is None:
            return _Columns(view.stream, table, None, Evolution())
        stream = record_name(entry)
        message = Schema(stream, entry.get("schema") or {}, key_properties(entry), None)
        message = self._tables.streams.masking.schema(message)
        try:
            evolution = self._tables.streams.with_schema(message).evolution
            stays = self._tables.streams.expected(stream).method != OVERWRITE or evolution.schema_policy != "evolve"
            columns = _Columns(stream, table if stays else None, self._tables.incoming(message), evolution)
            columns.after()
        except (DataError, SettingsError):
            return None
        return columns

    def _table(self, view: View) -> TableSchema | None:
        table = self._lake.table(self._names(view))
        return read_schema(self._storage, self._pipeline.name, table.schema) if table and table.schema else None

    def _is_same(self, view: View, after: pa.Schema) -> bool:
        """Whether the stream's table already has these columns."""
        table = self._table(view)
        return table is not None and table.arrow.equals(after, check_metadata=False)

    def _raise_or_warn(self, view: View, error: SettingsError) -> None:
        stream = root_stream(view.name, self._pipeline.views)
        if self._pipeline.stream(stream).on_error != "hold":
            raise error
        self.warnings.append(f"{stream} would be held back: {error.message}. {error.hint}")

    def _analysis(self, view: View, columns: _Columns | None) -> Callable[[Any, WriteContext, str | None], None]:
        """Work for Spark that raises as a run does, by the same analyzer."""

        def analyse(session: Any, _context: WriteContext, _shipped: str | None) -> None:
            from bridge.load.spark.view_types import analysed  # not before Spark is up

            after = self._of_stream(session, columns) if columns else self._of_view(view.stream)
            if after is not None:
                with placed(self._pipeline, view):
                    typed = analysed(session, view, after)
                self._typed[view.name] = pa.schema([typed.schema.field(name) for name in view.columns])

        return analyse

    def _of_stream(self, session: Any, columns: _Columns) -> pa.Schema | None:
        """The columns of a stream after the run, with those that its transform makes."""
        from bridge.load.spark.transform import analysed as transformed

        made, incoming = None, columns.incoming
        if incoming and incoming.statement is not None:
            read, metadata = incoming.read(), incoming.metadata
            lookups = self._lookups
            made = transformed(session, incoming.statement, read, columns.stream, metadata=metadata, lookups=lookups)
        return columns.after(made)

    def _of_view(self, name: str) -> pa.Schema | None:
        """The columns of a view that others select from; None if it is not known."""
        if name in self._typed:
            return self._typed[name]
        table = self._lake.tables.get(name)
        if table is None or table.view != self._pipeline.views[name]:
            return None
        return columns_of(self._storage, self._pipeline.name, table)
