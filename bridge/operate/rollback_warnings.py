"""Warnings before a rollback: what it cannot bring back, and what it leaves half loaded."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from bridge.errors import SettingsError
from bridge.lake.commit.rollback import RollbackPlan, follows_a_log
from bridge.lake.log import bookmarks
from bridge.lake.runs import read_attempts
from bridge.lake.storage import lake_of
from bridge.load.run.checks.setback import set_back
from bridge.load.tap.catalog_store import CatalogStore
from bridge.protocol.singer.catalog import replication_method
from bridge.settings.commands import reload
from bridge.settings.options import Pipeline


def rollback_warnings(pipeline: Pipeline, home: Path, shown: RollbackPlan, name: str) -> list[str]:
    """The warnings that are shown before a rollback. `name` is what to type to choose the pipeline."""
    warnings = []
    if streams := follows_a_log(shown.before, shown.after.shown, _log_based(pipeline, home, shown)):
        warnings.append(
            f"{_named(streams)}: the tap reads a database's log (LOG_BASED), and may not get the changes since then "
            "again: the database may have deleted that part of its log. If so, reload the table: "
            f"{reload(pipeline, streams, name)}"
        )
    if text := piped_warning(pipeline, name):
        warnings.append(text)
    if shown.restarted:
        warnings.append(f"{_named(shown.restarted)}: half loaded at that commit; the next run starts the table again")
    if shown.dropped:
        warnings.append(f"{_named(shown.dropped)}: what is half loaded now is dropped")
    return warnings


def piped_warning(pipeline: Pipeline, name: str) -> str:
    """The warning about another program's STATE, if that program started the tap of the last run on record; else empty.

    That program does not hear of a STATE that was changed in the lake. `name` is what to type.
    """
    last = next(read_attempts(lake_of(pipeline.destination), pipeline.name, 1), None)
    if last is None or not last.stored.get("piped"):
        return ""
    return f"another program starts the tap, from a STATE of its own: {set_back(name)}"


def _named(streams: Sequence[str]) -> str:
    return ", ".join(streams[:5]) + (f" and {len(streams) - 5:,} more" if len(streams) > 5 else "")


def _log_based(pipeline: Pipeline, home: Path, shown: RollbackPlan) -> set[str]:
    catalog = None
    with suppress(SettingsError):  # the next run will report an unreadable catalog
        catalog = CatalogStore(home, pipeline).read()
    streams = {*bookmarks(shown.before), *bookmarks(shown.after.shown)}
    return {stream for stream in streams if replication_method(catalog, stream) == "LOG_BASED"}
