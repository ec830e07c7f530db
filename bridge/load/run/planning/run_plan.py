"""Plan a run by its request, settings, catalog and lake; nothing is written, and the source is not asked.

`run --dry-run` prints a plan, `bridge.load.run.execution` executes one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bridge.errors import SettingsError
from bridge.lake.formats.registry import require
from bridge.lake.log import Snapshot
from bridge.lake.presence import require_files
from bridge.lake.state.lookback import Lookback
from bridge.lake.storage import Storage, lake_of
from bridge.load.run.checks.fingerprint import (
    changed_since,
    fingerprint,
    last_fingerprint,
    mask_facts,
    other_mask_keys,
)
from bridge.load.run.last_commit import LastCommits
from bridge.load.run.masking import Masking
from bridge.load.run.planning.division import Division, check_parallelism, divided
from bridge.load.run.planning.past_runs import remembered
from bridge.load.run.planning.resume import completed, leave_out
from bridge.load.run.scratch import check_paths
from bridge.load.run.streams import StreamPlan, Streams
from bridge.load.run.tables.declared import whole_tables
from bridge.load.run.tables.table_plan import TablePlanner, refuse_namesakes
from bridge.load.run.tables.undeclared import refusal
from bridge.load.slots.guard import Asked, SlotGuard
from bridge.load.spark.jvm.java import find_java
from bridge.load.spark.jvm.jvm import refuse_another_session
from bridge.load.spark.lookups import Lookups
from bridge.load.tap.catalog_overrides import named
from bridge.load.tap.source import Source
from bridge.load.tap.stdin import Piped
from bridge.protocol.singer.catalog import Catalog, selected_streams
from bridge.protocol.singer.state import is_empty, reached_values, resumable_versions, without
from bridge.settings.destination import APPEND_ONLY, OVERWRITE, UPSERT
from bridge.settings.options import Pipeline
from bridge.settings.values.request import Request, Window

Selection = tuple[Catalog | None, set[str]]
"""The catalog that the tap gets, and the names of the streams that are deselected."""


def open_bucket(pipeline: Pipeline, request: Request, home: Path, commits: LastCommits) -> tuple[Storage, list[str]]:
    """The bucket, and warnings. Raises `LakeError` where it cannot be used, or is empty but should not be."""
    check_paths(home, pipeline)
    storage = lake_of(pipeline.destination)
    return storage, commits.check(storage, full=request.full and not request.streams)


def check_start(pipeline: Pipeline, request: Request, *, piped: bool = False) -> None:
    """Raise `SettingsError` for settings with which nothing can be started."""
    if not pipeline.spark.small_bytes:
        find_java()
    refuse_another_session()
    require(pipeline.destination.format)
    check_parallelism(pipeline, piped=piped, max_records=request.max_records)


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A run and the lake that it starts from.

    Each part of what it will do is computed when it is asked for, and raises the error with which the run is refused.
    """

    request: Request
    pipeline: Pipeline
    source: Source | Piped
    storage: Storage
    snapshot: Snapshot
    """The lake, with the STATE that the run starts from."""
    catalog: Catalog | None
    deselected: frozenset[str]
    runs: Storage
    """The storage for looks at earlier runs, which are read once."""

    @property
    def is_full(self) -> bool:
        return self.request.begins_anew(self.pipeline)

    @property
    def is_piped(self) -> bool:
        return isinstance(self.source, Piped)

    @property
    def is_narrowed(self) -> bool:
        """Whether streams are left out."""
        return bool(self.request.streams or self.request.resume)

    @property
    def asked(self) -> frozenset[str]:
        """All names of the streams that `--stream` names; empty for all streams."""
        return self.pipeline.all_names(self.request.streams)

    @property
    def selected(self) -> list[str]:
        """The streams that the catalog selects, sorted; none without a catalog."""
        return sorted(selected_streams(self.catalog)) if self.catalog else []

    @property
    def streams(self) -> list[str]:
        """The streams that the run names beforehand: those that are selected; without a catalog those of the tables."""
        return self.selected if self.catalog else sorted(self.snapshot.stream_tables)

    def completed(self) -> set[str]:
        """The streams that `--resume` skips."""
        return completed(self.runs, self.pipeline.name, self.pipeline.names) if self.request.resume else set()

    def without(self, skipped: set[str]) -> RunPlan:
        """The plan of a run that resumes, and skips these streams. Raises `SettingsError` if it cannot."""
        if not self.request.resume:
            return self
        catalog, deselected = leave_out(self.catalog, skipped, self.snapshot.state)
        return replace(self, catalog=catalog, deselected=frozenset(deselected))

    def fingerprint(self) -> dict[str, Any]:
        """The facts that the run's bookmarks depend on."""
        return fingerprint(self.pipeline, self.source.argv, self.catalog)

    def changes(self, now: dict[str, Any]) -> list[str]:
        """Warnings of what changed since the last successful run; `now` is the fingerprint of this one."""
        restarted = (self.asked or None) if self.is_full else ()
        before = last_fingerprint(self.runs, self.pipeline.name)
        return changed_since(self.pipeline, before, now, self.snapshot, restarted)

    def division(self) -> tuple[Division | None, list[str]]:
        """How the streams are divided among several processes of the tap, None for a single one; and warnings."""
        if self.request.backfill:
            return None, []
        division, notes = divided(self.pipeline, self.runs, self.snapshot, self.catalog)
        return division, [] if self.is_full else notes

    def asked_of_slot(self, run: str, division: Division | None) -> Asked:
        """The run's request about a replication slot."""
        processes = [group.streams for group in division.groups] if division else [self.selected]
        return Asked(run, processes, self.is_full, self.is_narrowed)

    def start(self, state: Any, own: Collection[str] | None, slots: SlotGuard) -> tuple[Any, Lookback]:
        """The STATE for a process of the tap that goes on from a stored one, None to start from the beginning.

        `own`: the streams that it extracts; others keep the bookmark they had. `slots`: what guards the replication
        slot; it may have a stream start before its bookmark. Raises `SettingsError` for a STATE that cannot be kept per
        stream.
        """
        if self.request.backfill:
            return self._before_window(state, self.request.backfill), Lookback()
        asked, settings_of = self.asked, self.pipeline.stream
        lookback = Lookback(lambda s: slots.back.get(s, settings_of(s).lookback) if own is None or s in own else None)
        lookback.quiet |= slots.back.keys()
        if asked:
            without(state, asked)
        if self.is_full:
            state = without(state, asked) if asked else None
        else:
            plans = self.planner().streams
            state = resumable_versions(
                state,
                lambda s: plans.expected(s).usual == OVERWRITE and (own is None or s in own),
                self._version,
                self.snapshot.tables,
            )
        state = None if is_empty(state) else slots.handed(state)
        looks_back = slots.back or any(one.lookback is not None for one in self.pipeline.streams.values())
        return lookback.start(state) if looks_back else state, lookback

    def _before_window(self, state: Any, window: Window) -> Any:
        """The STATE with which the tap sends a window's rows of the streams that were asked for. Raises
        `SettingsError`."""
        plans = Streams(self.pipeline, self.catalog, self.snapshot)
        for name in self.selected or self.request.streams:
            plan = plans.expected(name)
            key = plan.backfilled_by if self.catalog else plan.replication_key
            state = Lookback.at(state, plan.names, key, window.low)
            if plan.usual == APPEND_ONLY:
                self._refuse_beyond(plan, key, self.request.step_of or window)
        return state

    def _refuse_beyond(self, plan: StreamPlan, key: str | None, window: Window) -> None:
        """Raise `SettingsError` for a window that ends beyond the bookmark: a run would add those rows once more."""
        for value in reached_values(self.snapshot.state, plan.names, key, bare=True):
            if window.ends_after(value):
                hint = f"end it at {value} at the latest: a run without --backfill loads what comes after"
                raise SettingsError("the window ends beyond the bookmark", hint=hint, stream=plan.name)

    def _version(self, stream: str) -> int | None:
        """The `version` of a stream's rows in the lake, looked up by all of its names."""
        versions = (self.snapshot.version(name) for name in self.pipeline.names_of(stream))
        return next((version for version in versions if version is not None), None)

    def lookback_warnings(self, lookbacks: Sequence[Lookback]) -> list[str]:
        """A warning for each stream whose lookback doubles rows, or cannot be applied."""
        streams = dict.fromkeys(stream for lookback in lookbacks for stream in lookback.streams)
        unshifted = set().union(*(lookback.unshifted for lookback in lookbacks))
        again = "rows since its lookback come again, beside those that are there; load_method: upsert keeps one of each"
        plans = self.planner().streams if streams else None
        twice = [stream for stream in streams if plans and plans.expected(stream).usual != UPSERT]
        still = "its lookback has no effect: the tap keeps its bookmark in a form of its own"
        return [f"{s}: {again}" for s in twice] + [f"{s}: {still}" for s in sorted(unshifted)]

    def planner(self) -> TablePlanner:
        """The planner of the streams' tables."""
        whole = whole_tables(self.source.declared, self.pipeline, self.runs, self.snapshot)
        flags: dict[str, Any] = {"full": self.is_full, "append": self.request.append, "piped": self.is_piped}
        flags |= {"backfill": self.request.backfill, "masking": self._masking()}
        return TablePlanner(self.storage, self.pipeline, self.snapshot, self.catalog, **flags, whole=whole)

    def _masking(self) -> Masking:
        """The masks. Raises `SettingsError` if a new `mask_key` comes with a run of some streams only."""
        if self.is_narrowed and (names := other_mask_keys(self.snapshot, mask_facts(self.pipeline))):
            hint = "run all streams: values that are equal in two of them would no longer have one hash"
            what = "mask_key is another one than that of some tables, and only some streams are to run"
            raise SettingsError(what, hint=hint, tables=", ".join(names[:5]))
        return Masking(self.pipeline, is_narrowed=self.is_narrowed)

    def check_tables(self, planner: TablePlanner) -> list[str]:
        """Warnings of the tables. Raises `SettingsError` or `LakeError` if they cannot be loaded."""
        refuse_namesakes(self.pipeline.name, self.catalog, self.snapshot.tables)
        again = planner.streams.repeating(self.selected)
        if again := [stream for stream in again if planner.streams[stream].settings.on_error != "hold"]:
            raise refusal(self.pipeline, again)
        lookups = Lookups.of(self.pipeline, self.storage, self.snapshot)
        for stream in self.selected:
            planner.streams.refuse_masks(planner.streams[stream], planner.streams[stream].keys)
            statement = planner.streams.columns(planner.streams[stream]).statement
            for lookup in statement.lookups if statement else ():
                lookups.columns(lookup)
        tables = planner.loaded(self.deselected)
        return require_files(self.storage, self.pipeline, tables, planner.replaced(tables), piped=self.is_piped)


def plan_run(
    request: Request, pipeline: Pipeline, source: Source | Piped, selection: Selection, storage: Storage, now: Snapshot
) -> RunPlan:
    """The plan of a run. `selection` is what its source says before it starts, `now` the lake as it is."""
    snapshot, (catalog, deselected) = now if request.state is None else now.given(request.state), selection
    left_out, runs = frozenset(deselected), remembered(storage)
    return RunPlan(request, named(pipeline, catalog), source, storage, snapshot, catalog, left_out, runs)
