"""The driver's part of a merge: gives ranges of keys to tasks, and tells from their reports what a commit changes.

Memory grows with files and tasks, never with rows.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from msgspec import convert, structs

from bridge.errors import EngineError
from bridge.lake.file_records import FileAdd, LiveFile, PendingFile
from bridge.lake.records import TableState
from bridge.load.write.context import MapOnExecutors, WriteContext
from bridge.load.write.keys import order_of
from bridge.load.write.merge.footers import Range, Ranges, find_ranges, read_ranges
from bridge.load.write.merge.history import Made, Making, make_versions
from bridge.load.write.merge.match import KeyRange, Matched, MergeSpec, VersionSweep, WindowSweep, in_ms, match, outside
from bridge.load.write.merge.rewrite import NewFile, OlderRows, Touched, count_older, rewrite
from bridge.load.write.report import RowChanges, SpillFile
from bridge.load.write.rewrite import REWRITTEN
from bridge.load.write.shared_spool import delete_files
from bridge.load.write.spill import unpack_table
from bridge.protocol.schema.json_schema import VERSION_COLUMN

COUNTS = ("rows", "inserted", "updated", "superseded", "deleted")
"""The counts of new rows in a commit: the first is the sum of the others."""

_RANGE = 128 << 20
"""About how many Arrow bytes of new rows one range of keys has."""
_FOOTERS = 64
"""Files whose footers one task reads."""
# What one core does in about the time that a job of Spark takes. A merge of few rows then is one job, not three.
_MATCHED = 64 << 20
"""Bytes of files in which keys are looked up, of which only the key's columns are read."""
_SPILLED = 8 << 20
"""Arrow bytes of new rows."""


@dataclass(slots=True)
class Merged:
    """The changes that a merge makes to a table. A file in both `adds` and `removes` is replaced under its name."""

    adds: list[FileAdd] = field(default_factory=list)
    removes: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    swept: int = 0
    """Rows of older versions, or of a window, that were removed or marked."""
    dropped: int = 0
    """Rows that were removed as more than one had the key of a newer row; `dropped_nulls`: whose key has a null."""
    dropped_nulls: int = 0
    empty: list[FileAdd] = field(default_factory=list)
    """Pending files without a row, which nobody needs."""
    changes: list[RowChanges] = field(default_factory=list)
    """Of files that were rewritten, as far as they were noted."""

    def facts(self) -> dict[str, Any]:
        """The facts about the merge for the commit; empty if no row was merged or swept."""
        more = {"swept": self.swept, "dropped": self.dropped, "dropped_nulls": self.dropped_nulls}
        more = {name: rows for name, rows in more.items() if rows}
        return dict(self.counts) | more if more or self.counts["rows"] else {}


