"""Rewrites files that cannot be read beside their table's newest columns: one new file for each, row for row.

Guarantee: memory holds a row group, however large the file; nothing is visible before the commit that names the new
files. In plain Parquet a live file keeps its name, so a reader who lists the folder sees each row once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct, convert, structs

from bridge.errors import DataError, LakeError
from bridge.lake.file_records import FileAdd, PendingFile
from bridge.lake.log import add_of
from bridge.lake.records import TableState
from bridge.lake.schemas import read_schema
from bridge.lake.storage import Add, Storage
from bridge.load.spool.folder import SpoolFolder
from bridge.load.write.context import MapOnExecutors, WriteContext
from bridge.load.write.file import File
from bridge.load.write.layout import TableLayout
from bridge.load.write.partition import partitioned
from bridge.load.write.report import RowChanges
from bridge.load.write.validation import spooled_schema
from bridge.protocol.decode.casting import refit
from bridge.protocol.schema.table_schema import TableSchema
from bridge.protocol.schema.widening import stands_beside

_UPLOADS = (
    "the bucket holds the older rows as uploads, which nobody can read before a commit. Set the stream's "
    "on_type_change to variant, or commit before the change: a lower commit.every or commit.bytes"
)
REWRITTEN = 16 << 20
"""Bytes of files that one core rewrites in about the time that a job of Spark takes."""
_ROW_GROUP = 64 << 20
"""Arrow bytes of a row group, at most."""
_ROWS = 64 << 10
"""Rows read at once."""


@dataclass(frozen=True, slots=True)
class Older:
    """A file to rewrite. `name` is its name in the table, `key` is where its bytes are now."""

    stream: str
    name: str
    key: str
    rows: int
    size: int
    schema: bytes
    """The table's newest columns as JSON."""
    live: bool


def outdated(older: TableSchema, newer: TableSchema, layout: TableLayout) -> bool:
    """Whether files with the older columns have to be rewritten for a table with the newer ones."""
    return not stands_beside(_struct(older.arrow), _struct(newer.arrow), strict=layout.format != "parquet")


def _check_folders(stream: str, older: TableSchema, newer: TableSchema, layout: TableLayout) -> None:
    """Raise `DataError` if a column that names folders changes its type: the folders would keep the old values."""
    for partition in layout.partition_by:
        name = partition.column
        both = name in older.arrow.names and name in newer.arrow.names
        if both and older.arrow.field(name).type != newer.arrow.field(name).type:
            hint = "keep its type in the tap's settings or catalog, or load the table anew with --full"
            raise DataError("a column that names folders changes its type", hint=hint, stream=stream, column=name)


def _struct(schema: pa.Schema) -> pa.StructType:
    return pa.struct(list(schema))


