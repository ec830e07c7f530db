"""The bytes of a tap into a lake, without a process and without Spark: everything between the two is the real thing.

```
lake = Pipe(tmp_path)
found = lake.load(b'{"type":"SCHEMA",...}\\n...', load_method="overwrite")
assert found.rows("users") == [{"id": 1}]
```
The parts are wired as in a run. A bundle is decoded in this process, from the manifest
that Spark would read, and its report goes the way of Spark's reports.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from bridge.errors import BridgeError, TapError
from bridge.lake.commit.open import open_pipeline
from bridge.lake.log import Snapshot
from bridge.lake.runs import new_run_id
from bridge.lake.storage import lake_of
from bridge.load.run.checks.replay_guard import ReplayGuard
from bridge.load.run.loader import Loader
from bridge.load.run.plan import LoadPlan, RunContext
from bridge.load.run.result import Counts
from bridge.load.run.scratch import Scratch
from bridge.load.run.stop import Stop
from bridge.load.run.tables.table_plan import TablePlanner
from bridge.load.run.tap_reader import TapReader
from bridge.load.spark.query import Engine, Finished
from bridge.load.spool.folder import SealedBatch
from bridge.load.tap.stdin import Start, Stdin
from bridge.load.write.context import WriteContext
from bridge.load.write.report import WorkReport
from bridge.load.write.task import write_bundle
from bridge.protocol.singer.messages import Message
from bridge.settings.options import Pipeline


def wire(*messages: dict[str, Any]) -> bytes:
    """Messages as lines."""
    return b"".join(orjson.dumps(message) + b"\n" for message in messages)


def plain(value: Any) -> Any:
    """A stored value as JSON can say it: times as ISO text, decimals as text with their digits, NaN by its name."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [plain(entry) for entry in value]
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, Decimal) or (isinstance(value, float) and value - value != 0):
        return str(value)
    return value.hex() if isinstance(value, bytes) else value


@dataclass
class Found:
    """What a load left behind."""

    root: Path
    view: Snapshot
    counts: dict[str, Counts]
    warnings: list[str]
    error: BridgeError | None
    commits: int

    @property
    def state(self) -> Any:
        """The committed STATE."""
        return self.view.state

    def table(self, stream: str) -> pa.Table:
        """The committed rows, in the order of files and rows; columns that a file lacks are null."""
        table = self.view.tables[stream]
        folder = self.root / table.folder
        files = [pq.ParquetFile(folder / name).read() for name in table.files]
        return pa.concat_tables(files, promote_options="default")

    def rows(self, stream: str) -> list[dict[str, Any]]:
        """The committed rows as Python values."""
        rows: list[dict[str, Any]] = self.table(stream).to_pylist()
        return rows

    def streams(self) -> list[str]:
        """The streams that have a table."""
        return sorted(self.view.tables)

    def rejects(self) -> list[dict[str, Any]]:
        """The committed rejects, in no particular order between streams."""
        log = self.root / ".bridge/p/commits"
        records = [json.loads(path.read_bytes()) for path in sorted(log.glob("*.json"))]  # a STATE may hold any text
        files = [reject["file"] for record in records for reject in record.get("rejects", ())]
        lines = [line for file in files for line in (self.root / file).read_bytes().splitlines()]
        return [orjson.loads(line) for line in lines]


@dataclass
class Listening:
    """A target's side of the pipe: what the tap was started with, and who hears of the STATEs, which may end it all."""

    start: Start | None
    said: Callable[[Any], None] = lambda state: None


class Watched(RunContext):
    """A run without signals and lease: `tick` ends it, `listening` hears its STATEs."""

    def __init__(self, tick: Callable[[], None] = lambda: None, listening: Listening | None = None) -> None:
        super().__init__(Stop())
        self._ends, self._listening = tick, listening

    def tick(self) -> None:
        self._ends()

    def committed(self, state: Any) -> None:
        if self._listening:
            self._listening.said(state)


