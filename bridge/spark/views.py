"""A view's change, in Spark: the rows that a commit adds to a table and removes from it, merged into the view's groups.

```
files that come and go -> signed rows -> partial groups -+
files of the view's groups so far -----------------------+-> new groups -> sorted -> pending files
```
Workers read and write the files through our own storage. Where a row that was a group's extreme went, the group is
computed anew from all files that the table has after the commit. The driver's memory holds files, never groups.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import json
from pyspark.sql import functions as sql

from bridge.errors import DataError
from bridge.lake.records import PendingFile
from bridge.settings.transform_sql import quoted
from bridge.spark.shipping import executor_rows
from bridge.spark.transform import OF_A_RECORD, first_line
from bridge.spark.types import spark_schema
from bridge.spark.view_files import FAILED, SIGN, SignedFile
from bridge.spark.view_types import needed_columns, view_session
from bridge.spark.worker import REPORT_SCHEMA, REPORTS
from bridge.views.algebra import RECOMPUTE, TypedView, difference_sql, merge_sql, partial_sql
from bridge.write.context import WriteContext
from bridge.write.report import Failure, raise_failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SHUFFLE = "spark.sql.shuffle.partitions"
_TASK = 32 << 20
"""About how many bytes of files one task takes after a shuffle."""
_TASKS = 200
_CELL = 8
"""About how many bytes a value of a group takes in a file; only the number of files depends on it."""


@dataclass(frozen=True, slots=True)
class ViewWork:
    """What a commit changes in a view."""

    typed: TypedView
    columns: pa.Schema
    """Those of the stream's table after the commit."""
    changed: Sequence[SignedFile]
    """The table's files that come and go; to fill the view anew, all that the table then has."""
    state: Sequence[SignedFile]
    """The files with the view's groups so far; none: it is filled anew."""
    after: Sequence[SignedFile]
    """All files of the table after the commit."""
    seq: int


def change_view(spark: SparkSession, context: WriteContext, shipped: str | None, work: ViewWork) -> list[PendingFile]:
    """Write a view's new groups to pending files. Raises `DataError` for a row on which the view's SQL fails."""
    with _explained(work), _Frames(_session(spark, work), context, shipped) as frames:
        return _written(frames, work, _groups(frames, work))


@dataclass(frozen=True, slots=True)
class Difference:
    """A key, and its rows that only the view has (`stored`), or only its SELECT gives: JSON, of hidden columns, too."""

    key: str
    stored: Sequence[str]
    selected: Sequence[str]


def compare_view(
    spark: SparkSession, context: WriteContext, shipped: str | None, work: ViewWork, most: int
) -> tuple[int, list[Difference]]:
    """Compute a view anew from `work.changed`, and compare it with `work.state`, row by row.

    Returns how many keys differ, and the first of them. Raises `LakeError` for a file that cannot be read, with its
    key in the facts as `file`, and `DataError` for a row on which the view's SQL fails.
    """
    typed = work.typed
    with _explained(work), _Frames(_session(spark, work), context, shipped) as frames:
        fields = needed_columns(typed.view, work.columns)
        partials = frames.named(frames.spark.sql(partial_sql(typed, frames.rows(work.changed, fields), SIGN)))
        selected = frames.named(frames.spark.sql(merge_sql(typed, partials)))
        stored = frames.rows(work.state, typed.schema, signed=False)
        keys = frames.cached(frames.spark.sql(difference_sql(typed, stored, selected)))
        rows = keys.orderBy("key").limit(most).collect()
        return keys.count(), [Difference(row.key, row.stored, row.selected) for row in rows]


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


def _session(spark: SparkSession, work: ViewWork) -> SparkSession:
    """The views' session, with as many tasks as the files are worth, unless the settings say how many."""
    session = view_session(spark)
    if _SHUFFLE not in spark.sparkContext.getConf().toDebugString():
        size = sum(file.size for file in (*work.changed, *work.state))
        session.conf.set(_SHUFFLE, str(min(_TASKS, spark.sparkContext.defaultParallelism + size // _TASK)))
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

    def rows(self, files: Sequence[SignedFile], fields: Iterable[pa.Field], *, signed: bool = True) -> str:
        """The rows of these files."""
        fields = list(fields)
        read = executor_rows("read_signed", self.shipped, self.context, list(files), fields, signed)
        schema = spark_schema(pa.schema([*fields, *([pa.field(SIGN, pa.int64())] if signed else [])]))
        tasks = max(1, min(len(files), 4 * self.spark.sparkContext.defaultParallelism))
        return self.named(self.spark.range(0, len(files), 1, tasks).mapInArrow(read, schema))


def _groups(frames: _Frames, work: ViewWork) -> DataFrame:
    """The view's groups after the commit."""
    typed, spark = work.typed, frames.spark
    fields = needed_columns(typed.view, work.columns)
    partials = frames.named(spark.sql(partial_sql(typed, frames.rows(work.changed, fields), SIGN)))
    state = frames.rows(work.state, typed.schema, signed=False) if work.state else None
    groups = spark.sql(merge_sql(typed, partials, state))
    names = [quoted(name) for name in typed.schema.names]
    extremes = any(item.function.startswith(("min", "max")) for item in typed.view.aggregates)
    if not extremes or all(file.sign > 0 for file in work.changed):
        return groups.select(*names)
    groups = frames.cached(groups)
    uncertain = groups.filter(quoted(RECOMPUTE))
    if uncertain.isEmpty():
        return groups.select(*names)
    only = frames.named(uncertain.select(*map(quoted, typed.view.keys)))
    again = frames.named(spark.sql(partial_sql(typed, frames.rows(work.after, fields), SIGN, only=only)))
    anew = spark.sql(merge_sql(typed, again)).select(*names)
    return groups.filter(f"NOT {quoted(RECOMPUTE)}").select(*names).unionByName(anew)


def _written(frames: _Frames, work: ViewWork, groups: DataFrame) -> list[PendingFile]:
    """Write groups in the order of their keys: the files have ranges of keys that do not overlap."""
    typed = work.typed
    keys = [sql.col(quoted(key)).asc_nulls_last() for key in typed.view.keys]
    size = frames.context.layouts[typed.view.name].file_size
    if sum(file.size for file in (*work.changed, *work.state)) <= size:
        groups = groups.repartition(1)
    else:
        groups = frames.cached(groups)
        count = max(1, round(groups.count() * len(typed.schema) * _CELL / size))
        groups = groups.repartitionByRange(count, *keys) if count > 1 else groups.repartition(1)
    name, schema = typed.view.name, typed.schema
    write = executor_rows("write_groups", frames.shipped, frames.context, name, schema, work.seq, REPORT_SCHEMA)
    rows = groups.sortWithinPartitions(*keys).mapInArrow(write, REPORTS).collect()
    return [json.decode(row.report, type=PendingFile) for row in rows]
