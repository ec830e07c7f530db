"""Medians of the runs, and the five promises computed from them. Nothing here measures.

A bar is printed, never asserted in a test: a timed test on a shared machine fails for reasons that are not ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from .bench import Run
from .system import SMALL_RUN_RECORDS

SPEED_OVER_DATASPOC = 3.0
MARGINAL_OF_LIMIT = 0.8
SMALL_RUN_OVER_BARE = 1.15
ORCHESTRATOR_BYTES = 200_000_000


@dataclass(frozen=True, slots=True)
class Row:
    """The runs of one system and size as one line: medians of times, the highest peaks, the worst counts."""

    system: str
    records: int
    runs: int
    """Successful ones; 0 where all failed."""
    error: str
    wall_seconds: float
    cpu_seconds: float
    peak_rss_bytes: dict[str, int]
    main_high_water_bytes: int
    rows: int | None
    distinct: int | None

    @property
    def records_per_second(self) -> float:
        """Whole process, start to end."""
        return self.records / self.wall_seconds

    @property
    def cpu_per_million(self) -> float:
        """CPU seconds for a million records."""
        return self.cpu_seconds / self.records * 1e6

    @property
    def complete(self) -> bool:
        """Every record came out exactly once (or the system stores none)."""
        return self.rows is None or self.rows == self.distinct == self.records


@dataclass(frozen=True, slots=True)
class Bar:
    """One promise: `passed` is None where a run it needs is missing or failed."""

    title: str
    passed: bool | None
    figures: str


def rows_of(runs: Iterable[Run]) -> list[Row]:
    """One row for each system and size, in the order of their first run."""
    groups: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.system, run.records), []).append(run)
    return [_row(group) for group in groups.values()]


def bars_of(rows: Sequence[Row]) -> list[Bar]:
    """The bars of the project, in its order."""
    marginal = _marginal(rows, "limit", "the limit's"), _marginal(rows, "duckdb", "DuckDB's COPY's")
    return [_over_dataspoc(rows), *marginal, _small_run(rows), _orchestrator(rows)]


def marginal_rate(rows: Sequence[Row], system: str) -> float | None:
    """Records a second between the smaller and the larger big run: start-up and shut-down cancel out."""
    sizes = _sizes(rows, system)
    if len(sizes) < 2 or sizes[-1].wall_seconds <= sizes[-2].wall_seconds:
        return None
    small, large = sizes[-2:]
    return (large.records - small.records) / (large.wall_seconds - small.wall_seconds)


def _row(group: Sequence[Run]) -> Row:
    good = [run for run in group if not run.error]
    kinds = {kind for run in good for kind in run.peak_rss_bytes}
    counted = [run for run in good if run.rows is not None]
    worst = max(counted, key=lambda run: abs((run.rows or 0) - run.records), default=None)
    return Row(
        system=group[0].system,
        records=group[0].records,
        runs=len(good),
        error=next((run.error for run in group if run.error), ""),
        wall_seconds=median([run.wall_seconds for run in good] or [0.0]),
        cpu_seconds=median([run.cpu_seconds for run in good] or [0.0]),
        peak_rss_bytes={kind: max(run.peak_rss_bytes.get(kind, 0) for run in good) for kind in sorted(kinds)},
        main_high_water_bytes=max((run.main_high_water_bytes for run in good), default=0),
        rows=worst.rows if worst else None,
        distinct=worst.distinct if worst else None,
    )


def _sizes(rows: Sequence[Row], system: str) -> list[Row]:
    """The big sizes of a system that ran without any failure, smallest first. The small run is not about throughput."""
    mine = [
        row for row in rows if row.system == system and row.runs and not row.error and row.records > SMALL_RUN_RECORDS
    ]
    return sorted(mine, key=lambda row: row.records)


def _over_dataspoc(rows: Sequence[Row]) -> Bar:
    ours, theirs = _sizes(rows, "ours"), _sizes(rows, "dataspoc")
    title = f"largest size, whole process: at least {SPEED_OVER_DATASPOC:g} x DataSpoc"
    if not ours or not theirs or ours[-1].records != theirs[-1].records:
        return _not_run(title)
    mine, other = ours[-1].records_per_second, theirs[-1].records_per_second
    return Bar(
        title, mine >= SPEED_OVER_DATASPOC * other, f"{mine / other:.2f} x ({mine:,.0f} / {other:,.0f} records/s)"
    )


def _marginal(rows: Sequence[Row], system: str, whose: str) -> Bar:
    title = f"marginal rate: at least {MARGINAL_OF_LIMIT:g} x {whose}"
    ours, limit = marginal_rate(rows, "ours"), marginal_rate(rows, system)
    if ours is None or limit is None:
        return _not_run(title)
    figures = f"{ours / limit:.2f} x ({ours:,.0f} / {limit:,.0f} records/s)"
    return Bar(title, ours >= MARGINAL_OF_LIMIT * limit, figures)


def _small_run(rows: Sequence[Row]) -> Bar:
    title = f"1,000 records: at most {SMALL_RUN_OVER_BARE:g} x a bare Spark session"
    small = {
        row.system: row.wall_seconds for row in rows if row.records <= SMALL_RUN_RECORDS and row.runs and not row.error
    }
    if "ours" not in small or "bare-spark" not in small:
        return _not_run(title)
    ours, bare = small["ours"], small["bare-spark"]
    return Bar(title, ours <= SMALL_RUN_OVER_BARE * bare, f"{ours / bare:.2f} x ({ours:.2f} / {bare:.2f} s)")


def _orchestrator(rows: Sequence[Row]) -> Bar:
    title = f"orchestrator below {ORCHESTRATOR_BYTES / 1e6:g} MB at every size"
    mine = [row for row in rows if row.system == "ours" and row.runs]
    if not mine:
        return _not_run(title)
    peak = max(row.main_high_water_bytes for row in mine)
    sizes = ", ".join(f"{row.records:,}: {row.main_high_water_bytes / 1e6:.0f}" for row in mine)
    return Bar(title, peak < ORCHESTRATOR_BYTES, f"{peak / 1e6:.0f} MB ({sizes})")


def _not_run(title: str) -> Bar:
    return Bar(title, None, "a run it needs is missing or failed")
