"""`python -m tests.benchmarks`: options, progress, exit code."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from .bars import rows_of
from .bench import Case, Folders, Run, inputs_of, plan, prepare_all, run_all, run_one
from .limit import DuckdbCopy, Limit
from .ours import BareSpark, Ours, OursAsTarget, make_class_archive
from .peers import DataSpoc, Faucet, TargetCsv
from .report import save, show
from .system import SMALL_RUN_RECORDS, System

HOME = Path(__file__).resolve().parents[2] / ".bench"
QUICK_SCALE = 0.1
_OURS = ("ours", "target-bridge")


def main(arguments: Sequence[str] | None = None) -> int:
    """0; 1 where singer-bridge itself failed or did not store every record exactly once. Bars are only printed."""
    folders = Folders(HOME)
    systems = _systems(folders)
    options = _parser(systems).parse_args(arguments)
    scale, repeat = _extent(options)
    chosen = [system for system in systems if not options.only or system.name in options.only]
    settings = {"scale": scale, "repeat": repeat}
    console = Console(width=None if Console().is_terminal else 180)
    runs = _benchmark(console, folders, plan(chosen, scale), settings)
    show(console, runs, {system.name: system.label for system in chosen})
    if scale != 1:
        console.print("sizes were scaled: the bars above are no verdict")
    console.print(f"every run: {folders.home / 'results.json'}")
    return int(not all(row.complete and not row.error for row in rows_of(runs) if row.system in _OURS))


def _systems(folders: Folders) -> list[System]:
    """In the order of the table."""
    venvs = folders.venvs
    return [
        Ours(),
        OursAsTarget(),
        BareSpark(),
        Limit(),
        DuckdbCopy(),
        Faucet(venvs),
        DataSpoc(venvs),
        TargetCsv(venvs),
    ]


def _parser(systems: Sequence[System]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description="One table on one machine.")
    names = [system.name for system in systems]
    parser.add_argument("--quick", action="store_true", help="a tenth of every size, once")
    parser.add_argument("--scale", type=float, help="multiply every size above 1,000 records by this")
    parser.add_argument("--repeat", type=int, help="runs of each (3; 1 with --quick); times are their median")
    parser.add_argument(
        "--only", action="append", choices=names, metavar="NAME", help=f"again for more: {', '.join(names)}"
    )
    return parser


def _extent(options: argparse.Namespace) -> tuple[float, int]:
    """Scale and repetitions; explicit ones win over --quick."""
    scale = options.scale if options.scale is not None else QUICK_SCALE if options.quick else 1.0
    return scale, options.repeat or (1 if options.quick else 3)


def _benchmark(console: Console, folders: Folders, cases: list[Case], settings: dict[str, object]) -> list[Run]:
    console.print("preparing: inputs, environments of the peers")
    missing = prepare_all(cases)
    labels = {case.system.name: case.system.label for case in cases}
    runs = [
        Run(case.system.name, case.records, 0, missing[case.system.name])
        for case in cases
        if case.system.name in missing
    ]
    present = [case for case in cases if case.system.name not in missing]
    inputs = inputs_of(present, folders)
    make_class_archive()
    for case in (case for case in present if case.records <= SMALL_RUN_RECORDS):
        # Byte code is made by the first run on a machine; that one is not a measurement.
        run_one(case, inputs[case.records], folders, repetition=-1)
    for run in run_all(present, inputs, folders, int(str(settings["repeat"]))):
        runs.append(run)
        save(folders.home, runs, labels, settings)
        outcome = run.error or f"{run.wall_seconds:.2f} s"
        console.print(
            f"  {run.system} {run.records:,} ({run.repetition + 1}): {outcome}", markup=False, highlight=False
        )
    return runs
