"""The key that a table has after a commit: the columns by which each of its rows is there once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from bridge.lake.records import TableState
from bridge.lake.storage import Storage
from bridge.load.write.keys import key_columns, keys_of

_MOST_ROWS = 5_000_000
"""The largest table whose keys we read: a larger one has none until it is loaded anew."""


def key_after(
    storage: Storage, table: TableState, columns: pa.Schema, keys: Sequence[str], *, anew: bool
) -> tuple[str, ...]:
    """The key's columns after rows are merged by `keys` into a table with these columns; none if that is not certain.

    `anew`: no row of before stays. Rows that came under no key, another key, or an older version may be there twice:
    so may those of a narrower key, as rows older than a new key column match none. Their keys are read once, when the
    table's key changes.
    """
    names = tuple(key_columns(columns, keys)) if keys else ()
    if not names or anew or not table.rows:
        return names
    if table.upserts and (not table.key or set(table.key) == set(names)):
        return names if table.key else ()
    fields = [columns.field(name) for name in names]
    return names if table.rows <= _MOST_ROWS and _are_unique(storage, table, fields) else ()


def _are_unique(storage: Storage, table: TableState, fields: Sequence[pa.Field]) -> bool:
    rows = pa.concat_tables(_keys(storage, table, fields))
    return bool(rows.group_by(rows.column_names).aggregate([]).num_rows == len(rows))


def _keys(storage: Storage, table: TableState, fields: Sequence[pa.Field]) -> Iterator[pa.Table]:
    names = {field.name for field in fields}
    for file in table.files:
        with storage.open(f"{table.folder}/{file}") as opened, pq.ParquetFile(opened) as parquet:
            for group in range(parquet.num_row_groups):
                present = [name for name in parquet.schema_arrow.names if name in names]
                rows = parquet.read_row_group(group, columns=present)
                if present:
                    yield keys_of(rows, fields)
                else:
                    yield keys_of(pa.table({fields[0].name: pa.nulls(rows.num_rows, fields[0].type)}), fields)
