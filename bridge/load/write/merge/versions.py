"""The versions of rows: which there are after new rows came for their keys.

A row is a version from its start on, up to the next row of its key. One that differs from the row before it in nothing
that is tracked is the same version, which then has the sequence of the later one.

A tap tells what is there now. So a deletion ends the latest row that came before it, at its own time or later; and a
row that comes after it, and is then the latest of its key, is there again. Other rows that come late are put in their
places. A deletion that comes once more, with its time, changes nothing. So old messages may come again.

Starts and ends are ranks here: numbers that compare as the values do, 0 for null, which is before all else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.load.write.keys import codes_of
from bridge.load.write.merge.extra import chained
from bridge.load.write.merge.match import VersionSweep
from bridge.load.write.merge.ranks import OPEN, come_again, ends_by_deletion, latest_before, ranked
from bridge.load.write.merge.versioning import Versioning
from bridge.load.write.merge.winners import Keyed, in_order, is_deleted, lacks
from bridge.load.write.spill import ABSENT
from bridge.protocol.decode.instants import moments
from bridge.protocol.schema.json_schema import DELETED_AT, EXTRA, TIMESTAMP, VERSION_COLUMN, VersionColumn, source

_NONE = -1
"""In the place of a row's number: none."""


@dataclass(frozen=True, slots=True)
class Versions:
    """The changes of a table's versions."""

    written: pa.Table
    """Versions that are new, or not as they were, with the table's columns."""
    removed: pa.Table
    """Versions that go, as the one before each is the same."""
    inserted: int
    """Of the new rows: how many are new versions, changed one in its place, ended one. Others changed nothing."""
    updated: int
    deleted: int
    swept: int
    """Versions that ended as their rows are not in the latest Singer version."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """For each row of a `_Line`, the deletion that ended it."""

    rank: Any
    """The end; `OPEN` without one."""
    is_new: Any


@dataclass(frozen=True, slots=True)
class _Starts:
    """The starts of all rows, old and new, as ranks among `values`."""

    values: pa.Array
    before: Any
    own: Any
    """The sequences of the table's versions: later than the start if the last row that was the same came later."""
    ends: Any
    """Of the table's versions."""
    deleted: Any
    """The numbers of those that a deletion ended."""
    rows: Any
    """Of new rows; of a deletion the end of its version."""
    is_latest: Any
    """Booleans: which new rows were the latest of their keys as they came."""
    now: int

    def at(self, ranks: Any) -> pa.Array:
        """The values of these ranks; null for `OPEN`."""
        return self.values.take(pa.array(np.maximum(ranks, 0)))


@dataclass(frozen=True, slots=True)
class _Line:
    """Rows of all keys, by key, start and arrival, and of rows with one key and start the last; no deletions."""

    rows: pa.Table
    code: Any
    """A number for each key."""
    rank: Any
    arrival: Any
    """The number of a new row in the order of messages; `_NONE`: the table has it."""
    own: Any
    """The number of the table's version with this key and start."""
    content: Any
    """Which of `rows` has the values: the table's, if the new ones are the same."""
    stored: Any
    """Of each of `rows` its number among the table's versions."""
    version: Any
    """The latest Singer version that it came with; below 0: none."""

    @property
    def follows(self) -> Any:
        """Which rows have another one of their key before them."""
        return np.concatenate([[False], self.code[1:] == self.code[:-1]]) if len(self.code) else self.code == 0


