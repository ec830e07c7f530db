"""`merge_sql` for few groups, without Spark: partial groups, and the groups so far, to new groups.

Spark takes more than a second to plan and run a statement for the first time, whatever the number of rows. The rules
are those of `algebra.py`; a test compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from bridge.errors import DataError
from bridge.load.views.algebra import EXTREMES, RECOMPUTE, TypedView, fewer_rows, hidden, linear, long_sum
from bridge.settings.sql.view import ROWS, Aggregate

_EXACT = Context(prec=100)
_LONGEST = 10**38
"""The least number of 39 digits."""


def can_merge(typed: TypedView) -> bool:
    """Whether all values that are compared are single ones: Spark's order of lists and structs is Spark's."""
    names = [item.name for item in typed.view.aggregates if item.function in EXTREMES]
    return not any(pa.types.is_nested(typed.schema.field(name).type) for name in names)


def merge_groups(typed: TypedView, partials: pa.Table, state: pa.Table) -> pa.Table:
    """Merge as `merge_sql` does. `state` has no other groups than `partials`; each has one row for a group.

    Raises `DataError` for what is an error there.
    """
    merging = _Merging.of(typed, partials, state)
    columns = {ROWS: merging.sums(ROWS)}
    if any(rows < 0 for rows in columns[ROWS]):
        raise _failure(typed, fewer_rows(typed.view))
    recompute = [False] * len(partials)
    for item in typed.view.aggregates:
        if item.function in EXTREMES:
            columns |= merging.extremes(item, recompute)
        else:
            columns |= merging.totals(item)
    keys = partials.select(typed.view.keys)
    arrays = [
        _array(columns[field.name], field.type) if field.name in columns else keys.column(field.name).cast(field.type)
        for field in typed.schema
    ]
    groups = pa.table([*arrays, pa.array(recompute, pa.bool_())], [*typed.schema.names, RECOMPUTE])
    groups = groups.cast(typed.schema.append(pa.field(RECOMPUTE, pa.bool_())))
    return groups.filter(pa.array([rows != 0 for rows in columns[ROWS]], pa.bool_()))


def _failure(typed: TypedView, text: str) -> DataError:
    hint = f"nothing of this commit was stored; {text}"
    return DataError("a view failed on a row", hint=hint, view=typed.view.name)


@dataclass(frozen=True, slots=True)
class _Merging:
    """Partial groups, and for each of them the place of its group so far, None if there is none."""

    typed: TypedView
    partials: pa.Table
    state: pa.Table
    places: Sequence[int | None]

    @classmethod
    def of(cls, typed: TypedView, partials: pa.Table, state: pa.Table) -> _Merging:
        changed, existing = (
            list(zip(*(_values(table.column(key)) for key in typed.view.keys), strict=True))
            for table in (partials, state)
        )
        at = {key: place for place, key in enumerate(existing)}
        return cls(typed, partials, state, [at.get(key) for key in changed])

    def _pairs(self, name: str) -> list[tuple[Any, Any]]:
        """A column's value in each partial group, and in the group so far."""
        new, old = _values(self.partials.column(name)), self._old(name)
        return list(zip(new, old, strict=True))

    def _old(self, name: str) -> list[Any]:
        values = _values(self.state.column(name))
        return [None if place is None else values[place] for place in self.places]

    def sums(self, name: str) -> list[Any]:
        """Sums, in which NULL counts nothing."""
        pairs = self._pairs(name)
        add: Callable[[Any, Any], Any] = lambda one, other: one + other  # noqa: E731
        if pa.types.is_decimal(self.typed.schema.field(name).type):
            add = _EXACT.add
        return [new if old is None else old if new is None else add(new, old) for new, old in pairs]

    def totals(self, item: Aggregate) -> dict[str, list[Any]]:
        """The columns of an aggregate whose parts are added up."""
        columns = {name: self.sums(name) for name in linear(item)}
        for name, values in columns.items():
            type_ = self.typed.schema.field(name).type
            if pa.types.is_decimal(type_) and any(_is_long(value, type_.scale) for value in values):
                raise _failure(self.typed, long_sum(item))
        results: dict[str, Callable[[int, int], Any]] = {
            "sum": lambda at, _: columns[item.name][at],
            "avg": lambda at, count: float(columns[hidden(item, "sum")][at]) / count,
            "bool_and": lambda at, _: columns[hidden(item, "false")][at] == 0,
            "bool_or": lambda at, _: columns[hidden(item, "true")][at] > 0,
        }
        if item.function not in results:
            return columns
        counts, result = columns[hidden(item, "count")], results[item.function]
        return columns | {item.name: [result(at, n) if n > 0 else None for at, n in enumerate(counts)]}

    def extremes(self, item: Aggregate, recompute: list[bool]) -> dict[str, list[Any]]:
        """The columns of an extreme; sets `recompute` where it may be among the removed rows."""
        sign = -1 if item.function.startswith("min") else 1
        by, is_ranked = hidden(item, "by"), item.function.endswith("_by")
        added, removed = (_values(self.partials.column(hidden(item, part))) for part in ("added", "removed"))
        existing, best = self._old(item.name), list[Any]()
        if is_ranked:
            last = item.function == "max_by"
            pairs = zip(self._old(by), existing, strict=True)
            existing = [None if rank is None else (rank, (one is not None) == last, one) for rank, one in pairs]
        for at, (new, lost, old) in enumerate(zip(added, removed, existing, strict=True)):
            best.append(new if old is None or (new is not None and _compared(new, old) * sign > 0) else old)
            if lost is not None:
                beats = best[-1] is not None and _compared(best[-1], lost) * sign > 0
                both = new is not None and old is not None
                replaced = both and _compared(new, old) * sign >= 0 and _compared(old, lost) * sign >= 0
                recompute[at] |= not (beats or replaced)
        if not is_ranked:
            return {item.name: best}
        ranks, values = ([None if one is None else one[part] for one in best] for part in (0, 2))
        return {item.name: values, by: ranks}


def _is_long(value: Decimal | None, scale: int) -> bool:
    return value is not None and abs(int(value.scaleb(scale, _EXACT))) >= _LONGEST


def _compared(one: Any, other: Any) -> int:
    """1 if the first of two values is greater, 0 if they are equal, else -1."""
    first, second = _order(one), _order(other)
    return int(first > second) - int(first < second)


def _order(value: Any) -> Any:
    """A key that sorts as Spark: NaN after all numbers; of a value with its rank the rank, then NULL by its place."""
    if isinstance(value, tuple):
        rank, last, inner = value
        return _order(rank), last, () if inner is None else (_order(inner),)
    if isinstance(value, float):
        return math.isnan(value), 0.0 if math.isnan(value) else value
    return value


def _values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """The values; times as numbers, as Python's own have fewer years; what has a rank as rank, place and value."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_struct(array.type):
        parts = zip(*(_values(array.field(part)) for part in ("by", "last", "value")), strict=True)
        return [one if valid else None for one, valid in zip(parts, array.is_valid().to_pylist(), strict=True)]
    return list((array.cast(number) if (number := _number(array.type)) else array).to_pylist())


def _array(values: list[Any], type_: pa.DataType) -> pa.Array:
    number = _number(type_)
    return pa.array(values, number).cast(type_) if number else pa.array(values, type_)


def _number(type_: pa.DataType) -> pa.DataType | None:
    """The numbers that times of a type are; None: it has no times."""
    if pa.types.is_timestamp(type_):
        return pa.int64()
    return pa.int32() if pa.types.is_date32(type_) else None
