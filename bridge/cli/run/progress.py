"""A run's progress: a live table on a terminal; elsewhere a line, or an event, every 10 seconds.

Always on stderr.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from bridge.cli import events
from bridge.cli.plain import plain
from bridge.cli.show import console, count, count_of, size
from bridge.durations import duration
from bridge.load.run.result import Counts
from bridge.load.run.run import Run
from bridge.load.spark.jvm.archive_maker import slow_start

_SHOWN = 15
_LINE_EVERY = 10.0
_LONG_START = 3.0
"""Seconds of Spark's start after which a line says why, and what shortens it."""
_LOOK_EVERY = 0.5
"""Seconds between two looks at the stage, where lines are printed."""
_TOO_SHORT = 1.0
"""Seconds. A shorter time gives no useful rate."""


class Progress:
    """Shows a run from another thread. A context manager around `run.execute()`."""

    def __init__(self, run: Run, *, enabled: bool) -> None:
        self._run = run
        self._console = console(err=True)
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._live: Live | None = None
        self._thread: threading.Thread | None = None
        self._spinner = Spinner("dots")
        self._starting: float | None = None
        self._note = ""
        if enabled and self._console.is_terminal and not events.is_json():
            self._live = Live(get_renderable=self._table, console=self._console, refresh_per_second=4, transient=True)
        elif enabled:
            self._thread = threading.Thread(target=self._lines, name="progress", daemon=True)

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        if self._thread:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._live:
            self._live.stop()

    def _table(self) -> Group:
        run, seconds = self._run, time.monotonic() - self._began
        streams = dict(run.result.streams)
        grid = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 3, 0, 0))
        grid.add_column("stream", overflow="ellipsis", no_wrap=True)
        for column in ("read", "committed", "written"):
            grid.add_column(column, justify="right")
        latest = sorted(streams.items(), key=lambda item: item[1].committed == item[1].records)
        for name, counts in latest[:_SHOWN]:
            complete = counts.committed and counts.committed == counts.records
            style = "green" if complete else ""
            committed = Text(count(counts.committed) if counts.committed else "", style)
            grid.add_row(
                Text(plain(name)), count(counts.records), committed, size(counts.bytes) if counts.bytes else ""
            )
        rate = _rate(list(streams.values()), speaking=run.context.stage == "extracting")
        more = f"   {len(streams) - _SHOWN} more streams" if len(streams) > _SHOWN else ""
        self._spinner.update(
            text=Text(f"{run.pipeline.name}: {run.context.stage}   {duration(round(seconds))}   {rate}{more}")
        )
        note = [Text(self._note, "dim")] if self._explain_start() else []
        return Group(self._spinner, *note, *([grid] if streams else []))

    def _explain_start(self) -> bool:
        """Whether Spark is starting for so long that `_note` should be shown."""
        if not self._run.context.starts_spark:
            self._starting = None
            return False
        self._starting = self._starting or time.monotonic()
        if time.monotonic() - self._starting < _LONG_START:
            return False
        self._note = self._note or slow_start(self._run.pipeline.spark.master)
        return True

    def _lines(self) -> None:
        """Print a line every 10 seconds, and once why Spark takes long to start."""
        following = self._began + _LINE_EVERY
        while not self._ended.wait(_LOOK_EVERY):
            if not self._note and self._explain_start():
                self._print_note()
            if time.monotonic() >= following:
                self._line()
                following += _LINE_EVERY

    def _print_note(self) -> None:
        name = self._run.pipeline.name
        if events.is_json():
            events.emit("info", "spark_starts", pipeline=name, message=self._note)
        else:
            self._console.print(f"{name}: {self._run.context.stage}. {self._note}", soft_wrap=True)

    def _line(self) -> None:
        streams = list(self._run.result.streams.values())
        read, committed = sum(s.records for s in streams), sum(s.committed for s in streams)
        seconds, name, stage = time.monotonic() - self._began, self._run.pipeline.name, self._run.context.stage
        if events.is_json():
            facts = {"pipeline": name, "stage": stage, "seconds": round(seconds, 1), "streams": len(streams)}
            events.emit("info", "progress", **facts, read=read, committed=committed)
            return
        self._console.print(
            f"{name}: {stage}, {duration(round(seconds))}, {count_of(len(streams), 'stream')}, "
            f"{count_of(read, 'record')} read, {count(committed)} committed",
            soft_wrap=True,
        )


def _rate(streams: Sequence[Counts], *, speaking: bool) -> str:
    """The records per second since the tap's first one: until now, or until its last one."""
    began = min((counts.first_at for counts in streams if counts.first_at is not None), default=None)
    if began is None:
        return ""
    seconds = (time.monotonic() if speaking else max(counts.last_at for counts in streams)) - began
    total = sum(counts.records for counts in streams)
    return f"{count(round(total / seconds))} records/s" if seconds >= _TOO_SHORT else ""
