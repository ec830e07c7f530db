"""A table at one commit: its files in parts of about one size, each read by a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import structs
from pyspark.sql.datasource import DataSourceReader, InputPartition

from bridge.lake.records import TableState
from bridge.protocol.decode.casting import refit
from bridge.read.query.files import CommitFiles
from bridge.read.spark_source.columns import record_batches
from bridge.read.spark_source.filters import Condition, conditions, row_groups
from bridge.read.spark_source.place import PipelinePlace, explained

_BATCH = 65_536
"""Rows."""


@dataclass(frozen=True, slots=True)
class Slice:
    """The row groups of a file that begin in a range of its bytes."""

    name: str
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class _Sized(Protocol):
    @property
    def size(self) -> int: ...


_S = TypeVar("_S", bound=_Sized)


@dataclass(frozen=True, slots=True)
class FileSlices:
    """Slices of a table's files at a commit, which a task reads one after the other."""

    commit: int
    table: TableState
    """The table with only the files of the slices."""
    slices: tuple[Slice, ...]

    @classmethod
    def of(cls, commit: int, table: TableState, slices: Sequence[Slice]) -> FileSlices:
        """Slices of some of the table's files."""
        files = {one.name: table.files[one.name] for one in slices}
        return cls(commit, structs.replace(table, files=files), tuple(slices))

    def tables(
        self, place: PipelinePlace, fields: Sequence[pa.Field], asked: Sequence[Condition] = ()
    ) -> Iterator[pa.Table]:
        """Yield the rows, with these columns. Raises `CommitExpired` if they are not kept any more."""
        files = CommitFiles(place.log(), self.commit, self.table)
        for one in self.slices:
            with files.open_input_file(one.name) as opened, pq.ParquetFile(opened) as file:
                groups = [n for n in row_groups(file, asked, fields) if one.start <= _begin(file, n) < one.end]
                columns = [field.name for field in fields if field.name in file.schema_arrow.names]
                if not groups:
                    continue
                for batch in file.iter_batches(_BATCH, row_groups=groups, columns=columns, use_threads=False):
                    yield refit(pa.Table.from_batches([batch]), fields)


def _begin(file: pq.ParquetFile, group: int) -> int:
    """Where a row group begins in its file."""
    if not file.metadata.num_columns:
        return 0
    first = file.metadata.row_group(group).column(0)
    return int(first.data_page_offset if first.dictionary_page_offset is None else first.dictionary_page_offset)


def bundles(commit: int, table: TableState, names: Iterable[str], size: int) -> list[FileSlices]:
    """Files in bundles of at most about so many bytes; a larger file is cut."""
    slices = [
        Slice(name, start, min(start + size, table.files[name].size))
        for name in names
        for start in range(0, table.files[name].size, size)
    ]
    return [FileSlices.of(commit, table, bundle) for bundle in packed(slices, size)]


def packed(pieces: Iterable[_S], size: int) -> list[list[_S]]:
    """The pieces in their order, several small ones together: at most about so many bytes."""
    result, left = list[list[_S]](), size
    for one in pieces:
        if not result or one.size > left:
            result.append([])
            left = size
        result[-1].append(one)
        left -= one.size
    return result


class TablePart(InputPartition):  # type: ignore[misc]
    """A task's share of a table; none of it where there are no rows, as Spark makes a task even so."""

    value: FileSlices | None


class TableReader(DataSourceReader):  # type: ignore[misc]
    """Reads a table at a commit."""

    def __init__(
        self, place: PipelinePlace, commit: int, table: TableState, fields: Sequence[pa.Field], partition_bytes: int
    ) -> None:
        self._place, self._fields, self._commit = place, list(fields), commit
        self._table: TableState | None = table
        self._bytes = partition_bytes
        self._asked: list[Condition] = []

    def __getstate__(self) -> dict[str, Any]:
        """Executors get the files of their own part only."""
        return self.__dict__ | {"_table": None}

    def partitions(self) -> list[TablePart]:
        assert self._table is not None
        names = sorted(self._table.files)
        return [TablePart(one) for one in bundles(self._commit, self._table, names, self._bytes)]

    def read(self, partition: TablePart) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return
        with explained(self._place.environment):
            for table in partition.value.tables(self._place, self._fields, self._asked):
                yield from record_batches(table)


class FilteringReader(TableReader):
    """The same, which passes over row groups. Spark refuses this method unless a setting of the session allows it."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 - Spark's name
        """Spark applies all filters again."""
        self._asked = conditions(filters, self._fields)
        return filters
