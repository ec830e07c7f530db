"""One pending Parquet file: durable once closed, visible to no reader."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import structs

from bridge.errors import LakeError
from bridge.lake.file_records import PendingFile
from bridge.lake.formats.file_notes import MissingStats, order_note
from bridge.lake.formats.footer import FooterSink
from bridge.lake.paths import PENDING, file_name, pipeline_key
from bridge.lake.storage import Add, Storage
from bridge.load.write.context import WriteContext
from bridge.load.write.encoding import encodings
from bridge.load.write.partition import sort_keys
from bridge.protocol.schema.json_schema import EXTRA
from bridge.protocol.schema.table_schema import TableSchema


class File:
    """A pending file, written a row group at a time.

    `folder`: Hive's folders of its rows, below the table's; empty without partitions. `over`: the visible file that
    it replaces, under whose name it is published.
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
        part = file_name(context.generation, seq)
        self.name = over or (f"{folder}/{part}" if folder else part)
        self._source = pipeline_key(context.pipeline, "pending", f"{part}{PENDING}")
        key = f"{layout.folder}/{self.name}"
        self._file = storage.open_pending(self._source, key, over=over is not None, readable=layout.readable)
        self._context, self._missing, self._sink = context, MissingStats(), FooterSink(self._file)
        self._parquet: pq.ParquetWriter | None = None

    def _writer(self, first: pa.Table) -> pq.ParquetWriter:
        """The writer of row groups, of which this is the first."""
        if self._parquet is None:
            layout = self._context.layouts[self.stream]
            ordering = [key for key in sort_keys(layout.sort_by) if key[0] in self.schema.names]
            self._parquet = pq.ParquetWriter(
                self._sink,
                self.schema,
                sorting_columns=pq.SortingColumn.from_ordering(self.schema, ordering) if ordering else None,
                **encodings(first, layout.format, self._context),
            )
        return self._parquet

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._file.tell()

    def write(self, table: pa.Table) -> None:
        """Add a row group; its rows are sorted if the table's are."""
        self._writer(table).write_table(table, row_group_size=max(table.num_rows, 1))
        self._sink.add_row_group(self._missing.observe(table))
        self.rows += table.num_rows

    def finish(self, version: int | None = None) -> None:
        """Write the footer. `version`: that of all rows, where no column has it."""
        writer = self._writer(self.schema.empty_table())
        note = self._missing.to_metadata() | order_note(self._context.layouts[self.stream].sort_by)
        if note:
            writer.add_key_value_metadata(note)
        self._sink.finish(writer.close)
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
        """Delete it, best effort: a later run looks for it again."""
        for close in (self._parquet and self._parquet.close, self._file.close):
            with suppress(LakeError, OSError, ValueError):  # what could not be written cannot be flushed, either
                if close:
                    close()
        with suppress(LakeError):
            storage.abort(Add(self._source, f"{self._folder}/{self.name}", 0, self._file.upload))

    def close(self) -> PendingFile:
        """Make it durable, after `finish`."""
        self._file.close()
        return structs.replace(self._pending, upload=self._file.upload)
