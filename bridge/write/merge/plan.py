"""The driver's part of a merge: ranges of keys to tasks, and their reports to what a commit adds and removes.

What is kept here grows with files and tasks, never with rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
from msgspec import Struct, convert, structs

from bridge.errors import EngineError
from bridge.lake.records import FileAdd, LiveFile, PendingFile, TableState
from bridge.write.context import WriteContext
from bridge.write.keys import key_columns, order_of
from bridge.write.merge.footers import Range, Ranges, find_ranges, read_ranges
from bridge.write.merge.match import KeyRange, Matched, MergeSpec, in_ms, match, outside
from bridge.write.merge.rewrite import NewFile, OlderRows, Touched, count_older, rewrite
from bridge.write.report import SpillFile
from bridge.write.spill import spills, unpacked

COUNTS = ("rows", "inserted", "updated", "superseded", "deleted")
"""What a commit says of the rows that came: the first is the sum of the others."""

_PART = 128 << 20
"""Arrow bytes of the rows that one task folds, about."""
_FOOTERS = 64
"""Files whose footers one task reads."""


class Each(Protocol):
    """Does a piece of work for each payload, on executors if there are any; the reports come in their order."""

    def __call__(self, work: Callable[[WriteContext, Any], Struct], payloads: Sequence[Any], /) -> list[Any]:
        """Raise what a report says that failed. From executors the reports come as plain JSON: `convert` reads both."""


@dataclass(slots=True)
class Merged:
    """What a merge makes of a table. A file under `adds` and `removes` is replaced under its name."""

    adds: list[FileAdd] = field(default_factory=list)
    removes: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    swept: int = 0
    """Rows of older versions that went, or were marked."""
    empty: list[FileAdd] = field(default_factory=list)
    """Pending files that nobody needs: of files whose last row went."""

    def facts(self) -> dict[str, Any]:
        """Return what the commit says of it; nothing where files are only added, or the table is another."""
        said = {"swept": self.swept} if self.swept else {}
        return dict(self.counts) | said if said or self.counts["rows"] else {}


class Merger:
    """Merges one table at a time. Remembers, for the run, the ranges of keys that the files have."""

    def __init__(self, context: WriteContext, each: Each) -> None:
        self._context, self._each = context, each
        self._ranges: dict[str, dict[str, Range]] = defaultdict(dict)

    def merge(self, batch: MergeSpec, table: TableState, came: Sequence[SpillFile], *, anew: bool = False) -> Merged:
        """Merge the rows that came into the table, or with `anew` into none, which replaces it."""
        live = [] if anew else sorted(table.files)
        merged = Merged(removes=list(table.files) if anew else [])
        touched = self._match(batch, live, came, merged) if came else {}
        hit = {number: Touched(batch, number, live[number], files) for number, files in touched.items()}
        if batch.sweep and not anew:
            self._find_older(batch, table, live, hit, merged)
        reports = convert(self._each(rewrite, list(hit.values())), list[NewFile])
        self._rewritten(table, list(hit.values()), reports, merged)
        moved, replaced = merged.counts.pop("moved", 0), sum(report.replaced for report in reports)
        if replaced != merged.counts["updated"] - moved:
            raise _wrong(batch, updated=merged.counts["updated"], moved=moved, replaced=replaced)
        winners = (name for names in touched.values() for name in names)
        self._forget(batch.stream, [*(spill.name for spill in came), *winners], merged)
        return merged

    def extend(self, batch: MergeSpec, table: TableState, came: Sequence[PendingFile], *, activated: bool) -> Merged:
        """Add the files that came; with `activated` files of older versions go, or are marked.

        A file's rows are of one version. One that is pending cannot be marked: it is `stale` until the next commit.
        """
        sweep = batch.sweep
        assert sweep is not None

        def older(file: PendingFile | LiveFile) -> bool:
            return activated and file.version is not None and in_ms(file.version) < in_ms(sweep.version)

        names = [name for name, file in sorted(table.files.items()) if file.stale or older(file)]
        rows = sum(file.rows for file in came)
        if sweep.at is None:
            merged = Merged([file.add() for file in came if not older(file)], names)
            merged.empty = [file.add() for file in came if older(file)]
            merged.swept = sum(table.files[name].rows for name in names)
        else:
            merged, kept = Merged(), [name for name in names if not table.files[name].deleted]
            work = [Touched(batch, n, name, (), table.files[name].version) for n, name in enumerate(kept)]
            self._rewritten(table, work, convert(self._each(rewrite, work), list[NewFile]), merged)
            marked = zip(merged.adds, work, strict=True)
            merged.adds = [structs.replace(add, version=one.version, deleted=1) for add, one in marked]
            merged.adds += [file.add(stale=1 if older(file) else 0) for file in came]
        deleted = sum(file.rows for file in merged.empty)
        merged.counts |= {"rows": rows, "inserted": rows - deleted, "deleted": deleted}
        return merged

    def _match(
        self, batch: MergeSpec, live: Sequence[str], came: Sequence[SpillFile], merged: Merged
    ) -> dict[int, list[str]]:
        """Write the rows with new keys; return which live files have which winners."""
        columns = batch.columns
        names = key_columns(columns, self._context.layouts[batch.stream].keys)
        ranges = self._known(batch.stream, live, names)
        types = [columns.field(name).type for name in names]
        bounds = _bounds(came, types)
        parts = [
            KeyRange(
                batch,
                [spill.name for spill in came],
                low,
                high,
                [(n, s, ranges[s]) for n, s in enumerate(live) if not outside(ranges[s][0], types[0], low, high)],
            )
            for low, high in zip([None, *bounds], [*bounds, None], strict=True)
        ]
        touched: dict[int, list[str]] = defaultdict(list)
        for report in convert(self._each(match, parts), list[Matched]):
            merged.adds += [file.add() for file in report.files]
            for name in (*COUNTS, "moved"):
                merged.counts[name] = merged.counts.get(name, 0) + getattr(report, name)
            for number in report.touched:
                touched[int(number)].append(report.winners)
        counts = merged.counts
        if not counts["rows"] == sum(spill.rows for spill in came) == sum(counts[name] for name in COUNTS[1:]):
            raise _wrong(batch, **counts)
        return touched

    def _known(self, stream: str, live: Sequence[str], names: Sequence[str]) -> dict[str, Range]:
        known = self._ranges[stream]
        missing = [name for name in live if name not in known]
        asked = [(stream, missing[at : at + _FOOTERS], names) for at in range(0, len(missing), _FOOTERS)]
        for report in convert(self._each(find_ranges, asked), list[Ranges]):
            known |= read_ranges(report)
        return known

    def _find_older(
        self, batch: MergeSpec, table: TableState, live: Sequence[str], hit: dict[int, Touched], merged: Merged
    ) -> None:
        """Add the files that have rows of older versions; those that have no others are gone without being read."""
        rest = [Touched(batch, number, name, ()) for number, name in enumerate(live) if number not in hit]
        hard = batch.sweep is not None and batch.sweep.at is None
        for one, report in zip(rest, convert(self._each(count_older, rest), list[OlderRows]), strict=True):
            if hard and report.older == table.files[one.name].rows > 0:
                merged.removes.append(one.name)
                merged.swept += report.older
            elif report.older:
                hit[one.number] = one

    def _rewritten(
        self, table: TableState, work: Sequence[Touched], reports: Sequence[NewFile], merged: Merged
    ) -> None:
        for one, report in zip(work, reports, strict=True):
            gone = report.dropped + (report.swept if one.batch.sweep and one.batch.sweep.at is None else 0)
            if report.file.rows != table.files[one.name].rows - gone:
                raise _wrong(one.batch, file=one.name, rows=report.file.rows, gone=gone)
            merged.removes.append(one.name)
            merged.swept += report.swept
            (merged.adds if report.file.rows else merged.empty).append(report.file.add())

    def _forget(self, stream: str, scratch: Sequence[str], merged: Merged) -> None:
        """Let go of what is merged: files in the spool, and the ranges of files that are others now."""
        for name in merged.removes:
            self._ranges[stream].pop(name, None)
        for name in scratch:
            with suppress(OSError):
                (spills(self._context) / name).unlink(missing_ok=True)


def _bounds(came: Sequence[SpillFile], types: Sequence[pa.DataType]) -> list[tuple[Any, ...]]:
    """Return the keys at which to cut, so that the ranges between them have about as many rows each."""
    count = -(-sum(spill.bytes for spill in came) // _PART)
    if count < 2:
        return []
    samples = [unpacked(spill.sample) for spill in came]
    keys = {
        tuple(row.values())
        for table in samples
        for row in table.cast(pa.schema(list(zip(table.column_names, types, strict=True))), safe=False).to_pylist()
    }
    found = sorted(keys, key=order_of)
    places = sorted({number * len(found) // count for number in range(1, count)} - {0})
    return [found[place] for place in places]


def _wrong(batch: MergeSpec, **facts: Any) -> EngineError:
    hint = "nothing was committed; run again, and report it with the run's log if it comes back"
    return EngineError("a merge does not add up", hint=hint, stream=batch.stream, **facts)
