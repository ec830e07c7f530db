"""Spark's workers, as a run that merges or replaces has them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bridge.load.spark.query import spread, warm_up
from bridge.load.spark.session import Session

Spread = Callable[..., list[dict[str, Any]]]
"""Does `work(job, payload)` for each of the payloads: its arguments are `work`, `job` and they."""


def here(work: Callable[[Any, Any], dict[str, Any]], job: Any, payloads: list[Any]) -> list[dict[str, Any]]:
    """Do it one by one, in this process."""
    return [work(job, payload) for payload in payloads]


@contextmanager
def executors(folder: Path) -> Iterator[Spread]:
    """Have it done by a task each, as many at once as there are cores."""
    session = Session(f"local[{os.cpu_count()}]", {}, folder, folder / "spark.log")
    warm_up(session.spark, os.cpu_count() or 1)
    try:
        yield partial(spread, session.spark)
    finally:
        session.close(hurry=True)