class Merger:
    """Merges one table at a time. Remembers for the run which keys the files can hold."""

    def __init__(self, context: WriteContext, each: MapOnExecutors) -> None:
        self._context, self._each = context, each
        self._ranges: dict[tuple[str, tuple[str, ...]], dict[str, Range]] = defaultdict(dict)

    def merge(self, spec: MergeSpec, table: TableState, spills: Sequence[SpillFile], *, anew: bool = False) -> Merged:
        """Merge rows into the table, or with `anew` into an empty one that replaces it."""
        if self._context.layouts[spec.stream].history and not spec.of_versions:
            return self._merge_history(spec, table, spills, anew=anew)
        live = [] if anew else sorted(table.files)
        merged = Merged(removes=list(table.files) if anew else [])
        winners = self._match(spec, table, live, spills, merged) if spills else {}
        files = {number: (live[number], names) for number, names in winners.items()}
        touched = {n: Touched(spec, n, name, names, table.files[name].version) for n, (name, names) in files.items()}
        if spec.sweep and not anew:
            self._find_older(spec, table, live, touched, merged)
        replaced = self._rewrite(table, list(touched.values()), merged)
        moved = merged.counts.pop("moved", 0)
        if replaced != merged.counts["updated"] - moved:
            raise _wrong(spec, updated=merged.counts["updated"], moved=moved, replaced=replaced)
        scratch = [*(spill.name for spill in spills), *(name for names in winners.values() for name in names)]
        self._forget(spec.stream, scratch, merged)
        return merged

    def _merge_history(self, spec: MergeSpec, table: TableState, spills: Sequence[SpillFile], *, anew: bool) -> Merged:
        """Make versions of the rows, and merge those."""
        live, now = [] if anew else sorted(table.files), time.time_ns() // 1000
        tasks = [Making(keys, now) for keys in self._key_ranges(spec, live, spills)] if spills or spec.sweep else []
        cost = _cost(table, [task.keys for task in tasks], spills)
        made = convert(self._each(make_versions, tasks, cost=cost), list[Made])
        changed = [one.spill for one in made if one.spill]
        merged = self.merge(replace(spec, sweep=None, hard=True, of_versions=True), table, changed, anew=anew)
        merged.counts = {name: sum(getattr(one, name) for one in made) for name in COUNTS}
        merged.swept = sum(one.swept for one in made)
        self._check_counts(spec, spills, merged)
        delete_files(self._context, [spill.name for spill in spills])
        return merged

    def extend(self, spec: MergeSpec, table: TableState, pending: Sequence[PendingFile], *, activated: bool) -> Merged:
        """Add pending files; with `activated` files of older versions are removed, or their rows marked.

        All rows of a file are of one version, but for files of an upsert, which are swept row by row. Those of a
        pending file cannot be marked: it is `stale` until the next commit.
        """
        sweep = spec.sweep
        assert isinstance(sweep, VersionSweep)

        def older(file: PendingFile | LiveFile) -> bool:
            return activated and file.version is not None and in_ms(file.version) < in_ms(sweep.version)

        names = [name for name, file in sorted(table.files.items()) if file.stale or older(file)]
        rows = sum(file.rows for file in pending)
        if sweep.at is None:
            merged = Merged([file.add() for file in pending if not older(file)], names)
            merged.empty = [file.add() for file in pending if older(file)]
            merged.swept = sum(table.files[name].rows for name in names)
        else:
            merged, unmarked = Merged(), [name for name in names if not table.files[name].deleted]
            work = [Touched(spec, n, name, (), table.files[name].version) for n, name in enumerate(unmarked)]
            self._rewrite(table, work, merged)
            marked = zip(merged.adds, work, strict=True)
            merged.adds = [structs.replace(add, version=one.version, deleted=1) for add, one in marked]
            merged.adds += [file.add(stale=1 if older(file) else 0) for file in pending]
        deleted = sum(file.rows for file in merged.empty)
        if activated and VERSION_COLUMN in spec.columns.names:  # files of an upsert, from when the table had a key
            touched: dict[int, Touched] = {}
            self._find_older(
                spec, table, [n for n, file in table.files.items() if file.version is None], touched, merged
            )
            self._rewrite(table, list(touched.values()), merged)
        merged.counts |= {"rows": rows, "inserted": rows - deleted, "deleted": deleted}
        return merged

    def replace(self, spec: MergeSpec, table: TableState, pending: Sequence[PendingFile]) -> Merged:
        """Add pending files, and remove the rows that `spec` sweeps from the table's."""
        assert isinstance(spec.sweep, WindowSweep)
        spec.sweep.window.require_column(spec.fields)
        merged, touched = Merged([file.add() for file in pending]), dict[int, Touched]()
        self._find_older(spec, table, sorted(table.files), touched, merged)
        self._rewrite(table, list(touched.values()), merged)
        rows = sum(file.rows for file in pending)
        merged.counts |= {"rows": rows, "inserted": rows}
        return merged

    def _match(
        self, spec: MergeSpec, table: TableState, live: Sequence[str], spills: Sequence[SpillFile], merged: Merged
    ) -> dict[int, list[str]]:
        """Write the rows with new keys; return for each live file, by number, the files of winners with its keys."""
        tasks = self._key_ranges(spec, live, spills)
        cost = _cost(table, tasks, spills)
        touched: dict[int, list[str]] = defaultdict(list)
        for report in convert(self._each(match, tasks, cost=cost), list[Matched]):
            merged.adds += [file.add() for file in report.files]
            for name in (*COUNTS, "moved"):
                merged.counts[name] = merged.counts.get(name, 0) + getattr(report, name)
            merged.dropped += report.dropped
            merged.dropped_nulls += report.dropped_nulls
            for number in report.touched:
                touched[int(number)].append(report.winners)
        self._check_counts(spec, spills, merged)
        return touched

    def _check_counts(self, spec: MergeSpec, spills: Sequence[SpillFile], merged: Merged) -> None:
        counts = merged.counts
        if not counts["rows"] == sum(spill.rows for spill in spills) == sum(counts[name] for name in COUNTS[1:]):
            raise _wrong(spec, **counts)

    def _key_ranges(self, spec: MergeSpec, live: Sequence[str], spills: Sequence[SpillFile]) -> list[KeyRange]:
        """The ranges of keys that are the work of one task each."""
        key = spec.key(self._context)
        ranges, types = self._ranges_of(spec.stream, live, key.names), [field.type for field in key.fields]
        bounds = _bounds(spills, types)
        return [
            KeyRange(
                spec,
                [spill.name for spill in spills],
                low,
                high,
                [(n, s, ranges[s]) for n, s in enumerate(live) if not outside(ranges[s][0], types[0], low, high)],
            )
            for low, high in zip([None, *bounds], [*bounds, None], strict=True)
        ]

    def _ranges_of(self, stream: str, live: Sequence[str], names: Sequence[str]) -> dict[str, Range]:
        ranges = self._ranges[stream, tuple(names)]
        missing = [name for name in live if name not in ranges]
        asked = [(stream, missing[at : at + _FOOTERS], names) for at in range(0, len(missing), _FOOTERS)]
        for report in convert(self._each(find_ranges, asked, cost=len(missing) / _FOOTERS), list[Ranges]):
            ranges |= read_ranges(report)
        return ranges

    def _find_older(
        self, spec: MergeSpec, table: TableState, live: Sequence[str], touched: dict[int, Touched], merged: Merged
    ) -> None:
        """Add the files with rows that go, or are marked, to `touched`; a file with no others is removed unread."""
        files = table.files
        rest = [Touched(spec, n, name, (), files[name].version) for n, name in enumerate(live) if n not in touched]
        hard = spec.sweep is not None and spec.sweep.at is None
        cost = _size(table, [one.name for one in rest]) / _MATCHED
        for one, report in zip(rest, convert(self._each(count_older, rest, cost=cost), list[OlderRows]), strict=True):
            if hard and report.older == table.files[one.name].rows > 0:
                merged.removes.append(one.name)
                merged.swept += report.older
            elif report.older:
                touched[one.number] = one

    def _rewrite(self, table: TableState, work: Sequence[Touched], merged: Merged) -> int:
        """Rewrite live files; return how many of their rows were replaced."""
        cost = _size(table, [one.name for one in work]) / REWRITTEN
        reports = convert(self._each(rewrite, work, cost=cost), list[NewFile])
        for one, report in zip(work, reports, strict=True):
            removed = report.dropped + (report.swept if one.spec.sweep and one.spec.sweep.at is None else 0)
            if report.file.rows != table.files[one.name].rows - removed:
                raise _wrong(one.spec, file=one.name, rows=report.file.rows, removed=removed)
            merged.removes.append(one.name)
            merged.swept += report.swept
            merged.changes += [report.changes] if report.changes else []
            add, old = report.file.add(), table.files[one.name]
            if isinstance(one.spec.sweep, WindowSweep):  # what the log knows of all of its rows holds for the rest
                add = structs.replace(add, version=old.version, deleted=old.deleted, stale=old.stale)
            (merged.adds if report.file.rows else merged.empty).append(add)
        return sum(report.replaced for report in reports)

    def _forget(self, stream: str, scratch: Sequence[str], merged: Merged) -> None:
        """Delete what is merged from the spool, and forget the ranges of files that are replaced."""
        for ranges in (each for key, each in self._ranges.items() if key[0] == stream):
            for name in merged.removes:
                ranges.pop(name, None)
        delete_files(self._context, scratch)


