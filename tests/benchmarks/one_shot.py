"""The limit: what pyarrow alone needs for the same lines. A program: `one_shot.py OUT PIECE...`.

It stores the columns of `record`, as every other system does. Schema by inference, all threads, zstd, no checks, no
STATE, no resumption: nothing that keeps a promise can be expected to be faster. A piece is read in one shot and freed
before the next.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq


def main(arguments: list[str]) -> None:
    """Writes one Parquet file a piece."""
    out, *pieces = arguments
    for number, piece in enumerate(pieces):
        table = columns_of(pj.read_json(piece), "record")
        pq.write_table(table, Path(out) / f"{number}.parquet", compression="zstd")


def columns_of(table: pa.Table, name: str) -> pa.Table:
    """The fields of one struct column as a table; no buffer is copied."""
    chunks = [pa.RecordBatch.from_struct_array(chunk) for chunk in table.column(name).chunks]
    return pa.Table.from_batches(chunks)


if __name__ == "__main__":
    main(sys.argv[1:])
