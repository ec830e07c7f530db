"""Counts values that their columns cannot give back: digits that a double loses, instants that are cut or moved.

The answer follows from the lines alone. Lines whose bytes show that nothing was lost are not
parsed again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bridge.protocol.decode.coerce import RecordRejected, parsed
from bridge.protocol.decode.instants import timestamp_of
from bridge.protocol.decode.postgres_text import INFINITE, array_items
from bridge.protocol.schema.json_schema import TIMESTAMP, children, is_json, path_of, source
from bridge.protocol.schema.valid import MAX_DIGITS

LOST_DIGITS, CHANGED_VALUES, DELETION_TIME = "lost_digits", "changed_values", "deletion_time"
"""Numbers that a double does not hold; values that became others: cut, moved into a range, or null; deletions whose
mark is no time."""
BAD_TIME = "bad_time"
"""Texts that are no time, and became null because the stream's `on_bad_time` says so."""
NULL_KEY = "null_replication_key"
"""Rows without a value in the column that tells which rows have changed."""
KINDS = {pa.float64(): LOST_DIGITS, TIMESTAMP: CHANGED_VALUES, pa.date32(): CHANGED_VALUES}
"""The way in which values of each type may change when they are stored."""

Changed = Counter[tuple[str, str]]
"""How many values, by kind and column; a column inside of another one has a dotted name."""

_AS_ZERO = bytes.maketrans(b"0123456789.E", b"00000000000e")
_LONG, _TINY = b"0" * 16, b"e-000"
"""15 digits lose nothing, but where an exponent is beyond the least double."""
_LONG_TOKEN = re.compile(rb"[:,\[{\"\s][-+]?([0-9][0-9.]{15,}(?:[eE][-+]?[0-9]+)?)")
_TOKEN = re.compile(rb"([0-9][0-9.]{15,}(?:[eE][-+]?[0-9]+)?|[0-9.]+[eE][-+]?[0-9]{3,})")
_LONG_TIME = re.compile(rb":[0-9]{2}[.,][0-9]{6}[0-9]*[1-9]")
_INFINITE = re.compile(rb'"-?infinity"|[{,]-?infinity[,}]')
_CUT = re.compile(r":\d\d[.,]\d{6}\d*[1-9]")


def count_nulls(
    changed: Changed, fields: Sequence[pa.Field], before: Sequence[pa.Array], now: Sequence[pa.Array]
) -> None:
    """Count the values that are null now and were not."""
    for field, old, new in zip(fields, before, now, strict=True):
        if new.null_count > old.null_count:
            changed[CHANGED_VALUES, field.name] += new.null_count - old.null_count


def null_keys(table: pa.Table, properties: Collection[str]) -> Changed:
    """Count the rows without a value in each of these properties, which may be in two columns."""
    changed: Changed = Counter()
    for name in properties:
        columns = [table.column(n) for n, field in enumerate(table.schema) if source(field) == name]
        if columns and all(column.null_count for column in columns):
            changed[NULL_KEY, name] = pc.sum(reduce(pc.and_, map(pc.is_null, columns))).as_py()
    return +changed


class ChangeCounter:
    """Counts in lines of one table's columns."""

    def __init__(self, fields: Sequence[pa.Field]) -> None:
        self._fields = [field for field in fields if any(_kinds(field))]
        kinds = {kind for field in self._fields for kind in _kinds(field)}
        self._numbers, self._times = LOST_DIGITS in kinds, CHANGED_VALUES in kinds

    def count(self, data: bytes, lines: Sequence[bytes], rejected: Collection[int] = ()) -> Changed:
        """Count in `data`, whose `lines` are these, except for rejected ones."""
        changed: Changed = Counter()
        for number in self._suspects(data, lines):
            if number not in rejected:
                self._add(lines[number], changed)
        return changed

    def count_values(self, values: Sequence[bytes]) -> Changed:
        """Count in values of the only column, as they were written."""
        changed: Changed = Counter()
        for number in self._suspects(b"\n".join(values), values):
            for field in self._fields:
                changed.update(_changes(parsed(values[number]), field, field.name))
        return changed

    def _suspects(self, data: bytes, lines: Sequence[bytes]) -> Iterator[int]:
        """Which lines may have such a value."""
        tokens = _tokens(data) if self._numbers else None
        numbers = bool(tokens and _may_lose(tokens.findall(data)))
        times = self._times and _may_change(data)
        for number, line in enumerate(lines if numbers or times else ()):
            if (times and _may_change(line)) or (numbers and tokens and _may_lose(tokens.findall(line))):
                yield number

    def _add(self, line: bytes, changed: Changed) -> None:
        try:
            record = parsed(line)["record"]
        except (RecordRejected, TypeError, KeyError):  # no row
            return
        for field in self._fields:
            changed.update(_changes(record.get(source(field)), field, field.name))


def _kinds(field: pa.Field) -> Iterator[str]:
    if not is_json(field):
        yield from (KINDS[field.type],) if field.type in KINDS else ()
        for child in children(field.type):
            yield from _kinds(child)


def _tokens(data: bytes) -> re.Pattern[bytes] | None:
    """The pattern of the numbers that may lose digits; None if `data` has none."""
    zeros = data.translate(_AS_ZERO)
    if _TINY in zeros:
        return _TOKEN
    return _LONG_TOKEN if _LONG in zeros else None


def _may_change(text: bytes) -> bool:
    """Whether a time in it may be stored as another one. Two patterns: one of both takes ten times as long."""
    return _LONG_TIME.search(text) is not None or (b"infinity" in text and _INFINITE.search(text) is not None)


def _may_lose(tokens: Sequence[bytes]) -> bool:
    """Whether one of these numbers is not what its double is printed as: then the values are looked at."""
    try:
        return any(repr(float(text)) != text for text in b" ".join(tokens).decode().split())
    except ValueError:  # what looks like a number in a text
        return True


def _changes(value: Any, field: pa.Field, name: str) -> Iterator[tuple[str, str]]:
    type_ = field.type
    if value is None or is_json(field):
        return
    if pa.types.is_struct(type_):
        for child in type_:
            yield from _changes(value.get(source(child)), child, path_of(name, field, child))
    elif pa.types.is_list(type_):
        for item in array_items(value) if isinstance(value, str) else value:
            yield from _changes(item, type_.value_field, path_of(name, field, type_.value_field))
    elif type_ == pa.float64():
        if loses_digits(value):
            yield LOST_DIGITS, name
    elif type_ in KINDS and (value in INFINITE or (type_ == TIMESTAMP and _is_cut(value))):
        yield CHANGED_VALUES, name


def _is_cut(text: str) -> bool:
    """Whether digits of a time are cut off; a text that is no time became null, and is counted as that."""
    if not _CUT.search(text):
        return False
    try:
        timestamp_of(text)
    except ValueError:
        return False
    return True


def loses_digits(value: Any) -> bool:
    """Whether the nearest double is neither printed as this number nor, of a whole one, equal to it."""
    exact = Decimal(value)
    if not exact.is_finite():
        return False
    double = float(exact)
    if Decimal(repr(double)) == exact:
        return False
    is_whole = exact.adjusted() < MAX_DIGITS and exact == exact.to_integral_value()
    return not (is_whole and Decimal(double) == exact)
