"""Three pictures of the last benchmark: `python -m tests.benchmarks.charts`, into docs/img/.

They are drawn from `.bench/results.json` and `.bench/stages.json`; nothing is measured here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from .cli import HOME
from .clock import BEFORE
from .system import SMALL_RUN_RECORDS

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "img"
OURS, OTHERS, BOUND = "#1f6feb", "#9aa4b2", "#2da44e"
STYLE = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlepad": 14,
    "axes.titleweight": "bold",
    "savefig.dpi": 160,
    "savefig.bbox": "tight",
}
MINE = ("ours", "target-bridge")
LIMITS = ("limit", "limit-lines")


def _colour(system: str) -> str:
    return OURS if system in MINE else BOUND if system in LIMITS else OTHERS


def _large(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["runs"] and not row["error"] and row["records"] > SMALL_RUN_RECORDS]


def throughput(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """Records a second of the whole process, each system at its largest size."""
    largest = {row["system"]: row for row in sorted(_large(rows), key=lambda row: row["records"])}
    shown = sorted(largest.values(), key=lambda row: row["records"] / row["wall_seconds"])
    rates = [row["records"] / row["wall_seconds"] for row in shown]
    axes.barh(
        [f"{row['label']}\n{_short(row['records'])} records" for row in shown],
        rates,
        color=[_colour(row["system"]) for row in shown],
    )
    for place, rate in enumerate(rates):
        axes.text(rate * 1.06, place, f"{rate:,.0f}", va="center")
    axes.set_xscale("log")
    axes.set_xlim(min(rates) / 2, max(rates) * 3)
    axes.set_title("Records a second, start-up included (log scale)")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="y", length=0)


def growth(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """Seconds over records, for those that ran at several sizes."""
    by_system: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["runs"] and not row["error"]:
            by_system.setdefault(row["system"], []).append(row)
    for system, mine in by_system.items():
        if len(mine) < 2 or system == "limit-lines":
            continue
        mine.sort(key=lambda row: row["records"])
        sizes, seconds = [row["records"] for row in mine], [row["wall_seconds"] for row in mine]
        axes.plot(sizes, seconds, marker="o", color=_colour(system), lw=2, ls="-" if system != "target-bridge" else ":")
        axes.annotate(mine[-1]["label"], (sizes[-1], seconds[-1]), (8, 0), textcoords="offset points", va="center")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title("Seconds, as the work grows (log scales)")
    axes.set_xlabel("records")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(int(value))))
    axes.set_yticks([1, 3, 10, 30, 100])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.margins(x=0.08)


def start_up(axes: Axes, stages: dict[str, float]) -> None:
    """What the seconds of a small run are spent on."""
    shown = {name: seconds for name, seconds in stages.items() if seconds >= 0.02}
    names = list(shown)[::-1]
    axes.barh(names, [shown[name] for name in names], color=[OTHERS if name == BEFORE else OURS for name in names])
    for place, name in enumerate(names):
        axes.text(shown[name] + 0.03, place, f"{shown[name]:.2f} s", va="center")
    axes.set_title(f"A run of {SMALL_RUN_RECORDS:,} records: {sum(stages.values()):.1f} s, stage by stage")
    axes.set_xlim(0, max(shown.values()) * 1.15)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _short(records: int) -> str:
    return f"{records / 1e6:g} M" if records >= 1_000_000 else f"{records:,}"


def main() -> None:
    """Draw all three."""
    mpl.use("Agg")
    results = json.loads((HOME / "results.json").read_text(encoding="utf-8"))["rows"]
    stages = json.loads((HOME / "stages.json").read_text(encoding="utf-8"))
    IMAGES.mkdir(exist_ok=True)
    for name, draw, data in (
        ("throughput", throughput, results),
        ("growth", growth, results),
        ("start", start_up, stages),
    ):
        with plt.rc_context(STYLE):
            figure, axes = plt.subplots(figsize=(9, 4.2))
            draw(axes, data)
            figure.savefig(IMAGES / f"{name}.png", metadata={"Software": None})
            plt.close(figure)
        print(IMAGES / f"{name}.png")


if __name__ == "__main__":
    main()
