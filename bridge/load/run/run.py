"""One run, from the lease to the run record."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from bridge.errors import BridgeError, CommitLost, Interrupted, LakeError, PipelineHeld
from bridge.lake.commit.committer import Committer
from bridge.lake.commit.open import OwnedPipeline
from bridge.lake.commit.retention import sweep
from bridge.lake.formats.iceberg.catalog import keep_catalog
from bridge.lake.lease import take
from bridge.lake.runs import new_run_id
from bridge.lake.storage import Storage
from bridge.lake.stream_files import StreamFiles
from bridge.load.run.checks.failure_hints import explained
from bridge.load.run.checks.table_guard import without_limits
from bridge.load.run.execution import Execution
from bridge.load.run.last_commit import LastCommits
from bridge.load.run.plan import RunContext
from bridge.load.run.planning.run_plan import RunPlan, Selection, check_start, open_bucket, plan_run
from bridge.load.run.result import Result
from bridge.load.run.scratch import Scratch
from bridge.load.run.stop import Stop
from bridge.load.run.trace import NO_TRACE, RunTrace
from bridge.load.tap.process import TapLog
from bridge.load.tap.source import Source
from bridge.load.tap.stdin import Piped
from bridge.settings.options import Pipeline
from bridge.settings.redact import redactor
from bridge.settings.values.request import Request


class Run:
    """One run. Another thread may read `result` and `context.stage` while `execute` works.

    `echo` gets a copy of the tap's stderr, beside its log.
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
        is_trial: bool = False,
    ) -> None:
        """`piped`: somebody else has started the tap, and its messages come through a pipe. `is_trial`: the lake is
        deleted afterwards, so the project takes no note of it."""
        self.pipeline = pipeline if request.guard else without_limits(pipeline)
        self.request, self.home, self._piped, self._is_trial = request, home, piped, is_trial
        self._commits = LastCommits(home, pipeline, piped=piped is not None)
        self.result = Result(request.run_id or new_run_id(), pipeline.name, attempt)
        self.echo: TapLog | None = None
        self._stop = stop or Stop()
        self.context = RunContext(self._stop, piped)
        self._began = 0.0
        self._trace: RunTrace | None = None
        self.storage: Storage | None = None
        """The bucket, once the run has its record there."""
        self._recorded = threading.Event()

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
            self.context.stage = "looking at the bucket"
            storage, warnings = open_bucket(self.pipeline, self.request, self.home, self._commits)
            self.result.warnings += warnings
            asked = self.request.to_record() | ({"piped": True} if self._piped else {})
            self._trace = RunTrace(storage, self.pipeline, self.result, asked)
            self.storage = storage
            self._recorded.set()
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
            self._recorded.set()
            self._finish()
        return self.result

    def recorded(self) -> Storage | None:
        """Wait, in another thread, until the run has its record in the bucket; None if it has ended without one."""
        self._recorded.wait()
        return self.storage

    def _give_up(self, reason: BridgeError) -> None:
        """Write the outcome of a run that hangs, before its process ends."""
        reason.hint = f"it hung while {self.context.stage}, and was ended; {reason.hint}"
        self.fail(reason)
        self._finish()

    def _finish(self) -> None:
        self.result.seconds["total"] = time.monotonic() - self._began
        if self._trace:
            self._trace.finish()

    def _run(self, storage: Storage) -> None:
        check_start(self.pipeline, self.request, piped=self._piped is not None)
        source = self._piped or Source(self.pipeline, self.home, self._stop.tick)
        with source.database:
            self.context.stage = "reading the catalog"
            try:
                selection = source.catalog(self.request.streams, refresh=self.request.refresh_catalog)
            finally:  # what is said once is said by a run that is refused, too
                self.result.report(source.notes, source.news)
            self._stop.tick()
            self._with_lease(storage, source, selection)

    def fail(self, error: BridgeError) -> None:
        """Make an error the outcome, with secrets masked."""
        error = self.result.error = self._stop.cause(error)
        redactor(self.pipeline.secrets).mask(error)
        kinds = {Interrupted: "interrupted", PipelineHeld: "held"}
        self.result.status = next((status for kind, status in kinds.items() if isinstance(error, kind)), "failed")

    def _with_lease(self, storage: Storage, source: Source | Piped, selection: Selection) -> None:
        name, run, wait = self.pipeline.name, self.result.run_id, self.request.wait or timedelta()
        lease = self.context.lease = take(storage, name, run, wait=wait, pause=self._pause)
        self.context.stage = "reading the commit log"
        with OwnedPipeline(storage, name, run, lease) as owned:
            self._stop.aside(keep_catalog, storage, self.pipeline)
            committer = owned.open()
            plan = plan_run(self.request, self.pipeline, source, selection, storage, committer.snapshot)
            owned.is_clean = self._run_with_record(committer, plan)
            if owned.is_clean and (self.result.commits or (self._trace and self._trace.is_first_of_its_hour)):
                with suppress(LakeError):  # all is committed; whoever holds the lease now may sweep
                    lease.check()
                    result, snapshot = self.result, committer.snapshot
                    result.warnings += sweep(storage, self.pipeline, run=run, made=result.commits, snapshot=snapshot)

    def _pause(self, duration: timedelta) -> None:
        self.context.stage = "waiting for the run that holds the pipeline"
        self._stop.sleep(duration)

    def _run_with_record(self, committer: Committer, plan: RunPlan) -> bool:
        """Execute a plan; returns whether nothing of this run is left that the next one has to recover."""
        trace, result, before, began = self._trace, self.result, committer.snapshot, time.monotonic()
        assert trace
        noted = len(committer.notes)
        result.warnings += committer.notes
        result.state, result.state_before, result.commit = before.state, before.state, before.n
        if skipped := sorted(plan.completed()):
            result.skipped = skipped
            result.warnings.append(f"skipped, the last run completed them: {', '.join(skipped)}")
        plan = plan.without(set(skipped))
        facts = plan.fingerprint()
        result.warnings += plan.changes(facts)
        tap = {"tap": Path(plan.source.argv[0]).name, "tap_version": facts["tap"]["version"], "fingerprint": facts}
        scratch = Scratch(self.home, self.pipeline, result.run_id)
        scratch.prepare(plan.storage)
        trace.opened(before, plan.runs, scratch, tap)
        declared = plan.catalog or plan.source.declared
        stream_files = self.context.stream_files = StreamFiles(committer.log, before, declared)
        execution = Execution(plan, committer, scratch, self.context, result, trace, self.echo)
        try:
            execution.run()
            result.status = "success"
        except BridgeError as error:
            error.hint = explained(error, plan.pipeline, plan.catalog)
            self.fail(error)
            raise
        finally:
            self.context.stage = "closing"
            ended = result.status == "success" and execution.is_clean
            execution.close(ended=ended)
            if not self._is_trial:
                self._commits.note(plan.storage, committer.snapshot.n)
            if ended:
                execution.compare_rows()
            result.warnings += committer.notes[noted:]
            result.state, result.commit = committer.snapshot.state, committer.snapshot.n
            result.seconds["load"] = time.monotonic() - began
            with suppress(BridgeError):  # a full disk must not hide what went wrong first
                if not isinstance(result.error, CommitLost):  # else it is another run that knows better
                    stream_files.follow(committer.snapshot)
                scratch.keep_logs(plan.storage)
            self._finish()
            scratch.delete()
        return execution.is_clean and not stream_files.late
