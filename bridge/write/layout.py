"""What an executor needs to know of one stream's table to write its files."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.write.partition import Partition

_FILE_SIZE = 128 << 20


@dataclass(frozen=True, slots=True)
class Target:
    """Where a stream's rows go, and how. Pickled to executors."""

    folder: str
    """The table's folder in the bucket."""
    format: str = "parquet"
    """How files make a table: `parquet`, or `delta` or `iceberg`, in whose folders nothing is replaced or moved."""
    partition_by: tuple[Partition, ...] = ()
    """What the folders below the table's are named after; empty: there are none."""
    sort_by: tuple[str, ...] = ()
    """Columns that rows are sorted by within a row group, the first weighs most; `-` before one: descending."""
    file_size: int = _FILE_SIZE
    """Bytes at about which a file is closed and the next one begun."""
    metadata: bool = False
    """Whether rows get the Singer SDK's metadata columns."""
    transform: str | None = None
    """The SQL that rows go through before they are written; None: as they are."""
    keys: tuple[str, ...] = ()
    """Properties that make a row's key, of which the table is to hold the last row each; empty: rows are added."""
    changes: bool = False
    """Whether records are changes of rows: a column that one lacks stays as it was. False: it is null then."""
    hard_delete: bool | None = None
    """Whether rows that the tap says are deleted go, or stay with the time of it; None: not said."""
