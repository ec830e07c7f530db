"""One run without Spark and without a tap process: the real dispatcher, spool, decoding, ledger and commit protocol.

Wired as `bridge.load.run.loader` wires them. Only the engine is missing: a bundle is written where it is sealed, in the
same order in which Spark would deliver it, `lag` batches late.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from bridge.errors import TapError
from bridge.lake.commit.committer import Committer
from bridge.lake.commit.open import open_pipeline
from bridge.lake.storage import Storage, open_storage
from bridge.load.run.accounting import Accounting
from bridge.load.run.barriers import BarrierPolicy
from bridge.load.run.checks.table_guard import Guard
from bridge.load.run.dispatcher import Dispatcher, DispatchRules
from bridge.load.run.events import Event, Sealed
from bridge.load.run.tables.table_plan import TablePlanner
from bridge.load.run.tables.views import ViewTables
from bridge.load.spool.spool import Spool
from bridge.load.write.context import WriteContext
from bridge.load.write.rejects import write_rejects
from bridge.load.write.shared_spool import delete_files, pack, upload
from bridge.load.write.task import write_bundle
from bridge.protocol.singer.messages import Reader
from bridge.settings.destination import StreamKeys
from bridge.settings.inline import inline_pipeline
from bridge.settings.options import Pipeline
from bridge.settings.values.guarding import Guard as TableGuard

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
    at_end: bool = False
    """There is one commit, at the tap's clean end."""
    max_rejects: int = 1000
    lag: int = 0
    views: dict[str, str] = field(default_factory=dict)
    streams: dict[str, StreamKeys] = field(default_factory=dict)
    table_format: str = "parquet"
    hard_delete: bool | None = None
    file_size: int | None = None
    guard: TableGuard = _ANY_SIZE
    in_bucket: bool = False
    """The spool lies in the bucket, as on a cluster without a shared folder."""
    spark: Any = None
    """The session in which views are changed."""
    mark: Callable[[str], None] = lambda name: None
    """Told of instants that change nothing: the end of the tap, the report of a commit."""

    def execute(self, lake: str, scratch: Path) -> None:
        """Run to the end. A `TapError` of the tap is the run's, after everything up to its last STATE was committed."""
        storage = open_storage(lake)
        with open_pipeline(storage, PIPELINE, "run") as committer:
            self._load(storage, committer, scratch)

    def _load(self, storage: Storage, committer: Committer, scratch: Path) -> None:
        shutil.rmtree(scratch, ignore_errors=True)
        adopted = {} if self.full else {s: stage.version for s, stage in committer.snapshot.staged.items()}
        placement = TablePlanner(
            storage, self._settings(storage), committer.snapshot, self.catalog, full=self.full, append=False
        )
        job = WriteContext(storage.uri, PIPELINE, "run", committer.generation, str(scratch), "zstd", placement.layouts)
        job = replace(job, in_bucket=self.in_bucket)
        self._storage, self._job, self._spool = storage, job, Spool(scratch)
        self._ledger = Accounting(
            committer,
            job,
            continued=adopted,
            max_rejects=self.max_rejects,
            guard=Guard(self._settings(storage).model_copy(update={"guard": self.guard})),
            views=self._views(committer, job, placement),
        )
        self._waiting: list[Sealed] = []
        self._last_seq = 0
        self._dispatcher = Dispatcher(
            BarrierPolicy(committer.snapshot.state, staged=adopted, whole=self.full),
            self._spool,
            placement,
            DispatchRules(timedelta(0), 1 << 30, max_noise=self.max_rejects, only_at_end=self.at_end),
        )
        self._fill_views(self.views if self.full or self.load_method == "overwrite" else ())
        self._read(None if self.full else committer.snapshot.state)
        self._fill_views(())

    def _fill_views(self, replaced: Collection[str]) -> None:
        if changes := self._ledger.fill_views(self._last_seq, replaced):
            self._ledger.commit_views(changes)

    def _views(self, committer: Committer, job: WriteContext, placement: TablePlanner) -> ViewTables:
        settings = self._settings(committer.storage)
        return ViewTables(settings, committer, job, placement, lambda work: work(self.spark, job, None))

    def _settings(self, storage: Storage) -> Pipeline:
        pipeline = inline_pipeline(
            name=PIPELINE, bucket=storage.uri, tap="tap", load_method=self.load_method, environ={}
        )
        to: dict[str, Any] = {"format": self.table_format, "hard_delete": self.hard_delete}
        to |= {"file_size": self.file_size} if self.file_size else {}
        destination = pipeline.destination.model_copy(update=to)
        return pipeline.model_copy(update={"views": self.views, "streams": self.streams, "destination": destination})

    def _read(self, state: Any) -> None:
        reader = Reader()
        for line in self.tap(state):
            if isinstance(line, TapError):
                self.mark("the end of the tap")
                self._act(self._dispatcher.end(clean=False))
                self._drain(0)
                raise line
            self._act(self._dispatcher.take(reader.feed(line.encode() + b"\n")))
        self.mark("the end of the tap")
        self._act(self._dispatcher.end(clean=True))
        self._drain(0)

    def _act(self, events: Iterable[Event]) -> None:
        for event in events:
            assert isinstance(event, Sealed)
            if self.in_bucket and event.batch:
                packed = pack(self._job, event.batch)
                upload(self._job, self._storage, packed)
                event = replace(event, batch=packed.batch)  # noqa: PLW2901
            self._waiting.append(event)
            self._drain(self.lag if event.batch else 0)

    def _drain(self, lag: int) -> None:
        while len(self._waiting) > lag:
            sealed = self._waiting.pop(0)
            self._ledger.discard_staged(sealed.begun_anew)
            if batch := sealed.batch:
                self._last_seq = batch.seq
                self._ledger.add(batch, [write_bundle(self._job, batch.seq, bundle) for bundle in batch.bundles])
            if sealed.barrier:
                self._commit(sealed)
            if batch:
                self._spool.retire(batch)
                if self.in_bucket:
                    delete_files(self._job, sorted({segment.file for segment in batch.segments}))

    def _commit(self, sealed: Sealed) -> None:
        assert sealed.barrier
        if sealed.noise:
            self._ledger.reject(write_rejects(self._storage, self._job, None, list(sealed.noise)))
        prepared = self._ledger.prepare(sealed.barrier, self._last_seq)
        if self._ledger.commit(prepared):
            self.mark("the report")
        if prepared.refusal:
            raise prepared.refusal
