"""What a run adds that is in the lake already, or that the next run adds once more: said once, after the load.

Only appended rows are looked at. Nothing here is on the way of a row: where a bookmark moved, the footers of a few new
files say whether the rows reach back to before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

from bridge.config import Pipeline
from bridge.errors import BridgeError
from bridge.intake import Counts
from bridge.log import LiveTable, View
from bridge.methods import Method
from bridge.state import bookmark, is_empty, is_flat, resume_point
from bridge.storage import Storage

__all__ = ["Added", "repeated"]

_FILES = 4
"""Footers that are read of one stream."""
_UPSERT = "load_method: upsert has each row once, by its key"


@dataclass(frozen=True, slots=True)
class Added:
    """What one run did to one appended stream."""

    stream: str
    names: tuple[str, ...]
    method: Method
    rows: int
    table: LiveTable
    has_parent: bool
    """Its bookmark may be its parent's."""
    is_chosen: bool
    """Somebody chose append-only for it, as far as is known."""


def repeated(
    pipeline: Pipeline,
    methods: Mapping[str, Method],
    counts: Mapping[str, Counts],
    before: View,
    after: View,
    lake: Storage,
    *,
    piped: bool,
) -> list[str]:
    """Return a warning for each thing that is there twice now, or will be after the next run."""
    if is_flat(after.state) and not is_empty(after.state):
        return []
    added = list(_added(pipeline, methods, counts, before, after, piped=piped))
    empty = [one for one in added if resume_point(after.state, one.names) is None and not one.has_parent]
    warnings = []
    if unsaid := [one.stream for one in empty if one.method.is_known and not one.is_chosen]:
        warnings.append(
            f"rows were added, and no bookmark came with them: {', '.join(unsaid)}. The next run adds the same rows "
            f"again, unless the tap knows by itself where to go on; {_UPSERT}"
        )
    for one in added:
        if one not in empty and (known := before.table(one.names)) and known.rows:
            warnings += _since_bookmark(one, known, before.state, after.state, lake, pipeline)
    return warnings


def _added(
    pipeline: Pipeline,
    methods: Mapping[str, Method],
    counts: Mapping[str, Counts],
    before: View,
    after: View,
    *,
    piped: bool,
) -> Iterator[Added]:
    for stream, count in counts.items():
        method, table = methods.get(stream), after.tables.get(stream)
        if count.load_method != "append-only" or not count.committed or not method or not table:
            continue
        names, parent = pipeline.names_of(stream), pipeline.stream(stream).parent
        chosen = pipeline.load_method(stream) == "append-only"
        if piped:  # there it is the default: nobody may have chosen it
            chosen = not before.table(names)
        yield Added(stream, names, method, count.committed, table, bool(parent), chosen)


def _since_bookmark(
    one: Added, known: LiveTable, before: Any, after: Any, lake: Storage, pipeline: Pipeline
) -> Iterator[str]:
    """Yield a warning if none of the rows is newer than the bookmark that the run began at, or some are older."""
    then = resume_point(before, one.names)
    if then is None or pipeline.stream(one.stream).lookback is not None:
        return
    value = _value(bookmark(before, one.names))
    at = f" ({value})" if value is not None else ""
    if then == resume_point(after, one.names):
        rows = f"0 of {one.rows:,} row(s) are newer than the bookmark{at}"
        yield f"{one.stream}: {rows}, which has not moved: they were added, and are there twice. {_UPSERT}"
        return
    new = [name for name in one.table.files if name not in known.files][:_FILES]
    low = None
    for name in new if value is not None else ():
        with suppress(BridgeError, OSError, ValueError):
            least = _least(lake, f"{one.table.folder}/{name}", one.method.bookmark)
            low = least if low is None or (least is not None and least < low) else low
    if low is not None and _is_before(low, value):
        shown = low.isoformat() if isinstance(low, (date, datetime)) else low
        yield (
            f"{one.stream}: the rows reach back to {shown}, before the bookmark{at}: the tap sent rows again that are "
            f"there already, and they were added. {_UPSERT}"
        )


def _value(said: Any) -> Any:
    """Return a bookmark's value, None where it has another form, or several."""
    return said.get("replication_key_value") if isinstance(said, dict) and not said.get("partitions") else None


def _least(lake: Storage, key: str, column: str) -> Any:
    """Return the least value of a column as the file's footer says it, None where it does not."""
    import pyarrow.parquet as pq  # here: few runs need it

    with lake.open(key) as file:
        footer = pq.read_metadata(file)
    at = footer.schema.names.index(column)
    chunks = [footer.row_group(n).column(at).statistics for n in range(footer.num_row_groups)]
    return min((said.min for said in chunks if said and said.has_min_max), default=None)


def _is_before(low: Any, value: Any) -> bool:
    """Return whether a column's value is less than a bookmark's; of other kinds it is not."""
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
