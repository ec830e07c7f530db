"""What a run does about columns that the source has got or lost since the catalog was kept."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from bridge.errors import SettingsError
from bridge.settings.commands import full_run
from bridge.settings.options import Pipeline
from bridge.singer.catalog import (
    Catalog,
    StreamEntry,
    entries_by_name,
    key_properties,
    replication_key,
    replication_method,
)
from bridge.singer.catalog_merge import StreamChanges, compare
from bridge.singer.selection import Choice, choices

NEW, DROPPED = "new_column", "dropped_column"


@dataclass(frozen=True, slots=True)
class ColumnNews:
    """How a stream's columns differ from its source's."""

    stream: str
    kind: str
    text: str


@dataclass(slots=True)
class Update:
    """What the kept catalog takes over: for each stream its top-level columns that are new or left, and what to say."""

    columns: dict[str, set[str]] = field(default_factory=dict)
    news: list[ColumnNews] = field(default_factory=list)


def decide(pipeline: Pipeline, before: Catalog, stored: Catalog, now: Catalog, streams: Collection[str]) -> Update:
    """What to do about new and dropped columns of these streams, as `new_columns` says.

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
        outer = {column: column if column in old ^ new else column.split(".")[0] for column in _all(changes)}
        apart = {column for column, top in outer.items() if column == top or top in old & new}
        added = [column for column in changes.new if column in apart and stream.takes(column, update)]
        dropped = [column for column in changes.removed if column in apart and column not in stream.fixed]
        stream.report(added, dropped, update)
        if added or dropped:
            update.columns[name] = {outer[column] for column in (*added, *dropped)}
    return update


def _all(changes: StreamChanges) -> list[str]:
    return [*changes.new, *changes.removed]


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

    def takes(self, column: str, update: Update) -> bool:
        """Whether the run loads a new column; says so where it does not."""
        choice = self.choices[column]
        by_pattern = choice.loaded and bool(self.patterns)
        if self.mode == "ignore" or (choice.why.startswith("!") and not choice.loaded):
            return False
        log_based = self.method == "LOG_BASED"
        selected = self.mode == "add" or self.all or (by_pattern and (log_based or choice.why in self.patterns))
        if self.mode != "warn" and choice.loaded and selected:
            return True
        discover = f"singer-bridge discover {self.pipeline.name}"
        if log_based and by_pattern:
            hint = f"`{discover}` takes it in; or set new_columns: add or ignore for the stream"
            what = "a new column is selected and not in the catalog, and the changes of this run would be lost for it"
            raise SettingsError(what, hint=hint, stream=self.name, column=column)
        later = "" if choice.loaded else f" and `singer-bridge select {self.pipeline.name} '{self.name}.{column}'`"
        later = later if choice.status != "unsupported" else " notes it; the tap cannot extract it"
        text = f"the source has a new column {column}, which is not loaded: `{discover}`{later}"
        update.news.append(ColumnNews(self.name, NEW, f"{text}; or new_columns: ignore"))
        return False

    def report(self, added: Collection[str], dropped: Collection[str], update: Update) -> None:
        """Say what changes with this run."""
        again = full_run(self.pipeline.name, [self.name])
        older = "" if self.method == "FULL_TABLE" else f"; older rows have no value in it, unless `{again}`"
        for column in added:
            text = f"the source has a new column {column}, which is loaded from this run on{older}"
            update.news.append(ColumnNews(self.name, NEW, text))
        for column in dropped:
            text = f"the source has no column {column} any more: older rows keep its values, newer ones have none"
            update.news.append(ColumnNews(self.name, DROPPED, f"{text}; `{again}` makes the table as its source is"))
