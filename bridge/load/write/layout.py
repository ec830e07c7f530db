"""The facts about one stream's table that a worker needs to write its files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from bridge.errors import DataError
from bridge.load.write.merge.versioning import Versioning
from bridge.load.write.partition import Partition
from bridge.protocol.decode.instants import moments
from bridge.protocol.schema.json_schema import TIMESTAMP, VersionColumn, source

if TYPE_CHECKING:  # workers need no settings
    from bridge.settings.options import Pipeline
    from bridge.settings.values.request import Window

_FILE_SIZE = 128 << 20


_EXACT = pa.decimal256(76, 38)
"""Holds each value of a column of whole numbers or decimals."""


@dataclass(frozen=True, slots=True)
class RowWindow:
    """The rows of which a property lies in a window. Pickled to executors."""

    property: str
    window: Window

    def columns(self, fields: Sequence[pa.Field]) -> list[str]:
        """The columns that have the property; more than one if its type has changed."""
        return [field.name for field in fields if source(field) == self.property]

    def require_column(self, fields: Sequence[pa.Field]) -> list[str]:
        """The `columns`. Raises `DataError` if there is none."""
        if names := self.columns(fields):
            return names
        hint = "the settings leave it out: keep the column, or load the stream by --full"
        raise DataError("the table has no column of the replication key", hint=hint, column=self.property)

    def has(self, value: Any) -> bool:
        """Whether a value, as a record has it, lies in the window; True where that cannot be told."""
        if value is None:
            return False
        try:
            return bool(self._within(pa.chunked_array([[str(value)]])).to_pylist()[0])
        except DataError:
            return True

    def mask(self, rows: pa.Table) -> Any:
        """The booleans that say of each row whether it lies in the window; one without a value does not.

        Raises `DataError` for values that are not of the window's kind.
        """
        names = self.require_column(rows.schema)
        return reduce(pc.or_, (self._within(rows.column(name)) for name in names))

    def _within(self, column: pa.ChunkedArray) -> Any:
        comparable, low, high = self._comparable(column), self.window.low, self.window.high
        if pa.types.is_floating(comparable.type):
            bounds = [pa.scalar(float(bound)) for bound in (low, high)]  # type: ignore[arg-type]
        else:
            bounds = [pa.scalar(bound, comparable.type) for bound in (low, high)]
        is_in = pc.and_(pc.greater_equal(comparable, bounds[0]), pc.less(comparable, bounds[1]))
        return pc.fill_null(is_in, False)

    def _comparable(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """The column in a type in which the bounds can be written, too."""
        type_, is_time = column.type, isinstance(self.window.low, datetime)
        if pa.types.is_string(type_):
            return self._read(column, is_time=is_time)
        if is_time and pa.types.is_date(type_):
            return column.cast(pa.timestamp("us")).cast(TIMESTAMP)
        if is_time and pa.types.is_timestamp(type_):
            return column
        if not is_time and (pa.types.is_integer(type_) or pa.types.is_decimal(type_)):
            return column.cast(_EXACT)
        if not is_time and pa.types.is_floating(type_):
            return column
        raise self._unfit(str(type_))

    def _read(self, column: pa.ChunkedArray, *, is_time: bool) -> pa.ChunkedArray:
        """Times or numbers out of texts."""
        try:
            texts = column.combine_chunks()
            result = moments(texts.to_pylist()) if is_time else texts.cast(_EXACT)
        except pa.ArrowInvalid:
            result = None
        if result is None or result.null_count > column.null_count:
            raise self._unfit("other text")
        return pa.chunked_array([result])

    def _unfit(self, values: str) -> DataError:
        kind = "times" if isinstance(self.window.low, datetime) else "numbers"
        hint = "write the bounds as the replication key is: numbers, dates or times"
        what = f"the window is one of {kind}, and the replication key has {values}"
        return DataError(what, hint=hint, column=self.property)


@dataclass(frozen=True, slots=True)
class TableLayout:
    """Where a stream's rows go, and how they lie there. Pickled to executors."""

    folder: str
    """The table's folder in the bucket."""
    format: str = "parquet"
    """`parquet`, `delta` or `iceberg`. In the folder of the latter two no file is replaced or moved."""
    partition_by: tuple[Partition, ...] = ()
    """The parts of the names of folders below the table's; empty: there are none."""
    sort_by: tuple[str, ...] = ()
    """Columns by which rows are sorted within a row group, the most important first; `-` before one: descending."""
    file_size: int = _FILE_SIZE
    """Bytes at which a file is closed and the next one begun, about."""
    metadata: bool = False
    """Rows get the Singer SDK's metadata columns."""
    transform: str | None = None
    """The SQL that rows go through before they are written; None: as they are."""
    keys: tuple[str, ...] = ()
    """Properties that make a row's key: the table keeps the last row of each. Empty: rows are only added."""
    history: Versioning | None = None
    """The table keeps each version of a row, closed by the next one or by a deletion; None: only the last one."""
    changes: bool = False
    """Records are changes of rows: a column that one lacks keeps its value. False: it becomes null."""
    readable: bool = False
    """Pending files can be read before their commit: a view does that."""
    hard_delete: bool | None = None
    """True: rows that the tap reports as deleted go. False: they stay, with the time of it. None: not set."""
    watched: tuple[str, ...] = ()
    """Properties that tell the tap which rows have changed: rows without one are counted."""
    masks: dict[str, str] = field(default_factory=dict)
    """As in `TableChange`."""
    window: RowWindow | None = None
    """Only these rows are loaded; where rows are only added, they replace those that the table has."""

    @property
    def row_key(self) -> tuple[str, ...]:
        """The properties by which each row of the table is there once."""
        return (*self.keys, VersionColumn.START) if self.history else self.keys

    @property
    def merges_changes(self) -> bool:
        """Whether what a record lacks is looked for: the SQL of a transform makes whole rows."""
        return self.changes and self.transform is None

    @classmethod
    def of(
        cls, pipeline: Pipeline, stream: str, folder: str, table_format: str, partition_by: Iterable[Any]
    ) -> TableLayout:
        """Take what the settings say of a stream. `partition_by` is as settings and commit log write it."""
        options = pipeline.stream(stream)
        return cls(
            folder,
            table_format,
            partition_by=tuple(Partition.read(one) for one in partition_by),
            sort_by=tuple(options.sort_by or ()),
            file_size=options.file_size or pipeline.destination.file_size,
            metadata=pipeline.metadata(stream),
            transform=options.transform,
        )
