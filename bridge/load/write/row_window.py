"""Which rows lie in a window of their replication key: `run --backfill` loads these, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bridge.errors import DataError
from bridge.protocol.decode.instants import moments
from bridge.protocol.schema.json_schema import TIMESTAMP, source
from bridge.settings.values.window import Window

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

    def mask(self, rows: pa.Table) -> Any:
        """Whether each row lies in the window; a row without a value does not.

        Raises `DataError` for values that are not of the window's kind.
        """
        names = self.columns(rows.schema)
        if not names:
            hint = "its transform or its settings leave it out: keep the column, or load the stream by --full"
            raise DataError("the table has no column of the replication key", hint=hint, column=self.property)
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
