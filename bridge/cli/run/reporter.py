"""One run for people or programs: what it shows while it works, and how it ended."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from bridge.cli import events
from bridge.cli.flags import explain
from bridge.cli.plain import PlainLines
from bridge.cli.run.progress import Progress
from bridge.cli.selection import ChosenPipeline
from bridge.cli.show import console, count, count_of, note, print_table, records_of, size
from bridge.durations import duration
from bridge.errors import SettingsError
from bridge.load.run.result import Result
from bridge.load.run.run import Run
from bridge.load.run.stop import Stop
from bridge.serve.launch.launch import attempts
from bridge.settings.values.request import Request

_NOT_IN_EVENTS = {"format", "state", "state_before", "warnings", "error"}
"""Facts of a run that have an event of their own, or that may be large."""
_MARKS = {"success": ("green", "✓"), "failed": ("red", "✗"), "interrupted": ("yellow", "■"), "held": ("red", "✗")}


@dataclass(frozen=True, slots=True)
class RunReporter:
    """How runs are reported, in this process or in another."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False
    progress: bool = True
    several: bool = False
    """The JSON is an array, and summaries name the pipeline."""
    variables: str = ""
    """The environment variables that set flags of the command; see `bridge.cli.flags.explain`."""

    def run(self, chosen: ChosenPipeline, request: Request, stop: Stop) -> tuple[Result, int]:
        """Run a pipeline, with its retries, and report all of it. Returns the last attempt's result and exit code."""
        most = chosen.pipeline.retry.attempts
        for attempt in attempts(chosen.pipeline, request, chosen.home, stop):
            with attempt.turn() as run:
                self._execute(run)
            if (pause := attempt.pause) is not None:
                self._finished(attempt.result, most)
                following, seconds = f"{attempt.result.attempt + 1} of {most}", pause.total_seconds()
                self.announce(f"attempt {following} in {duration(pause)}", "retry", attempt=following, seconds=seconds)
        attempt.tell_receivers()
        return attempt.result, self._finished(attempt.result, most)

    def _execute(self, run: Run) -> None:
        if self.verbose:
            run.echo = events.TapLines(run.pipeline.name) if events.is_json() else PlainLines(sys.stderr.buffer)
        if events.is_json() and not self.quiet:
            events.emit("info", "run_started", pipeline=run.pipeline.name, run_id=run.result.run_id)
        with Progress(run, enabled=self._shows_progress()):
            run.execute()

    def announce(self, text: str, event: str, **facts: object) -> None:
        """Report what happens between runs."""
        if self.quiet:
            return
        if events.is_json():
            events.emit("info", event, **facts)
        else:
            console(err=True).print(text, markup=False, soft_wrap=True)

    def _finished(self, result: Result, most: int) -> int:
        if isinstance(result.error, SettingsError):
            explain(result.error, self.variables)
        if not self.quiet and events.is_json():
            facts = result.to_json()
            events.emit("info", "run_finished", **{key: facts[key] for key in facts if key not in _NOT_IN_EVENTS})
            for warning in result.warnings:
                events.emit("warning", "warning", pipeline=result.pipeline, message=warning)
        elif not self.quiet and not self.json:
            summary(result, attempts=most, named=self.several)
        if result.error is None:
            return 0
        if self.verbose:
            events.trace(result.error)
        return events.report(result.error)

    def _shows_progress(self) -> bool:
        # The tap's own lines, and --json, replace it.
        return self.progress and not self.quiet and (events.is_json() or not (self.json or self.verbose))


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
