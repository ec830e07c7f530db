"""The latest runs of a pipeline as bars."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bridge.serve.service.web.pipeline_status import RunFacts


def spark(runs: Sequence[RunFacts], places: int = 24, height: int = 22) -> dict[str, str]:
    """The bars of the latest runs, the newest at the right end: by status, as one SVG path of strokes 4 wide.

    A bar is as high as the records that its run loaded.
    """
    latest = runs[:places]
    most = max((run.records or 0 for run in latest), default=0)
    paths = dict[str, str]()
    for place, run in enumerate(latest):
        tall = 2 + round((height - 2) * (run.records or 0) / most) if most else 2
        paths[run.status] = paths.get(run.status, "") + f"M{(places - 1 - place) * 5 + 2} {height}v-{tall}"
    return paths


def spark_words(runs: Sequence[RunFacts], places: int = 24) -> str:
    """The same in words, for those who do not see it."""
    statuses = Counter(run.status for run in runs[:places])
    return "latest runs: " + ", ".join(f"{number} {status}" for status, number in statuses.most_common())
