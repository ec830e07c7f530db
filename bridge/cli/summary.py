"""What a run has come to, for people: a row a stream, and one line."""

from __future__ import annotations

from bridge.cli.show import console, count, note, size, table
from bridge.pipeline import Result

__all__ = ["summary"]

_MARKS = {"success": ("green", "✓"), "failed": ("red", "✗"), "interrupted": ("yellow", "■")}


def summary(result: Result, *, attempts: int = 1, named: bool = False) -> None:
    """Print a run's result; `named` begins with its pipeline, as others come before or after it."""
    out = console()
    if not out.is_terminal:
        out.width = 160
    if named:
        out.print(f"[bold]{result.pipeline}[/]")
    rows = [
        [
            name,
            f"{counts.load_method} ({counts.reason})",
            count(counts.committed),
            count(counts.rejected) if counts.rejected else "",
            count(counts.files),
            size(counts.bytes),
        ]
        for name, counts in result.streams.items()
    ]
    if rows:
        columns = ["stream", "load method", "records", "rejected", "files", "size"]
        out.print(table(columns, rows, right=columns[2:]))
        out.print()
    colour, mark = _MARKS[result.status]
    out.print(f"[{colour}]{mark} {result.status}[/]  {_figures(result, attempts)}", soft_wrap=True)
    for warning in result.warnings:
        note("warning", "yellow", warning)
    if named:
        out.print()


def _figures(result: Result, attempts: int) -> str:
    total = sum(counts.committed for counts in result.streams.values())
    seconds = result.seconds.get("total", 0.0)
    rate = f", {count(round(total / seconds))} records/s" if total and seconds else ""
    nothing = ", nothing new" if result.status == "success" and not total else ""
    attempt = (
        f", attempt {result.attempt} of {attempts}" if result.attempt > 1 or (attempts > 1 and result.error) else ""
    )
    run = f"   [dim]run {result.run_id}[/]" if "load" in result.seconds else ""
    return f"{count(total)} records in {seconds:.1f} s{rate}, {result.commits} commit(s){nothing}{attempt}{run}"
