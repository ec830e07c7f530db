"""The newest rows of a table, read from the end of its newest files."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bridge.errors import CorruptLake
from bridge.lake.records import TableState
from bridge.lake.storage import Storage
from bridge.read.query.values import values


def newest_rows(storage: Storage, live: TableState, limit: int) -> list[dict[str, Any]]:
    """The last rows of the newest files, newest file first."""
    rows: list[dict[str, Any]] = []
    for file in sorted(live.files, reverse=True):
        rows += _last_rows(storage, live, file, limit - len(rows))
        if len(rows) >= limit:
            break
    return rows


def _last_rows(storage: Storage, live: TableState, name: str, limit: int) -> list[dict[str, Any]]:
    """The last rows of a file, the latest first. Only their row groups are fetched."""
    key = f"{live.folder}/{name}"
    if storage.size(key) is None:
        hint = "files of the lake were moved or deleted by somebody else"
        raise CorruptLake("a file of the table is gone", hint=hint, file=f"{storage.uri}/{key}")
    rows: list[dict[str, Any]] = []
    with storage.open(key) as file, pq.ParquetFile(file) as parquet:
        columns = [column for column in parquet.schema_arrow.names if not live.hides(column)]
        for group in reversed(range(parquet.num_row_groups)):
            # Arrow's threads may still be starting when a command as short as this ends; it would abort.
            last = parquet.read_row_group(group, columns=columns, use_threads=False)
            rows += reversed(_dicts(last.slice(max(0, last.num_rows - (limit - len(rows))))))
            if len(rows) >= limit:
                break
    return rows


def _dicts(rows: pa.Table) -> list[dict[str, Any]]:
    columns = [values(column) for column in rows.columns]
    return [dict(zip(rows.column_names, row, strict=True)) for row in zip(*columns, strict=True)]
