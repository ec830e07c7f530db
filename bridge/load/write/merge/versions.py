"""The versions of rows: which there are after new rows came for their keys.

A row is a version from its start on, up to the next row of its key. One that differs from the row before it in nothing
that is tracked is the same version. A deletion is about now: it ends the version that is current as it comes, and a
row that comes after it, and is no older than that version, is there again. So the result is the same wherever commits
are made, and if rows come twice.

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
from bridge.load.write.merge.versioning import Versioning
from bridge.load.write.merge.winners import Keyed, in_order, is_deleted, lacks
from bridge.load.write.spill import ABSENT
from bridge.protocol.schema.json_schema import DELETED_AT, EXTRA, TIMESTAMP, VERSION_COLUMN, VersionColumn, source

_OPEN = -1
"""The rank of an end that has not come."""
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
    """The end; `_OPEN` without one."""
    by: Any
    """The number of the row that has its time: the table's versions come first, then new rows."""


@dataclass(frozen=True, slots=True)
class _Starts:
    """The starts of all rows, old and new, as ranks among `values`."""

    values: pa.Array
    before: Any
    ends: Any
    """Of the versions that the table has."""
    rows: Any
    """Of new rows; of a deletion the end of its version."""
    now: int

    def at(self, ranks: Any) -> pa.Array:
        """The values of these ranks; null for `_OPEN`."""
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
        return self._made(before, rows, starts, line, self._ended(marks, code, starts, line))

    def now(self) -> pa.Scalar:
        """The time of the commit as a start; null where starts are no times."""
        if pa.types.is_date(self._start):
            return pa.scalar(datetime.fromtimestamp(self._now / 1e6, timezone.utc).date(), self._start)
        is_time = self._start == TIMESTAMP
        return pa.scalar(self._now, pa.int64()).cast(TIMESTAMP) if is_time else pa.scalar(None, self._start)

    def _starts(self, before: pa.Table, rows: pa.Table, marks: Any, code: Any) -> _Starts:
        old, ends = (before.column(name).combine_chunks() for name in (VersionColumn.START, VersionColumn.END))
        new = self._by_arrival(before, rows, code) if self._history.sequence is None else self._by_sequence(rows, marks)
        parts = [old, ends, new, pa.array([self.now().as_py()], self._start)]
        values, ranks = _ranked(pa.concat_arrays(parts))
        split = np.cumsum([len(one) for one in parts])
        of_old, of_ends, of_new, now = np.split(ranks, split[:-1])
        if self._history.sequence is not None:
            of_new = _not_before_rows(of_new, marks | self._history.corrects, code, of_old, len(values))
        is_current = pc.fill_null(before.column(VersionColumn.CURRENT), False).to_numpy()
        return _Starts(values, of_old, np.where(is_current, _OPEN, of_ends), of_new, int(now[0]))

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

    def _by_sequence(self, rows: pa.Table, marks: Any) -> pa.Array:
        """The sequence; of a deletion the later one of that and its time, if the sequence is one."""
        column = rows.column(self._history.sequence_field(self._columns).name).combine_chunks()
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_finite(column), pc.add(column, 0.0), None)  # -0 is 0
        if not self.now().is_valid:
            return column
        times = pa.nulls(len(rows), self._start)
        if DELETED_AT in rows.column_names and rows.schema.field(DELETED_AT).type == TIMESTAMP:
            times = rows.column(DELETED_AT).combine_chunks().cast(pa.timestamp("us")).cast(self._start, safe=False)
        latest = pc.if_else(pc.greater(column, times), column, times)  # null if one of them is
        ends = pc.coalesce(latest, column, times, self.now())
        return pc.if_else(pa.array(marks), ends, column)

    def _line(self, before: pa.Table, rows: pa.Table, marks: Any, code: Any, starts: _Starts) -> _Line:
        count, new = len(before), np.flatnonzero(~marks)
        names = self._columns.names
        both = pa.concat_tables([before.select(names), rows.select(names).take(pa.array(new))])
        arrival = np.concatenate([np.full(count, _NONE), new])
        code = np.concatenate([code[:count], code[count:][new]])
        rank = np.concatenate([starts.before, starts.rows[new]])
        order = np.lexsort((arrival, rank, code))
        code, rank, arrival = code[order], rank[order], arrival[order]
        absent = pa.concat_arrays([pa.nulls(count, ABSENT.type), rows.column(ABSENT.name).combine_chunks().take(new)])
        both = self._filled(both.take(pa.array(order)), absent.take(pa.array(order)), code, arrival >= 0)
        version = _versions(both)
        same = (code[1:] == code[:-1]) & (rank[1:] == rank[:-1])
        last = np.flatnonzero(np.append(~same, True)[: len(code)])
        first = np.flatnonzero(np.insert(~same, 0, True)[: len(code)])
        content = last.copy()
        replaced = np.flatnonzero((arrival[first] == _NONE) & (first != last))
        equal = ~_differ(both, first[replaced], last[replaced], self._data)
        content[replaced[equal]] = first[replaced[equal]]
        version = np.maximum(version[first], version[last])
        stored = np.where(arrival == _NONE, order, _NONE)
        return _Line(both, code[last], rank[last], arrival[last], stored[first], content, stored, version)

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
        """A deletion ends the row with the latest start up to it, unless that came after it; the first one counts."""
        count, wide = len(starts.before), len(starts.values) + 1
        old = np.flatnonzero(_ends_by_deletion(code[:count], starts.before, starts.ends))
        number = np.concatenate([old, count + np.flatnonzero(marks)])
        rank = np.concatenate([np.maximum(starts.ends[old], starts.before[old]), starts.rows[marks]])
        arrival = np.where(number < count, _NONE, number - count)
        row = np.searchsorted(line.code * wide + line.rank, code[number] * wide + rank, side="right") - 1
        holds = row >= 0
        holds[holds] = (line.code[row[holds]] == code[number[holds]]) & (line.arrival[row[holds]] <= arrival[holds])
        row, rank, number, arrival = row[holds], rank[holds], number[holds], arrival[holds]
        ended, by = np.full(len(line.code), _OPEN), np.full(len(line.code), _NONE)
        order = np.lexsort((arrival, rank))[::-1]  # the first one is written last, and stays
        ended[row[order]], by[row[order]] = rank[order], number[order]
        return _Ended(ended, by)

    def _made(self, before: pa.Table, rows: pa.Table, starts: _Starts, line: _Line, ended: _Ended) -> Versions:
        count, earlier = len(line.code), np.flatnonzero(line.follows)
        tracked, changed = np.full(count, True), np.full(count, True)
        pairs = line.content[earlier - 1], line.content[earlier]
        tracked[earlier] = _differ(line.rows, *pairs, self._tracked)
        changed[earlier] = _differ(line.rows, *pairs, self._data)
        begins = ~line.follows | tracked
        begins[1:] |= ended.rank[:-1] != _OPEN
        first = np.flatnonzero(begins)
        last = np.append(first[1:], count)[: len(first)] - 1
        latest = np.maximum.accumulate(np.where(begins | changed, np.arange(count), 0))[last]
        own, content, rank = line.own[first], line.content[latest], line.rank[first]
        version = np.maximum.reduceat(line.version, first) if count else line.version
        next_ = np.append(np.where(line.follows[first[1:]], rank[1:], _OPEN), _OPEN)[: len(first)]
        ends, by = np.where(ended.rank[last] == _OPEN, next_, ended.rank[last]), ended.by[last]
        swept = (ends == _OPEN) & self._older(version)
        ends[swept], by[swept] = np.maximum(starts.now, rank)[swept], len(before) + len(rows)
        stays = (own != _NONE) & (line.stored[content] == own)
        stays[stays] = (ends[stays] == starts.ends[own[stays]]) & (version[stays] == _versions(before)[own[stays]])
        made = np.flatnonzero(~stays)
        written = line.rows.take(pa.array(content[made]))
        written = self._marked(written, before, rows, by[made], version[made])
        open_ = pa.array(ends[made] == _OPEN)
        written = _with(written, VersionColumn.START, starts.at(rank[made]))
        written = _with(
            written, VersionColumn.END, pc.if_else(open_, pa.scalar(None, self._start), starts.at(ends[made]))
        )
        replaces = (own != _NONE) & (line.stored[content] == _NONE)
        return Versions(
            _with(written, VersionColumn.CURRENT, open_),
            before.take(pa.array(np.setdiff1d(np.arange(len(before)), own))),
            inserted=int((own == _NONE).sum()),
            updated=int((replaces & ~stays).sum()),
            deleted=int(((by >= len(before)) & ~swept & ~stays).sum()),
            swept=int(swept.sum()),
        )

    def _older(self, version: Any) -> Any:
        """Which rows a sweep ends."""
        if self._sweep is None:
            return np.full(len(version), False)
        versions = pa.chunked_array([pa.array(version, mask=version < 0)])
        return self._sweep.mask(pa.table({}), versions).to_numpy()

    def _marked(self, written: pa.Table, before: pa.Table, rows: pa.Table, by: Any, version: Any) -> pa.Table:
        """The versions with the times of the deletions that ended them, and their Singer versions."""
        if VERSION_COLUMN in self._columns.names:
            written = _with(written, VERSION_COLUMN, pa.array(version, mask=version < 0))
        if DELETED_AT in self._columns.names:
            type_ = self._columns.field(DELETED_AT).type
            now = pa.array([self._now], pa.int64()).cast(TIMESTAMP) if type_ == TIMESTAMP else pa.nulls(1, type_)
            marks = [*before.column(DELETED_AT).chunks, *rows.column(DELETED_AT).chunks, now]
            times = pa.chunked_array(marks, type_).take(pa.array(by, mask=by == _NONE))
            written = _with(written, DELETED_AT, times)
        return written


