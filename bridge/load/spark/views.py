"""A view's change, in Spark: the rows that a commit adds to a table and removes from it, merged into the view's groups.

```
files that come and go -> signed rows -> partial groups -+
files of the view's groups so far -----------------------+-> new groups -> sorted -> pending files
```
Workers read and write the files through our own storage. Where a row that was a group's extreme went, the group is
computed anew from all files that the table has after the commit; of a view with sessions, `count(DISTINCT x)` or
percentiles, each group that changes is (`View.from_rows`). If few rows come and go, the driver merges their
groups, and only the files of the view that have these are written again; else its memory holds files, never groups.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import convert, json
from pyspark.sql import functions as sql

from bridge.errors import DataError
from bridge.lake.file_records import PendingFile
from bridge.lake.records import Watermark
from bridge.load.spark.shipping import executor_rows, map_in_arrow, spread
from bridge.load.spark.transform import OF_A_RECORD, first_line
from bridge.load.spark.types import spark_schema
from bridge.load.spark.view_files import FAILED, SIGN
from bridge.load.spark.view_types import needed_columns, plain_keys, view_session
from bridge.load.spark.worker import REPORT_SCHEMA, REPORTS
from bridge.load.views.algebra import CAME, LATEST, RECOMPUTE, TypedView, difference_sql, merge_sql, partial_sql
from bridge.load.views.merge import can_merge, merge_groups
from bridge.load.views.windows import Windows, came, latest_of
from bridge.load.write.context import WriteContext
from bridge.load.write.groups import (
    Patch,
    Patched,
    among,
    groups_between,
    groups_of,
    in_order,
    patch,
    shares,
    write_sorted,
)
from bridge.load.write.report import Failure, raise_failure
from bridge.load.write.signed_file import SignedFile, ViewChange
from bridge.settings.sql.transform import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SHUFFLE = "spark.sql.shuffle.partitions"
_TASK = 32 << 20
"""About how many bytes of files one task takes after a shuffle."""
_TASKS = 200
_FEW = 256 << 10
"""With at most so many rows that come and go, only their groups are changed, in the driver's memory."""
_TINY = 8
"""Files of few rows that one task reads: a second task would cost a shuffle."""
_LARGE = 64 << 20
"""Bytes of files from which on Spark compiles whole statements."""
_COMPILES = "spark.sql.codegen.wholeStage"
_GENERATES = "spark.sql.codegen.factoryMode"
_INTERPRETED = 32 << 10
"""With at most so many rows, a task takes longer to write code for its expressions than to interpret them."""
_CELL = 8
"""About how many bytes a value of a group takes in a file; only the number of files depends on it."""


@dataclass(frozen=True, slots=True)
class ViewWork:
    """The change that a commit makes to a view."""

    typed: TypedView
    columns: pa.Schema
    """The columns of the stream's table after the commit."""
    changed: Sequence[SignedFile]
    """The table's files that come and go; to fill the view anew, all that the table then has."""
    state: Sequence[SignedFile]
    """The files with the view's groups so far; none: it is filled anew."""
    after: Sequence[SignedFile]
    """All files of the table after the commit."""
    seq: int
    watermark: Watermark | None = None
    """Before the commit."""
    anew: bool = False
    """The view is filled anew."""

    @property
    def from_rows(self) -> bool:
        """Whether the groups that change are computed from all their rows in `after`."""
        return self.typed.view.from_rows and not self.anew

    @property
    def counted(self) -> TypedView:
        """The view of the rows that come and go."""
        return self.typed.touched if self.from_rows else self.typed


def change_view(spark: SparkSession, context: WriteContext, shipped: str | None, work: ViewWork) -> ViewChange:
    """Write a view's new groups to pending files. Raises `DataError` for a row on which the view's SQL fails."""
    with _explained(work):
        if sum(file.rows or 0 for file in work.changed) <= _FEW:
            with _Frames(_session(spark, work, few=True), context, shipped) as frames:
                if (change := _patched(frames, work)) is not None:
                    return change
        with _Frames(_session(spark, work), context, shipped) as frames:
            return _whole(frames, work)


@dataclass(frozen=True, slots=True)
class ViewDifference:
    """A key, and its rows that only the view has (`stored`), or only its SELECT gives: JSON, of hidden columns, too."""

    key: str
    stored: Sequence[str]
    selected: Sequence[str]


