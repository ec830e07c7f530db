"""Which rows have a key that its column does not hold as the record has it, so that two keys could become one.

A double holds 17 digits, an instant microseconds, and infinity becomes the first or the last instant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bridge.protocol.decode.coerce import parsed
from bridge.protocol.decode.columns import may_be_lossy
from bridge.protocol.decode.postgres_text import INFINITE
from bridge.protocol.schema.json_schema import TIMESTAMP

DIGITS = "a key has more digits than a double holds: declare its multipleOf, then run --full"
FRACTION = "a key has digits beyond microseconds"
INFINITY = "a key is infinite, and would become an instant that another one may have"

_LARGE = float(2**53)
"""Below this a double holds every integer."""
_FINE = re.compile(rb":[0-9]{2}[.,][0-9]{6}[0-9]*[1-9]")
_FINE_TEXT = re.compile(r":[0-9]{2}[.,][0-9]{6}[0-9]*[1-9]")
_FAR = (date(1, 1, 2), date(9999, 12, 31))
"""Before the first and from the second on an instant may have been infinity."""


def may_change(column: pa.ChunkedArray, data: bytes) -> bool:
    """False if all of these keys, which were read from these lines, are as the records have them."""
    odd, is_suspect = _tests(column)
    return bool(is_suspect and (pc.any(odd).as_py() or is_suspect(data)))


def changed_keys(table: pa.Table, names: Mapping[str, str], lines: Sequence[bytes]) -> Iterator[tuple[int, str, str]]:
    """Yield the number of each row with such a key, the property, and the reason.

    `names`: the column of each property of the key. `lines` has the line of each row. Lines are read again only where
    a value may have lost something.
    """
    for key, name in names.items():
        column = table.column(name)
        odd, is_suspect = _tests(column)
        if is_suspect is None:
            continue
        rows = set(pc.indices_nonzero(odd).to_pylist()).union(n for n, line in enumerate(lines) if is_suspect(line))
        for row in sorted(rows):
            if reason := _reason(_value(lines[row], key), column[row].as_py()):
                yield row, key, reason


def _tests(column: pa.ChunkedArray) -> tuple[Any, Callable[[bytes], bool] | None]:
    """Which values may have been another one, and what tells whether a line may hold one that lost digits."""
    if pa.types.is_floating(column.type):
        return pc.fill_null(pc.greater_equal(pc.abs(column), _LARGE), False), may_be_lossy
    if column.type == TIMESTAMP or pa.types.is_date(column.type):
        low, high = (pa.scalar(day).cast(column.type) for day in _FAR)
        return pc.fill_null(pc.or_(pc.less(column, low), pc.greater_equal(column, high)), False), _is_fine
    return None, None


def _is_fine(line: bytes) -> bool:
    return _FINE.search(line) is not None


def _value(line: bytes, key: str) -> Any:
    message = parsed(line)
    return message.get("record", message).get(key)


def _reason(value: Any, stored: Any) -> str | None:
    if isinstance(stored, float):
        return DIGITS if Decimal(value) != Decimal(repr(stored)) else None
    if not isinstance(value, str):
        return None
    if value in INFINITE:
        return INFINITY
    return FRACTION if _FINE_TEXT.search(value) else None
