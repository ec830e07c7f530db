"""What a load is given: the run's values, and the run itself, which may end it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bridge.commit.committer import Committer
from bridge.lake.lease import Lease
from bridge.lake.records import TapGroup
from bridge.load.checks.replay_guard import ReplayGuard
from bridge.load.division import Division
from bridge.load.scratch import Scratch
from bridge.load.stop import Stop
from bridge.load.tables.table_plan import TablePlanner
from bridge.settings.options import Pipeline
from bridge.slots.guard import SlotGuard
from bridge.state.lookback import Lookback
from bridge.tap.stdin import Piped


@dataclass(slots=True)
class RunContext:
    """The run as its parts see it. Another thread may read `stage`, which says for people what the run does."""

    stop: Stop
    piped: Piped | None = None
    lease: Lease | None = None
    stage: str = "starting"

    def tick(self) -> None:
        """Raise when somebody stops the run, or when the pipeline is another run's."""
        self.stop.tick()
        if self.piped:
            self.piped.check()
        if self.lease:
            self.lease.check()

    def committed(self, state: Any) -> None:
        """Tell who pipes the tap to us that all rows are stored that one of the tap's STATEs covers."""
        if self.piped:
            self.piped.said(state)


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
    kept: frozenset[str] = frozenset()
    """These streams keep their bookmarks where the tap forgets them."""
    restarted: frozenset[str] = frozenset()
    """With `full`: what is staged of these streams is void."""
    max_records: int | None = None
    lookbacks: Sequence[Lookback] = (Lookback(),)
    """One for each process of the tap."""
    replay_guard: ReplayGuard | None = None
    """For a tap that somebody else started, from a STATE that may not be the lake's."""
    division: Division | None = None
    """For several processes of the tap."""
    slots: SlotGuard = field(default_factory=SlotGuard)

    @property
    def adopted(self) -> dict[str, int]:
        """The versions of the tables that an earlier run left half loaded, and this one goes on with."""
        staged = self.committer.view.staged
        return {s: stage.version for s, stage in staged.items() if not self.full or s not in self.restarted}

    @property
    def start(self) -> Any:
        """The STATE that the tap goes on from."""
        return self.replay_guard.state if self.replay_guard else self.committer.view.state

    @property
    def groups(self) -> Sequence[TapGroup]:
        """What each process of the tap reads."""
        return self.division.groups if self.division else (TapGroup((), self.start),)

    @property
    def max_rejects(self) -> int:
        rejects = self.pipeline.rejects
        return rejects.max if rejects.on_reject == "quarantine" else 0
