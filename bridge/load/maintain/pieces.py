"""Files of a table, written anew into other files of it: as few as possible, or without some of their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bridge.errors import EngineError, LakeError
from bridge.lake.commit.committer import Committer
from bridge.lake.file_records import FileAdd
from bridge.lake.log import Log
from bridge.lake.records import TableState
from bridge.lake.schemas import read_schema
from bridge.lake.storage import Storage
from bridge.lake.storage.parallel import parallel_map
from bridge.load.write.context import WriteContext
from bridge.load.write.file import File
from bridge.load.write.writer import Writer
from bridge.protocol.decode.casting import refit
from bridge.protocol.schema.table_schema import TableSchema

_ROWS = 64 << 10
"""Rows read at once."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Files in one folder of a table, to be merged into fewer.

    `folder` is the Hive part of their names, `size` their bytes.

    All have the same `version`, `deleted` and `stale`; see `LiveFile`. `lacking`: the columns of the key that none has.
    """

    stream: str
    folder: str
    names: tuple[str, ...]
    size: int
    rows: int
    version: int | None
    deleted: int
    stale: int
    lacking: tuple[str, ...] = ()


def lacking_columns(log: Log, table: TableState, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """By name the columns of the table's key that a file lacks, as its rows are older: no merge may match them.

    Where nobody knows the key of a merged table, each column may be of it.
    """
    if table.upserts is False or table.schema is None:
        return dict.fromkeys(names, ())
    key = table.key or tuple(read_schema(log.storage, log.pipeline, table.schema).arrow.names)

    def of(name: str) -> tuple[str, ...]:
        try:
            with log.storage.open(f"{table.folder}/{name}") as source, pq.ParquetFile(source) as file:
                return tuple(column for column in key if column not in file.schema_arrow.names)
        except (LakeError, pa.ArrowInvalid, OSError):  # who joins the file says what is wrong with it
            return ()

    return dict(zip(names, parallel_map(log.storage, of, list(names)), strict=True))


def columns_of_table(committer: Committer, table: TableState) -> TableSchema:
    """The columns of a table with files. Raises `LakeError` if the log does not have them."""
    if table.schema is None:
        raise LakeError("a table with files has no columns on record", hint="`verify` says more", folder=table.folder)
    return read_schema(committer.storage, committer.log.pipeline, table.schema)


def merge(
    context: WriteContext, seq: int, piece: Piece, columns: TableSchema, stays: Callable[[pa.Table], Any] | None = None
) -> list[FileAdd]:
    """Rewrite a piece's rows and return the new files. Memory holds about two row groups.

    `stays`: whether each row of a table stays, as booleans; then `rows` of the piece are those that do. Raises
    `EngineError` if the rows are not as many as they have to be.
    """
    storage = context.storage()
    written: list[FileAdd] = []

    def close(file: File) -> None:
        file.finish(piece.version)
        written.append(file.close().add(deleted=piece.deleted, stale=piece.stale))

    fields = [field for field in columns.arrow if field.name not in piece.lacking]
    writer = Writer(storage, context, seq, piece.stream, pa.schema(fields), close)
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as reader:
        for rows in _ahead(_rows(storage, context.layouts[piece.stream].folder, piece, fields), reader):
            writer.add(rows if stays is None else rows.filter(stays(rows)))
    writer.finish()
    if (rows := sum(add.rows for add in written)) != piece.rows:
        hint = "nothing was changed; `singer-bridge verify` says which file is not the one that was committed"
        raise EngineError("files do not have the rows on record", hint=hint, stream=piece.stream, rows=rows)
    return written


def _rows(storage: Storage, folder: str, piece: Piece, fields: Sequence[pa.Field]) -> Iterator[pa.Table]:
    """A piece's rows, with these columns."""
    for name in piece.names:
        key = f"{folder}/{name}"
        try:
            with storage.open(key) as source, pq.ParquetFile(source) as file:
                for batch in file.iter_batches(_ROWS):
                    yield refit(pa.Table.from_batches([batch]), fields)
        except (pa.ArrowInvalid, OSError) as error:
            hint = "nothing was changed; `singer-bridge verify` says what else is wrong"
            raise LakeError("a file of the table cannot be read", hint=hint, file=key, cause=error) from error


def _ahead(rows: Iterator[pa.Table], reader: ThreadPoolExecutor) -> Iterator[pa.Table]:
    """Yield each batch while a thread reads the next one, so that reading and writing each use a core."""
    coming = reader.submit(next, rows, None)
    while (batch := coming.result()) is not None:
        coming = reader.submit(next, rows, None)
        yield batch
