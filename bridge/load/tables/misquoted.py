"""Columns in double quotes in the SQL of settings, seen before a run: Spark takes them for texts.

What a catalog and the tables say of the columns is enough to refuse them; nothing is started.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from bridge.errors import DataError, SettingsError
from bridge.load.tables.column_plan import ColumnPlan, IncomingSchema
from bridge.load.tables.views import names_of
from bridge.schema.table_schema import TableSchema
from bridge.settings.options import Pipeline
from bridge.settings.transform_sql import TRANSFORM, quoted_column
from bridge.settings.view_sql import VIEW, View, read_view
from bridge.singer.catalog import (
    Catalog,
    StreamEntry,
    key_properties,
    record_name,
    replication_key,
    replication_method,
    stream_id,
)
from bridge.singer.messages import Schema
from bridge.singer.selection import choices, loaded_streams
from bridge.write.metadata_columns import visible


def misquoted(
    pipeline: Pipeline, catalog: Catalog | None, tables: Mapping[str, TableSchema]
) -> Iterator[SettingsError]:
    """The error of each `transform` and each view that has the name of a column in double quotes.

    `tables`: the columns of tables whose rows stay, by stream.
    """
    views = [read_view(*each) for each in pipeline.views.items()]
    incoming = dict(_incoming(pipeline, catalog, views)) if catalog else {}
    for stream, one in incoming.items():
        if one.statement:
            names = [field.name for field in visible(one.read().arrow, metadata=one.metadata)]
            if error := quoted_column(one.statement.text, names, TRANSFORM, stream=stream):
                yield error
    for view in views:
        aliases = names_of(pipeline, view)
        names = [name for alias in aliases if alias in tables for name in tables[alias].arrow.names]
        new = next((incoming[alias] for alias in aliases if alias in incoming), None)
        names += new.columns.arrow.names if new and not new.statement else []
        if error := quoted_column(view.text, names, VIEW, view=view.name, stream=view.stream):
            place = pipeline.view_places.get(view.name)
            yield SettingsError(f"{place}: {error.message}", hint=error.hint) if place else error


def _incoming(pipeline: Pipeline, catalog: Catalog, views: list[View]) -> Iterator[tuple[str, IncomingSchema]]:
    """What the SCHEMA of each stream with a statement or a view will bring, as far as the catalog says."""
    patterns, fed = pipeline.source.select, {alias for view in views for alias in names_of(pipeline, view)}
    loaded = loaded_streams(catalog, patterns)
    for entry in catalog["streams"]:
        name = record_name(entry)
        if stream_id(entry) in loaded and (name in fed or pipeline.stream(name).transform):
            with suppress(DataError, SettingsError):  # other checks say it
                yield name, _of(pipeline, catalog, entry)


def _of(pipeline: Pipeline, catalog: Catalog, entry: StreamEntry) -> IncomingSchema:
    name, alone = record_name(entry), {"streams": [entry]}
    left_out = {
        one.path[0]
        for one in choices(catalog, pipeline.source.select, [stream_id(entry)])
        if len(one.path) == 1 and not one.loaded
    }
    schema, keys = entry.get("schema") or {}, key_properties(entry)
    properties = {key: value for key, value in (schema.get("properties") or {}).items() if key not in left_out}
    log_based = replication_method(alone, name) == "LOG_BASED"
    plan = ColumnPlan.of(pipeline, name, replication_key(alone, name), log_based=log_based)
    return plan.incoming(Schema(name, {**schema, "properties": properties}, keys, None), (), keys)
