"""How the rows of a Parquet file are sorted, as our files note it in their metadata.

Parquet's own `sorting_columns` are not used: those of files that an older version merged by key may be wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

_KEY = b"singer-bridge.sort_by"
"""The note's name among a Parquet file's metadata. Its value is JSON: the setting `sort_by`."""


def order_note(sort_by: Sequence[str]) -> dict[bytes, bytes]:
    """The note to keep in a file whose row groups are sorted so; empty without an order."""
    return {_KEY: orjson.dumps(list(sort_by))} if sort_by else {}


def read_order(metadata: dict[bytes, bytes] | None) -> tuple[str, ...]:
    """The order within each row group of a file; empty without a note. Raises `ValueError` for one that is not ours."""
    order = orjson.loads((metadata or {}).get(_KEY, b"[]"))
    if not isinstance(order, list) or not all(isinstance(one, str) for one in order):
        raise ValueError("not an order")
    return tuple(order)
