"""One Parquet file that no reader sees yet."""

from __future__ import annotations

import uuid
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import structs

from bridge.errors import LakeError
from bridge.lake.formats.delta.unsaid import Unsaid
from bridge.lake.log import meta
from bridge.lake.records import PendingFile
from bridge.schema.table_schema import EXTRA, TableSchema
from bridge.storage import Add, Storage
from bridge.write.context import WriteContext
from bridge.write.partition import sort_keys


class File:
    """A pending file that is being written, a row group at a time.

    Its name, below the table's folder, begins with `folder`: Hive's folders of its rows, or nothing. It is `over`
    where it is to replace the file of that name.
    """

    def __init__(
        self,
        storage: Storage,
        context: WriteContext,
        seq: int,
        stream: str,
        schema: pa.Schema,
        folder: str = "",
        *,
        over: str | None = None,
    ) -> None:
        self.stream, self.schema, self.rows = stream, schema, 0
        layout = context.layouts[stream]
        self._folder = layout.folder
        part = f"part-{context.generation:010d}-{seq:06d}-{uuid.uuid4().hex}.parquet"
        self.name = over or (f"{folder}/{part}" if folder else part)
        self._source = meta(context.pipeline, "pending", f"{part}.pending")
        self._file = storage.open_pending(self._source, f"{layout.folder}/{self.name}", over=over is not None)
        order = pq.SortingColumn.from_ordering(schema, sort_keys(layout.sort_by)) if layout.sort_by else None
        self._writer = pq.ParquetWriter(
            self._file,
            schema,
            compression=context.compression,
            compression_level=context.level,
            sorting_columns=order,
        )
        self._unsaid = Unsaid()

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._file.tell()

    def write(self, table: pa.Table) -> None:
        """Add a row group; its rows are sorted if the table's are."""
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self._unsaid.observe(table)
        self.rows += table.num_rows

    def finish(self, version: int | None = None) -> None:
        """Write what is left. `version` is the one of all rows, where no column has it."""
        if note := self._unsaid.to_metadata():
            self._writer.add_key_value_metadata(note)
        self._writer.close()
        self._pending = PendingFile(
            stream=self.stream,
            name=self.name,
            source=self._source,
            size=self.size,
            rows=self.rows,
            extra=EXTRA in self.schema.names,
            columns=TableSchema(self.schema).types,
            version=version,
        )

    def give_up(self, storage: Storage) -> None:
        """Have it be gone, as far as that can be done: a later run looks for it again."""
        with suppress(LakeError, OSError, ValueError):
            self._writer.close()
            self._file.close()
            storage.abort(Add(self._source, f"{self._folder}/{self.name}", self.size, self._file.upload))

    def close(self) -> PendingFile:
        """Make it durable after `finish`, and say what a commit has to know of it."""
        self._file.close()
        return structs.replace(self._pending, upload=self._file.upload)
