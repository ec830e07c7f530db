"""Files of a BATCH that hold rows as Arrow: IPC files, IPC streams, Parquet. They never become JSON on the way.

A file of either kind must say where it ends: one without its end mark or footer has been cut off.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

from bridge.protocol.singer.messages import Batch, Records

_FILE_MAGIC = b"ARROW1"
_ROWS = 1 << 16


def arrow_records(batch: Batch, file: IO[bytes], *, is_parquet: bool) -> Iterator[Records]:
    """Yield a file's rows, some MiB at once. Raises `ValueError` or `pa.ArrowException` if it cannot be read."""
    # Here: Arrow takes a quarter of a second to import, which most taps do not need before their first row.
    from bridge.protocol.decode.arrow.pieces import ArrowPieces

    for rows in _parquet_batches(file) if is_parquet else _ipc_batches(file):
        for data, count in ArrowPieces.pack(rows, batch.version, batch.extracted):
            yield Records(batch.stream, data, count, None, batch)


def _parquet_batches(file: IO[bytes]) -> Iterator[Any]:
    import pyarrow.parquet as pq

    source, count = pq.ParquetFile(file), 0
    for rows in source.iter_batches(batch_size=_ROWS):
        count += rows.num_rows
        if rows.num_rows:
            yield rows
    if count != source.metadata.num_rows:
        raise ValueError(f"it has {count} rows, and its footer says {source.metadata.num_rows}")


def _ipc_batches(file: IO[bytes]) -> Iterator[Any]:
    """The record batches of an IPC file or stream.

    Not mapped into memory: a tap that cuts a file off while it is read would end this process.
    """
    import pyarrow as pa

    start = file.read(len(_FILE_MAGIC))
    file.seek(0)
    if not start:
        raise ValueError("it is empty")
    if start == _FILE_MAGIC:
        reader = pa.ipc.open_file(file)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)
        return
    source = _ToItsEnd(file)
    yield from pa.ipc.open_stream(source)
    if source.has_ended:
        raise ValueError("it has no end mark: it was cut off, or its writer was not closed")
    if file.read(1):
        raise ValueError("it goes on after its end mark")


class _ToItsEnd:
    """A file that notes that there was less to read than was asked for: Arrow takes that for the end of a stream."""

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.has_ended = file, False

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self.has_ended = self.has_ended or len(data) < size
        return data
