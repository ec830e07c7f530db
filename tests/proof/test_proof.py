"""The harness can fail: wrong loaders show lost and doubled rows. And docs/proof.md has a row of every system."""

from __future__ import annotations

import os
import random
import re
import signal
from pathlib import Path

import pytest

from .__main__ import OURS, systems
from .counting import NOTHING, Count, count, read
from .faults import Fault, Signal, Twice, Victim
from .harness import Outcome, Siege, Stuck
from .page import BEGIN, END, HEADINGS, PAGE, Row, replaced, row, rows
from .source import Source
from .system import System, struck_by

CODES = r"\d+ \(\d+x\)(, \d+ \(\d+x\))*"
PROGRAMS = Path(__file__).parent / "programs"


class Loader(System):
    """One of three loaders that are killed right after a STATE."""

    name = label = promise = "loader"
    fault: Fault = Signal(signal.SIGKILL, word="a STATE")

    def __init__(self, how: str) -> None:
        super().__init__(Path())
        self.how = how

    def line(self, source: Source) -> str:
        return f"python {PROGRAMS / 'loaders.py'} {self.how}"

    def numbers(self, folder: Path) -> list[int | None]:
        return read(sorted((folder / "lake").glob("*.json")), "read_json(?, format => 'newline_delimited')")


def besieged(folder: Path, how: str) -> Outcome:
    """Kill a loader twice, while it loads a hundred records."""
    return Siege(Loader(how), small(folder), random.Random(how)).carry_out(2)


def small(folder: Path) -> Source:
    """A hundred records a run, in a fifth of a second."""
    return Source(folder, added=100, every=10, pause_ms=20)


def test_rows_are_counted_one_by_one() -> None:
    """A record that no row has is lost, a second row of one is doubled, what was never sent is strange."""
    assert count([3, 1, 2], 3) == NOTHING
    assert count([1, 1, 1, 4, None], 3) == Count(lost=2, doubled=2, strange=2)
    assert count([], 3) == Count(lost=3, doubled=0)
    assert not Count(0, 0, 1).exact


def test_a_file_that_cannot_be_read_has_no_rows(tmp_path: Path) -> None:
    """Half a Parquet file counts as lost rows, and does not end the count."""
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 torn")
    assert read([tmp_path / "torn.parquet"], "read_parquet(?)") == []


def test_a_loader_whose_state_leads_its_rows_loses_rows(tmp_path: Path) -> None:
    """Without a fault it is exact; killed behind a STATE it never loads what that STATE covers, and exits 0."""
    outcome = besieged(tmp_path / "early", "early")
    assert outcome.control == NOTHING
    assert outcome.struck == {137: 2}
    assert outcome.again == {0: 2}
    assert outcome.final.lost > 0
    assert outcome.final.doubled == 0
    assert outcome.silent == 2


def test_a_loader_whose_state_follows_late_doubles_rows(tmp_path: Path) -> None:
    """Without a fault it is exact; killed before its STATE it loads the same rows again."""
    outcome = besieged(tmp_path / "late", "late")
    assert outcome.control == NOTHING
    assert outcome.final.lost == 0
    assert outcome.final.doubled > 0


def test_a_loader_that_is_right_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """The harness itself loses nothing: the same kills leave each record once."""
    outcome = besieged(tmp_path / "exact", "exact")
    assert outcome.strikes == 2
    assert outcome.silent == 0
    assert outcome.final == NOTHING


def test_a_run_costs_time_and_memory(tmp_path: Path) -> None:
    """All of its processes count, at their peak."""
    cost = besieged(tmp_path, "exact").cost
    assert cost
    assert 0 < cost.records_per_second < 100_000
    assert cost.peak_bytes > 10_000_000
    assert cost.small_run_seconds > 0


class Break(Fault):
    """Stops every run that is under way or comes after it."""

    suffix = "broken"

    def strike(self, victim: Victim) -> None:
        (victim.source.folder / "broken").touch()
        os.killpg(victim.group, signal.SIGKILL)


def test_a_loader_that_does_not_start_again_is_stuck(tmp_path: Path) -> None:
    """It has a row: five starts exit 1, and no run follows."""
    system = struck_by(Loader, Break())("exact; [ ! -e broken ]")
    outcome = Siege(system, small(tmp_path), random.Random(1)).carry_out(2)
    assert system.name == "loader-broken"
    assert (outcome.strikes, outcome.stuck, outcome.again) == (1, True, {1: 5})
    assert "**stuck**" in str(row(system, outcome, 2, 1))


def test_two_runs_at_once_have_two_exit_codes(tmp_path: Path) -> None:
    """The second one starts at the moment of the fault, and both are waited for."""
    system = struck_by(Loader, Twice())("exact")
    outcome = Siege(system, small(tmp_path), random.Random(2)).carry_out(2)
    assert outcome.strikes == 2
    assert sum(outcome.struck.values()) == 4
    assert (tmp_path / "second.log").exists()


def test_a_loader_that_fails_without_a_fault_has_no_row(tmp_path: Path) -> None:
    """A system that does not run here is an error with the end of its log, never a row of the table."""
    with pytest.raises(Stuck, match="No such file"):
        besieged(tmp_path / "none", "exact; exec ./nothing")


def test_the_page_has_a_row_of_each_system_with_its_command() -> None:
    """In order, with the label and the promise of today's code, whole figures, and the command that repeats it.

    What nobody has run so far has no row; the page says so.
    """
    page = PAGE.read_text(encoding="utf-8")
    table = rows(page)
    every = {system.name: system for system in systems()}
    names = [line.name for line in table]
    assert names == [name for name in every if name in names]
    assert {kind.name for kind in OURS} <= set(names)
    for name in set(every) - set(names):
        assert f"`{name}`" in page
    for line, system in ((line, every[line.name]) for line in table):
        assert len(line.cells) == len(HEADINGS)
        label, promise, fault, codes, lost, doubled, silent, control, cost, command = line.cells
        assert (label, promise) == (system.label, system.promise)
        kills = re.fullmatch(rf'`SEED=\d+ KILLS=(\d+) make proof ARGS="--only {system.name}"`', command)
        assert kills
        times = min(int(kills[1]), system.fault.at_most)
        assert fault == f"{times} times {system.fault}" or "**stuck**" in codes
        assert re.fullmatch(rf"{CODES}(; then {CODES})?(; \*\*stuck\*\*)?", codes)
        assert re.fullmatch(r"\d+|not counted", silent)
        assert re.fullmatch(r"[\d,]+ a second, [\d,]+ MB, [\d.]+ s|not measured", cost)
        assert re.fullmatch(r"[\d,]+ lost, [\d,]+ doubled", control)
        assert re.fullmatch(r"[\d,]+( \(and [\d,]+ that the source never sent\))?", lost)
        assert re.fullmatch(r"[\d,]+", doubled)
        if system.name.startswith("bridge-"):
            assert (lost, doubled) == ("0", "0")


def test_a_run_replaces_its_own_row_only() -> None:
    """`--only` leaves the other rows, and what is written around the table, as they are."""
    system = Loader("exact")
    order = ["other", "loader", "third"]
    other = Row(("o", "p", "f", "c", "0", "0", "n", '`make proof ARGS="--only other"`'))
    page = replaced(f"before\n{BEGIN}{END}\nafter\n", other, order)
    for seed in (1, 2):
        line = row(system, Outcome(strikes=3, final=Count(4000, 5)), 3, seed)
        page = replaced(page, line, order)
        assert rows(page) == [other, line]
    assert "4,000" in page
    assert page.startswith("before\n")
    assert page.endswith("\nafter\n")
    assert "Not run so far: `third`." in page
