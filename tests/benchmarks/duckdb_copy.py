"""DuckDB on its own: one COPY of the RECORD lines, with the columns named, into one Parquet file a piece.

A program: `duckdb_copy.py OUT PIECE...`. It checks nothing that a line does not break, and keeps no STATE.
"""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb

_COLUMNS = """STRUCT(
    id BIGINT, account_id BIGINT, name VARCHAR, email VARCHAR, status VARCHAR, amount DOUBLE, active BOOLEAN,
    updated_at TIMESTAMP, address STRUCT(street VARCHAR, city VARCHAR, country VARCHAR, postcode VARCHAR),
    tags VARCHAR[], note VARCHAR
)"""


def main(arguments: list[str]) -> None:
    """Write one Parquet file a piece."""
    out, *pieces = arguments
    for number, piece in enumerate(pieces):
        read = f"read_json($piece, format = 'newline_delimited', columns = {{record: $${_COLUMNS}$$}})"
        copy = f"COPY (SELECT record.* FROM {read}) TO '{Path(out) / str(number)}.parquet' (COMPRESSION zstd)"
        duckdb.execute(copy, {"piece": piece})


if __name__ == "__main__":
    main(sys.argv[1:])
