"""Warns after a load of rows that the lake now has twice, or will have after the next run.

Only appended rows are checked, and only afterwards: if a bookmark moved, the footers of a few new files tell whether
some rows are older than the bookmark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from bridge.errors import BridgeError
from bridge.lake.log import Log, Snapshot
from bridge.lake.records import TableState
from bridge.lake.storage import Storage
from bridge.load.run.result import Counts
from bridge.load.run.streams import StreamPlan, Streams
from bridge.load.run.tables.undeclared import outlook
from bridge.load.tap.catalog_overrides import unmatched_globs
from bridge.protocol.singer.order import is_before
from bridge.protocol.singer.state import bookmark, is_empty, is_flat, is_null, resume_point
from bridge.settings.destination import APPEND_ONLY

_FILES = 4
"""How many footers of a stream's files are read."""
_UPSERT = "load_method: upsert has each row once, by its key"


@dataclass(frozen=True, slots=True)
class Added:
    """The rows that one run appended to one stream's table."""

    plan: StreamPlan
    rows: int
    table: TableState
    is_chosen: bool
    """Whether somebody chose append-only for it, as far as we know."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A finished load: its streams, and the lake before and after."""

    streams: Streams
    before: Snapshot
    after: Snapshot
    piped: bool
    """Another program started the tap."""

    def warnings(self, counts: Mapping[str, Counts], lake: Storage) -> list[str]:
        """Warnings about rows that are twice in the lake, now or after the next run, and about unused settings."""
        first = [plan for plan in self.streams.opened.values() if not self.before.table([plan.name])]
        return [*outlook(first), *self._repeated(counts, lake), *self._unused(counts)]

    def _unused(self, counts: Mapping[str, Counts]) -> list[str]:
        """A warning for globs that matched no stream. With a catalog, that is checked before the run."""
        if self.streams.pipeline.names or not counts:
            return []
        globs = unmatched_globs(self.streams.pipeline, [*counts, *self.after.tables])
        return [f"streams.{glob} of the settings matched no stream of this run" for glob in globs]

    def _repeated(self, counts: Mapping[str, Counts], lake: Storage) -> list[str]:
        if is_flat(self.after.state) and not is_empty(self.after.state):
            return []
        added = list(self._added(counts))
        empty = [one for one in added if resume_point(self.after.state, one.plan.names) is None and not one.plan.parent]
        warnings = []
        if unsaid := [one.plan.name for one in empty if one.plan.is_known and not one.is_chosen]:
            warnings.append(
                f"rows were added, and no bookmark came with them: {', '.join(unsaid)}. The next run adds the same "
                f"rows again, unless the tap knows by itself where to go on; {_UPSERT}"
            )
        if null := [one.plan.name for one in empty if one.is_chosen and is_null(self.after.state, one.plan.names)]:
            warnings.append(
                f"rows were added, and their bookmark is null: {', '.join(null)}. The next run adds the same rows "
                f"again: choose a replication key that is never NULL; {_UPSERT}"
            )
        for one in added:
            if one not in empty and (table := self.before.table(one.plan.names)) and table.rows:
                warnings += self._since_bookmark(one, table, lake)
        return warnings

    def _added(self, counts: Mapping[str, Counts]) -> Iterator[Added]:
        for stream, count in counts.items():
            plan, table = self.streams.opened.get(stream), self.after.tables.get(stream)
            if count.load_method != APPEND_ONLY or not count.committed or not plan or not table:
                continue
            chosen = plan.setting == APPEND_ONLY
            if self.piped:  # append-only is the default there, so perhaps nobody chose it
                chosen = not self.before.table(plan.names)
            yield Added(plan, count.committed, table, chosen)

    def _since_bookmark(self, one: Added, before: TableState, lake: Storage) -> Iterator[str]:
        """Yield a warning if no row is newer than the bookmark that the run began at, or some are as old, or older."""
        then = resume_point(self.before.state, one.plan.names)
        if then is None or one.plan.settings.lookback is not None:
            return
        value = _value(bookmark(self.before.state, one.plan.names))
        at = f" ({value})" if value is not None else ""
        low, high = (None, None) if value is None else self._bounds(one, lake)
        if then == resume_point(self.after.state, one.plan.names):
            yield from self._stood(one, value, at, high)
        elif low is not None and is_before(_text(low), value):
            rows = f"the rows reach back to {_text(low)}, before the bookmark{at}, and were added"
            yield f"{one.plan.name}: {rows}: those that the tap had sent before are there twice. {_UPSERT}"
        elif low is not None and not one.is_chosen and is_before(value, _text(low)) is False:
            rows = f"rows at the bookmark{at} were added. Most taps send these with each run"
            advice = f"{_UPSERT}; load_method: append-only keeps them, without this warning"
            yield f"{one.plan.name}: {rows}, so they are there twice, unless they are new. {advice}"

    def _stood(self, one: Added, value: Any, at: str, high: Any) -> Iterator[str]:
        """Yield a warning for rows that came although the bookmark has not moved, as far as their values tell."""
        is_newer = None if high is None else is_before(value, _text(high))
        if is_newer is False:
            rows = f"0 of {one.rows:,} row(s) are newer than the bookmark{at}"
            yield f"{one.plan.name}: {rows}, which has not moved: they were added, and are there twice. {_UPSERT}"
        elif is_newer is None:
            rows = f"{one.rows:,} row(s) were added, and the bookmark{at} has not moved"
            yield f"{one.plan.name}: {rows}: whether they were there already is not known. {_UPSERT}"
        elif not self.piped:  # there, they are taken back before the tap sends them again
            rows = f"rows up to {_text(high)} were added, and the bookmark{at} has not moved"
            yield f"{one.plan.name}: {rows}: the next run adds them again. {_UPSERT}"

    def _bounds(self, one: Added, lake: Storage) -> tuple[Any, Any]:
        """The least and the greatest value of the bookmark's column in a few of the files that the run added.

        The greatest is None unless all of them were read.
        """
        names, bounds = self._new_files(one, lake), list[tuple[Any, Any]]()
        for name in names[:_FILES]:
            with suppress(BridgeError, OSError, ValueError):
                bounds.append(_bounds_of(lake, f"{one.table.folder}/{name}", one.plan.bookmark))
        lows = [low for low, _ in bounds if low is not None]
        highs = [high for _, high in bounds if high is not None]
        return min(lows, default=None), max(highs) if highs and len(highs) == len(names) else None

    def _new_files(self, one: Added, lake: Storage) -> list[str]:
        """The files with rows that came in this run: not those that were only written again, for a changed type."""
        before, log, old = self.before.table(one.plan.names), Log(lake, self.streams.pipeline.name), set[str]()
        new = [name for name in one.table.files if not before or name not in before.files]
        if new and one.table.has_own_log:  # elsewhere a file keeps its name
            with suppress(BridgeError):
                for record in log.history(self.after.n):
                    if record.n <= self.before.n:
                        break
                    changes = (change for change in record.tables if change.stream == one.plan.name)
                    old |= {add.name for change in changes for add in change.adds if add.rewritten}
        return [name for name in new if name not in old]


def _value(mark: Any) -> Any:
    """A bookmark's value, None where it has another form, or several."""
    return mark.get("replication_key_value") if isinstance(mark, dict) and not mark.get("partitions") else None


def column_statistics(lake: Storage, key: str, column: str) -> list[Any]:
    """A column's statistics in the file's footer, by row group; None where there are none."""
    import pyarrow.parquet as pq  # here: few runs need it

    with lake.open(key) as file:
        footer = pq.read_metadata(file)
    at = footer.schema.names.index(column)
    return [footer.row_group(n).column(at).statistics for n in range(footer.num_row_groups)]


def _bounds_of(lake: Storage, key: str, column: str) -> tuple[Any, Any]:
    """The least and the greatest value of a column as the file's footer says it, None where it does not."""
    chunks = column_statistics(lake, key, column)
    bounds = [facts for facts in chunks if facts and facts.has_min_max]
    if not bounds:
        return None, None
    high = max(facts.max for facts in bounds) if len(bounds) == len(chunks) else None
    return min(facts.min for facts in bounds), high


def _text(value: Any) -> Any:
    """A column's value as a STATE would have it."""
    return value.isoformat() if isinstance(value, (date, datetime)) else value
