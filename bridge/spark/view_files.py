"""The executors' halves of a view's change: a table's files to signed rows for Spark, and Spark's groups to files."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import json

from bridge.decode.casting import refit
from bridge.errors import BridgeError, LakeError
from bridge.lake.records import PendingFile
from bridge.write.context import WriteContext
from bridge.write.file import File
from bridge.write.report import failure

SIGN = "_view_sign"
"""The column that says whether a row is added, 1, or removed, -1."""
FAILED = "singer-bridge view failed: "
"""What the text of an executor's error has before the report of it as JSON."""
GROUP_ROWS = 64 << 10
"""Rows of a row group, so that a look-up of few keys reads little."""
_ROWS = 64 << 10
"""Rows read at once."""


@dataclass(frozen=True, slots=True)
class SignedFile:
    """A file of a table, pending or visible: its key, its rows, and whether these are added, 1, or removed, -1.

    `rows` is None where any number will do.
    """

    key: str
    size: int
    rows: int | None
    sign: int = 1


def read_signed(pickled: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """Turn the numbers of files into their rows with these fields, and with the file's sign as the last column."""
    context, files, fields, signed = pickle.loads(pickled)  # noqa: S301 - the driver's
    storage = context.storage()
    for number in (row["id"] for batch in batches for row in batch.to_pylist()):
        try:
            yield from _rows(storage, files[number], fields, signed=signed)
        except BridgeError as error:
            raise RuntimeError(_as_text(error)) from error


def _rows(storage: Any, one: SignedFile, fields: list[pa.Field], *, signed: bool) -> Iterator[pa.RecordBatch]:
    hint = "nothing was committed; `singer-bridge verify` says what else is wrong"
    try:
        with storage.open(one.key) as source, pq.ParquetFile(source) as file:
            if one.rows is not None and file.metadata.num_rows != one.rows:
                rows = file.metadata.num_rows
                raise LakeError("a file is not the one on record", hint=hint, file=one.key, rows=rows, wanted=one.rows)
            for table in _tables(file, fields):
                arrays = [_whole(column) for column in refit(table, fields).columns] if fields else []
                names = [field.name for field in fields]
                if signed:
                    arrays.append(pa.repeat(pa.scalar(one.sign, pa.int64()), table.num_rows))
                    names.append(SIGN)
                yield pa.RecordBatch.from_arrays(arrays, names=names)
    except (pa.ArrowInvalid, OSError) as error:
        raise LakeError("a file of the table cannot be read", hint=hint, file=one.key, cause=error) from error


def _tables(file: pq.ParquetFile, fields: list[pa.Field]) -> Iterator[pa.Table]:
    """The rows with those of the fields that the file has, and always with one column, which counts them."""
    existing = file.schema_arrow.names
    names = [field.name for field in fields if field.name in existing] or existing[:1]
    for batch in file.iter_batches(_ROWS, columns=names):
        yield pa.Table.from_batches([batch])


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def write_groups(pickled: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """Write a view's groups, which come in the order of its keys, to pending files; yield the report of each."""
    context, name, schema, seq, reports = pickle.loads(pickled)  # noqa: S301 - the driver's
    try:
        files = list(_written(context, name, schema, seq, batches))
    except BridgeError as error:
        raise RuntimeError(_as_text(error)) from error
    columns = {"seq": [seq] * len(files), "bundle": [0] * len(files)}
    yield pa.RecordBatch.from_pydict(columns | {"report": [json.encode(one).decode() for one in files]}, reports)


def _written(
    context: WriteContext, name: str, schema: pa.Schema, seq: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[PendingFile]:
    file: File | None = None
    storage, size = context.storage(), context.layouts[name].file_size
    for rows in _row_groups(batches, schema):
        file = file or File(storage, context, seq, name, schema)
        try:
            file.write(rows)
        except BaseException:
            file.give_up(storage)
            raise
        if file.size >= size:
            yield _closed(file)
            file = None
    if file:
        yield _closed(file)


def _closed(file: File) -> PendingFile:
    file.finish()
    return file.close()


def _row_groups(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    gathered, rows = list[pa.Table](), 0
    for batch in batches:
        table = pa.Table.from_batches([batch]).rename_columns(schema.names).cast(schema)
        while table.num_rows:
            part = table.slice(0, GROUP_ROWS - rows)
            table = table.slice(part.num_rows)
            gathered.append(part)
            rows += part.num_rows
            if rows == GROUP_ROWS:
                yield pa.concat_tables(gathered).combine_chunks()
                gathered, rows = [], 0
    if gathered:
        yield pa.concat_tables(gathered).combine_chunks()


def _as_text(error: BridgeError) -> str:
    """An error as text that the driver recognizes in what Spark makes of it."""
    return FAILED + json.encode(failure(error).failed).decode()
