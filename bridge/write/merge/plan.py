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

from bridge.errors import EngineError
from bridge.lake.log import LiveTable
from bridge.write.context import Job
from bridge.write.keys import key_columns, order_of
from bridge.write.merge.footers import Range, find_ranges, read_ranges
from bridge.write.merge.match import Batch, Part, in_ms, match, outside
from bridge.write.merge.rewrite import Touched, count_older, rewrite
from bridge.write.spill import spills, unpacked

COUNTS = ("rows", "inserted", "updated", "superseded", "deleted")
"""What a commit says of the rows that came: the first is the sum of the others."""

_PART = 128 << 20
"""Arrow bytes of the rows that one task folds, about."""
_FOOTERS = 64
"""Files whose footers one task reads."""


class Each(Protocol):
    """Does a piece of work for each payload, on executors if there are any; the reports come in their order."""

    def __call__(self, work: Callable[[Job, Any], dict[str, Any]], payloads: Sequence[Any], /) -> list[dict[str, Any]]:
        """Raise what a report says that failed."""


@dataclass(slots=True)
class Merged:
    """What a merge makes of a table. A file under `adds` and `removes` is replaced under its name."""

    adds: list[dict[str, Any]] = field(default_factory=list)
    removes: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    swept: int = 0
    """Rows of older versions that went, or were marked."""
    empty: list[dict[str, Any]] = field(default_factory=list)
    """Pending files that nobody needs: of files whose last row went."""

    def facts(self) -> dict[str, Any]:
        """Return what the commit says of it; nothing where files are only added, or the table is another."""
        said = {"swept": self.swept} if self.swept else {}
        return dict(self.counts) | said if said or self.counts["rows"] else {}


