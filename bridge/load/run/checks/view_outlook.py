"""A forecast of a pipeline's views before a run, without Spark.

Columns come from a catalog: of a table that does not exist yet they are certain. `planning/planned_views.py` looks at
the tables, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from bridge.errors import BridgeError, SettingsError
from bridge.load.run.tables.catalog_columns import catalog_columns
from bridge.load.run.tables.views import names_of, not_loaded, placed
from bridge.load.tap.catalog_overrides import named
from bridge.load.tap.catalog_store import CatalogStore
from bridge.load.tap.source import Source
from bridge.load.views.fit import check_fit, outline
from bridge.protocol.singer.catalog import Catalog, StreamEntry, record_name, stream_id
from bridge.protocol.singer.selection import loaded_streams
from bridge.settings.options import Pipeline
from bridge.settings.sql.view import View, read_views


@dataclass(frozen=True, slots=True)
class ViewOutlook:
    """The certain facts about a pipeline's views. `unknown`: views of streams whose columns nobody knows yet."""

    faults: tuple[SettingsError, ...] = ()
    warnings: tuple[str, ...] = ()
    unknown: tuple[View, ...] = ()


def by_catalog(pipeline: Pipeline, home: Path) -> ViewOutlook:
    """Judge the views by the stored catalog, else by what the tap declared to the last run. Nothing is started."""
    if not pipeline.views:
        return ViewOutlook()
    catalog, is_passed = _catalog(pipeline, home)
    if catalog is None:
        return ViewOutlook(unknown=tuple(read_views(pipeline.views)))
    loaded = loaded_streams(catalog, pipeline.source.select) if is_passed else {*map(stream_id, catalog["streams"])}
    entries = [entry for entry in catalog["streams"] if stream_id(entry) in loaded]
    by_name = {name: entry for entry in entries for name in (stream_id(entry), record_name(entry))}
    pipeline = named(pipeline, catalog)
    faults, warnings, unknown, outlines = list[SettingsError](), list[str](), list[View](), dict[str, pa.Schema]()
    for view in read_views(pipeline.views):
        entry = next((by_name[name] for name in names_of(pipeline, view) if name in by_name), None)
        columns = new_columns(pipeline, catalog, entry) if entry else outlines.get(view.stream)
        if entry is None and view.stream not in pipeline.views and is_passed:
            warnings.append(not_loaded(view, by_name))
        elif columns is None:
            unknown.append(view)
        else:
            of_view = list(certain_faults(pipeline, view, columns))
            faults += of_view
            if not of_view:
                outlines[view.name] = outline(view, columns)
    return ViewOutlook(tuple(faults), tuple(warnings), tuple(unknown))


def certain_faults(pipeline: Pipeline, view: View, columns: pa.Schema) -> Iterator[SettingsError]:
    """Yield the error of a view that does not fit these columns of its stream, with its place in the settings."""
    try:
        with placed(pipeline, view):
            check_fit(view, columns)
    except SettingsError as error:
        yield error


def new_columns(pipeline: Pipeline, catalog: Catalog, entry: StreamEntry) -> pa.Schema | None:
    """The columns of a new table of a stream; None where only Spark, or a table that exists, tells them."""
    settings = pipeline.stream(record_name(entry))
    keeps_types = settings.on_type_change == "variant" or settings.schema_policy in ("freeze", "discard")
    if settings.transform is not None or keeps_types:
        return None
    incoming = catalog_columns(pipeline, catalog, entry)
    return incoming.columns.arrow if incoming else None


def _catalog(pipeline: Pipeline, home: Path) -> tuple[Catalog | None, bool]:
    """A catalog without asking the tap, None if there is none; and whether the tap gets it."""
    with suppress(BridgeError):  # an unreadable catalog, a tap that is not installed: the run says it
        if (stored := CatalogStore(home, pipeline).read()) is not None:
            return stored, True
        source = Source(pipeline, home)
        source.stored_catalog(())
        return source.declared, False
    return None, False
