"""One run, from the lease to the run record."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from bridge.errors import BridgeError, CommitLost, Interrupted, LakeError, PipelineHeld
from bridge.lake.commit.committer import Committer
from bridge.lake.commit.open import open_pipeline
from bridge.lake.commit.retention import sweep
from bridge.lake.formats.iceberg.catalog import keep_catalog
from bridge.lake.formats.registry import require
from bridge.lake.lease import take
from bridge.lake.log import Snapshot
from bridge.lake.presence import require_files
from bridge.lake.records import TapGroup
from bridge.lake.runs import new_run_id
from bridge.lake.state.lookback import Lookback
from bridge.lake.storage import Storage, lake_of
from bridge.lake.stream_files import StreamFiles
from bridge.load.run.checks.afterwards import look_back, say_merges
from bridge.load.run.checks.failure_hints import explained
from bridge.load.run.checks.fingerprint import fingerprint, noticed
from bridge.load.run.checks.held_back import HeldBack
from bridge.load.run.checks.replay_guard import ReplayGuard, listen
from bridge.load.run.checks.resume import completed, leave_out
from bridge.load.run.checks.row_counts import SourceRows
from bridge.load.run.checks.table_guard import without_limits
from bridge.load.run.last_commit import LastCommits
from bridge.load.run.loader import Loader
from bridge.load.run.plan import LoadPlan, RunContext
from bridge.load.run.planning.division import check_parallelism, divided
from bridge.load.run.planning.start_state import StartStates
from bridge.load.run.result import Result
from bridge.load.run.scratch import EndOfLog, Marked, Scratch, Tee, check_paths
from bridge.load.run.stop import Stop
from bridge.load.run.tables.adopt import adopt
from bridge.load.run.tables.declared import whole_tables
from bridge.load.run.tables.methods import refusal
from bridge.load.run.tables.table_plan import TablePlanner, refuse_namesakes
from bridge.load.run.tap_reader import TapReader
from bridge.load.run.trace import NO_TRACE, RunTrace
from bridge.load.slots.guard import Asked, SlotGuard, begin
from bridge.load.spark.jvm.java import find_java
from bridge.load.spark.jvm.jvm import refuse_another_session
from bridge.load.tap.catalog_overrides import named
from bridge.load.tap.pipe import Feed
from bridge.load.tap.process import Log
from bridge.load.tap.source import Source
from bridge.load.tap.stdin import Piped
from bridge.protocol.singer.catalog import Catalog, selected_streams
from bridge.protocol.singer.state import is_flat
from bridge.settings.options import Pipeline
from bridge.settings.redact import redactor
from bridge.settings.values.request import Request


class Run:
    """One run. Another thread may read `stage` and `result` while `execute` works.

    `echo` gets a copy of the tap's stderr, beside its log. `begun` is called when the run has its record in the bucket.
    `took_state`: `request.state` was committed.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        request: Request,
        home: Path,
        *,
        stop: Stop | None = None,
        attempt: int = 1,
        piped: Piped | None = None,
    ) -> None:
        """`piped`: somebody else has started the tap, and its messages come through a pipe."""
        self.pipeline = pipeline if request.guard else without_limits(pipeline)
        self.request, self.home, self._piped = request, home, piped
        self._commits = LastCommits(home, pipeline, piped=piped is not None)
        self.result = Result(request.run_id or new_run_id(), pipeline.name, attempt)
        self.echo: Log | None = None
        self.begun: Callable[[Storage, str, str], None] = lambda *_: None
        self.took_state = False
        self._stop = stop or Stop()
        self.context = RunContext(self._stop, piped)
        self._clean, self._began = True, 0.0
        self._trace: RunTrace | None = None
        self.storage: Storage | None = None
        """The bucket, once the run has its record there."""
        self._slots = SlotGuard()
        self._rows: SourceRows | None = None
        self.declared: Catalog | None = None
        self._full = request.begins_anew(pipeline)

    def execute(self) -> Result:
        """Run to the end; a `BridgeError` is in the result.

        A second signal ends the process at once; so does a run that is to end and hangs, once its record says so.
        """
        self._began = time.monotonic()
        with self._stop, self._stop.within(self.request.timeout, self._give_up):
            return self._execute()

    def _execute(self) -> Result:
        try:
            self.request.check(self.pipeline)
            storage = self.open_bucket()
            asked = self.request.to_record() | ({"piped": True} if self._piped else {})
            self._trace = RunTrace(storage, self.pipeline, self.result, asked)
            self.storage = storage
            self.begun(storage, self.pipeline.name, self.result.run_id)
            self._run(storage)
            self.result.status = "success"
        except BridgeError as error:
            self.fail(error)
            if not self._trace and isinstance(error, LakeError):
                error.hint = "; ".join(filter(None, (error.hint, NO_TRACE)))
        except KeyboardInterrupt:  # only a caller that leaves SIGINT to Python gets one
            self.fail(Interrupted(signal.SIGINT))
            raise
        except Exception as error:
            self.fail(BridgeError(f"{type(error).__name__}: {error}", hint="please report it with its traceback"))
            raise
        finally:
            self._finish()
        return self.result

    def _give_up(self, reason: BridgeError) -> None:
        """Write the outcome of a run that hangs, before its process ends."""
        reason.hint = f"it hung while {self.stage}, and was ended; {reason.hint}"
        self.fail(reason)
        self._finish()

    def _finish(self) -> None:
        self.result.seconds["total"] = time.monotonic() - self._began
        if self._trace:
            self._trace.finish()

    def _run(self, storage: Storage) -> None:
        self.check_request()
        source = self._piped or Source(self.pipeline, self.home, self._stop.tick)
        with source.database:
            self.context.stage = "reading the catalog"
            try:
                catalog, deselected = source.catalog(self.request.streams, refresh=self.request.refresh_catalog)
            finally:  # what is said once is said by a run that is refused, too
                self.result.report(source.notes, source.news)
            self.declared, self.pipeline = source.declared, named(self.pipeline, catalog)
            self._stop.tick()
            self._with_lease(storage, source, catalog, deselected)

    def fail(self, error: BridgeError) -> None:
        """Make an error the outcome, with secrets masked."""
        error = self.result.error = self._stop.cause(error)
        error.message, error.hint = self._masked(error.message), self._masked(error.hint)
        kinds = {Interrupted: "interrupted", PipelineHeld: "held"}
        self.result.status = next((status for kind, status in kinds.items() if isinstance(error, kind)), "failed")

    def _masked(self, text: str) -> str:
        return redactor(self.pipeline.secrets).text(text)

    def check_request(self) -> None:
        """Raise `SettingsError` for settings with which nothing can be started."""
        find_java()
        refuse_another_session()
        require(self.pipeline.destination.format)
        check_parallelism(self.pipeline, piped=self._piped is not None, max_records=self.request.max_records)

    @property
    def stage(self) -> str:
        """What the run does, for people."""
        return self.context.stage

    def open_bucket(self) -> Storage:
        """Open the bucket. Raises `LakeError` where it cannot be used, or is empty but should not be."""
        check_paths(self.home, self.pipeline)
        self.context.stage = "looking at the bucket"
        storage = lake_of(self.pipeline.destination)
        self.result.warnings += self._commits.check(storage, full=self.request.full and not self.request.streams)
        return storage

    def _with_lease(
        self, storage: Storage, source: Source | Piped, catalog: dict[str, Any] | None, deselected: set[str]
    ) -> None:
        name, run, wait = self.pipeline.name, self.result.run_id, self.request.wait or timedelta()
        lease = self.context.lease = take(storage, name, run, wait=wait, pause=self._pause)
        self.context.stage = "reading the commit log"
        first = partial(self._stop.aside, partial(keep_catalog, storage, self.pipeline))
        with open_pipeline(storage, name, run, lease=lease, clean=lambda: self._clean, first=first) as committer:
            self._run_with_record(storage, committer, source, catalog, deselected)
            if self._clean:
                with suppress(LakeError):  # all is committed; whoever holds the lease now may sweep
                    lease.check()
                    result, view = self.result, committer.view
                    result.warnings += sweep(storage, self.pipeline, run=result.run_id, made=result.commits, view=view)

    def _pause(self, duration: timedelta) -> None:
        self.context.stage = "waiting for the run that holds the pipeline"
        self._stop.sleep(duration)

    def _run_with_record(
        self,
        storage: Storage,
        committer: Committer,
        source: Source | Piped,
        catalog: dict[str, Any] | None,
        deselected: set[str],
    ) -> None:
        trace, result, before, began = self._trace, self.result, committer.view, time.monotonic()
        assert trace
        noted = len(committer.notes)
        result.warnings += committer.notes
        result.state, result.state_before, result.commit = before.state, before.state, before.n
        if self.request.resume:
            catalog, deselected = self._resumed(storage, catalog, committer.view.state)
        facts = fingerprint(self.pipeline, source.argv, catalog)
        asked = {"full": self._full, "streams": self._asked, "state": self.request.state}
        result.warnings += noticed(storage, self.pipeline, facts, committer.view, **asked)
        tap = {"tap": Path(source.argv[0]).name, "tap_version": facts["tap"]["version"], "fingerprint": facts}
        scratch = Scratch(self.home, self.pipeline, result.run_id)
        scratch.prepare(storage)
        trace.opened(committer.view, scratch, tap)
        stream_files = self.context.stream_files = StreamFiles(committer.log, before, catalog or self.declared)
        try:
            self._load(committer, source, catalog, deselected, scratch)
            result.status = "success"
        except BridgeError as error:
            error.hint = explained(error, self.pipeline, catalog)
            self.fail(error)
            raise
        finally:
            self.context.stage = "closing"
            ended = result.status == "success" and self._clean
            result.warnings += map(self._masked, self._slots.close(ended=ended))
            self._commits.note(storage, committer.view.n)
            if ended and self._rows:
                result.differ(*self._rows.differences(result, self._slots.read_to))
            result.warnings += committer.notes[noted:]
            result.state, result.commit = committer.view.state, committer.view.n
            result.seconds["load"] = time.monotonic() - began
            with suppress(BridgeError):  # a full disk must not hide what went wrong first
                if not isinstance(result.error, CommitLost):  # else it is another run that knows better
                    stream_files.follow(committer.view)
                    self._clean = self._clean and not stream_files.late
                scratch.keep_logs(storage)
            self._finish()
            scratch.delete()

    def _resumed(self, storage: Storage, catalog: Catalog | None, state: Any) -> tuple[Catalog | None, set[str]]:
        finished = completed(storage, self.pipeline.name, self.pipeline.names)
        skipped = self.result.skipped = sorted(finished)
        if skipped:
            self.result.warnings.append(f"skipped, the last run completed them: {', '.join(skipped)}")
        return leave_out(catalog, finished, state if self.request.state is None else self.request.state)

    def _load(
        self,
        committer: Committer,
        source: Source | Piped,
        catalog: dict[str, Any] | None,
        deselected: set[str],
        scratch: Scratch,
    ) -> None:
        superseding = self._replay_guard(committer)
        self._set_state(committer)
        division, notes = divided(self.pipeline, committer.storage, committer.view, catalog)
        self.result.warnings += () if self._full else notes
        groups = division.groups if division else (TapGroup((), committer.view.state),)
        names = division.names if division else (None,)
        self._slots = self._guarded(committer, source, catalog, groups)
        starting = StartStates(self.pipeline, committer.view, self._asked, full=self._full, slots=self._slots)
        starts = [starting.of(group.state, own) for group, own in zip(groups, names, strict=True)]
        lookbacks = [lookback for _, lookback in starts]
        self.result.warnings += starting.warnings(lookbacks)
        if self.request.adopt:
            adopt(committer, self.pipeline)
        view = superseding.view if superseding else committer.view
        placement = self.planner(committer.storage, view, catalog, deselected)
        plan = LoadPlan(
            self.pipeline,
            committer,
            placement,
            scratch,
            self.context,
            full=self._full,
            deselected=frozenset(deselected),
            retained=frozenset(deselected | self._others(committer)),
            restarted=frozenset(self._asked or committer.view.staged),
            max_records=self.request.max_records,
            lookbacks=lookbacks,
            replay_guard=superseding,
            division=division,
            slots=self._slots,
            trace=self._trace,
            held=HeldBack(self.pipeline, catalog),
        )
        self._rows = SourceRows.begin(plan, source.database, catalog)
        load = Loader(plan)
        self.result.streams = load.counts
        catalogs = division.catalogs if division else (catalog,)
        reader = self._read(plan, load, source, zip(catalogs, starts, groups, strict=True))
        narrowed = bool(self.request.streams or self.request.resume)
        look_back(plan, reader, self.result, catalog, self.declared, view, is_narrowed=narrowed)

    def planner(self, storage: Storage, view: Snapshot, catalog: Catalog | None, deselected: set[str]) -> TablePlanner:
        """The planner of the streams' tables. Raises `SettingsError` or `LakeError` if it cannot be loaded."""
        refuse_namesakes(self.pipeline.name, catalog, view.tables)
        flags = {"full": self._full, "append": self.request.append, "piped": self._piped is not None}
        whole = whole_tables(self.declared, self.pipeline, storage, view)
        placement = TablePlanner(storage, self.pipeline, view, catalog, **flags, whole=whole)
        again = placement.repeating(sorted(selected_streams(catalog)) if catalog else ())
        if again := [stream for stream in again if self.pipeline.stream(stream).on_error != "hold"]:
            raise refusal(self.pipeline, again)
        tables = placement.loaded(deselected)
        self.result.warnings += require_files(
            storage, self.pipeline, tables, placement.replaced(tables), piped=self._piped is not None
        )
        return placement

    def _read(
        self,
        plan: LoadPlan,
        load: Loader,
        source: Source | Piped,
        given: Iterable[tuple[Catalog | None, tuple[Any, Lookback], TapGroup]],
    ) -> TapReader:
        """Start a process of the tap for each catalog, STATE and group, and read them all."""
        reader = TapReader(plan, load)
        try:
            load.fill_views()
            with ExitStack() as stack:
                log = Tee(stack.enter_context(closing(EndOfLog(plan.scratch.tap_log))), self.echo)
                taps: list[AbstractContextManager[Feed]] = [
                    source.start(catalog, state, Marked(log, group.label) if group.label else log, self._slots.of(n))
                    for n, (catalog, (state, _), group) in enumerate(given)
                ]
                reader.read(*[stack.enter_context(tap) for tap in taps])
        finally:
            self._clean = not reader.is_partial
            self.result.warnings += map(self._masked, [*reader.warnings(), *load.close()])
            self.result.differ_by_values(self.pipeline, piped=self._piped is not None)
            say_merges(self.result)
            self.result.commits, self.result.seconds["waiting"] = load.commits, reader.waiting_seconds
        return reader

    def _guarded(
        self, committer: Committer, source: Source | Piped, catalog: Catalog | None, groups: Sequence[TapGroup]
    ) -> SlotGuard:
        """What guards the replication slot that a tap of ours reads. Raises `SlotError`."""
        if self._piped or catalog is None:
            return SlotGuard()
        self.context.stage = "looking at the replication slot"
        asked = self.asked_of_slot(catalog, groups)
        guard = begin(self.pipeline, source.database, committer.storage, committer.view, catalog, asked)
        self.result.warnings += map(self._masked, guard.warnings)
        self.result.differ(*guard.differences)
        return guard

    def asked_of_slot(self, catalog: Catalog | None, groups: Sequence[TapGroup]) -> Asked:
        """What the run asks of a replication slot, with a process of the tap for each group."""
        processes = [group.streams or tuple(selected_streams(catalog) if catalog else ()) for group in groups]
        return Asked(self.result.run_id, processes, self._full, bool(self.request.streams or self.request.resume))

    def _replay_guard(self, committer: Committer) -> ReplayGuard | None:
        """The guard against rows that a piped tap sends again. May wait for the tap's first message."""
        if not self._piped:
            return None
        self.context.stage = "waiting for the tap"
        return listen(committer, self._piped, self.context.tick, self.result)

    @property
    def _asked(self) -> frozenset[str]:
        """All names of the streams that `--stream` names; empty for all streams."""
        return self.pipeline.all_names(self.request.streams)

    def _others(self, committer: Committer) -> set[str]:
        """The streams with a bookmark that `--stream` leaves out."""
        state = committer.view.state
        return set(state["bookmarks"]) - self._asked if self.request.streams and not is_flat(state) else set()

    def _set_state(self, committer: Committer) -> None:
        """Commit the STATE given by `--state`, if it is new; it then holds for all processes of the tap."""
        view, given = committer.view, self.request.state
        if given is not None and (given != view.state or view.pipeline_state.per_process):
            committer.set_state(given, "--state")
            self.took_state = True
