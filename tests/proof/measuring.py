"""What a run costs: processor time, memory, seconds."""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psutil

_EVERY = 0.05
"""Seconds between two looks at the memory of a run's processes."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a run without a fault: records for each second of processor time, bytes at its peak, seconds of a small run.

    The bytes are the resident ones of all processes of the run, so what they share counts several times.
    """

    records_per_second: float
    peak_bytes: int
    small_run_seconds: float


class Meter:
    """Of the runs in a block that are waited for in it."""

    seconds = 0.0
    peak_bytes = 0


@contextmanager
def metered(process: int) -> Iterator[Meter]:
    """Processor time of the children that the block waits for, and the peak of the memory of a process tree."""
    meter, ended = Meter(), threading.Event()

    def look() -> None:
        while not ended.wait(_EVERY):
            meter.peak_bytes = max(meter.peak_bytes, _resident(process))

    before, watcher = _used(), threading.Thread(target=look)
    watcher.start()
    try:
        yield meter
    finally:
        ended.set()
        watcher.join()
        meter.seconds = _used() - before


def _resident(process: int) -> int:
    total = 0
    with suppress(psutil.Error):
        for one in (root := psutil.Process(process), *root.children(recursive=True)):
            with suppress(psutil.Error):
                total += one.memory_info().rss
    return total


def _used() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