class VersionMaker:
    """Makes the versions of one table at a commit."""

    def __init__(
        self,
        history: Versioning,
        key: Keyed,
        columns: pa.Schema,
        now: int,
        sweep: VersionSweep | None = None,
        *,
        merges_extra: bool = False,
    ) -> None:
        """`columns`: the table's. `now`: microseconds since 1970. `sweep`: which rows are gone, as their Singer version
        is older. `merges_extra`: a change need not have all fields outside the SCHEMA."""
        self._history, self._key, self._columns, self._now, self._sweep = history, key, columns, now, sweep
        self._merges_extra = merges_extra and EXTRA in columns.names
        own = [one for one in columns if not VersionColumn.has(one) and one.name not in key.names]
        self._data = [one.name for one in own if one.name == EXTRA or not source(one).startswith("_sdc_")]
        self._tracked = [one.name for one in own if one.name in self._data and history.tracks(source(one))]
        self._start = columns.field(VersionColumn.START).type

    def make(self, before: pa.Table, rows: pa.Table) -> Versions:
        """`before`: all versions of these keys that the table has. `rows`: new ones, with the hidden columns."""
        rows = in_order(rows)
        marks = is_deleted(rows).to_numpy(zero_copy_only=False)
        codes = codes_of(self._key.of(pa.concat_tables([one.select(self._key.names) for one in (before, rows)])))
        code = codes.to_numpy()
        starts = self._starts(before, rows, marks, code)
        line = self._line(before, rows, marks, code, starts)
        return self._made(before, starts, line, self._ended(marks, code, starts, line))

    def now(self) -> pa.Scalar:
        """The time of the commit as a start; null where starts are no times."""
        if pa.types.is_date(self._start):
            return pa.scalar(datetime.fromtimestamp(self._now / 1e6, timezone.utc).date(), self._start)
        is_time = self._start == TIMESTAMP
        return pa.scalar(self._now, pa.int64()).cast(TIMESTAMP) if is_time else pa.scalar(None, self._start)

    def _starts(self, before: pa.Table, rows: pa.Table, marks: Any, code: Any) -> _Starts:
        start, end = (before.column(name).combine_chunks() for name in (VersionColumn.START, VersionColumn.END))
        if by_arrival := self._history.sequence is None:
            own, new = start, self._by_arrival(before, rows, code)
        else:
            own, new = self._sequence(before), self._by_sequence(rows, marks)
        parts = [start, own, end, new, pa.array([self.now().as_py()], self._start)]
        values, ranks = ranked(pa.concat_arrays(parts))
        of_start, of_own, of_end, of_new, now = np.split(ranks, np.cumsum([len(one) for one in parts])[:-1])
        is_current = pc.fill_null(before.column(VersionColumn.CURRENT), False).to_numpy()
        ends, count, wide = np.where(is_current, OPEN, of_end), len(before), len(values) + 1
        deleted = np.flatnonzero(ends_by_deletion(code[:count], of_start, ends))
        of_rows = np.concatenate([np.maximum(of_start, of_own), np.where(marks, 0, of_new)])
        latest = latest_before(code, of_rows, wide)[count:]
        if not by_arrival:
            again = come_again(code[count:] * wide + of_new, marks & (of_new > 0), code[deleted] * wide + ends[deleted])
            of_new = np.where((marks & ~again) | self._history.corrects, np.maximum(of_new, latest), of_new)
        is_latest = ~marks & (of_new >= latest)
        return _Starts(values, of_start, of_own, ends, deleted, of_new, is_latest, int(now[0]))

    def _by_arrival(self, before: pa.Table, rows: pa.Table, code: Any) -> pa.Array:
        """Now, but a microsecond apart for rows of one key, and after all that the table has of it."""
        latest = np.full(int(code.max(initial=0)) + 1, self._now - 1, np.int64)
        for name in (VersionColumn.START, VersionColumn.END):
            times = pc.fill_null(before.column(name).cast(pa.int64()), 0).to_numpy()
            np.maximum.at(latest, code[: len(before)], times)
        own = code[len(before) :]
        order = np.argsort(own, kind="stable")
        first = np.searchsorted(own[order], own[order])
        place = np.empty(len(own), np.int64)
        place[order] = np.arange(len(own)) - first
        return pa.array(latest[own] + 1 + place, pa.int64()).cast(self._start)

    def _sequence(self, rows: pa.Table) -> pa.Array:
        column = rows.column(self._history.sequence_field(self._columns).name).combine_chunks()
        if pa.types.is_floating(column.type):
            return pc.if_else(pc.is_nan(column), None, pc.add(column, 0.0))  # -0 is 0
        return column

    def _by_sequence(self, rows: pa.Table, marks: Any) -> pa.Array:
        """The sequence; of a deletion the later one of that and its time, if the sequence is one."""
        column = self._sequence(rows)
        if not self.now().is_valid:
            return column
        times = self._times(rows)
        latest = pc.if_else(pc.greater(column, times), column, times)  # null if one of them is
        ends = pc.coalesce(latest, column, times, self.now())
        return pc.if_else(pa.array(marks), ends, column)

    def _times(self, rows: pa.Table) -> pa.Array:
        """The times of deletions, as starts; null where they say none."""
        if DELETED_AT not in rows.column_names:
            return pa.nulls(len(rows), self._start)
        column = rows.column(DELETED_AT).combine_chunks()
        if pa.types.is_string(column.type):
            column = moments(column.to_pylist())
        if pa.types.is_boolean(column.type):
            return pa.nulls(len(rows), self._start)
        return column.cast(pa.timestamp("us")).cast(self._start, safe=False)

    def _line(self, before: pa.Table, rows: pa.Table, marks: Any, code: Any, starts: _Starts) -> _Line:
        count, new, names = len(before), np.flatnonzero(~marks), self._columns.names
        # A version whose last row came later than its start is there once more, as that row.
        last = np.where(starts.ends == OPEN, len(starts.values), starts.ends - 1)
        last[starts.deleted] += 1  # a deletion comes after a row of its time
        again = np.flatnonzero((starts.own > starts.before) & (starts.own <= last))
        old = np.concatenate([np.arange(count), again])
        both = pa.concat_tables([before.select(names).take(old), rows.select(names).take(new)])
        arrival = np.concatenate([np.full(len(old), _NONE), new])
        code = np.concatenate([code[old], code[count:][new]])
        rank = np.concatenate([starts.before, starts.own[again], starts.rows[new]])
        stored = np.concatenate([old, np.full(len(new), _NONE)])
        own = np.where(np.arange(len(stored)) < count, stored, _NONE)
        order = np.lexsort((arrival, rank, code))
        code, rank, arrival, stored, own = (one[order] for one in (code, rank, arrival, stored, own))
        absent = rows.column(ABSENT.name).combine_chunks().take(new)
        absent = pa.concat_arrays([pa.nulls(len(old), ABSENT.type), absent]).take(order)
        both = self._filled(both.take(order), absent, code, arrival >= 0)
        version = _versions(both)
        same = (code[1:] == code[:-1]) & (rank[1:] == rank[:-1])
        last = np.flatnonzero(np.append(~same, True)[: len(code)])
        first = np.flatnonzero(np.insert(~same, 0, True)[: len(code)])
        content = last.copy()
        replaced = np.flatnonzero((stored[first] != _NONE) & (first != last))
        equal = ~_differ(both, first[replaced], last[replaced], self._data)
        content[replaced[equal]] = first[replaced[equal]]
        version = np.maximum(version[first], version[last])
        return _Line(both, code[last], rank[last], arrival[last], own[first], content, stored, version)

    def _filled(self, rows: pa.Table, absent: pa.Array, code: Any, is_new: Any) -> pa.Table:
        """The rows, where changes have what they lack from the row before."""
        sparse = absent.is_valid().to_numpy(zero_copy_only=False)
        if not sparse.any() and not self._merges_extra:
            return rows
        place = np.arange(len(code))
        first = np.searchsorted(code, code)
        with_absent = rows.append_column(ABSENT, absent)
        for at, name in enumerate(rows.column_names):
            if name in self._key.names or name not in self._data or name == EXTRA:
                continue
            lacking = sparse & lacks(with_absent, name).to_numpy(zero_copy_only=False)
            has = np.maximum.accumulate(np.where(lacking, -1, place))
            taken = pa.array(has, mask=has < first)
            rows = rows.set_column(at, rows.schema.field(at), rows.column(name).take(taken))
        if self._merges_extra:
            at = rows.schema.get_field_index(EXTRA)
            rows = rows.set_column(at, rows.schema.field(at), chained(with_absent, place > first, is_new))
        return rows

    def _ended(self, marks: Any, code: Any, starts: _Starts, line: _Line) -> _Ended:
        """The ends by deletions that no later row took back; of several the first."""
        count, wide, rows = len(starts.before), len(starts.values) + 1, len(marks) + 1
        number = np.concatenate([starts.deleted, count + np.flatnonzero(marks)])
        rank = np.concatenate([starts.ends[starts.deleted], starts.rows[marks]])
        of_code, is_new = code[number], number >= count
        came = np.where(is_new, number - count, _NONE)
        later = np.flatnonzero(starts.is_latest)
        later = later[np.argsort(code[count:][later], kind="stable")]
        next_ = np.searchsorted(code[count:][later] * rows + later, of_code * rows + came, side="right")
        holds = np.full(len(number), True)
        has_next = next_ < len(later)
        after = later[next_[has_next]]
        holds[has_next] = (code[count:][after] != of_code[has_next]) | (starts.rows[after] > rank[has_next])
        row = np.searchsorted(line.code * wide + line.rank, of_code * wide + rank, side="right") - 1
        holds &= (row >= 0) & (line.code[row] == of_code) if len(line.code) else False
        row, rank, is_new = row[holds], rank[holds], is_new[holds]
        ended, by_new = np.full(len(line.code), OPEN), np.full(len(line.code), False)
        order = np.lexsort((is_new, rank))[::-1]  # the first one is written last, and stays
        ended[row[order]], by_new[row[order]] = rank[order], is_new[order]
        return _Ended(ended, by_new)

    def _made(self, before: pa.Table, starts: _Starts, line: _Line, ended: _Ended) -> Versions:
        count, earlier = len(line.code), np.flatnonzero(line.follows)
        tracked, changed = np.full(count, True), np.full(count, True)
        pairs = line.content[earlier - 1], line.content[earlier]
        tracked[earlier] = _differ(line.rows, *pairs, self._tracked)
        changed[earlier] = _differ(line.rows, *pairs, self._data)
        begins = ~line.follows | tracked
        begins[1:] |= ended.rank[:-1] != OPEN
        first = np.flatnonzero(begins)
        last = np.append(first[1:], count)[: len(first)] - 1
        latest = np.maximum.accumulate(np.where(begins | changed, np.arange(count), 0))[last]
        own, content, rank = line.own[first], line.content[latest], line.rank[first]
        version = np.maximum.reduceat(line.version, first) if count else line.version
        next_ = np.append(np.where(line.follows[first[1:]], rank[1:], OPEN), OPEN)[: len(first)]
        ends, by_new = np.where(ended.rank[last] == OPEN, next_, ended.rank[last]), ended.is_new[last]
        of_key = np.maximum.reduceat(line.version, np.flatnonzero(~line.follows)) if count else line.version
        swept = (ends == OPEN) & self._older(of_key[np.cumsum(~line.follows)[first] - 1])
        ends[swept] = np.maximum(starts.now, line.rank[last])[swept]
        stays = (own != _NONE) & (line.stored[content] == own)
        stays[stays] = (ends[stays] == starts.ends[own[stays]]) & (version[stays] == _versions(before)[own[stays]])
        made = np.flatnonzero(~stays)
        written = line.rows.take(pa.array(content[made]))
        if VERSION_COLUMN in self._columns.names:
            written = _with(written, VERSION_COLUMN, pa.array(version[made], mask=version[made] < 0))
        open_ = pa.array(ends[made] == OPEN)
        written = _with(written, VersionColumn.START, starts.at(rank[made]))
        written = _with(written, VersionColumn.END, starts.at(ends[made]))
        replaces = (own != _NONE) & (line.stored[content] == _NONE)
        return Versions(
            _with(written, VersionColumn.CURRENT, open_),
            before.take(pa.array(np.setdiff1d(np.arange(len(before)), own))),
            inserted=int(((own == _NONE) & (line.arrival[first] != _NONE)).sum()),
            updated=int((replaces & ~stays).sum()),
            deleted=int((by_new & ~stays).sum()),
            swept=int(swept.sum()),
        )

    def _older(self, version: Any) -> Any:
        """Which rows a sweep ends."""
        if self._sweep is None:
            return np.full(len(version), False)
        versions = pa.chunked_array([pa.array(version, mask=version < 0)])
        return self._sweep.mask(pa.table({}), versions).to_numpy()


