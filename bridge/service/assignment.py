"""What a service and its runner processes say to each other, over the runner's stdin and stdout.

To the runner: at most one `Ahead`, then one `Assignment`, pickled. The service holds that pipe open as long as it
lives. From the runner: one JSON object a line, `Report`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import Struct

from bridge.load.plan import Request
from bridge.settings.options import Pipeline


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """What a session depends on."""

    master: str
    conf: dict[str, str]

    @classmethod
    def of(cls, pipeline: Pipeline) -> SparkSettings:
        return cls(pipeline.spark.master, pipeline.spark.conf)


@dataclass(frozen=True, slots=True)
class Ahead:
    """Make a session before there is a run; its scratch goes below `folder`."""

    spark: SparkSettings
    folder: Path


@dataclass(frozen=True, slots=True)
class Assignment:
    """The run to do, with its retries."""

    pipeline: Pipeline
    request: Request
    home: Path


class Report(Struct, frozen=True, omit_defaults=True):
    """News of a runner. What is absent is as before."""

    ready: bool = False
    """Spark is up, and it waits for its run."""
    problem: str = ""
    """Why there is no session ahead; its run starts Spark itself."""
    run_id: str = ""
    """The attempt that is under way."""
    stage: str = ""
    records: int = 0
    result: dict[str, Any] | None = None
    """An attempt has ended: the object that `run --json` prints."""
    loaded: bool = False
    """There comes no other attempt: it only waits for receivers of its news."""
    exit_code: int | None = None
    """With the last result."""
