"""Arrow's values as Python has them."""

from __future__ import annotations

from datetime import datetime, timezone

import pyarrow as pa

from bridge.read.query.values import cell, values


def test_times_for_which_python_has_no_value() -> None:
    """A window of the last hour of the year 9999 ends after it: that is text, and no error."""
    ticks = [253402300800 * 10**6, 253402300799 * 10**6, None, -62135596801 * 10**6]
    column = pa.chunked_array(
        [pa.array(ticks[:2], pa.timestamp("us", "UTC")), pa.array(ticks[2:], pa.timestamp("us", "UTC"))]
    )
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc)
    texts = ["10000-01-01 00:00:00.000000Z", last, None, "0000-12-31 23:59:59.000000Z"]
    assert values(column) == texts
    assert cell(values(column)[0]) == texts[0]
    assert values(pa.array([0], pa.timestamp("us"))) == [datetime(1970, 1, 1)]