def _versions(rows: pa.Table) -> Any:
    """The Singer versions of rows, -1 for none."""
    if VERSION_COLUMN not in rows.column_names:
        return np.full(len(rows), -1, np.int64)
    return pc.fill_null(rows.column(VERSION_COLUMN), -1).to_numpy()


def _ranked(values: pa.Array) -> tuple[pa.Array, Any]:
    """The values in their order, each once and null first; and the number of each in that order."""
    unique = values.unique().drop_null()
    ordered = unique.take(pc.sort_indices(unique))
    ranks = pc.fill_null(pc.index_in(values, value_set=ordered), -1).to_numpy().astype(np.int64) + 1
    return pa.concat_arrays([pa.nulls(1, values.type), ordered]), ranks


def _not_before_rows(ranks: Any, marks: Any, code: Any, of_old: Any, count: int) -> Any:
    """The ranks of new rows; one of `marks` is at least that of each row of its key that came before it."""
    if not marks.any():
        return ranks
    rank = np.concatenate([of_old, np.where(marks, 0, ranks)])
    order = np.argsort(code, kind="stable")
    latest = np.empty(len(rank), np.int64)
    latest[order] = np.maximum.accumulate(code[order] * (count + 1) + rank[order])
    return np.where(marks, np.maximum(ranks, (latest - code * (count + 1))[len(of_old) :]), ranks)


