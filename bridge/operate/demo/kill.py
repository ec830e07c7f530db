"""`demo --kill`: the first load is killed again and again, at random moments, and every count stays exact.

After each kill three numbers are compared: rows that a reader finds in the lake, how many of them are different, and
how many PostgreSQL has up to the bookmark that the lake has.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from subprocess import Popen

import pyarrow.compute as pc
from rich.console import Console

from bridge.durations import duration
from bridge.errors import BridgeError
from bridge.operate.demo.command import DemoProject
from bridge.operate.demo.project import PIPELINE, SCHEMA
from bridge.read.query.lake import Lake

KILLS = 5
_LATEST = 5.0
"""Seconds after its first commit by which a run is killed."""
_LOOK = 0.5
_TABLE = f"{SCHEMA}-flights"


@dataclass(frozen=True, slots=True)
class TableContents:
    """The table as a reader sees it. `twice`: rows beyond the first of a key; `bookmark`: empty before the first."""

    rows: int = 0
    twice: int = 0
    bookmark: str = ""


def look(lake: Path) -> TableContents:
    """Read the lake's last commit, as any program may at any time."""
    try:
        reader = Lake(lake)
        ids = reader.table(PIPELINE, _TABLE).to_table(["id"])["id"]
        bookmark = reader.bookmarks(PIPELINE).get(_TABLE, {})
    except BridgeError:
        return TableContents()  # nothing is committed yet
    return TableContents(
        len(ids), len(ids) - pc.count_distinct(ids).as_py(), str(bookmark.get("replication_key_value", ""))
    )


def kill_runs(project: DemoProject, lake: Path, sent: Callable[[str], int]) -> bool:
    """Start runs and kill them; return whether the lake was right after each. `sent`: flights up to a bookmark.

    It ends early if a run is done before it is killed.
    """
    console, right = project.console, True
    console.print(
        f"[dim]{'killed after':>14}{'rows in the lake':>20}{'of them twice':>16}{'PostgreSQL has':>17}   up to[/]"
    )
    for _ in range(KILLS):
        seconds = _killed(project.start("run", PIPELINE, "-q"), lake, console)
        if seconds is None:
            console.print("    the run was done before its time had come")
            break
        seen = look(lake)
        expected = sent(seen.bookmark) if seen.bookmark else seen.rows
        right &= seen.twice == 0 and seen.rows == expected
        counts = f"{seen.rows:>20,}{seen.twice:>16,}{expected:>17,}"
        console.print(f"{duration(seconds):>14}{counts}   {seen.bookmark or '[dim]no bookmark yet[/]'}")
    return right


def _killed(run: Popen[bytes], lake: Path, console: Console) -> float | None:
    """Wait, showing how the lake grows, and kill the run with its group; after so many seconds. None: it had ended."""
    began, before = time.monotonic(), look(lake).rows
    end, later = float("inf"), SystemRandom().uniform(0.0, _LATEST)
    try:
        with console.status("") as status:
            while (now := time.monotonic()) < end and run.poll() is None:
                rows = look(lake).rows
                end = now + later if rows > before and end == float("inf") else end
                when = "soon after its first commit" if end == float("inf") else f"in {duration(max(0.0, end - now))}"
                status.update(f"a run, to be killed {when}: {rows:,} rows in the lake")
                time.sleep(min(_LOOK, max(0.0, end - now)))
    finally:
        is_over = run.poll() is not None
        if not is_over:
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    if is_over and run.returncode:
        hint = f"run it by hand in the demo's folder: singer-bridge run {PIPELINE}"
        raise BridgeError("a run failed before it was killed", hint=hint, exit_code=run.returncode)
    return None if is_over else time.monotonic() - began
