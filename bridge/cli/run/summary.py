"""The result of a run for people: a row for each stream, and one line."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text

from bridge.cli.show import console, count, count_of, note, print_table, records_of, size
from bridge.durations import duration
from bridge.load.run.result import Result

_MARKS = {"success": ("green", "✓"), "failed": ("red", "✗"), "interrupted": ("yellow", "■"), "held": ("red", "✗")}


def summary(result: Result, *, attempts: int = 1, named: bool = False) -> None:
    """Print a run's result. `named` adds the pipeline's name, since there are several."""
    out = console()
    if named:
        out.print(f"[bold]{result.pipeline}[/]")
    rows = [
        [
            name,
            "held back" if counts.held else f"{counts.load_method} ({counts.reason})",
            count(counts.records),
            count(counts.committed),
            count(counts.rejected) if counts.rejected else "",
            count(counts.files),
            size(counts.bytes),
        ]
        for name, counts in result.streams.items()
    ]
    if rows:
        columns = ["stream", "load method", "read", "records", "rejected", "files", "size"]
        less = [*([] if any(counts.rejected for counts in result.streams.values()) else ["rejected"]), "files"]
        without = ("read",) if all(counts.stored >= counts.records for counts in result.streams.values()) else ()
        print_table(columns, rows, right=columns[2:], folds=["load method"], less=less, without=without)
        out.print()
    for move in result.moves():
        out.print(move, markup=False, highlight=False, soft_wrap=True)
    colour, mark = _MARKS[result.status]
    line = Text.assemble((f"{mark} {result.status}", colour), f"  {_figures(result, attempts)}")
    if "load" in result.seconds:
        run = f"run {result.run_id}"
        fits = not out.is_terminal or cell_len(line.plain) + 3 + len(run) <= out.width
        line.append("   " if fits else "\n  ").append(run, "dim")
    out.print(line, soft_wrap=True)
    for warning in result.warnings:
        note("warning", "yellow", warning)
    if named:
        out.print()


def _figures(result: Result, attempts: int) -> str:
    total = result.records
    seconds = result.seconds.get("total", 0.0)
    # The time that a tap needs to find changes, or that a lease was waited for, says nothing about our speed.
    loading = result.seconds.get("load", seconds) - result.seconds.get("waiting", 0.0)
    rate = f", {count(round(total / loading))} records/s" if total and loading > 0 else ""
    nothing = ", nothing new" if result.status == "success" and not total else ""
    attempt = (
        f", attempt {result.attempt} of {attempts}" if result.attempt > 1 or (attempts > 1 and result.error) else ""
    )
    commits = count_of(result.commits, "commit")
    records = records_of(result.status, result.read, total)
    return f"{records} in {duration(seconds)}{rate}, {commits}{nothing}{attempt}"
