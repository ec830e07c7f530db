"""Columns and tables that the source has got or lost since the catalog was kept, and what a run does about them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from bridge.errors import SettingsError
from bridge.protocol.singer.catalog import (
    Catalog,
    StreamEntry,
    columns,
    entries_by_name,
    key_properties,
    replication_key,
    replication_method,
    stream_id,
    stream_ids,
)
from bridge.protocol.singer.catalog_merge import compare
from bridge.protocol.singer.selection import Choice, choices, loaded_streams
from bridge.settings.commands import reload, selecting
from bridge.settings.options import Pipeline

NEW, DROPPED, UNKNOWN = "new_column", "dropped_column", "unknown_columns"
NEW_TABLE, DROPPED_TABLE = "new_table", "dropped_table"
_OWN = "_sdc_"
"""How the names of columns begin that taps and lakes add."""


@dataclass(frozen=True, slots=True)
class ColumnNews:
    """How a stream's columns differ from its source's."""

    stream: str
    kind: str
    text: str


@dataclass(slots=True)
class Update:
    """The update of the kept catalog: for each stream its top-level columns that are new or left, and what to say."""

    columns: dict[str, set[str]] = field(default_factory=dict)
    news: list[ColumnNews] = field(default_factory=list)


def decide(pipeline: Pipeline, before: Catalog, stored: Catalog, now: Catalog, streams: Collection[str]) -> Update:
    """Decide about new and dropped columns of these streams, as `new_columns` says.

    `before`: the tap's discovery before this one; `stored`: the kept catalog, with the user's edits. Raises
    `SettingsError` for a column whose changes a LOG_BASED run would consume although a pattern selects it.
    """
    update = Update()
    earlier, present, own = map(entries_by_name, (before, now, stored))
    for name, changes in compare(before, now).changed.items():
        if name not in streams or name not in own:
            continue
        stream = _Stream(pipeline, name, own[name], present[name])
        old, new = (set((one[name].get("schema") or {}).get("properties") or {}) for one in (earlier, present))
        # What is inside a column that is new or dropped itself comes and goes with it.
        outer = {column: column if column in old ^ new else column.split(".")[0] for column in changes.columns}
        apart = {column for column, top in outer.items() if column == top or top in old & new}
        added = [column for column in changes.new if column in apart and stream.takes(column, update)]
        dropped = [column for column in changes.removed if column in apart and column not in stream.fixed]
        stream.report(added, dropped, update)
        if added or dropped:
            update.columns[name] = {outer[column] for column in (*added, *dropped)}
    return update


def by_database(
    pipeline: Pipeline, stored: Catalog, asked: Mapping[str, Collection[str]], *, adds_columns: bool
) -> list[ColumnNews]:
    """The news of a run that did not ask the tap, by the columns that the database has: it takes none over.

    `adds_columns`: the tap adds them by itself to what it reads from the log. Raises `SettingsError` as `decide` does.
    """
    update, own = Update(), entries_by_name(stored)
    for name in sorted(name for name, present in asked.items() if present):
        entry, present = own[name], asked[name]
        properties = (entry.get("schema") or {}).get("properties") or {}
        crumbs = [tuple(each.get("breadcrumb") or ()) for each in entry.get("metadata") or ()]
        existing = {*properties, *(name for crumb in crumbs for name in crumb[1:2])}
        more: dict[str, Any] = {column: {} for column in sorted(present) if column not in existing}
        now = {**entry, "schema": {**(entry.get("schema") or {}), "properties": properties | more}}
        stream = _Stream(pipeline, name, entry, now)
        for column in more:
            if adds_columns and stream.method == "LOG_BASED":
                stream.report_added(column, update)
            else:
                stream.takes(column, update, asked=False)
        dropped = [column for column in properties if column not in present and not column.startswith(_OWN)]
        for column in dropped if stream.mode != "ignore" else ():
            text = f"the source has no column {column} any more: `singer-bridge discover {pipeline.name}`"
            update.news.append(ColumnNews(name, DROPPED, text))
    return update.news


def log_based(pipeline: Pipeline, stored: Catalog, streams: Collection[str]) -> list[str]:
    """Those of these streams whose changes are read once, and whose new columns are not to be ignored."""
    return [
        name
        for name in sorted(streams)
        if (pipeline.stream(name).replication_method or replication_method(stored, name)) == "LOG_BASED"
        and (pipeline.stream(name).new_columns or pipeline.new_columns) != "ignore"
    ]


def unknown(pipeline: Pipeline, name: str, why: str, *, adds_columns: bool) -> ColumnNews:
    """Of a LOG_BASED stream whose columns nobody was asked for. `adds_columns`: as `by_database` says."""
    loss = "older rows have no value in them" if adds_columns else "their changes in this run are lost"
    text = (
        f"whether the source has new columns is not known, as {why}: {loss}. "
        f"`singer-bridge discover {pipeline.name}` takes them in, then {reload(pipeline, [name], mark='`')}; "
        "new_columns: ignore for the stream ends this warning"
    )
    return ColumnNews(name, UNKNOWN, text)


def new_tables(pipeline: Pipeline, before: Catalog, now: Catalog) -> list[ColumnNews]:
    """Of tables that the tap did not have before, and that a pattern of `select` chooses."""
    fresh = {"streams": [one for one in now["streams"] if stream_id(one) not in stream_ids(before)]}
    chosen = loaded_streams(fresh, pipeline.source.select) if fresh["streams"] and pipeline.source.select else ()
    text = "the source has this new table, which source.select chooses; no run loads it before"
    return [ColumnNews(one, NEW_TABLE, f"{text} `singer-bridge discover {pipeline.name}`") for one in sorted(chosen)]


def dropped_table(
    pipeline: Pipeline, name: str, before: Catalog | None = None, now: Catalog | None = None
) -> ColumnNews:
    """Of a table that the tap no longer has; a new one with the same columns may be it under another name."""
    lost = entries_by_name(before or {"streams": []}).get(name)
    existing = set(stream_ids(before)) if before else set()
    alike = [
        stream_id(one)
        for one in (now or {"streams": []})["streams"]
        if lost and stream_id(one) not in existing and columns(one).keys() == columns(lost).keys()
    ]
    text = (
        "the source has no such table any more: it was dropped or renamed, or the tap's user may not read it; its rows "
        "stay in the lake, which gets neither changes nor new ones. "
        f"`singer-bridge discover {pipeline.name}` brings the catalog up to date, "
        f"`{selecting(pipeline.name, f'!{name}')}` leaves it out"
    )
    if len(alike) == 1:
        text += f". The new table {alike[0]} has the same columns; is that it? `{selecting(pipeline.name, alike[0])}`"
    return ColumnNews(name, DROPPED_TABLE, text)


class _Stream:
    def __init__(self, pipeline: Pipeline, name: str, stored: StreamEntry, now: StreamEntry) -> None:
        settings, catalog = pipeline.stream(name), {"streams": [stored]}
        self.pipeline, self.name = pipeline, name
        self.method = settings.replication_method or replication_method(catalog, name)
        self.mode = settings.new_columns or pipeline.new_columns
        self.fixed = {*key_properties(stored), settings.replication_key or replication_key(catalog, name)}
        """Columns without which the tap cannot extract the stream; it says so itself."""
        self.patterns = patterns = pipeline.source.select
        self.all = not any(choice.status == "excluded" for choice in choices(catalog, patterns, [name]))
        self.choices: dict[str, Choice] = {
            choice.column: choice for choice in choices({"streams": [now]}, patterns, [name]) if choice.path
        }

    def takes(self, column: str, update: Update, *, asked: bool = True) -> bool:
        """Whether the run loads a new column; says so where it does not, as always if the tap was not `asked`."""
        choice = self.choices[column]
        by_pattern = choice.loaded and bool(self.patterns)
        if self.mode == "ignore" or (choice.why.startswith("!") and not choice.loaded):
            return False
        log_based = self.method == "LOG_BASED"
        selected = self.mode == "add" or self.all or (by_pattern and (log_based or choice.why in self.patterns))
        if asked and self.mode != "warn" and choice.loaded and selected:
            return True
        discover = f"singer-bridge discover {self.pipeline.name}"
        if log_based and by_pattern:
            leave = f"`{selecting(self.pipeline.name, f'!{self.name}.{column}')}`"
            hint = f"`{discover}` takes it in; {leave}, or new_columns: ignore for the stream, leaves it out"
            what = "a new column is selected and not in the catalog, and the changes of this run would be lost for it"
            raise SettingsError(what, hint=hint, stream=self.name, column=column)
        later = "" if choice.loaded else f" and `{selecting(self.pipeline.name, f'{self.name}.{column}')}`"
        later = later if choice.status != "unsupported" else " notes it; the tap cannot extract it"
        text = f"the source has a new column {column}, which is not loaded: `{discover}`{later}"
        update.news.append(ColumnNews(self.name, NEW, f"{text}; or new_columns: ignore"))
        return False

    def report_added(self, column: str, update: Update) -> None:
        """Say what a tap does that adds a new column by itself."""
        if self.mode != "ignore":
            again = reload(self.pipeline, [self.name], mark="`")
            text = (
                f"the source has a new column {column}, which is loaded as rows change; older rows have no value in "
                f"it: `singer-bridge discover {self.pipeline.name}`, then {again}"
            )
            update.news.append(ColumnNews(self.name, NEW, text))

    def report(self, added: Collection[str], dropped: Collection[str], update: Update) -> None:
        """Say what changes with this run."""
        again = reload(self.pipeline, [self.name], mark="`")
        older = "" if self.method == "FULL_TABLE" else f"; older rows have no value in it; to fill them: {again}"
        for column in added:
            text = f"the source has a new column {column}, which is loaded from this run on{older}"
            update.news.append(ColumnNews(self.name, NEW, text))
        for column in dropped:
            text = f"the source has no column {column} any more: older rows keep its values, newer ones have none"
            update.news.append(ColumnNews(self.name, DROPPED, f"{text}; to make the table as its source is: {again}"))
