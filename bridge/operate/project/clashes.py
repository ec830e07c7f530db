"""Pipelines of one project that keep their tables in the same folder: which of their streams would share a table?

Nothing is started, and no bucket is looked at: settings and kept catalogs say it, as far as they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bridge.errors import SettingsError
from bridge.lake.paths import folder_name
from bridge.load.tap.catalog_store import CatalogStore
from bridge.protocol.singer.catalog import record_name, stream_id
from bridge.protocol.singer.selection import is_glob, loaded_streams
from bridge.settings.options import Pipeline

_LISTED = 5


@dataclass(frozen=True, slots=True)
class Clash:
    """Two pipelines with one folder of tables. The one that runs second is refused for a stream of both."""

    first: str
    second: str
    folder: str
    tables: tuple[str, ...]
    """The folders that both would have; empty where a catalog is missing."""
    is_certain: bool
    """Whether they have a stream in common. Otherwise nobody knows yet."""

    @property
    def message(self) -> str:
        """The clash, in a sentence."""
        listed = ", ".join(self.tables[:_LISTED]) + (" and more" if len(self.tables) > _LISTED else "")
        both = f"{self.first} and {self.second} keep their tables in the same folder, {self.folder}"
        if not self.is_certain:
            return f"{both}: the one that runs second is refused if they have a stream of the same name"
        return f"{both}, and both have {listed or 'the same streams'}: the one that runs second is refused"

    @property
    def hint(self) -> str:
        """The settings that avoid the clash."""
        apart = f"{self.folder}/{{pipeline}}"
        return (
            f"give each a folder of its own: destination: {{path: {apart}}}; or let both add to the same tables: "
            "destination: {shared: true, load_method: append-only}"
        )


def clashes(pipelines: Sequence[Pipeline], home: Path) -> list[Clash]:
    """Pairs of pipelines that keep their tables in one folder, unless both share them: all pairs that are certain.

    Of the others one pair for each folder.
    """
    pairs = dict[object, Clash]()
    for place, one in enumerate(pipelines):
        for other in pipelines[place + 1 :]:
            if each := clash(one, other, home):
                pair = each.first, each.second
                pairs.setdefault(pair if each.is_certain else (one.destination.place, each.folder), each)
    return list(pairs.values())


def clash(one: Pipeline, other: Pipeline, home: Path) -> Clash | None:
    """How two pipelines clash; None if their folders differ, or no stream is of both."""
    first, second = one.destination, other.destination
    if (first.place, one.table_root) != (second.place, other.table_root) or (first.shared and second.shared):
        return None
    tables, others = _tables(one, home), _tables(other, home)
    if both := tuple(sorted(_with_views(one, tables) & _with_views(other, others))):
        return Clash(one.name, other.name, one.table_root, both, is_certain=True)
    if tables is not None and others is not None:
        return None
    taps = [(source.argv, source.config, source.env) for source in (one.source, other.source)]
    same_tap = taps[0] == taps[1] and not (one.source.select or other.source.select)
    same = tables is None and others is None and same_tap
    return Clash(one.name, other.name, one.table_root, (), is_certain=same)


def _with_views(pipeline: Pipeline, tables: set[str] | None) -> set[str]:
    """The folders of tables and views that are certain."""
    return (tables or set()) | {folder_name(view, ()) for view in pipeline.views}


def _tables(pipeline: Pipeline, home: Path) -> set[str] | None:
    """The folders of a pipeline's tables, None if nobody knows its streams yet."""
    patterns = pipeline.source.select
    try:
        catalog = CatalogStore(home, pipeline).read()
    except SettingsError:  # the run reports it
        return None
    if catalog is not None:
        loaded = loaded_streams(catalog, patterns)
        return {folder_name(record_name(entry), ()) for entry in catalog["streams"] if stream_id(entry) in loaded}
    if patterns and not any(is_glob(each) or each.startswith("!") or "." in each for each in patterns):
        return {folder_name(each, ()) for each in patterns}
    return None
