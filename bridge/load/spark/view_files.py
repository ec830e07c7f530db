"""The executors' halves of a view's change: a table's files to signed rows for Spark, and Spark's groups to files."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import json

from bridge.errors import BridgeError
from bridge.load.write.context import WriteContext
from bridge.load.write.groups import write_sorted
from bridge.load.write.report import failure
from bridge.load.write.signed_file import SignedFile, open_file
from bridge.load.write.spill import CHANGE
from bridge.protocol.decode.casting import refit

SIGN = "_view_sign"
"""The column that says whether a row is added, 1, or removed, -1."""
FAILED = "singer-bridge view failed: "
"""The text in an executor's error before the report of it as JSON."""
_ROWS = 64 << 10
"""Rows read at once."""


def read_signed(pickled: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """Turn the numbers of files into their rows with these fields, and with their sign as the last column.

    `among`: by the names of some of the fields, the values outside of which rows are left out.
    """
    context, files, fields, signed, among = pickle.loads(pickled)  # noqa: S301 - the driver's
    for number in (row["id"] for batch in batches for row in batch.to_pylist()):
        try:
            for rows in rows_of(context, files[number], fields, among):
                yield rows if signed else rows.select(range(len(fields)))
        except BridgeError as error:
            raise RuntimeError(_as_text(error)) from error


def rows_of(
    context: WriteContext, one: SignedFile, fields: list[pa.Field], among: dict[str, pa.Array]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file with these fields, and with their sign; see `read_signed`."""
    names = [*(field.name for field in fields), SIGN]
    with open_file(context, one) as file:
        for table in _tables(file, one, fields):
            arrays = [_whole(column) for column in refit(table, fields).columns] if fields else []
            noted = pa.repeat(pa.scalar(one.sign, pa.int64()), len(table)) if one.sign else _whole(table.column(CHANGE))
            rows = pa.RecordBatch.from_arrays([*arrays, noted], names=names)
            for name, values in among.items():  # null is equal to null
                rows = rows.filter(pc.is_in(rows.column(name), value_set=values))
            if rows.num_rows:
                yield rows


def _tables(file: pq.ParquetFile, one: SignedFile, fields: list[pa.Field]) -> Iterator[pa.Table]:
    """The rows with those of the fields that the file has, and always with one column, which counts them."""
    existing, groups = file.schema_arrow.names, range(one.part, file.num_row_groups, one.parts)
    names = [field.name for field in fields if field.name in existing] or existing[:1]
    names += [] if one.sign else [CHANGE]
    for batch in file.iter_batches(_ROWS, row_groups=list(groups), columns=names) if groups else ():
        yield pa.Table.from_batches([batch])


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def write_groups(pickled: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """Write a view's groups, which come in the order of its keys, to pending files; yield the report of each."""
    context, name, schema, seq, reports = pickle.loads(pickled)  # noqa: S301 - the driver's
    try:
        tables = (pa.Table.from_batches([batch]).rename_columns(schema.names).cast(schema) for batch in batches)
        files = list(write_sorted(context, name, schema, seq, tables))
    except BridgeError as error:
        raise RuntimeError(_as_text(error)) from error
    columns = {"seq": [seq] * len(files), "bundle": [0] * len(files)}
    yield pa.RecordBatch.from_pydict(columns | {"report": [json.encode(one).decode() for one in files]}, reports)


def _as_text(error: BridgeError) -> str:
    """An error as text that the driver recognizes in what Spark makes of it."""
    return FAILED + json.encode(failure(error).failed).decode()
