"""The table of docs/proof.md: one row a system, which a run of that system replaces."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from .counting import Count
from .harness import Outcome
from .measuring import Cost
from .system import System

PAGE = Path(__file__).parents[2] / "docs" / "proof.md"
BEGIN, END = "<!-- made by: make proof -->\n", "<!-- end -->"
HEADINGS = (
    *("system", "promises", "fault", "exit codes", "rows lost", "rows doubled", "silent", "without a fault"),
    *("cost of a run", "to repeat"),
)
_NAME = re.compile(r"--only ([\w-]+)")


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table; its last cell is the command that repeats it, and names the system."""

    cells: tuple[str, ...]

    def __str__(self) -> str:
        return f"| {' | '.join(self.cells)} |"

    @property
    def name(self) -> str:
        match = _NAME.search(self.cells[-1])
        return match[1] if match else ""


def command(system: System, kills: int, seed: int) -> str:
    """What repeats the row of a system."""
    return f'`SEED={seed} KILLS={kills} make proof ARGS="--only {system.name}"`'


def row(system: System, outcome: Outcome, kills: int, seed: int) -> Row:
    """What came of a system."""
    codes = f"{_codes(outcome.struck)}; then {_codes(outcome.again)}" if outcome.again else _codes(outcome.struck)
    codes += "; **stuck**" if outcome.stuck else ""
    cells = (system.label, system.promise, f"{outcome.strikes} times {system.fault}", codes, _lost(outcome.final))
    control = f"{_lost(outcome.control)} lost, {outcome.control.doubled:,} doubled"
    cells = (*cells, f"{outcome.final.doubled:,}", str(outcome.silent), control)
    return Row((*cells, _cost(outcome.cost), command(system, kills, seed)))


def rows(text: str) -> list[Row]:
    """The rows that a page has."""
    lines = text.partition(BEGIN)[2].partition(END)[0].splitlines()
    return [
        Row(tuple(cell.strip() for cell in line.strip("| ").split(" | "))) for line in lines[2:] if line.startswith("|")
    ]


def replaced(text: str, new: Row, order: list[str]) -> str:
    """The page with one row more, or another one, in the order of the systems' names."""
    every = {old.name: old for old in rows(text) if old.name in order} | {new.name: new}
    head = f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}\n"
    body = "".join(f"{every[name]}\n" for name in order if name in every)
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}{head}{body}{_missing(order, every)}{END}{rest.partition(END)[2]}"


def _missing(order: list[str], every: Collection[str]) -> str:
    names = ", ".join(f"`{name}`" for name in order if name not in every)
    return f"\n{textwrap.fill(f'Not run so far: {names}.', 120, break_on_hyphens=False)}\n" if names else ""


def _codes(counter: Counter[int]) -> str:
    return ", ".join(f"{code} ({times}x)" for code, times in sorted(counter.items())) or "none"


def _cost(cost: Cost | None) -> str:
    if not cost:
        return "not measured"
    megabytes = cost.peak_bytes / 1_000_000
    return f"{cost.records_per_second:,.0f} a second, {megabytes:,.0f} MB, {cost.small_run_seconds:.1f} s"


def _lost(count: Count) -> str:
    return f"{count.lost:,}" + (f" (and {count.strange:,} that the source never sent)" if count.strange else "")
