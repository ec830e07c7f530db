"""The trace of a run in the bucket, from its first moment: its record and the tap's log survive the machine.

Once rows are committed, neither is a reason for the run to fail. What they cost is bounded: after a commit they are
written once the last time was a while ago, and sooner if the tap has finished one more stream.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from bridge.errors import BridgeError, LakeError, SettingsError
from bridge.lake.commit.retention import sweep_records
from bridge.lake.lease.process import oneself
from bridge.lake.log import Snapshot
from bridge.lake.run_status import fresh_since
from bridge.lake.runs import RunFile, Since, is_run_id, new_run_id, previous_run
from bridge.lake.storage import Storage, lake_of
from bridge.load.run.last_commit import LastCommits
from bridge.load.run.result import Result
from bridge.load.run.scratch import Scratch
from bridge.settings.options import Pipeline

_EVERY = 2.0
"""Seconds between two writes after commits, at least."""
_EVERY_COUNT = 10.0
"""Seconds between two writes while the run reads and commits nothing, at least."""
_SHARE, _SHARE_COMPLETE = 20, 10
"""Writing takes at most one in so many seconds; if more streams are complete each time, one in ten."""
_OF_PROCESS = ("host", "boot", "pids", "pid", "start")

NO_TRACE = "`runs list` cannot show this run: its record has no place but the bucket"


_HOUR = len("20261120T16")
"""The part of a run's id that tells the hour in which it began."""


class RunTrace:
    """The trace of one run. `result` is read whenever something is written."""

    def __init__(
        self, storage: Storage, pipeline: Pipeline, result: Result, asked: Mapping[str, Any] | None = None
    ) -> None:
        """Make the bucket a lake, and write the record, with `asked` in it.

        Raises `LakeError` where that cannot be.
        """
        storage.prepare()
        process, self._previous = oneself(result.run_id), previous_run(storage, pipeline.name)
        facts = {
            "attempt": result.attempt,
            "opened": False,
            "previous": self._previous,
            "process": {key: process[key] for key in _OF_PROCESS},
        } | dict(asked or {})
        self._storage, self._pipeline, self._result = storage, pipeline, result
        self._file = RunFile(storage, pipeline.name, result.run_id, **facts)
        self._scratch: Scratch | None = None
        self._complete = set[str]()
        self._due = self._due_complete = self._due_count = 0.0
        self._news: tuple[Snapshot, int, set[str]] | None = None
        self._noted: int | None = None
        """The last commit that the record takes into account; None: the run has not begun to load."""
        self._read = 0
        """How many records were read when the record was last written."""
        self._ends = False
        self._outcome: tuple[str, str] | None = None
        self._since: Since | None = None

    def opened(self, snapshot: Snapshot, runs: Storage, scratch: Scratch, facts: dict[str, Any]) -> None:
        """Note that the run begins to load from `snapshot`; `facts` are those of its tap, `runs` of `RunPlan`."""
        self._scratch = scratch
        with suppress(LakeError):  # an unreadable record of another run stops nobody
            self._since = fresh_since(runs, self._pipeline.name)
        self._update(opened=True, commit=snapshot.n, since=self._since and to_builtins(self._since), **facts)
        self._due, self._due_count = time.monotonic() + _EVERY, time.monotonic() + _EVERY_COUNT
        self._noted = snapshot.n

    @property
    def is_first_of_its_hour(self) -> bool:
        """Whether the run before it began in another hour, or there is none."""
        return (self._previous or "")[:_HOUR] != self._result.run_id[:_HOUR]

    def committed(self, snapshot: Snapshot, commits: int, *, last: bool) -> None:
        """Note a commit. `last`: the run is about to end, and notes its outcome instead."""
        complete = {name for name, counts in self._result.streams.items() if counts.is_complete}
        self._news = None if last else (snapshot, commits, complete)
        self._ends = last
        if not complete <= self._complete:
            self._due = min(self._due, self._due_complete)
        self.catch_up()

    def catch_up(self) -> None:
        """Write what was committed, or how much was read, once that is due; often called while the run waits."""
        began = time.monotonic()
        if self._ends or self._noted is None or began < (self._due if self._news else self._due_count):
            return
        if not self._news and self._read == self._result.read:
            return
        if self._news:
            (view, self._result.commits, self._complete), self._news = self._news, None
            self._result.state, self._noted = view.state, view.n
        self._read = self._result.read
        with suppress(LakeError):
            self._update(commit=self._noted)
            if self._scratch:
                self._scratch.show_log(self._storage)
        ended = time.monotonic()
        took = ended - began
        self._due, self._due_complete = ended + max(_EVERY, _SHARE * took), ended + _SHARE_COMPLETE * took
        self._due_count = ended + max(_EVERY_COUNT, _SHARE * took)

    def _update(self, **facts: Any) -> None:
        self._file.update(**self._result.to_json() | {"status": "running"} | facts)

    def finish(self) -> None:
        """Write the outcome, unless it is written. A bucket that fails must not hide what went wrong before."""
        result = self._result
        outcome = result.status, result.error.message if result.error else ""
        if self._outcome == outcome:
            return
        with suppress(LakeError):
            holder = str(result.error.facts.get("run")) if result.error and result.status == "held" else ""
            self._file.finish(**result.to_json(), **({"previous": holder} if is_run_id(holder) else {}))
            self._outcome = outcome
        if result.status in ("failed", "held"):
            self._sweep()

    def _sweep(self) -> None:
        """Delete old records, but for the last one that began to load, and the one from which the age counts."""
        since = None
        with suppress(LakeError):
            since = self._since or fresh_since(self._storage, self._pipeline.name)
        spared = tuple(run for run in (self._previous, since.run_id if since else None) if run)
        sweep_records(self._storage, self._pipeline, run=self._result.run_id, spared=spared)


def record_refused(pipeline: Pipeline, home: Path, error: SettingsError) -> None:
    """Record a run that did not begin, as its settings are wrong; nothing if the bucket has no place for a record."""
    with suppress(BridgeError):
        storage = lake_of(pipeline.destination)
        LastCommits(home, pipeline).check(storage, full=False)
        RunTrace(storage, pipeline, Result(new_run_id(), pipeline.name, error=error)).finish()
