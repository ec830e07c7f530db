"""The column of fields outside the SCHEMA, where records are changes of rows: merged field by field.

A field that a change lacks stays as it was. Only the part of a declared column that has no column of its own goes when
the record has that column, as the record says all of it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.load.write.spill import ABSENT
from bridge.protocol.decode.coerce import column_text, parsed
from bridge.protocol.schema.json_schema import EXTRA, source


def mark_changes(rows: pa.Table) -> pa.Table:
    """Have every change take the fields that it lacks from the row before it, also one that has all columns."""
    no_columns = pa.scalar([], ABSENT.type)
    place = rows.schema.get_field_index(ABSENT.name)
    return rows.set_column(place, ABSENT, pc.coalesce(rows.column(ABSENT.name).combine_chunks(), no_columns))


def fold_extra(members: pa.Table, chain: pa.Array, ended: pa.Array, deleted: pa.Array, count: int) -> pa.Array:
    """The text of each chain after all of its members, which are in the order of messages."""
    texts: list[str | None] = [None] * count
    columns = _columns(members)
    parts = (members.column(EXTRA), members.column(ABSENT.name), deleted, chain, ended)
    for own, absent, is_deletion, number, end in zip(*(part.to_pylist() for part in parts), strict=True):
        texts[number] = None if end else _merged(texts[number], own, columns, absent, deleted=is_deletion)
    return pa.array(texts, pa.string())


def chained(rows: pa.Table, follows: Any, changes: Any) -> pa.ChunkedArray:
    """The column of rows in their order, where each of those in `changes` takes what it lacks from the row before it,
    if it follows one of its key.
    """
    texts, absent, columns = rows.column(EXTRA).to_pylist(), rows.column(ABSENT.name), _columns(rows)
    for place in np.flatnonzero(follows & changes).tolist():
        texts[place] = _merged(texts[place - 1], texts[place], columns, absent[place].as_py(), deleted=False)
    return pa.chunked_array([pa.array(texts, pa.string())])


def merge_extra(rows: pa.Table, winners: pa.Table, deleted: pa.Array, at: Any, by: Any) -> pa.ChunkedArray:
    """The winners' column, where each of the winners `by` takes what it lacks from the row in its place `at`."""
    own = np.array(winners.column(EXTRA).to_pylist(), object)
    before, columns = rows.column(EXTRA).take(pa.array(at, pa.int64())).to_pylist(), _columns(winners)
    absent = winners.column(ABSENT.name)
    for old, place in zip(before, by, strict=True):
        if old is not None:
            own[place] = _merged(old, own[place], columns, absent[place].as_py(), deleted=deleted[place].as_py())
    return pa.chunked_array([pa.array(own.tolist(), pa.string())])


def _columns(table: pa.Table) -> dict[str, str]:
    """Columns by their properties."""
    return {source(field): field.name for field in table.schema}


def _merged(
    old: str | None, new: str | None, columns: dict[str, str], absent: Collection[str] | None, *, deleted: bool
) -> str | None:
    if old is None:
        return new
    lacking = absent or ()
    fields = {
        name: value
        for name, value in parsed(old.encode()).items()
        if (deleted and absent is None) or name not in columns or columns[name] in lacking
    }
    fields |= parsed(new.encode()) if new is not None else {}
    return column_text(fields, ()) if fields else None
