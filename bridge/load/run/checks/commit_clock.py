"""Tells at each STATE whether a commit is due."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import timedelta

_RETRY = timedelta(seconds=1)
"""After a STATE that was no barrier, the pause before another is tried: taps may send one with each record."""


@dataclass(slots=True)
class CommitClock:
    """Counts what came since the last barrier. A commit is due after a time, after bytes of lines, or after rows."""

    every: timedelta
    most_bytes: int
    most_rows: int | None
    size: int = 0
    rows: int = 0
    since: float = field(default_factory=time.monotonic)
    next_try: float = 0.0

    def add(self, size: int, rows: int) -> None:
        """Note lines."""
        self.size += size
        self.rows += rows

    @property
    def is_due(self) -> bool:
        """Whether a commit is to be made, if this STATE is a barrier."""
        now = time.monotonic()
        due = self.size >= self.most_bytes or now - self.since >= self.every.total_seconds()
        due = due or (self.most_rows is not None and self.rows >= self.most_rows)
        return due and now >= self.next_try

    def postpone(self) -> None:
        """Note that the STATE was no barrier."""
        self.next_try = time.monotonic() + _RETRY.total_seconds()

    def restart(self, size: int) -> None:
        """Note a barrier; `size` is the bytes of lines that came after it already."""
        self.since, self.size, self.rows, self.next_try = time.monotonic(), size, 0, 0.0
