"""One live file anew: rows that came replace theirs in place, rows that are gone are left out, all else stays.

A row group of the file is in memory, and the winners of one range of keys. The new file has the old one's name, where
the table is plain Parquet, so that a reader who lists the folder sees each key once, before and after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from bridge.decode.casting import refit
from bridge.lake.records import PendingFile
from bridge.write.context import WriteContext
from bridge.write.file import File
from bridge.write.keys import lookup
from bridge.write.merge.footers import can_hold, group_range, opened
from bridge.write.merge.match import TARGET_FILE, VERSION_COLUMN, MergeSpec, swept
from bridge.write.merge.winners import DELETED, PARTIAL, Keyed, is_deleted, lacks
from bridge.write.spill import spills


@dataclass(frozen=True, slots=True)
class Touched:
    """A live file, by its number in the merge, and the files of winners with keys that it has."""

    batch: MergeSpec
    number: int
    name: str
    winners: Sequence[str]
    version: int | None = None
    """That all of its rows have, where the table has no column that says it."""


@dataclass(slots=True)
class _Winners:
    """One range's winners of the keys that this file has; `placed` are those that have replaced their row already."""

    rows: pa.Table
    keys: pa.Table
    gone: Any
    here: Any
    partial: Any
    placed: Any


@dataclass(slots=True)
class _Counts:
    replaced: int = 0
    dropped: int = 0
    swept: int = 0


class NewFile(Struct, frozen=True):
    """A live file's successor, which may have no row left, and how many rows were replaced, dropped and swept."""

    file: PendingFile
    replaced: int
    dropped: int
    swept: int


class OlderRows(Struct, frozen=True):
    """The rows of a live file, and of how many of those that say their version a sweep is."""

    rows: int
    older: int


def rewrite(context: WriteContext, touched: Touched) -> NewFile:
    """Write one live file again."""
    batch, layout = touched.batch, context.layouts[touched.batch.stream]
    columns, counts = batch.columns, _Counts()
    folder, over = touched.name.rpartition("/")[0], touched.name if layout.format == "parquet" else None
    storage = context.storage()
    new = File(storage, context, batch.seq, batch.stream, columns, folder, over=over)
    try:
        _fill(context, touched, new, counts)
    except BaseException:
        new.give_up(storage)
        raise
    new.finish()
    return NewFile(new.close(), counts.replaced, counts.dropped, counts.swept)


def _fill(context: WriteContext, touched: Touched, new: File, counts: _Counts) -> None:
    """Write what is left of a live file, with the rows that came in the place of theirs."""
    batch, layout = touched.batch, context.layouts[touched.batch.stream]
    columns = batch.columns
    with opened(context, f"{layout.folder}/{touched.name}") as live:
        parts = _Parts(context, touched)
        for group in range(live.num_row_groups):
            rows = refit(live.read_row_group(group), batch.fields)
            for winners in parts.of(live, group):
                rows = _replaced(rows, winners, parts.key, counts)
            rows, older = _swept(rows, touched)
            counts.swept += older
            if len(rows):
                new.write(pa.Table.from_arrays(rows.columns, schema=columns))


def _swept(rows: pa.Table, touched: Touched) -> tuple[pa.Table, int]:
    """Return the rows after those of older versions went or were marked, and how many these were."""
    sweep = touched.batch.sweep
    if sweep is None:
        return rows, 0
    if VERSION_COLUMN in rows.column_names:
        versions = rows.column(VERSION_COLUMN)
    else:
        versions = pa.chunked_array([pa.repeat(pa.scalar(touched.version, pa.int64()), len(rows))])
    return swept(rows, sweep, versions)


class _Parts:
    """The winners of a file's keys, one range in memory at a time: a sorted file comes to each of them once."""

    def __init__(self, context: WriteContext, touched: Touched) -> None:
        self._context, self._touched = context, touched
        self.key = touched.batch.key(context) if touched.winners else Keyed(())
        self._placed: dict[str, Any] = {}
        self._name = ""
        self._loaded: _Winners | None = None

    def of(self, live: pq.ParquetFile, group: int) -> Iterator[_Winners]:
        """Yield the winners that may have a row in this row group."""
        if not self._touched.winners:
            return
        ranges = group_range(live, group, self.key.names)
        for name in self._touched.winners:
            winners = self._load(name)
            if can_hold(winners.keys, ranges):
                yield winners

    def _load(self, name: str) -> _Winners:
        if self._loaded is None or self._name != name:
            rows = pq.read_table(spills(self._context) / name)
            home = rows.column(TARGET_FILE).to_numpy()
            deleted = is_deleted(rows).to_numpy(zero_copy_only=False)
            placed = self._placed.setdefault(name, np.zeros(len(rows), bool))
            here = home == self._touched.number
            partial = rows.column(PARTIAL).to_numpy()
            gone = deleted & self._touched.batch.hard
            self._name = name
            self._loaded = _Winners(rows, self.key.of(rows), gone, here, partial, placed)
        return self._loaded


def _replaced(rows: pa.Table, winners: _Winners, key: Keyed, counts: _Counts) -> pa.Table:
    """Return the rows with each winner in the place of the first row that has its key, and without all other such."""
    found = lookup(key.of(rows), winners.keys)
    matched = found.is_valid().to_numpy(zero_copy_only=False)
    if not matched.any():
        return rows
    place = found.fill_null(0).to_numpy().astype(np.int64)
    first = np.zeros(len(rows), bool)
    at = np.flatnonzero(matched)
    first[at[np.unique(place[at], return_index=True)[1]]] = True
    takes = matched & first & winners.here[place] & ~winners.gone[place] & ~winners.placed[place]
    winners.placed[place[takes]] = True
    counts.replaced += int(takes.sum())
    counts.dropped += int((matched & ~takes).sum())
    stays = ~matched | takes
    indices = np.where(takes, len(rows) + place, np.arange(len(rows)))[stays]
    filled = (takes & winners.partial[place])[stays]
    columns = []
    for name in rows.column_names:
        old, new = rows.column(name), winners.rows.column(name)
        own = indices
        if filled.any() and name not in key.names:  # what a partial row does not say stays
            silent = lacks(winners.rows, name).to_numpy(zero_copy_only=False)[place[stays]] & filled
            own = np.where(silent, np.flatnonzero(stays), indices)
        columns.append(pa.chunked_array([*old.chunks, *new.chunks], old.type).take(pa.array(own)))
    return pa.table(columns, schema=rows.schema)


def count_older(context: WriteContext, touched: Touched) -> OlderRows:
    """Count the rows of a live file that a sweep is of."""
    layout, older = context.layouts[touched.batch.stream], 0
    with opened(context, f"{layout.folder}/{touched.name}") as live:
        fields = [field for field in touched.batch.fields if field.name in (VERSION_COLUMN, DELETED)]
        wanted = [field.name for field in fields if field.name in live.schema_arrow.names]
        for group in range(live.num_row_groups if VERSION_COLUMN in wanted else 0):
            rows = refit(live.read_row_group(group, columns=wanted), fields)
            older += _swept(rows, touched)[1]
        return OlderRows(live.metadata.num_rows, older)