def _versions(rows: pa.Table) -> Any:
    """The Singer versions of rows, -1 for none."""
    if VERSION_COLUMN not in rows.column_names:
        return np.full(len(rows), -1, np.int64)
    return pc.fill_null(rows.column(VERSION_COLUMN), -1).to_numpy()


def _differ(rows: pa.Table, one: Any, other: Any, names: Sequence[str]) -> Any:
    """Which of these pairs of rows differ in one of the columns. NaN is NaN."""
    differ = np.full(len(one), False)
    for name in names if len(one) else ():
        differ |= _unequal(*(rows.column(name).take(which).combine_chunks() for which in (one, other)))
    return differ


def _unequal(left: pa.Array, right: pa.Array) -> Any:
    """Which values of two arrays of one type differ."""
    if pa.types.is_struct(left.type):
        differ = pc.xor(left.is_null(), right.is_null()).to_numpy(zero_copy_only=False)
        for one, other in zip(left.flatten(), right.flatten(), strict=True):
            differ |= _unequal(one, other)
        return differ
    if pa.types.is_list(left.type):
        lengths = [pc.fill_null(pc.list_value_length(one), -1).to_numpy() for one in (left, right)]
        differ = lengths[0] != lengths[1]
        same = np.flatnonzero(~differ & (lengths[0] > 0))
        items = [pc.list_flatten(one.take(same)) for one in (left, right)]
        differ[np.repeat(same, lengths[0][same])[_unequal(*items)]] = True
        return differ
    unequal = pc.not_equal(left, right)
    if pa.types.is_floating(left.type):
        unequal = pc.and_(unequal, pc.invert(pc.and_(pc.is_nan(left), pc.is_nan(right))))
    return pc.coalesce(unequal, pc.xor(left.is_null(), right.is_null())).to_numpy(zero_copy_only=False)


def _with(rows: pa.Table, name: str, values: Any) -> pa.Table:
    at = rows.schema.get_field_index(name)
    field = rows.schema.field(at)
    return rows.set_column(at, field, values.cast(field.type))
