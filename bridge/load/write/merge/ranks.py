"""Ranks of starts and ends: numbers that compare as the values do. `code` has a number for each key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

OPEN = -1
"""The rank of an end that has not come."""


def ranked(values: pa.Array) -> tuple[pa.Array, Any]:
    """The values in their order, each once and null first; and the number of each in that order."""
    unique = values.unique().drop_null()
    ordered = unique.take(pc.sort_indices(unique))
    ranks = pc.fill_null(pc.index_in(values, value_set=ordered), -1).to_numpy().astype(np.int64) + 1
    return pa.concat_arrays([pa.nulls(1, values.type), ordered]), ranks


def latest_before(code: Any, rank: Any, wide: int) -> Any:
    """For each row the greatest rank of a row of its key that came before it; 0 if there is none."""
    order = np.argsort(code, kind="stable")
    code, rank = code[order], rank[order]
    until = np.maximum.accumulate(code * wide + rank)
    before = np.concatenate([[0], until[:-1]])[: len(code)] - code * wide
    result = np.empty(len(code), np.int64)
    result[order] = np.maximum(before, 0)
    return result


def come_again(deletions: Any, marks: Any, before: Any) -> Any:
    """Which new rows are deletions whose key and time a deletion had before them; numbers stand for both.

    `marks`: which new rows are deletions; `before`: those that came earlier.
    """
    again = np.full(len(deletions), False)
    own = np.flatnonzero(marks)
    again[own] = True
    again[own[np.unique(deletions[own], return_index=True)[1]]] = False
    return again | (marks & np.isin(deletions, before))


def ends_by_deletion(code: Any, rank: Any, ends: Any) -> Any:
    """Which of the table's versions a deletion ended: they are not current, and none begins where they end."""
    order = np.lexsort((rank, code))
    code, rank, end = code[order], rank[order], ends[order]
    passed = np.append((code[1:] == code[:-1]) & (rank[1:] == end[:-1]), False)[: len(code)]
    result = np.empty(len(code), bool)
    result[order] = (end != OPEN) & ~passed
    return result
