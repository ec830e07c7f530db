"""One run without Spark and without a tap process: the real intake, spool, decoding, ledger and commit protocol.

Wired as `bridge.load.loader` wires them. Only the engine is missing: a bundle is written where it is sealed, in the
same order in which Spark would deliver it, `lag` manifests late.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from bridge.commit.committer import Committer
from bridge.commit.open import open_pipeline
from bridge.errors import TapError
from bridge.load.accounting import Accounting
from bridge.load.barriers import Barrier, BarrierPolicy
from bridge.load.checks.table_guard import Guard
from bridge.load.dispatcher import Dispatcher
from bridge.load.table_plan import TablePlanner
from bridge.settings.load import Pipeline, inline_pipeline
from bridge.settings.values.guarding import Guard as TableGuard
from bridge.singer.messages import Reader
from bridge.spool.spool import SealedBatch, Spool
from bridge.storage import Storage, open_storage
from bridge.write.parquet import Job, write_bundle, write_rejects

PIPELINE = "p"

Line = str | TapError
Tap = Callable[[Any], Iterable[Line]]
"""A tap as a function of the STATE it is given: its lines, and as data the error in which it ends."""


_ANY_SIZE = TableGuard(shrink=None)
"""Cases overwrite tables with nothing on purpose."""


@dataclass
class Run:
    """One invocation over the lake. A barrier is taken at each STATE that can be one."""

    tap: Tap
    load_method: str = "auto"
    catalog: dict[str, Any] | None = None
    full: bool = False
    max_rejects: int = 1000
    lag: int = 0
    mark: Callable[[str], None] = lambda name: None
    """Told of instants that change nothing: the end of the tap, the report of a commit."""

    def execute(self, lake: str, scratch: Path) -> None:
        """Run to the end. A `TapError` of the tap is the run's, after everything up to its last STATE was committed."""
        storage = open_storage(lake)
        with open_pipeline(storage, PIPELINE, "run") as committer:
            self._load(storage, committer, scratch)

    def _load(self, storage: Storage, committer: Committer, scratch: Path) -> None:
        shutil.rmtree(scratch, ignore_errors=True)
        adopted = {} if self.full else {s: stage.version for s, stage in committer.view.staged.items()}
        placement = TablePlanner(
            storage, self._settings(storage), committer.view, self.catalog, full=self.full, append=False
        )
        job = Job(storage.uri, PIPELINE, "run", committer.generation, str(scratch), "zstd", placement.targets)
        self._storage, self._job, self._spool = storage, job, Spool(scratch)
        self._ledger = Accounting(
            committer,
            job,
            adopted=adopted,
            max_rejects=self.max_rejects,
            seen=lambda record: self.mark("the report"),
            guard=Guard(self._settings(storage).model_copy(update={"guard": _ANY_SIZE})),
        )
        self._waiting: list[tuple[SealedBatch, Barrier | None, list[dict[str, Any]]]] = []
        self._begun_anew: list[str] = []
        self._void: dict[int, list[str]] = {}
        self._last_seq = 0
        self._intake = Dispatcher(
            BarrierPolicy(committer.view.state, staged=adopted, whole=self.full),
            self._spool,
            placement.open,
            self._flush,
            self._begun_anew.append,
            timedelta(0),
            1 << 30,
            self.max_rejects,
        )
        self._read(None if self.full else committer.view.state)

    def _settings(self, storage: Storage) -> Pipeline:
        return inline_pipeline(
            name=PIPELINE,
            bucket=storage.uri,
            tap="tap",
            tap_config=None,
            catalog=None,
            load_method=self.load_method,
            environ={},
        )

    def _read(self, state: Any) -> None:
        reader = Reader()
        for line in self.tap(state):
            if isinstance(line, TapError):
                self.mark("the end of the tap")
                self._intake.end(clean=False)
                self._drain(0)
                raise line
            self._intake.take(reader.feed(line.encode() + b"\n"))
        self.mark("the end of the tap")
        self._intake.end(clean=True)
        self._drain(0)

    def _flush(self, barrier: Barrier | None, all_lines: bool) -> None:
        noise: list[dict[str, Any]] = []
        if barrier is not None:
            noise, self._intake.noise = self._intake.noise, noise
        manifest = self._spool.seal(tasks=2, all_lines=all_lines)
        if manifest is not None:
            self._last_seq = manifest.seq
            self._waiting.append((manifest, barrier, noise))
            self._void[manifest.seq], self._begun_anew[:] = self._begun_anew[:], []
            self._drain(self.lag)
        elif barrier is not None:
            self._drain(0)
            self._ledger.discard_staged(self._begun_anew)
            self._begun_anew.clear()
            self._commit(barrier, noise)

    def _drain(self, lag: int) -> None:
        while len(self._waiting) > lag:
            manifest, barrier, noise = self._waiting.pop(0)
            self._ledger.discard_staged(self._void.pop(manifest.seq))
            self._ledger.add(manifest, [write_bundle(self._job, manifest.seq, bundle) for bundle in manifest.bundles])
            if barrier is not None:
                self._commit(barrier, noise)
            self._spool.retire(manifest)

    def _commit(self, barrier: Barrier, noise: list[dict[str, Any]]) -> None:
        if noise:
            self._ledger.reject(write_rejects(self._storage, self._job, None, noise))
        self._ledger.commit(barrier, self._last_seq)
