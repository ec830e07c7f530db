"""Rows and bytes after each of the latest commits: a step for each, as high as the figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from bridge.lake.log import Log
from bridge.read.query.growth import LatestCommits, Size
from bridge.serve.service.web.render import count, moment, size

_MOST = 100
"""Commits that a picture shows."""
_WIDTH, _HEIGHT, _TOP = 1000, 100, 2
"""The SVG's own units; it is stretched to the page's width."""


@dataclass(frozen=True, slots=True)
class ChartStep:
    """One commit: where its step is, and what it says."""

    x: float
    width: float
    commit: int
    words: str


@dataclass(frozen=True, slots=True)
class Picture:
    """The paths of one figure over its commits, oldest first."""

    of: str
    """The quantity that it shows: `Rows` or `Size`."""
    line: str
    area: str
    steps: tuple[ChartStep, ...]
    first: Size
    last: Size
    latest: str
    """The figure after the last commit, for people; `most`: the highest one."""
    most: str
    words: str
    """The picture in a sentence."""


def growth(log: Log, head: int) -> list[Size]:
    """The sizes of a pipeline after the latest commits up to `head`, oldest first."""
    record = log.record(head) if head else None
    return _sizes(log, head, record.nonce) if record else []


@lru_cache(64)
def _sizes(log: Log, head: int, _nonce: str) -> list[Size]:
    """A page that is looked at again reads them once: a commit never changes, and its nonce is its own."""
    return list(LatestCommits.of(log, head, _MOST).sizes())


def pictures(sizes: Sequence[Size]) -> list[Picture]:
    """Rows and size over the latest of these commits; none for less than two."""
    if len(sizes) < 2:
        return []
    latest = sizes[-_MOST:]
    return [
        _picture("Rows", latest, [one.rows for one in latest], count),
        _picture("Size", latest, [one.bytes for one in latest], size),
    ]


def _picture(of: str, sizes: Sequence[Size], figures: Sequence[int], text: Callable[[int], str]) -> Picture:
    most, wide = max(figures), _WIDTH / len(figures)
    heights = [_HEIGHT - (_HEIGHT - _TOP) * figure / most if most else _HEIGHT for figure in figures]
    line = f"M0 {heights[0]:.1f}"
    for place, height in enumerate(heights):
        line += f"V{height:.1f}H{(place + 1) * wide:.1f}"
    first, last = sizes[0], sizes[-1]
    words = (
        f"{of} over the last {len(sizes)} commits: {text(figures[0])} after commit {first.commit}, "
        f"{text(figures[-1])} after commit {last.commit}, at most {text(most)}"
    )
    steps = tuple(
        ChartStep(place * wide, wide, one.commit, f"commit {one.commit}, {moment(one.at)}: {text(figure)}")
        for place, (one, figure) in enumerate(zip(sizes, figures, strict=True))
    )
    area = f"{line}V{_HEIGHT}H0Z"
    return Picture(of, line, area, steps, first, last, text(figures[-1]), text(most), words)
