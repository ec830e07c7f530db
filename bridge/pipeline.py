"""One run, from the lease to the run record: what happens in which order, and what is kept when something fails.

After a failure of the tap, or when somebody stops us, everything up to the tap's last STATE is still committed. After
a failure of ours (Spark, the bucket, the accounting) nothing more is.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import FrameType
from typing import IO, Any

from bridge.commit import Committer
from bridge.config import Pipeline
from bridge.engine import Engine
from bridge.epoch import Barrier, Epochs
from bridge.errors import BridgeError, DataError, Interrupted, SettingsError, TapError
from bridge.intake import Counts, Intake
from bridge.ledger import Ledger
from bridge.lock import Lease
from bridge.log import meta
from bridge.messages import Reader
from bridge.placement import Placement
from bridge.runs import RunRecord, log_key, new_run_id
from bridge.source import Source
from bridge.spool import Manifest, Spool
from bridge.state import is_empty, without
from bridge.storage import Storage, open_storage
from bridge.tables.parquet import Job, write_rejects
from bridge.tap import Tap

__all__ = ["Request", "Result", "Run"]

_SIGNAL_GRACE = 0.05
"""Seconds after the tap's end in which a signal to us still counts: `systemctl stop` reaches both, the tap first."""

_LOG_LIMIT = 32 << 20


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked of this run beyond its settings."""

    full: bool = False
    append: bool = False
    streams: tuple[str, ...] = ()
    state: Any = None
    refresh_catalog: bool = False


@dataclass(slots=True)
class Result:
    """What came of a run."""

    run_id: str
    pipeline: str
    status: str = "success"
    commits: int = 0
    streams: dict[str, Counts] = field(default_factory=dict)
    state: Any = None
    state_before: Any = None
    seconds: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    error: BridgeError | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints and the run record keeps."""
        return {
            "format": 1,
            "run_id": self.run_id,
            "pipeline": self.pipeline,
            "status": self.status,
            "commits": self.commits,
            "streams": {name: counts.to_json() for name, counts in self.streams.items()},
            "state": self.state,
            "state_before": self.state_before,
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
            "warnings": self.warnings,
            "error": self.error
            and {"type": type(self.error).__name__, "message": self.error.message, "hint": self.error.hint},
        }


