"""Arrow's values as Python has them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Python's values, as pyarrow's `to_pylist`, but without pandas: loading it for timestamps takes half a second."""
    import pyarrow as pa

    if column.type not in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        return list(column.to_pylist())
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc if column.type.tz else None)
    ticks = column.cast(pa.int64()).to_pylist()
    return [None if tick is None else epoch + timedelta(microseconds=tick) for tick in ticks]