class Merger:
    """Merges one table at a time. Remembers, for the run, the ranges of keys that the files have."""

    def __init__(self, job: Job, each: Each) -> None:
        self._job, self._each = job, each
        self._ranges: dict[str, dict[str, Range]] = defaultdict(dict)

    def merge(self, batch: Batch, table: LiveTable, came: Sequence[dict[str, Any]], *, anew: bool = False) -> Merged:
        """Merge what came, the facts of spills, into the table, or with `anew` into none, which replaces it."""
        live = [] if anew else sorted(table.files)
        merged = Merged(removes=list(table.files) if anew else [])
        touched = self._match(batch, live, came, merged) if came else {}
        hit = {number: Touched(batch, number, live[number], files) for number, files in touched.items()}
        if batch.sweep and not anew:
            self._find_older(batch, table, live, hit, merged)
        reports = self._each(rewrite, list(hit.values()))
        self._rewritten(table, list(hit.values()), reports, merged)
        moved, replaced = merged.counts.pop("moved", 0), sum(report["replaced"] for report in reports)
        if replaced != merged.counts["updated"] - moved:
            raise _wrong(batch, updated=merged.counts["updated"], moved=moved, replaced=replaced)
        self._forget(batch.stream, [*came, *({"name": name} for files in touched.values() for name in files)], merged)
        return merged

    def extend(self, batch: Batch, table: LiveTable, came: Sequence[dict[str, Any]], *, activated: bool) -> Merged:
        """Add what came, the facts of pending files; with `activated` files of older versions go, or are marked.

        A file's rows are of one version. One that is pending cannot be marked: it is `stale` until the next commit.
        """
        sweep = batch.sweep
        assert sweep is not None

        def older(facts: dict[str, Any]) -> bool:
            return activated and "version" in facts and in_ms(facts["version"]) < in_ms(sweep.version)

        names = [name for name, facts in sorted(table.files.items()) if "stale" in facts or older(facts)]
        rows = sum(facts["rows"] for facts in came)
        if sweep.at is None:
            merged = Merged([facts for facts in came if not older(facts)], names)
            merged.empty = [facts for facts in came if older(facts)]
            merged.swept = sum(table.files[name]["rows"] for name in names)
        else:
            merged, kept = Merged(), [name for name in names if "deleted" not in table.files[name]]
            work = [Touched(batch, n, name, (), table.files[name]["version"]) for n, name in enumerate(kept)]
            self._rewritten(table, work, self._each(rewrite, work), merged)
            merged.adds = [add | {"version": w.version, "deleted": 1} for add, w in zip(merged.adds, work, strict=True)]
            merged.adds += [facts | {"stale": 1} if older(facts) else facts for facts in came]
        deleted = sum(facts["rows"] for facts in merged.empty)
        merged.counts |= {"rows": rows, "inserted": rows - deleted, "deleted": deleted}
        return merged

    def _match(
        self, batch: Batch, live: Sequence[str], came: Sequence[dict[str, Any]], merged: Merged
    ) -> dict[int, list[str]]:
        """Write the rows with new keys; return which live files have which winners."""
        columns = batch.columns
        names = key_columns(columns, self._job.targets[batch.stream].keys)
        ranges = self._known(batch.stream, live, names)
        types = [columns.field(name).type for name in names]
        bounds = _bounds(came, types)
        parts = [
            Part(
                batch,
                [facts["name"] for facts in came],
                low,
                high,
                [(n, s, ranges[s]) for n, s in enumerate(live) if not outside(ranges[s][0], types[0], low, high)],
            )
            for low, high in zip([None, *bounds], [*bounds, None], strict=True)
        ]
        touched: dict[int, list[str]] = defaultdict(list)
        for report in self._each(match, parts):
            merged.adds += report["files"]
            for name in (*COUNTS, "moved"):
                merged.counts[name] = merged.counts.get(name, 0) + report[name]
            for number in report["touched"]:
                touched[int(number)].append(report["winners"])
        counts = merged.counts
        if counts["rows"] != sum(facts["rows"] for facts in came) or counts["rows"] != sum(
            counts[n] for n in COUNTS[1:]
        ):
            raise _wrong(batch, **counts)
        return touched

    def _known(self, stream: str, live: Sequence[str], names: Sequence[str]) -> dict[str, Range]:
        known = self._ranges[stream]
        missing = [name for name in live if name not in known]
        asked = [(stream, missing[at : at + _FOOTERS], names) for at in range(0, len(missing), _FOOTERS)]
        for report in self._each(find_ranges, asked):
            known |= read_ranges(report)
        return known

    def _find_older(
        self, batch: Batch, table: LiveTable, live: Sequence[str], hit: dict[int, Touched], merged: Merged
    ) -> None:
        """Add the files that have rows of older versions; those that have no others are gone without being read."""
        rest = [Touched(batch, number, name, ()) for number, name in enumerate(live) if number not in hit]
        hard = batch.sweep is not None and batch.sweep.at is None
        for one, report in zip(rest, self._each(count_older, rest), strict=True):
            if hard and report["older"] == table.files[one.name]["rows"] > 0:
                merged.removes.append(one.name)
                merged.swept += report["older"]
            elif report["older"]:
                hit[one.number] = one

    def _rewritten(
        self, table: LiveTable, work: Sequence[Touched], reports: Sequence[dict[str, Any]], merged: Merged
    ) -> None:
        for one, report in zip(work, reports, strict=True):
            gone = report["dropped"] + (report["swept"] if one.batch.sweep and one.batch.sweep.at is None else 0)
            if report["file"]["rows"] != table.files[one.name]["rows"] - gone:
                raise _wrong(one.batch, file=one.name, rows=report["file"]["rows"], gone=gone)
            merged.removes.append(one.name)
            merged.swept += report["swept"]
            (merged.adds if report["file"]["rows"] else merged.empty).append(report["file"])

    def _forget(self, stream: str, scratch: Sequence[dict[str, Any]], merged: Merged) -> None:
        """Let go of what is merged: files in the spool, and the ranges of files that are others now."""
        for name in merged.removes:
            self._ranges[stream].pop(name, None)
        for facts in scratch:
            with suppress(OSError):
                (spills(self._job) / facts["name"]).unlink(missing_ok=True)


def _bounds(came: Sequence[dict[str, Any]], types: Sequence[pa.DataType]) -> list[tuple[Any, ...]]:
    """Return the keys at which to cut, so that the ranges between them have about as many rows each."""
    count = -(-sum(facts["bytes"] for facts in came) // _PART)
    if count < 2:
        return []
    samples = [unpacked(facts["sample"]) for facts in came]
    keys = {
        tuple(row.values())
        for table in samples
        for row in table.cast(pa.schema(list(zip(table.column_names, types, strict=True))), safe=False).to_pylist()
    }
    found = sorted(keys, key=order_of)
    places = sorted({number * len(found) // count for number in range(1, count)} - {0})
    return [found[place] for place in places]


def _wrong(batch: Batch, **facts: Any) -> EngineError:
    hint = "nothing was committed; run again, and report it with the run's log if it comes back"
    return EngineError("a merge does not add up", hint=hint, stream=batch.stream, **facts)
