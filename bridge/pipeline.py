"""One run, from the lease to the run record."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any
from uuid import uuid4

from bridge.commit import Committer
from bridge.config import Pipeline, redactor
from bridge.errors import BridgeError, Interrupted, SettingsError
from bridge.intake import Counts
from bridge.java import find_java
from bridge.load import Follow, Load
from bridge.lock import Lease
from bridge.log import meta
from bridge.placement import Placement
from bridge.runs import RunRecord, new_run_id, write_streams
from bridge.scratch import Scratch, Tee
from bridge.source import Source
from bridge.state import is_empty, is_flat, resumable_versions, without
from bridge.storage import Storage, open_storage
from bridge.verbatim import dumps

__all__ = ["Request", "Result", "Run"]


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
    """What came of a run; `failed` until it is known better. `seconds` are wall-clock."""

    run_id: str
    pipeline: str
    status: str = "failed"
    commits: int = 0
    streams: dict[str, Counts] = field(default_factory=dict)
    state: Any = None
    state_before: Any = None
    seconds: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    error: BridgeError | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints and the run record keeps."""
        error = self.error
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
            "error": error and {"type": type(error).__name__, "message": error.message, "hint": error.hint},
        }


class Run:
    """One invocation. `stage` and `result` may be read by another thread while `execute` works.

    `echo` is where the tap's stderr goes beside its log, if anywhere.
    """

    def __init__(self, pipeline: Pipeline, request: Request, home: Path) -> None:
        self.pipeline, self.request, self.home = pipeline, request, home
        self.result = Result(new_run_id(), pipeline.name)
        self.stage = "starting"
        self.echo: IO[bytes] | None = None
        self._full = request.full or not pipeline.incremental.enabled
        self._signal = 0

    def execute(self) -> Result:
        """Run to the end; a `BridgeError` is in the result. A second signal ends the process at once."""
        began = time.monotonic()
        try:
            with _signals(self._signalled):
                self._check_request()
                source = Source(self.pipeline, self.home, self._tick)
                self.stage = "reading the catalog"
                catalog, deselected = source.catalog(self.request.streams, refresh=self.request.refresh_catalog)
                self._tick()
                self._with_lease(source, catalog, deselected)
                self.result.status = "success"
        except BridgeError as error:
            self._failed(error)
        self.result.seconds["total"] = time.monotonic() - began
        return self.result

    def _failed(self, error: BridgeError) -> None:
        redact = redactor(self.pipeline.secrets)
        error.message, error.hint = (redact(t.encode()).decode(errors="replace") for t in (error.message, error.hint))
        self.result.error = error
        self.result.status = "interrupted" if isinstance(error, Interrupted) else "failed"

    def _check_request(self) -> None:
        find_java()
        if self._full and self.pipeline.destination.load_method == "append-only" and not self.request.append:
            hint = "add --append to load every row once more, or set load_method to auto or overwrite"
            raise SettingsError("--full would double the rows of append-only tables", hint=hint)

    def _signalled(self, number: int, _: FrameType | None) -> None:
        if self._signal:
            if sys.stderr.isatty():
                os.write(2, b"\x1b[?25h\n")  # the live progress had hidden the cursor
            os._exit(128 + number)  # the guard stops the tap, the JVM ends with us, the next run repairs
        self._signal = number

    def _tick(self) -> None:
        if self._signal:
            raise Interrupted(self._signal)

    def _set_stage(self, stage: str) -> None:
        self.stage = stage

    def _with_lease(self, source: Source, catalog: dict[str, Any] | None, deselected: set[str]) -> None:
        storage = open_storage(self.pipeline.destination.bucket)
        lease = Lease(Path(storage.uri) / meta(self.pipeline.name, "lease.json"), self.result.run_id)
        head = lease.last.get("head") or 0
        try:
            lake = {"format": 1, "id": str(uuid4()), "made_by": "singer-bridge"}
            storage.put_if_absent(".bridge/lake.json", dumps(lake))
            self.stage = "reading the commit log"
            committer = Committer(storage, self.pipeline.name, self.result.run_id, last=lease.last)
            try:
                self._recorded(storage, committer, source, catalog, deselected)
            finally:
                head = committer.view.n
        except BaseException:
            with suppress(BridgeError):  # what failed first is what the operator has to hear of
                lease.close(head=head, clean=False)
            raise
        lease.close(head=head, clean=True)

    def _recorded(
        self,
        storage: Storage,
        committer: Committer,
        source: Source,
        catalog: dict[str, Any] | None,
        deselected: set[str],
    ) -> None:
        result, began = self.result, time.monotonic()
        result.warnings += committer.notes
        result.state = result.state_before = committer.view.state
        record = RunRecord(storage, self.pipeline.name, result.run_id, tap=Path(source.argv[0]).name)
        scratch = Scratch(self.home, self.pipeline, result.run_id)
        scratch.prepare(storage)
        try:
            self._load(committer, source, catalog, deselected, scratch)
            result.status = "success"
        except BridgeError as error:
            self._failed(error)
            raise
        finally:
            self.stage = "closing"
            result.state = committer.view.state
            result.seconds["load"] = time.monotonic() - began
            with suppress(BridgeError):  # a full disk must not hide what went wrong first
                write_streams(storage, self.pipeline.name, committer.view, list(result.streams))
                scratch.keep_logs(storage)
                record.finish(**result.to_json())
            scratch.delete()

    def _load(
        self,
        committer: Committer,
        source: Source,
        catalog: dict[str, Any] | None,
        deselected: set[str],
        scratch: Scratch,
    ) -> None:
        state = self._start_state(committer)
        placement = Placement(
            committer.storage, self.pipeline, committer.view, catalog, full=self._full, append=self.request.append
        )
        load = Load(
            self.pipeline,
            committer,
            placement,
            scratch,
            Follow(self._tick, self._set_stage),
            full=self._full,
            deselected=deselected,
            kept=deselected | self._others(committer),
            restarted=set(self.request.streams or committer.view.staged),
        )
        self.result.streams = load.counts
        try:
            with scratch.tap_log.open("ab") as log, source.start(catalog, state, Tee(log, self.echo)) as tap:
                load.read(tap)
        finally:
            self.result.warnings += load.close()
            self.result.commits = load.commits

    def _others(self, committer: Committer) -> set[str]:
        """Return the streams with a bookmark that `--stream` leaves out."""
        state = committer.view.state
        return (
            set(state["bookmarks"]) - set(self.request.streams)
            if self.request.streams and not is_flat(state)
            else set()
        )

    def _start_state(self, committer: Committer) -> Any:
        """Return the STATE for the tap, None to start from the beginning."""
        if self.request.state is not None and self.request.state != committer.view.state:
            committer.set_state(self.request.state, "--state")
        state = committer.view.state
        if self.request.streams:
            without(state, self.request.streams)  # refuses a STATE that cannot be kept per stream
        if self._full:
            state = without(state, self.request.streams) if self.request.streams else None
        elif self.pipeline.destination.load_method == "overwrite":
            state = resumable_versions(state)
        return None if is_empty(state) else state


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
