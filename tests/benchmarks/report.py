"""The table and the bars: on the terminal, as Markdown and as JSON with every single run."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from .bars import Bar, Row, bars_of, rows_of
from .bench import Run
from .system import SMALL_RUN_RECORDS

COLUMNS = ("system", "records", "rows out", "wall s", "records/s", "x limit", "CPU s/M", "peak memory, MB")
KINDS = ("main", "jvm", "worker", "tap", "other")


@functools.cache
def machine() -> dict[str, str]:
    """What the figures depend on."""
    packages = ("pyarrow", "pyspark", "singer-bridge")
    versions = {name: importlib.metadata.version(name) for name in packages}
    memory = f"{psutil.virtual_memory().total / 1e9:.0f} GB"
    cores = (
        f"{len(psutil.Process().cpu_affinity())}" if hasattr(psutil.Process, "cpu_affinity") else f"{os.cpu_count()}"
    )
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.splitlines()
    return {
        "cores": cores,
        "memory": memory,
        "system": platform.platform(),
        "python": platform.python_version(),
        "java": java[0] if java else "none",
        **versions,
    }


def cells(row: Row, label: str, rows: Sequence[Row]) -> tuple[str, ...]:
    """One line of the table."""
    if not row.runs:
        return (label, f"{row.records:,}", "-", "-", "-", "-", "-", row.error[-160:])
    return (
        label,
        f"{row.records:,}",
        _rows_out(row),
        f"{row.wall_seconds:.2f}",
        f"{row.records_per_second:,.0f}" if row.records > SMALL_RUN_RECORDS else "-",
        _of_limit(row, rows),
        f"{row.cpu_per_million:.1f}" if row.records > SMALL_RUN_RECORDS else "-",
        _memory(row) + (f"; {row.error[:40]}" if row.error else ""),
    )


def show(console: Console, runs: Sequence[Run], labels: Mapping[str, str]) -> None:
    """The table, then a line a bar."""
    rows = rows_of(runs)
    table = Table(*COLUMNS, title="singer-bridge, its limit and its peers: same input, same machine")
    for column in table.columns[1:-1]:
        column.justify = "right"
    for row in rows:
        table.add_row(*cells(row, labels[row.system], rows))
    console.print(table)
    for bar in bars_of(rows):
        console.print(_bar_line(bar), markup=False)


def save(folder: Path, runs: Sequence[Run], labels: Mapping[str, str], settings: Mapping[str, Any]) -> None:
    """`results.json` and `results.md`, replaced whole after every run: a stopped benchmark keeps what it has."""
    rows = rows_of(runs)
    known = machine()
    document = {
        "format": 1,
        "machine": known,
        "settings": dict(settings),
        "rows": [{**asdict(row), "label": labels[row.system]} for row in rows],
        "bars": [asdict(bar) for bar in bars_of(rows)],
        "runs": [asdict(run) for run in runs],
    }
    _replace(folder / "results.json", json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    _replace(folder / "results.md", _markdown(rows, labels, known, settings))


def _markdown(
    rows: Sequence[Row], labels: Mapping[str, str], known: Mapping[str, str], settings: Mapping[str, Any]
) -> str:
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(cells(row, labels[row.system], rows)) + " |" for row in rows]
    lines += ["", *_chart(rows, labels)]
    lines += ["", *(f"- {_bar_line(bar)}" for bar in bars_of(rows)), ""]
    lines.append("; ".join(f"{name}: {value}" for name, value in (*known.items(), *settings.items())))
    return "\n".join(lines) + "\n"


def _chart(rows: Sequence[Row], labels: Mapping[str, str]) -> list[str]:
    """A Mermaid chart of the rates, each at the largest size that the system ran at."""
    largest = {row.system: row for row in rows if row.runs and row.records > SMALL_RUN_RECORDS}
    if not largest:
        return []
    names = ", ".join(f'"{labels[name].removeprefix("limit: ")}, {row.records:,}"' for name, row in largest.items())
    rates = [round(row.records_per_second) for row in largest.values()]
    return [
        "```mermaid",
        "xychart-beta horizontal",
        '    title "records a second, start and end included"',
        f"    x-axis [{names}]",
        f'    y-axis "records/s" 0 --> {max(rates)}',
        f"    bar {rates}",
        "```",
    ]


def _bar_line(bar: Bar) -> str:
    verdict = {True: "PASS", False: "FAIL", None: "NOT RUN"}[bar.passed]
    return f"{verdict}  {bar.title}: {bar.figures}"


def _rows_out(row: Row) -> str:
    if row.rows is None:
        return "-"
    return f"{row.rows:,}" if row.complete else f"{row.rows:,} WRONG ({row.distinct:,} ids)"


def _of_limit(row: Row, rows: Sequence[Row]) -> str:
    """Against the limit at the same size; where it did not run at that size, at its smallest one (marked `~`)."""
    limits = sorted((one for one in rows if one.system == "limit" and one.runs), key=lambda one: one.records)
    if not limits or row.records <= SMALL_RUN_RECORDS:
        return "-"
    same = [one for one in limits if one.records == row.records]
    ratio = row.records_per_second / (same or limits)[0].records_per_second
    return f"{'' if same else '~'}{ratio:.3f}"


def _memory(row: Row) -> str:
    """The command's own process by the kernel's mark, the others by sampled sums."""
    peaks = {**row.peak_rss_bytes, "main": row.main_high_water_bytes}
    return ", ".join(f"{kind} {peaks[kind] / 1e6:.0f}" for kind in KINDS if peaks.get(kind, 0) >= 1e6)


def _replace(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