def compare_view(
    spark: SparkSession, context: WriteContext, shipped: str | None, work: ViewWork, most: int
) -> tuple[int, list[ViewDifference]]:
    """Compute a view anew from `work.changed`, and compare it with `work.state`, row by row.

    Returns how many keys differ, and the first of them. Raises `LakeError` for a file that cannot be read, with its
    key in the facts as `file`, and `DataError` for a row on which the view's SQL fails.
    """
    typed = work.typed
    with _explained(work), _Frames(_session(spark, work), context, shipped) as frames:
        fields = needed_columns(typed.view, work.columns)
        partials = frames.named(frames.spark.sql(partial_sql(typed, frames.rows(work.changed, fields), SIGN)))
        windows = Windows.of(typed, work.watermark, None)
        groups = frames.spark.sql(merge_sql(typed, partials)).where(f"NOT {windows.ended(windows.expired)}")
        selected = frames.named(groups)
        stored = frames.rows(work.state, typed.schema, signed=False)
        keys = frames.cached(frames.spark.sql(difference_sql(typed, stored, selected)))
        rows = keys.orderBy("key").limit(most).collect()
        return keys.count(), [ViewDifference(row.key, row.stored, row.selected) for row in rows]


@contextmanager
def _explained(work: ViewWork) -> Iterator[None]:
    """Raise what executors report, and what Spark says of a row, as errors of ours."""
    try:
        yield
    except Exception as error:  # pyspark's, or py4j's
        if FAILED in (text := str(error)):
            report = text.partition(FAILED)[2].splitlines()[0]
            raise_failure(json.decode(report, type=Failure))
        if type(error).__name__ in OF_A_RECORD:
            hint = f"nothing of this commit was stored; {first_line(error)}"
            raise DataError("a view failed on a row", hint=hint, view=work.typed.view.name) from error
        raise