@dataclass
class Pipe:
    """The pipeline `p` over a lake in `root/lake`; each `load` is a run, `tick` raises when it shall end."""

    root: Path
    tick: Callable[[], None] = lambda: None
    kind: type[Loader] = field(default_factory=lambda: InProcess)
    lake: Path = field(init=False)

    def __post_init__(self) -> None:
        self.lake = self.root / "lake"

    def load(
        self,
        data: bytes | Iterable[bytes],
        *,
        catalog: dict[str, Any] | None = None,
        full: bool = False,
        deselected: Iterable[str] = (),
        max_records: int | None = None,
        fails: bool = False,
        started: Callable[[Any], object] = lambda state: None,
        listening: Listening | None = None,
        **settings: Any,
    ) -> Found:
        """Load what a tap says, in one chunk or in several; `fails`: the tap then exits 1. `listening`: as a target.

        `settings` are those of bridge.yaml: keys of `destination` by their names, `streams`, `commit`, `rejects`. An
        error of the bridge is returned, not raised.
        """
        pipeline = self.pipeline(**settings)
        storage = lake_of(pipeline.destination)
        run = new_run_id() if listening else "run"
        scratch = Scratch(self.root / "home", pipeline, run)
        scratch.prepare(storage)
        found: Found | None = None
        error: BridgeError | None = None
        data = [data] if isinstance(data, bytes) else data
        try:
            with ExitStack() as stack:
                committer = stack.enter_context(open_pipeline(storage, "p", run))
                superseding = ReplayGuard(committer, listening.start) if listening else None
                view = superseding.snapshot if superseding else committer.snapshot
                placement = TablePlanner(storage, pipeline, view, catalog, full=full, append=False)
                plan = LoadPlan(
                    pipeline,
                    committer,
                    placement,
                    scratch,
                    Watched(self.tick, listening),
                    full=full,
                    deselected=frozenset(deselected),
                    retained=frozenset(deselected),
                    restarted=frozenset(committer.snapshot.staged),
                    max_records=max_records,
                    replay_guard=superseding,
                )
                load = self.kind(plan)
                reader = TapReader(plan, load)
                started(committer.snapshot.state)
                try:
                    reader.read(Stdin(io.BytesIO(b"".join(data))) if listening else _Tap(data, fails))
                except BridgeError as failed:
                    error = failed
                closing = load.close()
                warnings = [*(superseding.notes if superseding else ()), *reader.warnings(), *closing]
                found = Found(self.lake, committer.snapshot, load.counts, warnings, error, load.commits)
                if error:
                    raise error
        except BridgeError as failed:
            if found is None:
                raise
            assert failed is error
        finally:
            shutil.rmtree(self.root / "home")
        return found

    def pipeline(self, **settings: Any) -> Pipeline:
        """The settings, with the rest as in a file that says no more."""
        outside = {
            key: settings.pop(key) for key in ("streams", "commit", "rejects", "guard", "spool") if key in settings
        }
        destination = {"bucket": str(self.lake), **settings}
        return Pipeline.model_validate({"name": "p", "source": {"tap": "tap"}, "destination": destination, **outside})


class _Tap:
    """The messages of a tap as it would write them, and how it ends."""

    proves_end = True

    def __init__(self, data: Iterable[bytes], fails: bool) -> None:
        self._data, self._fails = data, fails

    def chunks(self, *, idle: timedelta | None, tick: Callable[[], None]) -> Iterator[bytes]:
        for chunk in self._data:
            tick()
            yield chunk

    def select_messages(self, messages: Iterable[Message]) -> Iterable[Message]:
        return messages

    def wait(self, *, idle: timedelta | None, tick: Callable[[], None]) -> None:
        tick()
        if self._fails:
            raise TapError("the tap failed", exit_code=1)

    def terminate(self) -> None:
        pass

    def failure(self, message: str) -> TapError:
        return TapError(message)


class _Engine(Engine):
    """The engine without its threads: batches are loaded where reports are asked for."""

    def start(self, why: str) -> None:
        pass

    def load(self, batch: SealedBatch) -> None:
        self._sealed[batch.seq] = batch

    def each(self, work: Any, payloads: Sequence[Any], *, cost: float) -> list[Any]:
        return super().each(work, payloads, cost=0)

    def finished(self, wait: float = 0.0) -> list[Finished]:
        for batch in list(self._sealed.values()):
            self._take(batch, done(self._context, batch))
        return super().finished(wait)


def done(context: WriteContext, batch: SealedBatch) -> list[WorkReport]:
    """Do what Spark's workers do for a sealed batch."""
    return [write_bundle(context, batch.seq, bundle) for bundle in batch.bundles]


class InProcess(Loader):
    """A load whose Spark is this process."""

    engine: type[Engine] = _Engine

    def _new_engine(self) -> Engine:
        scratch = self._plan.scratch
        context, lookups = self._context, self._lookups
        engine = self.engine("local[2]", {}, self.spool, scratch.spark, scratch.spark_log, context, lookups=lookups)
        engine.tasks = 2
        return engine
