"""Executes a plan in an open pipeline: from the STATE that the tap gets to the tap's end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Any

from bridge.errors import TapError
from bridge.lake.commit.committer import Committer
from bridge.lake.records import TapGroup
from bridge.load.run.checks.afterwards import look_back, say_merges
from bridge.load.run.checks.held_back import HeldBack
from bridge.load.run.checks.replay_guard import ReplayGuard, listen
from bridge.load.run.checks.row_counts import SourceRows
from bridge.load.run.loader import Loader
from bridge.load.run.plan import LoadPlan, RunContext
from bridge.load.run.planning.division import Division
from bridge.load.run.planning.run_plan import RunPlan
from bridge.load.run.result import Counts, Result
from bridge.load.run.scratch import EndOfLog, Marked, Scratch, Tee
from bridge.load.run.tables.adopt import adopt
from bridge.load.run.tap_reader import TapReader
from bridge.load.run.trace import RunTrace
from bridge.load.slots.guard import SlotGuard, begin
from bridge.load.tap.pipe import Feed
from bridge.load.tap.process import TapLog
from bridge.protocol.singer.catalog import Catalog
from bridge.protocol.singer.state import is_flat
from bridge.settings.redact import redactor


@dataclass(slots=True)
class Execution:
    """The load of one run. `echo` gets a copy of the tap's stderr."""

    plan: RunPlan
    committer: Committer
    scratch: Scratch
    context: RunContext
    result: Result
    trace: RunTrace | None
    echo: TapLog | None
    is_clean: bool = True
    """Whether the tap was read to its end, so nothing of the run is pending."""
    _slots: SlotGuard = field(default_factory=SlotGuard)
    _rows: SourceRows | None = None

    def run(self) -> None:
        """Load what the tap sends. Raises `BridgeError`; what was committed before stays."""
        committer, result = self.committer, self.result
        replay_guard = self._replay_guard()
        self._set_state()
        plan = replace(self.plan, snapshot=committer.snapshot)
        division, notes = plan.division()
        result.warnings += notes
        self._slots = self._guarded(plan, division)
        groups = division.groups if division else (TapGroup((), plan.snapshot.state),)
        names = division.names if division else (None,)
        starts = [plan.start(group.state, own, self._slots) for group, own in zip(groups, names, strict=True)]
        states, lookbacks = [state for state, _ in starts], [lookback for _, lookback in starts]
        result.warnings += plan.lookback_warnings(lookbacks)
        if plan.request.adopt:
            adopt(committer, plan.pipeline)
        plan = replace(plan, snapshot=replay_guard.snapshot if replay_guard else committer.snapshot)
        planner = plan.planner()
        result.warnings += plan.check_tables(planner)
        state = committer.snapshot.state
        others = set(state["bookmarks"]) - plan.asked if plan.request.streams and not is_flat(state) else ()
        load_plan = LoadPlan(
            plan.pipeline,
            committer,
            planner,
            self.scratch,
            self.context,
            full=plan.is_full,
            deselected=plan.deselected,
            retained=plan.deselected.union(others),
            restarted=frozenset(plan.asked or committer.snapshot.staged),
            max_records=plan.request.max_records,
            backfill=plan.request.backfill,
            reason=f"backfill {plan.request.backfill}" if plan.request.backfill else None,
            lookbacks=lookbacks,
            replay_guard=replay_guard,
            division=division,
            slots=self._slots,
            trace=self.trace,
            held=HeldBack(planner.streams),
        )
        self._rows = SourceRows.begin(load_plan, plan.source.database, plan.catalog)
        loader = Loader(load_plan)
        result.streams = loader.counts
        catalogs = division.catalogs if division else (plan.catalog,)
        reader = self._read(load_plan, loader, catalogs, states)
        look_back(plan, load_plan, reader, result)
        if plan.request.backfill:
            _require(plan.selected or plan.request.streams, loader.counts)

    def close(self, *, ended: bool) -> None:
        """Release the replication slot. `ended`: the tap ended well and all of it is committed."""
        self._warn(self._slots.close(ended=ended))

    def compare_rows(self) -> None:
        """Note in the result where a table has not as many rows as its source, after a load that ended well."""
        if self._rows:
            self.result.differ(*self._rows.differences(self.result, self._slots.read_to))

    def _warn(self, texts: Iterable[str]) -> None:
        self.result.warnings += map(redactor(self.plan.pipeline.secrets).text, texts)

    def _read(self, plan: LoadPlan, loader: Loader, catalogs: Iterable[Catalog | None], states: list[Any]) -> TapReader:
        """Start a process of the tap for each group, with its catalog and STATE, and read them all."""
        reader, result, source = TapReader(plan, loader), self.result, self.plan.source
        try:
            loader.fill_views()
            with ExitStack() as stack:
                log = Tee(stack.enter_context(closing(EndOfLog(plan.scratch.tap_log))), self.echo)
                taps: list[AbstractContextManager[Feed]] = [
                    source.start(catalog, state, Marked(log, group.label) if group.label else log, self._slots.of(n))
                    for n, (catalog, state, group) in enumerate(zip(catalogs, states, plan.groups, strict=True))
                ]
                reader.read(*[stack.enter_context(tap) for tap in taps])
        finally:
            self.is_clean = not reader.is_partial
            self._warn([*reader.warnings(), *loader.close()])
            result.differ_by_values(plan.pipeline, piped=self.plan.is_piped)
            say_merges(result, self.plan.snapshot)
            result.commits, result.seconds["waiting"] = loader.commits, reader.waiting_seconds
            result.spark = loader.spark
        return reader

    def _guarded(self, plan: RunPlan, division: Division | None) -> SlotGuard:
        """The guard of the replication slot that a tap of ours reads. Raises `SlotError`."""
        if plan.is_piped or plan.catalog is None:
            return SlotGuard()
        self.context.stage = "looking at the replication slot"
        asked = plan.asked_of_slot(self.result.run_id, division)
        guard = begin(plan.pipeline, plan.source.database, plan.storage, plan.snapshot, plan.catalog, asked)
        self._warn(guard.warnings)
        self.result.differ(*guard.differences)
        return guard

    def _replay_guard(self) -> ReplayGuard | None:
        """The guard against rows that a piped tap sends again. May wait for the tap's first message."""
        if not self.context.piped:
            return None
        self.context.stage = "waiting for the tap"
        return listen(self.committer, self.context.piped, self.context.tick, self.result)

    def _set_state(self) -> None:
        """Commit the STATE given by `--state`, if it is new; it then holds for all processes of the tap."""
        snapshot, given = self.committer.snapshot, self.plan.request.state
        if given is not None and (given != snapshot.state or snapshot.pipeline_state.per_process):
            self.committer.set_state(given, "--state")
            self.context.took_state = True


def _require(streams: Iterable[str], counts: Mapping[str, Counts]) -> None:
    """Raise `TapError` if the tap sent nothing of a stream whose rows were asked for."""
    names = counts.keys() | {name for one in counts.values() for name in one.names}
    if silent := [stream for stream in streams if stream not in names]:
        hint = "nothing of it was loaded; the tap's log: singer-bridge runs show --logs"
        raise TapError("the tap sent no SCHEMA of a stream", hint=hint, streams=", ".join(silent))
