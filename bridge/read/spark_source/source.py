"""The source that Spark calls: it checks the options and makes the schema with a frame, before any task starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from bridge.errors import SettingsError, did_you_mean
from bridge.lake.records import TableState
from bridge.read.query.changes.feed import ChangeFeed
from bridge.read.query.snapshot import TablesAt
from bridge.read.spark_source.changes import FACTS, ChangesOf, ChangesReader, check_keys, with_facts
from bridge.read.spark_source.columns import as_spark, fields_of, selected
from bridge.read.spark_source.options import environment_of, read_options
from bridge.read.spark_source.place import explained
from bridge.read.spark_source.stream import ChangeStream
from bridge.read.spark_source.table import FilteringReader, TableReader

if TYPE_CHECKING:
    from bridge.read.spark_source.options import Options


class SingerSource(DataSource):  # type: ignore[misc]
    """`spark.read.format("singer")`: `spark.dataSource.register(SingerSource)` makes a session know it.

    A frame stays at the commit that was the last one when it was made.
    """

    _pinned: int | None = None
    """The commit that the schema is of. Spark carries the source from there to the reader."""

    @classmethod
    def name(cls) -> str:
        return "singer"

    def schema(self) -> StructType:
        """The columns. Raises `SettingsError` if an option is wrong, `LakeError` if the bucket cannot be read."""
        with explained(environment_of(self.options)):
            asked = read_options(self.options)
            if asked.changes:
                feed = self._feed(asked)
                self._pinned = feed.head.commit
                columns = selected(feed.columns(asked.table), asked.columns, asked.table)
                return as_spark(with_facts(columns, asked.table))
            tables = self._tables(asked)
            self._pinned = tables.snapshot.n
            return as_spark(selected(_columns(tables, asked), asked.columns, asked.table))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads the table, or its changes between two commits."""
        with explained(environment_of(self.options)):
            asked = read_options(self.options)
            if asked.changes:
                return self._changes_reader(asked, schema)
            tables = self._tables(asked)
            fields = fields_of(schema, _columns(tables, asked), asked.table)
            kind = FilteringReader if asked.push_filters else TableReader
            table = tables.table(asked.table)
            return kind(asked.place, tables.snapshot.n, table, fields, asked.partition_bytes)

    def streamReader(self, schema: StructType) -> ChangeStream:  # noqa: N802 - Spark's name
        """Reads the table's changes as they are committed."""
        with explained(environment_of(self.options)):
            asked = read_options(self.options)
            if not asked.changes:
                hint = 'add .option("changes", "true"), and with it columns that say what became of a row'
                raise SettingsError("a stream reads changes", hint=hint, table=asked.table)
            if asked.last is not None:
                raise SettingsError("to: a stream has no end", hint="remove it, or use spark.read")
            of = self._changes_of(asked, self._feed(asked), schema)
            return ChangeStream(of, asked.first, asked.most_commits)

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Raise `SettingsError`."""
        raise SettingsError('format("singer") only reads a lake\n  singer-bridge run, or target-bridge, writes to it')

    streamWriter = writer  # noqa: N815 - Spark's name

    def _tables(self, asked: Options) -> TablesAt:
        tables = TablesAt.of(asked.place.log(), self._pinned if asked.commit is None else asked.commit)
        _check_view(tables.table(asked.table), asked)
        return tables

    def _feed(self, asked: Options) -> ChangeFeed:
        feed = ChangeFeed(asked.place.log(), self._pinned if asked.last is None else asked.last)
        if asked.table not in feed.streams:
            hint = did_you_mean(asked.table, feed.streams) or f"there are: {', '.join(feed.streams) or 'none'}"
            raise SettingsError("no such table", hint=hint, pipeline=asked.place.pipeline, stream=asked.table)
        _check_view(feed.table(asked.table, feed.head.commit), asked)
        return feed

    def _changes_reader(self, asked: Options, schema: StructType) -> ChangesReader:
        if asked.most_commits is not None:
            raise SettingsError("maxCommitsPerTrigger: only of a stream", hint="use the options from and to")
        feed = self._feed(asked)
        start, end = (asked.first or 1) - 1, feed.head.commit
        if start > end:
            hint = f"the last commit is {end}: there is nothing to read before there is a later one"
            raise SettingsError("from: there is no such commit yet", hint=hint, commit=start + 1)
        return ChangesReader(self._changes_of(asked, feed, schema), start, end)

    def _changes_of(self, asked: Options, feed: ChangeFeed, schema: StructType) -> ChangesOf:
        fields = fields_of(schema, feed.columns(asked.table), asked.table, FACTS)
        with_facts(fields, asked.table)
        keys = (feed.keys(asked.table) or []) if asked.keys is None else asked.keys
        check_keys(keys, fields, asked.table)
        names = tuple(field.name for field in schema)
        return ChangesOf(asked.place, asked.table, tuple(fields), tuple(keys), names, asked.partition_bytes)


def _columns(tables: TablesAt, asked: Options) -> pa.Schema:
    return tables.columns(tables.table(asked.table))


def _check_view(table: TableState, asked: Options) -> None:
    if asked.is_view and not table.view:
        raise SettingsError("view: this is a table", hint=f'use .option("table", "{asked.table}")', view=asked.table)