class Run:
    """One invocation. `stage` and `result` may be read by another thread while `execute` works."""

    def __init__(self, pipeline: Pipeline, request: Request, home: Path) -> None:
        self.pipeline, self.request, self.home = pipeline, request, home
        self.result = Result(new_run_id(), pipeline.name)
        self.stage = "starting"
        self.echo: IO[bytes] | None = None
        """Where the tap's stderr goes beside its log."""
        self._full = request.full or not pipeline.incremental.enabled
        self._signal = 0
        self._barriers: dict[int, Barrier] = {}
        self._last_seq = 0

    def execute(self) -> Result:
        """Run to the end; whatever happens is in the result. A second signal ends the process at once."""
        began = time.monotonic()
        try:
            with _signals(self._signalled):
                self._check_request()
                source = Source(self.pipeline, self.home)
                self.stage = "reading the catalog"
                catalog, deselected = source.catalog(self.request.streams, refresh=self.request.refresh_catalog)
                self._with_lease(source, catalog, deselected)
        except BridgeError as error:
            self.result.error = error
            self.result.status = "interrupted" if isinstance(error, Interrupted) else "failed"
        self.result.seconds["total"] = time.monotonic() - began
        return self.result

    def _check_request(self) -> None:
        if self._full and self.pipeline.destination.load_method == "append-only" and not self.request.append:
            hint = "add --append to load every row once more, or set load_method to auto or overwrite"
            raise SettingsError("--full would double the rows of append-only tables", hint=hint)

    def _signalled(self, number: int, _: FrameType | None) -> None:
        if self._signal:
            os._exit(128 + number)  # the guard stops the tap, the JVM ends with us, the next run repairs
        self._signal = number

    def _tick(self) -> None:
        if self._signal:
            raise Interrupted(self._signal)

    def _with_lease(self, source: Source, catalog: dict[str, Any] | None, deselected: set[str]) -> None:
        storage = open_storage(self.pipeline.destination.bucket)
        lease = Lease(Path(storage.uri) / meta(self.pipeline.name, "lease.json"), self.result.run_id)
        committer, clean = None, False
        try:
            self.stage = "reading the commit log"
            committer = Committer(storage, self.pipeline.name, self.result.run_id, last=lease.last)
            self._recorded(storage, committer, source, catalog, deselected)
            clean = True
        finally:
            lease.close(head=committer.view.n if committer else 0, clean=clean)

    def _recorded(
        self,
        storage: Storage,
        committer: Committer,
        source: Source,
        catalog: dict[str, Any] | None,
        deselected: set[str],
    ) -> None:
        self.result.warnings += committer.notes
        self.result.state = self.result.state_before = committer.view.state
        record = RunRecord(storage, self.pipeline.name, self.result.run_id, tap=Path(source.argv[0]).name)
        log = _Folders(self.home, self.pipeline, self.result.run_id).prepare(storage)
        began = time.monotonic()
        try:
            self._load(storage, committer, source, catalog, deselected, log)
        except BridgeError as error:
            self.result.error = error
            self.result.status = "interrupted" if isinstance(error, Interrupted) else "failed"
            raise
        finally:
            self.stage = "closing"
            self.result.state = committer.view.state
            self.result.seconds["load"] = time.monotonic() - began
            with suppress(BridgeError):  # a full disk must not hide what went wrong first
                log.keep(storage)
                record.finish(**self.result.to_json())
            log.delete()

    def _load(
        self,
        storage: Storage,
        committer: Committer,
        source: Source,
        catalog: dict[str, Any] | None,
        deselected: set[str],
        folders: _Folders,
    ) -> None:
        name = self.pipeline.name
        state = self._start_state(committer)
        restarted = set(self.request.streams) if self.request.streams else None
        adopted = {
            stream: stage["version"]
            for stream, stage in committer.view.staged.items()
            if not self._full or (restarted is not None and stream not in restarted)
        }
        job = Job(
            storage.uri,
            name,
            self.result.run_id,
            committer.generation,
            str(folders.spool),
            self.pipeline.destination.compression,
        )
        placement = Placement(
            storage, self.pipeline, committer.view, catalog, full=self._full, append=self.request.append
        )
        rejects = self.pipeline.rejects
        limit = rejects.max if rejects.on_reject == "quarantine" else 0
        self._ledger = Ledger(
            committer, job, folders=placement.folders, adopted=adopted, max_rejects=limit, seen=self._committed
        )
        self._spool = Spool(folders.spool)
        self._job, self._storage = job, storage
        self._engine = Engine(
            master=self.pipeline.spark.master,
            conf=self.pipeline.spark.conf,
            spool=self._spool,
            scratch=folders.scratch,
            log=folders.spark_log,
            job=job,
            handle=self._handle,
        )
        self._intake = Intake(
            Epochs(committer.view.state, staged=adopted, kept=deselected, whole=self._full),
            self._spool,
            placement.open,
            self._flush,
            self._ledger.discard_staged,
            self.pipeline.commit.every,
            self.pipeline.commit.bytes,
            limit,
            deselected,
            self.result.streams,
        )
        try:
            with folders.tap_log.open("ab") as log, source.start(catalog, state, _Tee(log, self.echo)) as tap:
                self._read(tap)
        finally:
            self.stage = "stopping Spark"
            self._engine.stop()
            self._spool.close()
            self._warn()

    def _start_state(self, committer: Committer) -> Any:
        """Return the STATE for the tap, None to start from the beginning."""
        if self.request.state is not None and self.request.state != committer.view.state:
            committer.set_state(self.request.state, "--state")
        state = committer.view.state
        if self.request.streams:
            without(state, self.request.streams)  # refuses a STATE that cannot be kept per stream
        if self._full:
            state = without(state, self.request.streams) if self.request.streams else None
        return None if is_empty(state) else state

    def _read(self, tap: Tap) -> None:
        reader, idle = Reader(), self.pipeline.source.idle_timeout
        try:
            self.stage = "waiting for the tap"
            for chunk in tap.chunks(idle=idle, tick=self._check):
                self.stage = "extracting"
                self._intake.take(reader.feed(chunk))
                self._hold_back()
            self._intake.take(reader.finish())
            tap.wait(idle=idle, tick=self._check)
            if reader.rest().strip():
                raise tap.failure("the tap stopped in the middle of a line")
            time.sleep(_SIGNAL_GRACE)
            self._check()
        except (TapError, DataError, Interrupted) as error:
            self._salvage(tap, error)
            raise
        self.stage = "committing"
        self._intake.end(clean=True)
        self._engine.drain(lambda: None)

    def _check(self) -> None:
        self._tick()
        self._engine.check()

    def _salvage(self, tap: Tap, error: BridgeError) -> None:
        """Commit up to the tap's last STATE, if it is the tap that failed and not we."""
        self.stage = "stopping the tap"
        tap.terminate()
        self._engine.check()
        self.stage = "committing up to the last STATE"
        try:
            self._intake.end(clean=False)
            self._engine.drain(lambda: None)
        except BridgeError as second:
            self.result.warnings.append(f"what was read since the last commit was dropped: {second.message}")
            if not isinstance(second, (TapError, DataError)):
                raise second from error

    def _hold_back(self) -> None:
        """Leave the tap waiting while the spool is full: bounded disk and memory, whatever it sends."""
        if self._intake.epochs.streams and self._spool.held:
            self._engine.start()
        while self._spool.held >= self.pipeline.spool.max_bytes:
            self._check()
            self._engine.wait()

    def _flush(self, barrier: Barrier | None, all_lines: bool) -> None:
        manifest = self._spool.seal(tasks=self._engine.tasks, all_lines=all_lines)
        if manifest is None:
            if barrier is not None:
                self._engine.drain(self._engine.check)
                self._commit(barrier)
            return
        if barrier is not None:
            self._barriers[manifest.seq] = barrier
        self._last_seq = manifest.seq
        self._engine.start()
        self._engine.seal(manifest)
        self._spool.release(manifest)

    def _handle(self, manifest: Manifest, reports: list[dict[str, Any]]) -> None:
        """Take in one manifest's reports and commit if it ends at a barrier; in Spark's callback thread."""
        self._ledger.add(manifest, reports)
        barrier = self._barriers.pop(manifest.seq, None)
        if barrier is not None:
            self._commit(barrier)

    def _commit(self, barrier: Barrier) -> None:
        noise, self._intake.noise = self._intake.noise, []
        if noise:
            self._ledger.reject(write_rejects(self._storage, self._job, None, noise))
        self._ledger.commit(barrier, self._last_seq)

    def _committed(self, record: dict[str, Any]) -> None:
        self.result.commits += 1
        for entry in record["tables"]:
            counts = self.result.streams[entry["stream"]]
            counts.committed += sum(add["rows"] for add in entry["adds"])
            counts.files += len(entry["adds"])
            counts.bytes += sum(add["size"] for add in entry["adds"])
        for reject in record["rejects"]:
            if reject["stream"] is not None:
                self.result.streams[reject["stream"]].rejected += reject["lines"]

    def _warn(self) -> None:
        intake, warnings = self._intake, self.result.warnings
        warnings += intake.warnings
        if intake.noise_count:
            warnings.append(
                f"{intake.noise_count} line(s) of the tap's stdout were no Singer messages: kept as rejects"
            )
        for stream, fields in self._ledger.extra.items():
            if fields:
                names = ", ".join(sorted(fields)[:5])
                warnings.append(f"{stream}: fields outside its SCHEMA are kept in the column _sdc_extra: {names}")
        for stream, counts in self.result.streams.items():
            if counts.rejected:
                warnings.append(f"{stream}: {counts.rejected} record(s) do not fit their SCHEMA: kept as rejects")
        for stream, lines in intake.ignored.items():
            warnings.append(f"{stream}: {lines} record(s) ignored, the stream is not selected")


