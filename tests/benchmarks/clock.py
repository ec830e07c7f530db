"""One command line of the product, timed by its stages. A program: `clock.py OUT WORD...`; it imports nothing more."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from bridge import cli
from bridge.load.run import run
from bridge.load.run.plan import RunContext

BEFORE = "Python and its imports"
BEGINS: list[tuple[str, float]] = []


class Timed(RunContext):
    """A run that notes when each of its stages begins."""

    @property  # type: ignore[override]
    def stage(self) -> str:
        """What it is at."""
        return BEGINS[-1][0]

    @stage.setter
    def stage(self, name: str) -> None:
        if not BEGINS or BEGINS[-1][0] != name:
            BEGINS.append((name, time.time()))


def _began() -> float:
    """Return when this process was started, in seconds since 1970."""
    ticks = int(Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])
    up = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    return time.time() - up + ticks / 100


def main() -> None:
    """Run the command line, and write the seconds of each stage to OUT."""
    out, *sys.argv[1:] = sys.argv[1:]
    began, run.RunContext = _began(), Timed  # type: ignore[misc]
    try:
        cli.main()
    finally:
        marks, seconds = [(BEFORE, began), *BEGINS, ("", time.time())], dict[str, float]()
        for (name, since), (_, until) in zip(marks, marks[1:], strict=False):  # noqa: RUF007
            seconds[name] = seconds.get(name, 0) + until - since
        Path(out).write_text(json.dumps(seconds), encoding="utf-8")


if __name__ == "__main__":
    main()
