"""Executes a plan in an open pipeline: from the STATE that the tap gets to the tap's end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from typing import Any

from bridge.lake.commit.committer import Committer
from bridge.lake.records import TapGroup
from bridge.lake.state.lookback import Lookback
from bridge.load.run.checks.afterwards import look_back, say_merges
from bridge.load.run.checks.held_back import HeldBack
from bridge.load.run.checks.replay_guard import ReplayGuard, listen
from bridge.load.run.checks.row_counts import SourceRows
from bridge.load.run.loader import Loader
from bridge.load.run.plan import LoadPlan, RunContext
from bridge.load.run.planning.run_plan import RunPlan
from bridge.load.run.result import Result
from bridge.load.run.scratch import EndOfLog, Marked, Scratch, Tee
from bridge.load.run.tables.adopt import adopt
from bridge.load.run.tap_reader import TapReader
from bridge.load.run.trace import RunTrace
from bridge.load.slots.guard import SlotGuard, begin
from bridge.load.tap.pipe import Feed
from bridge.load.tap.process import Log
from bridge.protocol.singer.catalog import Catalog
from bridge.protocol.singer.state import is_flat
from bridge.settings.redact import redactor


class Execution:
    """The load of one run. `is_clean`: the tap was read to its end, so nothing of the run is pending."""

    def __init__(
        self,
        plan: RunPlan,
        committer: Committer,
        scratch: Scratch,
        context: RunContext,
        result: Result,
        trace: RunTrace | None,
        echo: Log | None,
    ) -> None:
        """`echo` gets a copy of the tap's stderr."""
        self._plan, self._committer, self._scratch = plan, committer, scratch
        self._context, self._result, self._trace, self._echo = context, result, trace, echo
        self._masked = redactor(plan.pipeline.secrets).text
        self._slots = SlotGuard()
        self._rows: SourceRows | None = None
        self.is_clean = True

    def run(self) -> None:
        """Load what the tap sends. Raises `BridgeError`; what was committed before stays."""
        committer, result = self._committer, self._result
        replay_guard = self._replay_guard()
        self._set_state()
        plan = self._plan.at(committer.view)
        division, notes = plan.division()
        result.warnings += notes
        groups = plan.groups(division)
        self._slots = self._guarded(plan, groups)
        starting = plan.start_states(self._slots)
        names = division.names if division else (None,)
        starts = [starting.of(group.state, own) for group, own in zip(groups, names, strict=True)]
        lookbacks = [lookback for _, lookback in starts]
        result.warnings += starting.warnings(lookbacks)
        if plan.request.adopt:
            adopt(committer, plan.pipeline)
        plan = plan.at(replay_guard.view if replay_guard else committer.view)
        planner = plan.planner()
        result.warnings += plan.check_tables(planner)
        load_plan = LoadPlan(
            plan.pipeline,
            committer,
            planner,
            self._scratch,
            self._context,
            full=plan.is_full,
            deselected=plan.deselected,
            retained=plan.deselected | self._others(),
            restarted=frozenset(plan.asked or committer.view.staged),
            max_records=plan.request.max_records,
            lookbacks=lookbacks,
            replay_guard=replay_guard,
            division=division,
            slots=self._slots,
            trace=self._trace,
            held=HeldBack(plan.pipeline, plan.catalog),
        )
        self._rows = SourceRows.begin(load_plan, plan.source.database, plan.catalog)
        loader = Loader(load_plan)
        result.streams = loader.counts
        catalogs = division.catalogs if division else (plan.catalog,)
        reader = self._read(load_plan, loader, zip(catalogs, starts, groups, strict=True))
        declared, is_narrowed = plan.source.declared, plan.is_narrowed
        look_back(load_plan, reader, result, plan.catalog, declared, plan.snapshot, is_narrowed=is_narrowed)

    def close(self, *, ended: bool) -> list[str]:
        """Release the replication slot; returns warnings. `ended`: the tap ended well and all of it is committed."""
        return [self._masked(text) for text in self._slots.close(ended=ended)]

    def compare_rows(self) -> None:
        """Note in the result where a table has not as many rows as its source, after a load that ended well."""
        if self._rows:
            self._result.differ(*self._rows.differences(self._result, self._slots.read_to))

    def _read(
        self,
        plan: LoadPlan,
        loader: Loader,
        given: Iterable[tuple[Catalog | None, tuple[Any, Lookback], TapGroup]],
    ) -> TapReader:
        """Start a process of the tap for each catalog, STATE and group, and read them all."""
        reader, result, source = TapReader(plan, loader), self._result, self._plan.source
        try:
            loader.fill_views()
            with ExitStack() as stack:
                log = Tee(stack.enter_context(closing(EndOfLog(plan.scratch.tap_log))), self._echo)
                taps: list[AbstractContextManager[Feed]] = [
                    source.start(catalog, state, Marked(log, group.label) if group.label else log, self._slots.of(n))
                    for n, (catalog, (state, _), group) in enumerate(given)
                ]
                reader.read(*[stack.enter_context(tap) for tap in taps])
        finally:
            self.is_clean = not reader.is_partial
            result.warnings += map(self._masked, [*reader.warnings(), *loader.close()])
            result.differ_by_values(plan.pipeline, piped=self._plan.is_piped)
            say_merges(result)
            result.commits, result.seconds["waiting"] = loader.commits, reader.waiting_seconds
        return reader

    def _guarded(self, plan: RunPlan, groups: Sequence[TapGroup]) -> SlotGuard:
        """What guards the replication slot that a tap of ours reads. Raises `SlotError`."""
        if plan.is_piped or plan.catalog is None:
            return SlotGuard()
        self._context.stage = "looking at the replication slot"
        asked = plan.asked_of_slot(self._result.run_id, groups)
        guard = begin(plan.pipeline, plan.source.database, plan.storage, plan.snapshot, plan.catalog, asked)
        self._result.warnings += map(self._masked, guard.warnings)
        self._result.differ(*guard.differences)
        return guard

    def _replay_guard(self) -> ReplayGuard | None:
        """The guard against rows that a piped tap sends again. May wait for the tap's first message."""
        if not self._context.piped:
            return None
        self._context.stage = "waiting for the tap"
        return listen(self._committer, self._context.piped, self._context.tick, self._result)

    def _others(self) -> set[str]:
        """The streams with a bookmark that `--stream` leaves out."""
        state, asked = self._committer.view.state, self._plan.asked
        return set(state["bookmarks"]) - asked if self._plan.request.streams and not is_flat(state) else set()

    def _set_state(self) -> None:
        """Commit the STATE given by `--state`, if it is new; it then holds for all processes of the tap."""
        view, given = self._committer.view, self._plan.request.state
        if given is not None and (given != view.state or view.pipeline_state.per_process):
            self._committer.set_state(given, "--state")
            self._context.took_state = True