def _ends_by_deletion(code: Any, rank: Any, ends: Any) -> Any:
    """Which of the table's versions a deletion ended: they are not current, and none begins where they end."""
    order = np.lexsort((rank, code))
    code, rank, end = code[order], rank[order], ends[order]
    passed = np.append((code[1:] == code[:-1]) & (rank[1:] == end[:-1]), False)[: len(code)]
    result = np.empty(len(code), bool)
    result[order] = (end != _OPEN) & ~passed
    return result


def _differ(rows: pa.Table, one: Any, other: Any, names: Sequence[str]) -> Any:
    """Which of these pairs of rows differ in one of the columns. NaN is NaN."""
    differ = np.full(len(one), False)
    for name in names if len(one) else ():
        left, right = (rows.column(name).take(pa.array(which)).combine_chunks() for which in (one, other))
        if pa.types.is_nested(left.type):
            differ |= [repr(a) != repr(b) for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True)]
            continue
        unequal = pc.not_equal(left, right)
        if pa.types.is_floating(left.type):
            unequal = pc.and_(unequal, pc.invert(pc.and_(pc.is_nan(left), pc.is_nan(right))))
        differ |= pc.coalesce(unequal, pc.xor(pc.is_null(left), pc.is_null(right))).to_numpy(zero_copy_only=False)
    return differ


def _with(rows: pa.Table, name: str, values: Any) -> pa.Table:
    at = rows.schema.get_field_index(name)
    field = rows.schema.field(at)
    return rows.set_column(at, field, values.cast(field.type))
