"""The columns that a stream will bring, as its catalog says before a run; nothing is started."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from bridge.errors import DataError, SettingsError
from bridge.lake.log import Snapshot
from bridge.load.run.streams import Streams
from bridge.load.run.tables.column_plan import IncomingSchema
from bridge.load.write.metadata_columns import visible
from bridge.protocol.singer.catalog import Catalog, StreamEntry, key_properties, record_name, stream_id
from bridge.protocol.singer.messages import Schema
from bridge.protocol.singer.selection import choices, loaded_streams
from bridge.settings.options import Pipeline
from bridge.settings.sql.transform import TRANSFORM, quoted_column


def catalog_columns(pipeline: Pipeline, catalog: Catalog, entry: StreamEntry) -> IncomingSchema | None:
    """The columns that the SCHEMA of a stream will bring; None where it is wrong, which other checks say."""
    streams, name = Streams(pipeline, {"streams": [entry]}, Snapshot()), record_name(entry)
    plan, schema = streams.expected(name), entry.get("schema") or {}
    keys = plan.settings.key_properties or key_properties(entry) or []
    left_out = {
        one.path[0]
        for one in choices(catalog, pipeline.source.select, [stream_id(entry)])
        if one.stream == stream_id(entry) and len(one.path) == 1 and not one.loaded
    }
    properties = {key: value for key, value in (schema.get("properties") or {}).items() if key not in left_out}
    plan = replace(plan, replication=plan.settings.replication_method or plan.replication)
    with suppress(DataError, SettingsError):
        message = streams.masking.schema(Schema(name, {**schema, "properties": properties}, keys, None))
        return streams.columns(plan).incoming(message, (), keys)
    return None


def misquoted(pipeline: Pipeline, catalog: Catalog | None) -> Iterator[SettingsError]:
    """The error of each `transform` that has the name of a column in double quotes, which Spark takes for a text."""
    streams = catalog["streams"] if catalog else []
    loaded = loaded_streams(catalog, pipeline.source.select) if catalog else set()
    for entry in streams:
        name = record_name(entry)
        if catalog and stream_id(entry) in loaded and pipeline.stream(name).transform:
            one = catalog_columns(pipeline, catalog, entry)
            if one and one.statement:
                names = [field.name for field in visible(one.read().arrow, metadata=one.metadata)]
                if error := quoted_column(one.statement.text, names, TRANSFORM, stream=name):
                    yield error
