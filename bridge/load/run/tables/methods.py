"""How each stream is loaded: decided from its setting, the catalog, its bookmark and its key.

`auto` never deletes on a guess, and never adds the same rows twice in silence. If nobody says how a stream is
replicated, each run may extract all of it again, so its rows are merged by their key. Without a key they are added
once, and the next run is refused until somebody decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from bridge.errors import SettingsError
from bridge.lake.records import TableState
from bridge.protocol.singer.catalog import (
    Catalog,
    key_properties,
    replication_key,
    replication_method,
    root_facts,
    stream_entry,
)
from bridge.protocol.singer.replication import yaml_text
from bridge.settings.destination import APPEND_ONLY, OVERWRITE, UPSERT, LoadMethod
from bridge.settings.options import Pipeline

_LISTED = 8


@dataclass(frozen=True, slots=True)
class Method:
    """How one stream is loaded, apart from flags of a single run. `is_known`: somebody says how it is replicated."""

    usual: LoadMethod
    reason: str
    is_known: bool
    keys: tuple[str, ...] = ()
    bookmark: str = ""
    parent: str = ""
    """The stream whose bookmark may cover this one's rows."""
    resumes_by: tuple[str, ...] = ()
    """The columns of the bookmark, if it is known to be incremental."""

    @property
    def watched(self) -> tuple[str, ...]:
        """Columns that tell which rows have changed: the tap does not see again a row that has none."""
        return self.resumes_by if self.usual != OVERWRITE else ()

    @property
    def each_run(self) -> str:
        """What each further run does with the table, in a few words."""
        if self.usual == OVERWRITE:
            return "replaces the table"
        if self.usual == UPSERT:
            what = "changes" if self.is_known else "all rows again"
            return f"{what}, merged by {', '.join(self.keys)}" if self.keys else f"{what}, merged by key"
        if self.is_known:
            return f"adds rows after its {self.bookmark}" if self.bookmark else "adds rows"
        return "a second run is refused: no key"


def load_method(
    setting: Literal["auto", LoadMethod],
    method: str | None,
    bookmarks: Sequence[str] | None,
    keys: Sequence[str] = (),
    *,
    shared: bool = False,
) -> tuple[LoadMethod, str]:
    """How to load a stream and why; `method` is the catalog's replication method. Never deletes on a guess.

    To a `shared` table rows are only added, as nobody knows which pipeline's rows it holds.
    """
    by_key = f"by key {', '.join(keys)}"
    if setting != "auto":
        return setting, "as set"
    if method == "FULL_TABLE":
        return OVERWRITE, "the catalog says FULL_TABLE"
    if method == "LOG_BASED" and keys and not shared:
        return UPSERT, f"the catalog says LOG_BASED: {by_key}"
    if method:
        return APPEND_ONLY, f"the catalog says {method}"
    if bookmarks:
        return APPEND_ONLY, f"incremental: bookmark {', '.join(bookmarks)}"
    if keys and not shared:
        return UPSERT, f"no replication method is known: {by_key}"
    why = "a shared table is only added to" if shared else "no key"
    return APPEND_ONLY, f"no replication method is known, and {why}"


def decide(
    pipeline: Pipeline, catalog: Catalog | None, stream: str, bookmarks: Sequence[str] | None, keys: Sequence[str]
) -> Method:
    """How a stream is loaded that has these bookmark and key columns."""
    method, setting = replication_method(catalog, stream), pipeline.load_method(stream)
    usual, reason = load_method(setting, method, bookmarks, keys, shared=pipeline.destination.shared)
    glob = pipeline.glob_of(stream, "load_method")
    if glob and setting != "auto":
        reason = f"as set for {glob}"
    is_known = setting != "auto" or bool(method or bookmarks)
    key = replication_key(catalog, stream)
    columns = tuple(bookmarks or ([key] if key else ()))
    resumes_by = columns if method == "INCREMENTAL" or (method is None and bookmarks) else ()
    entry = stream_entry(catalog, stream)
    parent = pipeline.stream(stream).parent or (root_facts(entry).get("parent-tap-stream-id") if entry else "")
    return Method(usual, reason, is_known, tuple(keys), ", ".join(columns), str(parent or ""), resumes_by)


def of_catalog(pipeline: Pipeline, catalog: Catalog | None, stream: str) -> Method:
    """How a stream is loaded as far as its catalog entry tells, before its SCHEMA has come."""
    entry, chosen = stream_entry(catalog, stream), pipeline.stream(stream).key_properties
    keys = chosen if chosen is not None else key_properties(entry) if entry else []
    key = replication_key(catalog, stream)
    return decide(pipeline, catalog, stream, [key] if key else None, keys)


def is_merged(pipeline: Pipeline, stream: str, table: TableState | None) -> bool | None:
    """Whether rows are merged into a table by key, by the settings or by the log.

    None: the settings leave it open, and an older version loaded the table, which did not note it.
    """
    setting = pipeline.load_method(stream)
    if setting == UPSERT or (table and table.upserts):
        return True
    is_open = setting == "auto" and table is not None and table.schema is not None
    return None if is_open and table and table.upserts is None else False


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {rest} more" if rest > 0 else "")


def outlook(methods: Iterable[tuple[str, Method]], *, merged_before: bool = True) -> list[str]:
    """What a further run does with streams whose replication nobody declares: one line for each kind."""
    unknown = [(name, method) for name, method in methods if not method.is_known]
    merged = [name for name, method in unknown if method.usual == UPSERT]
    added = [name for name, method in unknown if method.usual == APPEND_ONLY]
    lines = []
    if merged and merged_before:
        lines.append(
            f"nobody says how these are replicated, so each run may extract all of their rows, and merges them by key: "
            f"{_listed(merged)}. Rows that are deleted in the source stay; with replication_method: FULL_TABLE they go"
        )
    if added:
        lines.append(
            f"nobody says how these are replicated, and they have no key: {_listed(added)}. A second run would add the "
            f"same rows again, and is refused until bridge.yaml says it: {_decision(added[0])}"
        )
    return lines


def _decision(stream: str) -> str:
    return f"streams: {{{yaml_text(stream)}: {{replication_method: FULL_TABLE}}}}, or {{load_method: append-only}}"


def refusal(pipeline: Pipeline, streams: Sequence[str], *, piped: bool = False) -> SettingsError:
    """The error for a run that would add these streams' rows again, with the settings to paste."""
    full = "load_method: overwrite" if piped else "replication_method: FULL_TABLE"
    lines = [f"    {yaml_text(stream)}: {{{full}}}" for stream in streams[:_LISTED]]
    more = [f"    # and {len(streams) - _LISTED} more"] if len(streams) > _LISTED else []
    where = "the target's settings" if piped else f"bridge.yaml, under pipelines.{pipeline.name}"
    hint = [
        f"nobody says how they are replicated, they have no key and no bookmark. Decide it in {where}:",
        "  streams:",
        *lines,
        *more,
        f"  # {{{full}}}: each run replaces the table by what the tap sends",
        "  # {load_method: append-only}: each run adds all that the tap sends",
        "  # {key_properties: [COLUMN]}: each row is there once by that key",
    ]
    what = "this run would add the same rows once more"
    return SettingsError(what, hint="\n".join(hint), streams=_listed(streams))