class Rewriting:
    """Finds out what a run's next commit has to rewrite, and has it done by `each`."""

    def __init__(self, storage: Storage, context: WriteContext, each: MapOnExecutors) -> None:
        self._storage, self._context, self._each = storage, context, each
        self._older: dict[str, dict[str, TableSchema]] = {}
        self._replaced: list[Add] = []

    def note(self, stream: str, name: str) -> None:
        """Remember the columns of a stream's pending files, by their name in the spool."""
        columns = self._older.setdefault(stream, {})
        if name not in columns:
            columns[name] = spooled_schema(SpoolFolder(self._context.spool), name)

    def adopt(self, stream: str, name: str) -> None:
        """Remember the columns of an earlier run's staged files, by their name in the bucket."""
        self._older.setdefault(stream, {})[name] = read_schema(self._storage, self._context.pipeline, name)

    def pending(self, stream: str, files: list[PendingFile], schema: TableSchema) -> list[PendingFile]:
        """A stream's pending files, rewritten where they cannot be read beside the columns of the next commit.

        Raises `DataError` for one that nobody can read yet.
        """
        layout, fitting = self._context.layouts[stream], schema.types
        old = [file for file in files if file.columns != fitting]
        if not old:
            return files
        before = self._older.get(stream, {}).values()  # a transform's columns are not those that were read
        if layout.transform is None and not any(outdated(older, schema, layout) for older in before):
            return files
        for older in before:
            _check_folders(stream, older, schema, layout)
        if any(file.upload for file in old):
            raise DataError("a column changed its type between two commits", hint=_UPLOADS, stream=stream)
        text = schema.to_json()
        work = [Older(stream, file.name, file.source, file.rows, file.size, text, live=False) for file in old]
        new = {older.name: file for older, file in self._rewrite(work) if file}
        self._replaced += [add_of(layout.folder, file) for file in old if file.name in new]
        marks = {file.name: {"version": file.version, "columns": fitting, "unknown": file.unknown} for file in files}
        return [structs.replace(new.get(file.name, file), **marks[file.name]) for file in files]

    def live(
        self, stream: str, table: TableState, schema: TableSchema, replaced: Collection[str]
    ) -> tuple[list[FileAdd], list[RowChanges]]:
        """The files that a commit adds so that live files fit the new columns, and which file each of them replaces.

        Files in `replaced` go anyway.
        """
        if not table.files or table.schema in (None, schema.hash):
            return [], []
        older = read_schema(self._storage, self._context.pipeline, table.schema)
        if not outdated(older, schema, self._context.layouts[stream]):
            return [], []
        if set(table.files) - set(replaced):
            _check_folders(stream, older, schema, self._context.layouts[stream])
        text, folder = schema.to_json(), table.folder
        work = [
            Older(stream, name, f"{folder}/{name}", file.rows, file.size, text, live=True)
            for name, file in table.files.items()
            if name not in replaced
        ]
        new = [(table.files[older.name], older.name, file) for older, file in self._rewrite(work) if file]
        adds = [file.add(old.version, deleted=old.deleted, stale=old.stale, rewritten=True) for old, _, file in new]
        return adds, [RowChanges(name, file.name) for _, name, file in new]

    def _rewrite(self, work: list[Older]) -> list[tuple[Older, PendingFile | None]]:
        cost = sum(older.size for older in work) / REWRITTEN
        reports = convert(self._each(rewrite, work, cost=cost), list[Rewritten])
        return [(older, report.file) for older, report in zip(work, reports, strict=True)]

    def committed(self) -> None:
        """Delete the pending files that others replace. Best effort: the next run looks for them again."""
        with suppress(LakeError):
            while self._replaced:
                self._storage.abort(self._replaced.pop())


class Rewritten(Struct, frozen=True):
    """The new file, None where the old one can stay."""

    file: PendingFile | None


def rewrite(context: WriteContext, older: Older) -> Rewritten:
    """Rewrite a file with newer columns. Raises `DataError` for a value that would be lost."""
    layout, storage = context.layouts[older.stream], context.storage()
    newest = TableSchema.from_json(older.schema).arrow
    in_place = older.live and layout.format == "parquet"
    with storage.open(older.key) as source, pq.ParquetFile(source) as file:
        old = file.schema_arrow
        columns = pa.schema([newest.field(name) if name in newest.names else old.field(name) for name in old.names])
        if stands_beside(_struct(old), _struct(columns), strict=layout.format != "parquet"):
            return Rewritten(None)
        folder, over = older.name.rpartition("/")[0], older.name if in_place else None
        new = File(storage, context, 0, older.stream, columns, folder, over=over)
        try:
            for rows in _row_groups(file):
                table = refit(rows, list(columns))
                new.write(partitioned(table, (), layout.sort_by)[0][1] if layout.sort_by else table)
        except DataError:
            new.give_up(storage)
            raise
    new.finish()
    pending = new.close()
    if pending.rows != older.rows:
        hint = "it is not the file that was committed: `verify` says what else is wrong"
        raise LakeError("a file of the table has other rows", hint=hint, file=older.key, rows=older.rows)
    return Rewritten(pending)


def _row_groups(file: pq.ParquetFile) -> Iterator[pa.Table]:
    """Yield the rows, never of two row groups at once, so that they stay sorted within one."""
    for group in range(file.num_row_groups):
        gathered: list[pa.RecordBatch] = []
        size = 0
        for batch in file.iter_batches(_ROWS, row_groups=[group]):
            gathered.append(batch)
            size += batch.nbytes
            if size >= _ROW_GROUP:
                yield pa.Table.from_batches(gathered)
                gathered, size = [], 0
        if gathered:
            yield pa.Table.from_batches(gathered)
