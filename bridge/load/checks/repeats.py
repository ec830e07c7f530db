"""Warns after a load of rows that the lake now has twice, or will have after the next run.

Only appended rows are checked, and only afterwards: if a bookmark moved, the footers of a few new files tell whether
some rows are older than the bookmark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

from bridge.errors import BridgeError
from bridge.lake.log import Snapshot
from bridge.lake.records import TableState
from bridge.load.result import Counts
from bridge.load.tables.methods import Method, outlook
from bridge.settings.options import Pipeline
from bridge.singer.state import bookmark, is_empty, is_flat, resume_point
from bridge.storage import Storage
from bridge.tap.catalog_overrides import unmatched_globs

_FILES = 4
"""How many footers of a stream's files are read."""
_UPSERT = "load_method: upsert has each row once, by its key"


@dataclass(frozen=True, slots=True)
class Added:
    """What one run did to one appended stream."""

    stream: str
    names: tuple[str, ...]
    method: Method
    rows: int
    table: TableState
    is_chosen: bool
    """Whether somebody chose append-only for it, as far as we know."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A finished load: how each stream was loaded, and the lake before and after."""

    pipeline: Pipeline
    methods: Mapping[str, Method]
    before: Snapshot
    after: Snapshot
    piped: bool
    """Another program started the tap."""

    def warnings(self, counts: Mapping[str, Counts], lake: Storage) -> list[str]:
        """Warnings about rows that are twice in the lake, now or after the next run, and about unused settings."""
        first = [(name, method) for name, method in self.methods.items() if not self.before.table([name])]
        return [*outlook(first), *self._repeated(counts, lake), *self._unused(counts)]

    def _unused(self, counts: Mapping[str, Counts]) -> list[str]:
        """A warning for globs that matched no stream. With a catalog, that is checked before the run."""
        if self.pipeline.names or not counts:
            return []
        globs = unmatched_globs(self.pipeline, [*counts, *self.after.tables])
        return [f"streams.{glob} of the settings matched no stream of this run" for glob in globs]

    def _repeated(self, counts: Mapping[str, Counts], lake: Storage) -> list[str]:
        if is_flat(self.after.state) and not is_empty(self.after.state):
            return []
        added = list(self._added(counts))
        empty = [one for one in added if resume_point(self.after.state, one.names) is None and not one.method.parent]
        warnings = []
        if unsaid := [one.stream for one in empty if one.method.is_known and not one.is_chosen]:
            warnings.append(
                f"rows were added, and no bookmark came with them: {', '.join(unsaid)}. The next run adds the same "
                f"rows again, unless the tap knows by itself where to go on; {_UPSERT}"
            )
        for one in added:
            if one not in empty and (table := self.before.table(one.names)) and table.rows:
                warnings += self._since_bookmark(one, table, lake)
        return warnings

    def _added(self, counts: Mapping[str, Counts]) -> Iterator[Added]:
        for stream, count in counts.items():
            method, table = self.methods.get(stream), self.after.tables.get(stream)
            if count.load_method != "append-only" or not count.committed or not method or not table:
                continue
            names = self.pipeline.names_of(stream)
            chosen = self.pipeline.load_method(stream) == "append-only"
            if self.piped:  # append-only is the default there, so perhaps nobody chose it
                chosen = not self.before.table(names)
            yield Added(stream, names, method, count.committed, table, chosen)

    def _since_bookmark(self, one: Added, before: TableState, lake: Storage) -> Iterator[str]:
        """Yield a warning if none of the rows is newer than the bookmark that the run began at, or some are older."""
        then = resume_point(self.before.state, one.names)
        if then is None or self.pipeline.stream(one.stream).lookback is not None:
            return
        value = _value(bookmark(self.before.state, one.names))
        at = f" ({value})" if value is not None else ""
        if then == resume_point(self.after.state, one.names):
            rows = f"0 of {one.rows:,} row(s) are newer than the bookmark{at}"
            yield f"{one.stream}: {rows}, which has not moved: they were added, and are there twice. {_UPSERT}"
            return
        low = None if value is None else _least_of(one, before, lake)
        if low is not None and _is_before(low, value):
            shown = low.isoformat() if isinstance(low, (date, datetime)) else low
            yield (
                f"{one.stream}: the rows reach back to {shown}, before the bookmark{at}: the tap sent rows again that "
                f"are there already, and they were added. {_UPSERT}"
            )


def _least_of(one: Added, before: TableState, lake: Storage) -> Any:
    """The least value of the bookmark's column in a few of the files that the run added."""
    values = []
    for name in [name for name in one.table.files if name not in before.files][:_FILES]:
        with suppress(BridgeError, OSError, ValueError):
            values.append(_least(lake, f"{one.table.folder}/{name}", one.method.bookmark))
    return min((least for least in values if least is not None), default=None)


def _value(mark: Any) -> Any:
    """A bookmark's value, None where it has another form, or several."""
    return mark.get("replication_key_value") if isinstance(mark, dict) and not mark.get("partitions") else None


def _least(lake: Storage, key: str, column: str) -> Any:
    """The least value of a column as the file's footer says it, None where it does not."""
    import pyarrow.parquet as pq  # here: few runs need it

    with lake.open(key) as file:
        footer = pq.read_metadata(file)
    at = footer.schema.names.index(column)
    chunks = [footer.row_group(n).column(at).statistics for n in range(footer.num_row_groups)]
    return min((facts.min for facts in chunks if facts and facts.has_min_max), default=None)


def _is_before(low: Any, value: Any) -> bool:
    """Whether a column's value is less than a bookmark's; of other kinds it is not."""
    if isinstance(low, datetime) and isinstance(value, str):
        at = _moment(value)
        low = low if low.tzinfo else low.replace(tzinfo=timezone.utc)
        return at is not None and low < at
    if isinstance(low, (int, float, Decimal)) and isinstance(value, (int, float, Decimal)):
        return not isinstance(value, bool) and bool(low < value)
    return False


def _moment(text: str) -> datetime | None:
    with suppress(ValueError):
        at = datetime.fromisoformat(text)
        return at if at.tzinfo else at.replace(tzinfo=timezone.utc)
    return None