def _size(table: TableState, names: Iterable[str]) -> int:
    return sum(table.files[name].size for name in names)


def _cost(table: TableState, ranges: Sequence[KeyRange], spills: Sequence[SpillFile]) -> float:
    """How long it takes to look new rows up in the files that can hold their keys, in times of a job of Spark."""
    candidates = {name for one in ranges for _, name, _ in one.files}
    return max(sum(spill.bytes for spill in spills) / _SPILLED, _size(table, candidates) / _MATCHED)


def _bounds(spills: Sequence[SpillFile], types: Sequence[pa.DataType]) -> list[tuple[Any, ...]]:
    """The keys at which to cut, so that the ranges between them have about as many rows each."""
    count = -(-sum(spill.bytes for spill in spills) // _RANGE)
    if count < 2:
        return []
    keys = {
        tuple(row.values())
        for table in (unpack_table(spill.sample) for spill in spills)
        for row in table.cast(pa.schema(list(zip(table.column_names, types, strict=True))), safe=False).to_pylist()
    }
    ordered = sorted(keys, key=order_of)
    places = sorted({number * len(ordered) // count for number in range(1, count)} - {0})
    return [ordered[place] for place in places]


def _wrong(spec: MergeSpec, **facts: Any) -> EngineError:
    hint = "nothing was committed; run again, and report it with the run's log if it comes back"
    return EngineError("a merge does not add up", hint=hint, stream=spec.stream, **facts)
