"""Rows of one table into pending files: by partition, sorted, in row groups and files of the right size.

Guarantee: however many partitions the rows have, memory holds about twice `ROW_GROUP` of them, and at most `_OPEN`
files are open at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from bridge.lake.storage import Storage
from bridge.load.write.context import WriteContext
from bridge.load.write.file import File
from bridge.load.write.keys import row_numbers
from bridge.load.write.partition import partitioned, shared_folder

ROW_GROUP = 64 << 20
"""Arrow bytes of a row group: large enough for readers, small enough for a worker's memory."""
_WORTH = ROW_GROUP // 16
"""Arrow bytes of a partition that are worth a row group of their own while more rows may come."""
_ABOUT = 1.01
"""A row group may be so many times as large: rows differ in size, and what is left would be a row group of its own."""
_OPEN = 16
"""Files that may be open: each holds buffers, and in a bucket an upload."""
_FULL = 0.9
"""A file is full at this part of its size: with one more row group it would be further from it."""


@dataclass(slots=True)
class _OpenFile:
    """A file that may get more row groups."""

    file: File
    arrow: int = 0
    """Bytes that its rows took in memory."""

    def room(self, file_size: int) -> int:
        """How many Arrow bytes the next row group may have."""
        written = self.file.size
        if not self.arrow:
            return min(ROW_GROUP, file_size)
        return min(ROW_GROUP, max(int((file_size - written) * self.arrow / max(written, 1)), 1))


@dataclass(slots=True)
class Writer:
    """Writes rows of one stream and one schema. `on_written` gets each file with all its rows, to finish it."""

    storage: Storage
    context: WriteContext
    seq: int
    stream: str
    schema: pa.Schema
    on_written: Callable[[File], None]
    folders: set[str] = field(default_factory=set)
    """Those with rows."""
    _gathered: list[pa.Table] = field(default_factory=list)
    _bytes: int = 0
    _files: dict[str, _OpenFile] = field(default_factory=dict)
    """By folder, as `partitioned` names it; the one written to last comes last."""

    def add(self, table: pa.Table) -> None:
        """Write rows; what is too little for a row group waits in memory."""
        while table.num_rows:
            part = _head(table, ROW_GROUP)
            table = table.slice(part.num_rows)
            if self._bytes + part.nbytes > _ABOUT * ROW_GROUP:
                self._flush(last=False)  # with this part it would be a row group, and a sliver that readers pay for
            self._gathered.append(part)
            self._bytes += part.nbytes
            if self._bytes >= ROW_GROUP:
                self._flush(last=False)

    def finish(self) -> None:
        self._flush(last=True)
        for folder in list(self._files):
            self._close(folder)

    def _flush(self, *, last: bool) -> None:
        """Write what was gathered. While more may come, small partitions wait, up to half of a row group in all."""
        if not self._gathered:
            return
        layout = self.context.layouts[self.stream]
        # Iceberg's metadata has one value of each partition for a file
        rows, one_value = pa.concat_tables(self._gathered), layout.format == "iceberg"
        parts = partitioned(rows, layout.partition_by, layout.sort_by, one_value=one_value)
        self._gathered, self._bytes = [], 0
        waiting: list[pa.Table] = []
        waits = 0
        for folder, part in sorted(parts, key=lambda one: one[1].nbytes):
            size = part.nbytes
            if not last and len(parts) > 1 and size < _WORTH and waits + size <= ROW_GROUP // 2:
                waiting.append(part)
                waits += size
            else:
                self._write(folder, part)
        if waiting:  # as a copy: slices would keep all of the rest in memory
            rest = pa.concat_tables(waiting)
            self._gathered, self._bytes = [rest.take(row_numbers(rest.num_rows))], waits

    def _write(self, folder: str, table: pa.Table) -> None:
        size = self.context.layouts[self.stream].file_size
        self.folders.add(shared_folder(folder))
        while table.num_rows:
            current = self._open(folder)
            part = _head(table, current.room(size))
            current.file.write(part)
            current.arrow += part.nbytes
            table = table.slice(part.num_rows)
            if current.file.size >= _FULL * size:
                self._close(folder)

    def _open(self, folder: str) -> _OpenFile:
        current = self._files.pop(folder, None)
        if current is None:
            if len(self._files) == _OPEN:
                self._close(next(iter(self._files)))
            current = _OpenFile(self._new_file(shared_folder(folder)))
        self._files[folder] = current
        return current

    def _new_file(self, folder: str) -> File:
        return File(self.storage, self.context, self.seq, self.stream, self.schema, folder)

    def _close(self, folder: str) -> None:
        self.on_written(self._files.pop(folder).file)


def _head(table: pa.Table, limit: int) -> pa.Table:
    """The first rows, of about `limit` bytes, but at least one."""
    size = table.nbytes
    return table if size <= limit * _ABOUT else table.slice(0, max(table.num_rows * limit // size, 1))
