"""`LoadPlan` and `RunContext`: what the parts of a load get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bridge.lake.commit.committer import Committer
from bridge.lake.lease import Lease
from bridge.lake.records import TapGroup
from bridge.lake.state.lookback import Lookback
from bridge.lake.stream_files import StreamFiles
from bridge.load.run.barriers import Barrier
from bridge.load.run.checks.held_back import NOTHING_HELD, HeldBack
from bridge.load.run.checks.replay_guard import ReplayGuard
from bridge.load.run.planning.division import Division
from bridge.load.run.scratch import Scratch
from bridge.load.run.stop import Stop
from bridge.load.run.tables.table_plan import TablePlanner
from bridge.load.run.trace import RunTrace
from bridge.load.slots.guard import SlotGuard
from bridge.load.spark.query import STARTING
from bridge.load.tap.stdin import Piped
from bridge.settings.options import Pipeline
from bridge.settings.values.request import Window


@dataclass(slots=True)
class RunContext:
    """The run as its parts see it. Another thread may read `stage`, which says for people what the run does."""

    stop: Stop
    piped: Piped | None = None
    lease: Lease | None = None
    stream_files: StreamFiles | None = None
    stage: str = "starting"
    took_state: bool = False
    """The STATE that was requested is committed."""

    @property
    def starts_spark(self) -> bool:
        """Whether it waits for Spark, which is starting."""
        return self.stage.startswith(STARTING)

    def tick(self) -> None:
        """Raise if somebody stops the run, or if another run has taken the pipeline."""
        self.stop.tick()
        if self.piped:
            self.piped.check()
        if self.lease:
            self.lease.check()

    def committed(self, state: Any) -> None:
        """Pass a committed STATE on to the program that pipes the tap to us: all rows that it covers are stored."""
        if self.piped:
            self.piped.emit_state(state)


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The values of one load."""

    pipeline: Pipeline
    committer: Committer
    tables: TablePlanner
    scratch: Scratch
    context: RunContext
    full: bool = False
    deselected: frozenset[str] = frozenset()
    """RECORDs of these streams are ignored."""
    retained: frozenset[str] = frozenset()
    """These streams keep their bookmarks if the tap's STATE lacks them."""
    restarted: frozenset[str] = frozenset()
    """With `full`: staged files of these streams do not count."""
    max_records: int | None = None
    backfill: Window | None = None
    """Only rows of this window are loaded, by one commit at the end, and the STATE stays."""
    lookbacks: Sequence[Lookback] = (Lookback(),)
    """One for each process of the tap."""
    replay_guard: ReplayGuard | None = None
    """For a tap that another program started, perhaps not from the lake's STATE."""
    division: Division | None = None
    """For several processes of the tap."""
    slots: SlotGuard = field(default_factory=SlotGuard)
    trace: RunTrace | None = None
    """Shows in the bucket how far the run is. None: nobody looks."""
    held: HeldBack = NOTHING_HELD
    """Streams that are held back."""
    reason: str | None = None
    """Why its commits are made, where no tap asks for them."""

    @property
    def continued_versions(self) -> dict[str, int]:
        """The versions, by stream, of tables that an earlier run left half loaded and this one continues."""
        staged = self.committer.snapshot.staged
        return {s: stage.version for s, stage in staged.items() if not self.full or s not in self.restarted}

    @property
    def start(self) -> Any:
        """The STATE that the tap starts from."""
        return self.replay_guard.state if self.replay_guard else self.committer.snapshot.state

    @property
    def groups(self) -> Sequence[TapGroup]:
        """The streams and the STATE of each process of the tap."""
        return self.division.groups if self.division else (TapGroup((), self.start),)

    def of_window(self, barrier: Barrier) -> Barrier:
        """The barrier of a backfill: its rows are a part of what the table has, and the STATE stays."""
        stored = self.committer.snapshot.pipeline_state
        facts: dict[str, Any] = {"activate": {}, "uncovered": (), "from_tap": False, "merged": False}
        return replace(barrier, state=self.start, stored=stored, **facts)

    @property
    def max_rejects(self) -> int:
        rejects = self.pipeline.rejects
        return rejects.max if rejects.on_reject == "quarantine" else 0