@dataclass(frozen=True, slots=True)
class _Tee:
    """The run's log, and a terminal if somebody wants to watch."""

    log: IO[bytes]
    echo: IO[bytes] | None

    def write(self, data: bytes) -> None:
        self.log.write(data)
        if self.echo:
            self.echo.write(data)

    def flush(self) -> None:
        self.log.flush()
        if self.echo:
            self.echo.flush()


@contextmanager
def _signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Have SIGINT, SIGTERM and SIGHUP end the run in good order."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


class _Folders:
    """A run's scratch on this machine, apart from every other run's: a dead run's JVM may live a little longer."""

    def __init__(self, home: Path, pipeline: Pipeline, run: str) -> None:
        key = f"{pipeline.name}-{sha256(pipeline.destination.bucket.encode()).hexdigest()[:8]}"
        self._pipeline, self._run = pipeline.name, run
        self._siblings = ((pipeline.spool.dir or home / "spool") / key, home / "checkpoint" / key)
        self.spool, self.scratch = (sibling / run / "data" for sibling in self._siblings)
        self.tap_log, self.spark_log = self.spool.parent / "tap.log", self.spool.parent / "spark.log"

    def prepare(self, storage: Storage) -> _Folders:
        """Delete what dead runs left, keeping their logs; make our own folders."""
        for sibling in self._siblings:
            for old in sibling.iterdir() if sibling.exists() else ():
                self._keep(storage, old, old.name)
                shutil.rmtree(old, ignore_errors=True)
        for folder in (self.spool, self.scratch):
            folder.mkdir(parents=True, exist_ok=True)
        return self

    def keep(self, storage: Storage) -> None:
        """Move the logs into the bucket."""
        self._keep(storage, self.spool.parent, self._run)

    def _keep(self, storage: Storage, folder: Path, run: str) -> None:
        for name, suffix in (("tap.log", ""), ("spark.log", ".spark")):
            path = folder / name
            if path.exists() and path.stat().st_size:
                with path.open("rb") as file:
                    file.seek(max(0, path.stat().st_size - _LOG_LIMIT))
                    storage.write(log_key(self._pipeline, run + suffix), file.read())

    def delete(self) -> None:
        """Delete this run's scratch."""
        for folder in (self.spool.parent, self.scratch.parent):
            shutil.rmtree(folder, ignore_errors=True)
