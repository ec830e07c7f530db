"""What the settings say about files: each wrong value is refused, with what to write."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from bridge.settings.destination import Destination, StreamKeys


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"partition_by": "day"}, "not a list of columns"),
        ({"partition_by": [1]}, "not a column to partition by"),
        ({"partition_by": [{"column": "at"}]}, "has a column and a granularity"),
        ({"partition_by": [{"column": "at", "granularity": "week"}]}, "not a granularity"),
        ({"partition_by": ["a", "b", "a"]}, "once only"),
        ({"file_size": "1KiB"}, "greater than or equal"),
        ({"compression_level": 23}, "no such level"),
        ({"compression": "gzip", "compression_level": 10}, "no such level"),
        ({"compression": "snappy", "compression_level": 1}, "no such level"),
        ({"compression_level": 0}, "greater than or equal"),
    ],
)
def test_wrong(said: dict[str, Any], error: str) -> None:
    """A layout that cannot be is refused when the settings are read."""
    with pytest.raises(ValidationError, match=error):
        Destination(bucket="/lake", **said)


def test_right() -> None:
    """Columns and granularities, a level that the codec has, and an order of columns are taken as they are."""
    by: list[Any] = ["country", {"column": "at", "granularity": "hour"}]
    said = Destination(bucket="/lake", partition_by=by, compression="gzip", compression_level=9, file_size=1 << 20)
    assert said.partition_by == by
    assert StreamKeys(sort_by=["-at", "id"]).sort_by == ["-at", "id"]
    with pytest.raises(ValidationError, match="sorts once only"):
        StreamKeys(sort_by=["-at", "at"])
