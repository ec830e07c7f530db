"""The runs of the service: the page and the schedule start one, stop it, look at those under way, ask for the next."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A run of this service that has not ended. Its record is in the bucket, too, as soon as it has started.

    `pipeline`: its name in the file; `stage` says for people what it does, and `records` counts what the tap has sent.
    """

    run_id: str
    pipeline: str
    status: Literal["waiting", "running", "stopping"]
    """`waiting`: for `max_runs`, or for a run that holds the pipeline."""
    since: datetime
    """When it was requested."""
    reason: Literal["schedule", "missed", "request"]
    stage: str = ""
    records: int = 0
    attempts: tuple[str, ...] = ()
    """The ids of its attempts up to now. `retry` gives each its own; `run_id` is the last one."""

    def has_id(self, run_id: str) -> bool:
        """Whether this is the id of the run, or of an attempt at it."""
        return run_id in (self.run_id, *self.attempts)


class Runs(Protocol):
    """The runs of a service. Any thread may call it; nothing here waits for a run."""

    def start(self, pipeline: str, *options: str) -> str:
        """Start a run, or put it in the queue, and return its id.

        `pipeline`: its name in the file. `options`: flags of `singer-bridge run`: `--full`, `--append`, `--resume`,
        `--refresh-catalog`, `--no-guard`, `--stream NAME` as two words. Raises `SettingsError` for an unknown name, a
        wrong flag, and for a pipeline whose run is in the queue already.
        """
        ...

    def stop(self, run_id: str) -> bool:
        """Stop a run as SIGINT stops `run`, a second time at once. False: it is no run of this service, or has ended.

        A run in the queue is taken out.
        """
        ...

    def live(self) -> list[LiveRun]:
        """The runs that have not ended, the oldest first."""
        ...

    def not_run(self, run_id: str) -> str | None:
        """Why a run never started. None: it did, or that is long ago, or it is no run of this service."""
        ...

    def next_run(self, pipeline: str) -> datetime | None:
        """When the schedule starts the pipeline next, with its time zone. None: it has none, or only `@reboot`."""
        ...