def _session(spark: SparkSession, work: ViewWork, *, few: bool = False) -> SparkSession:
    """The views' session, with as many tasks as the files are worth, unless the settings say how many."""
    read = (*work.changed, *(work.after if work.from_rows else ()))
    session, size = view_session(spark), sum(file.size for file in (*read, *work.state))
    few = few and (size <= _LARGE or not work.from_rows)
    tasks = min(_TASKS, spark.sparkContext.defaultParallelism + size // _TASK)
    session.conf.set(_SHUFFLE, "1" if few else spark.sparkContext.getConf().get(_SHUFFLE, str(tasks)))
    session.conf.set(_COMPILES, str(size > _LARGE and not few).lower())
    interprets = few and sum(file.rows or 0 for file in read) <= _INTERPRETED
    session.conf.set(_GENERATES, "NO_CODEGEN" if interprets else "FALLBACK")
    return session


class _Frames:
    """The frames of one change, under names for SQL."""

    def __init__(self, spark: SparkSession, context: WriteContext, shipped: str | None) -> None:
        self.spark, self.context, self.shipped = spark, context, shipped
        self._names: list[str] = []
        self._cached: list[DataFrame] = []

    def __enter__(self) -> _Frames:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):  # the JVM may be dead
            for frame in self._cached:
                frame.unpersist()
            for name in self._names:
                self.spark.catalog.dropTempView(name)

    def named(self, frame: DataFrame) -> str:
        """Give a frame a name for SQL."""
        name = f"singer_bridge_{uuid.uuid4().hex}"  # a SCHEMA may be analysed at the same time
        frame.createOrReplaceTempView(name)
        self._names.append(name)
        return name

    def cached(self, frame: DataFrame) -> DataFrame:
        """Keep what a frame results in, on disk where it is large."""
        self._cached.append(frame.persist())
        return frame

    def rows(
        self,
        files: Sequence[SignedFile],
        fields: Iterable[pa.Field],
        *,
        signed: bool = True,
        among: Mapping[str, pa.Array] | None = None,
        at_once: int = 1,
    ) -> str:
        """The rows of these files, of which a task reads so many; `among`: only those with such values."""
        fields, parts = list(fields), [part for file in files for part in file.split()]
        read = executor_rows("read_signed", self.shipped, self.context, parts, fields, signed, among or {})
        schema = spark_schema(pa.schema([*fields, *([pa.field(SIGN, pa.int64())] if signed else [])]))
        tasks = max(1, min(-(-len(parts) // at_once), 4 * self.spark.sparkContext.defaultParallelism))
        return self.named(map_in_arrow(self.spark.range(0, len(parts), 1, tasks), read, schema))

    def of_arrow(self, table: pa.Table) -> str:
        table = table.combine_chunks()  # Spark takes an empty chunk for the end of the rows
        return self.named(self.spark.createDataFrame(table, spark_schema(table.schema)))


def _patched(frames: _Frames, work: ViewWork) -> ViewChange | None:
    """Change only the groups of few rows, in the files that have them. These groups go through the driver's memory.

    None, and nothing is written, if too many groups go or close for that.
    """
    typed, context, names = work.typed, frames.context, list(work.typed.view.keys)
    changed = frames.rows(work.changed, needed_columns(typed.view, work.columns), at_once=_TINY)
    partials = frames.spark.sql(partial_sql(work.counted, changed, SIGN)).toArrow()
    windows = Windows.of(typed, work.watermark, latest_of(typed, partials), anew=work.anew)
    late = came(windows.split(partials, windows.late)[0]) if typed.view.window and not work.anew else 0
    partials = windows.split(partials, windows.expired_before)[1]
    expiring, closing = (_ended(frames, work, *windows.range_of(one)) for one in ("expired", "closed"))
    keys = partials.select(work.counted.view.keys)
    keys = keys.cast(pa.schema([typed.schema.field(name) for name in keys.column_names]))
    before = _before(frames, work, keys)
    if expiring is None or closing is None or before is None:
        return None
    if work.state and not len(partials) + len(expiring) + len(closing):
        return ViewChange(windows.watermark, late=late)
    groups = _changed(frames, work, partials, keys)
    if typed.view.session:
        keys = pa.concat_tables([before, groups.select(names)]).group_by(names).aggregate([])
    closing = pa.concat_tables([closing.filter(pc.invert(among(closing, keys))), windows.closing(groups)])
    closing, groups = (in_order(rows, names) for rows in (closing, windows.split(groups, windows.expired)[1]))
    closed = _rows_written(context, typed.view.closes, closing.select(typed.visible.names), work.seq)
    if not work.state:
        files = list(write_sorted(context, typed.view.name, typed.schema, work.seq, iter([groups])))
        return ViewChange(windows.watermark, files, [], closed, late)
    files, replaced = _patches(frames, work, groups, pa.concat_tables([keys, expiring.select(names)]))
    return ViewChange(windows.watermark, files, replaced, closed, late)


def _ended(frames: _Frames, work: ViewWork, after: int | None, until: int | None) -> pa.Table | None:
    """The groups so far whose keys, of which one is a time, are in this range; None: too many for this memory."""
    parts, schema, window = [work.typed.schema.empty_table()], work.typed.schema, work.typed.view.window
    if window and until is not None and until != after:
        for rows in groups_between(frames.context, work.state, schema, window.key, after, until):
            parts.append(rows)
            if sum(map(len, parts)) > _FEW:
                return None
    return pa.concat_tables(parts)


def _before(frames: _Frames, work: ViewWork, keys: pa.Table) -> pa.Table | None:
    """The keys of the groups so far with these keys, which leave out a session; None: too many for this memory."""
    if not work.typed.view.session:
        return keys
    schema = pa.schema([work.typed.schema.field(name) for name in work.typed.view.keys])
    parts = [schema.empty_table()]
    for file in work.state:
        parts.append(groups_of(frames.context, file, keys, schema))
        if sum(map(len, parts)) > _FEW:
            return None
    return pa.concat_tables(parts)


def _changed(frames: _Frames, work: ViewWork, partials: pa.Table, keys: pa.Table) -> pa.Table:
    """The groups with these keys after the commit."""
    typed, context, schema = work.typed, frames.context, work.typed.schema
    if work.from_rows:
        return _anew(frames, work, keys)
    before = [
        groups_of(context, file, share, schema) for file, share in shares(context, work.state, keys, keys.column_names)
    ]
    groups = _merged(frames, typed, partials, pa.concat_tables([schema.empty_table(), *before]))
    again = groups.filter(groups.column(RECOMPUTE))
    if len(again):
        certain = groups.filter(pc.invert(groups.column(RECOMPUTE))).select(schema.names)
        return pa.concat_tables([certain, _anew(frames, work, again.select(keys.column_names))])
    return groups.select(schema.names)


def _anew(frames: _Frames, work: ViewWork, keys: pa.Table) -> pa.Table:
    """The groups with these keys, which may leave out a session, from all rows of the table after the commit."""
    typed, schema = work.typed, work.typed.schema
    if not len(keys):
        return schema.empty_table()
    rows = frames.rows(work.after, needed_columns(typed.view, work.columns), among=_values(work, keys))
    partials = frames.spark.sql(partial_sql(typed, rows, SIGN, only=frames.of_arrow(keys))).toArrow()
    return _merged(frames, typed, partials, schema.empty_table()).select(schema.names)


def _patches(
    frames: _Frames, work: ViewWork, groups: pa.Table, keys: pa.Table
) -> tuple[list[PendingFile], list[SignedFile]]:
    """Write the files again that have groups with these keys, of which these are left; also return the old files."""
    context, names, name = frames.context, keys.column_names, work.typed.view.name
    touched = list(shares(context, work.state, keys, names))
    of_file = {file.key: part for file, part in shares(context, work.state, groups, names)}
    patches = [Patch(name, work.seq, file, share, of_file.get(file.key, groups.slice(0, 0))) for file, share in touched]
    if len(patches) < 2:
        reports = [patch(context, one) for one in patches]
    else:
        reports = convert(spread(frames.spark, patch, context, patches, frames.shipped), list[Patched])
    return [file for report in reports for file in report.files], [file for file, _ in touched]


def _rows_written(context: WriteContext, name: str, rows: pa.Table, seq: int) -> list[PendingFile]:
    return list(write_sorted(context, name, rows.schema, seq, iter([rows]))) if len(rows) else []


def _merged(frames: _Frames, typed: TypedView, partials: pa.Table, stored: pa.Table) -> pa.Table:
    """The groups that partial ones and those so far result in, and whether each must be computed anew."""
    if can_merge(typed):
        return merge_groups(typed, partials, stored)
    query = merge_sql(typed, frames.of_arrow(partials), frames.of_arrow(stored) if len(stored) else None)
    return frames.spark.sql(query).toArrow().cast(typed.schema.append(pa.field(RECOMPUTE, pa.bool_())))


def _values(work: ViewWork, groups: pa.Table) -> dict[str, pa.Array]:
    """By the names of the stream's columns that are keys as they are, their values in these groups."""
    keys = plain_keys(work.typed, work.columns)
    return {field.name: groups.column(key).unique() for key, field in keys.items()}


def _whole(frames: _Frames, work: ViewWork) -> ViewChange:
    """Write the whole view again."""
    typed, spark = work.typed, frames.spark
    fields = needed_columns(typed.view, work.columns)
    partials, latest, late = spark.sql(partial_sql(work.counted, frames.rows(work.changed, fields), SIGN)), None, 0
    if typed.view.window:
        partials = frames.cached(partials)
        latest = partials.agg(sql.max(LATEST)).first()[0]
    windows = Windows.of(typed, work.watermark, latest, anew=work.anew)
    if windows.late is not None and not work.anew:
        late = partials.where(windows.ended(windows.late)).agg(sql.sum(CAME)).first()[0] or 0
    if work.from_rows:
        partials = spark.sql(partial_sql(typed, frames.rows(work.after, fields), SIGN))
    if windows.expired_before is not None:
        partials = partials.where(f"NOT {windows.ended(windows.expired_before)}")
    groups = _groups(frames, work, frames.named(partials))
    closed = list[PendingFile]()
    if windows.closed != windows.closed_before:
        groups = frames.cached(groups)
        closing = groups.where(f"{windows.ended(windows.closed)} AND NOT {windows.ended(windows.closed_before)}")
        closed = _written(frames, work, closing, typed.view.closes, typed.visible)
    if windows.expired is not None:
        groups = groups.where(f"NOT {windows.ended(windows.expired)}")
    files = _written(frames, work, groups, typed.view.name, typed.schema)
    return ViewChange(windows.watermark, files, work.state, closed, late)


def _groups(frames: _Frames, work: ViewWork, partials: str) -> DataFrame:
    """The view's groups after the commit."""
    typed, spark = work.typed, frames.spark
    state = frames.rows(work.state, typed.schema, signed=False) if work.state and not work.from_rows else None
    groups = spark.sql(merge_sql(typed, partials, state))
    names = [quoted(name) for name in typed.schema.names]
    extremes = any(item.function.startswith(("min", "max")) for item in typed.view.aggregates)
    if not extremes or work.from_rows or all(file.sign > 0 for file in work.changed):
        return groups.select(*names)
    groups = frames.cached(groups)
    uncertain = groups.filter(quoted(RECOMPUTE))
    if uncertain.isEmpty():
        return groups.select(*names)
    only = frames.named(uncertain.select(*map(quoted, typed.view.keys)))
    rows = frames.rows(work.after, needed_columns(typed.view, work.columns))
    again = frames.named(spark.sql(partial_sql(typed, rows, SIGN, only=only)))
    anew = spark.sql(merge_sql(typed, again)).select(*names)
    return groups.filter(f"NOT {quoted(RECOMPUTE)}").select(*names).unionByName(anew)


def _written(frames: _Frames, work: ViewWork, groups: DataFrame, name: str, schema: pa.Schema) -> list[PendingFile]:
    """Write groups in the order of their keys: the files have ranges of keys that do not overlap."""
    keys = [sql.col(quoted(key)).asc_nulls_last() for key in work.typed.view.keys]
    groups, size = groups.select(*map(quoted, schema.names)), frames.context.layouts[name].file_size
    if sum(file.size for file in (*work.changed, *work.state)) <= size:
        groups = groups.repartition(1)
    else:
        groups = frames.cached(groups)
        count = max(1, round(groups.count() * len(schema) * _CELL / size))
        groups = groups.repartitionByRange(count, *keys) if count > 1 else groups.repartition(1)
    write = executor_rows("write_groups", frames.shipped, frames.context, name, schema, work.seq, REPORT_SCHEMA)
    rows = map_in_arrow(groups.sortWithinPartitions(*keys), write, REPORTS).collect()
    return [json.decode(row.report, type=PendingFile) for row in rows]
