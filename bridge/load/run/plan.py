"""`Request`: what the caller wants of a run. `LoadPlan` and `RunContext`: what the parts of its load get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from bridge.errors import SettingsError
from bridge.lake.commit.committer import Committer
from bridge.lake.lease import Lease
from bridge.lake.records import TapGroup
from bridge.lake.state.lookback import Lookback
from bridge.lake.stream_files import StreamFiles
from bridge.load.run.checks.held_back import NOTHING_HELD, HeldBack
from bridge.load.run.checks.replay_guard import ReplayGuard
from bridge.load.run.planning.division import Division
from bridge.load.run.scratch import Scratch
from bridge.load.run.stop import Stop
from bridge.load.run.tables.table_plan import TablePlanner
from bridge.load.run.trace import RunTrace
from bridge.load.slots.guard import SlotGuard
from bridge.load.tap.stdin import Piped
from bridge.settings.options import Pipeline


@dataclass(frozen=True, slots=True)
class Request:
    """The caller's request for this run, beyond its settings.

    `timeout` counts from the run's start; `wait` is how long it may wait for another run that holds the pipeline. What
    is started together with runs of other pipelines has the same `batch`. `run_id` is chosen by a caller who has to
    know it before the run starts; a retry gets another one. `attempt` is above 1 if the process of an earlier
    attempt was killed.
    """

    full: bool = False
    append: bool = False
    streams: tuple[str, ...] = ()
    state: Any = None
    refresh_catalog: bool = False
    resume: bool = False
    max_records: int | None = None
    adopt: bool = False
    guard: bool = True
    timeout: timedelta | None = None
    wait: timedelta | None = None
    batch: str | None = None
    run_id: str | None = None
    attempt: int = 1

    def to_record(self) -> dict[str, Any]:
        """The fields of it that the run record has."""
        asked = {
            "full": self.full,
            "append": self.append,
            "streams": list(self.streams),
            "resume": self.resume,
            "max_records": self.max_records,
        }
        requested = {name: value for name, value in asked.items() if value not in (None, False, [])}
        return {"requested": requested} | ({"batch": self.batch} if self.batch else {})

    def begins_anew(self, pipeline: Pipeline) -> bool:
        """Whether the run loads from the start: as asked, or as the settings have every run do."""
        return self.full or not pipeline.incremental.enabled

    def check(self, pipeline: Pipeline) -> None:
        """Raise `SettingsError` for flags that contradict the settings: such a run leaves no record."""
        if not self.begins_anew(pipeline):
            return
        if self.resume:
            hint = "a full run begins every table anew; leave one of them out"
            raise SettingsError("--resume and --full contradict each other", hint=hint)
        if self.max_records is not None:
            hint = "run without --max-records, or not in full"
            raise SettingsError("--max-records would replace tables by a part of them", hint=hint)
        if not self.append and pipeline.appends_only(self.streams):
            hint = "add --append to load every row once more, or set load_method to auto or overwrite"
            raise SettingsError("--full would double the rows of append-only tables", hint=hint)

    @property
    def is_narrowed(self) -> bool:
        """Whether it asks for less than all: some streams, those that are left, or so many records."""
        return bool(self.streams or self.resume or self.max_records is not None)

    def __post_init__(self) -> None:
        """Raise `SettingsError` for what contradicts itself, whatever the pipeline."""
        if self.append and not self.full:
            raise SettingsError("--append goes with --full", hint="a plain run appends already")
        if self.state is not None and not isinstance(self.state, dict):
            raise SettingsError("a STATE is a JSON object", hint="to start from the beginning use --full")
        if self.max_records is not None and self.max_records < 1:
            raise SettingsError("--max-records is at least 1", hint="leave it out for all records")
        for name, duration in (("timeout", self.timeout), ("wait", self.wait)):
            if duration is not None and not isinstance(duration, timedelta):
                raise SettingsError(f"{name} is not a duration", hint="give a datetime.timedelta")


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

    @property
    def continued_versions(self) -> dict[str, int]:
        """The versions, by stream, of tables that an earlier run left half loaded and this one continues."""
        staged = self.committer.view.staged
        return {s: stage.version for s, stage in staged.items() if not self.full or s not in self.restarted}

    @property
    def start(self) -> Any:
        """The STATE that the tap starts from."""
        return self.replay_guard.state if self.replay_guard else self.committer.view.state

    @property
    def groups(self) -> Sequence[TapGroup]:
        """The streams and the STATE of each process of the tap."""
        return self.division.groups if self.division else (TapGroup((), self.start),)

    @property
    def max_rejects(self) -> int:
        rejects = self.pipeline.rejects
        return rejects.max if rejects.on_reject == "quarantine" else 0
