"""Reads rejects again with the present columns of their table: one commit of kind `replay` adds the rows that now fit.

```
lease -> recover -> which fit? -> pending files, and new reject files for the rest -> commit n -> publish
```
The commit names the consumed files and those with the rest. So each record is a row or a reject, never both and never
neither, wherever the replay dies: before the commit nothing has happened; after it, the next holder of the pipeline
finishes it. The STATE stays. Consumed files stay in the bucket for `retention.rejects`, so a rollback can use them.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from bridge.lake.commit.committer import Committer
from bridge.lake.commit.open import open_pipeline
from bridge.lake.file_records import RejectFile
from bridge.lake.log import Log, Snapshot
from bridge.lake.schemas import read_schema
from bridge.lake.storage import Storage
from bridge.lake.stream_files import StreamFiles
from bridge.load.maintain.rejects.rewrite import rewritten
from bridge.load.maintain.rejects.survey import Criteria, find, first_files, groups, read
from bridge.load.run.accounting import Accounting
from bridge.load.run.barriers import Barrier
from bridge.load.run.checks.fingerprint import masked_otherwise
from bridge.load.run.checks.table_guard import Guard, without_limits
from bridge.load.run.tables.table_plan import TablePlanner
from bridge.load.run.tables.views import ViewTables
from bridge.load.spark.at_need import SparkAtNeed
from bridge.load.spool.folder import SealedBatch, Segment, SpoolFolder
from bridge.load.write.context import WriteContext
from bridge.load.write.metadata_columns import leave_out
from bridge.load.write.rejects import properties_of, raw_of
from bridge.load.write.task import write_bundle
from bridge.protocol.decode.decoder import decode
from bridge.protocol.schema.json_schema import source
from bridge.protocol.schema.merging import without_variants
from bridge.protocol.schema.table_schema import TableSchema
from bridge.protocol.singer.messages import Schema
from bridge.settings.destination import APPEND_ONLY
from bridge.settings.options import Pipeline

_RAW = "of a run with other masks than now: load the stream anew, and purge them"
_REFUSED = "of a commit that the guard refused: the next run brings these records again"


@dataclass(slots=True)
class ReplayOutcome:
    """The result for one stream's rejects: `fit` records are rows now, `left` counts the others by reason.

    `why`: the reason if nothing of the stream can be loaded, otherwise empty.
    """

    fit: int = 0
    left: Counter[str] = field(default_factory=Counter)
    why: str = ""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay, or of its rehearsal. `commit` is the last one now; if nothing fits, the replay made none.

    `unread`: how many requested records a rehearsal left out, as it read a sample.
    """

    streams: dict[str | None, ReplayOutcome]
    commit: int
    notes: tuple[str, ...] = ()
    unread: int = 0

    @property
    def fit(self) -> int:
        return sum(outcome.fit for outcome in self.streams.values())


@dataclass(slots=True)
class _Work:
    """One stream's part: the lines that fit, and the rest of each file that has some."""

    stream: str
    schema: TableSchema
    lines: list[bytes] = field(default_factory=list)
    left: list[tuple[RejectFile, list[dict[str, Any]]]] = field(default_factory=list)


def rehearse(storage: Storage, pipeline: Pipeline, criteria: Criteria, most_bytes: int | None = None) -> Replayed:
    """Rehearse a replay as of now; nothing is written. With `most_bytes` the first files of about so many are read."""
    log = Log(storage, pipeline.name)
    snapshot = log.snapshot(log.latest())
    files = find(storage, pipeline.name, snapshot, criteria)
    chosen = files if most_bytes is None else first_files(files, most_bytes)
    streams, _ = _judged(storage, pipeline, snapshot, criteria, _placement(storage, pipeline, snapshot), chosen)
    unread = sum(group.records for group in groups(files[len(chosen) :], criteria))
    return Replayed(streams, snapshot.n, unread=unread)


def replay(storage: Storage, pipeline: Pipeline, criteria: Criteria) -> Replayed:
    """Load the requested rejects that fit by now. Raises `PipelineHeld` while a run is alive."""
    with open_pipeline(storage, pipeline.name, brief=True) as committer:
        before = committer.snapshot
        placement = _placement(storage, pipeline, before)
        files = find(storage, pipeline.name, before, criteria)
        streams, works = _judged(storage, pipeline, before, criteria, placement, files)
        if works:
            with tempfile.TemporaryDirectory(prefix="singer-bridge-") as spool:
                uri, run, generation = storage.uri, committer.run, committer.generation
                context = WriteContext.of(pipeline, uri, run, generation, placement.layouts, spool)
                with SparkAtNeed(pipeline, Path(spool) / "spark", context) as spark:
                    views = ViewTables(pipeline, committer, context, placement, spark.in_spark)
                    _commit(committer, context, pipeline, works, views)
            StreamFiles(committer.log, before).follow(committer.snapshot)
    return Replayed(streams, committer.snapshot.n, tuple(committer.notes))


def _placement(storage: Storage, pipeline: Pipeline, snapshot: Snapshot) -> TablePlanner:
    return TablePlanner(storage, pipeline, snapshot, None, full=False, append=False)


def _judged(
    storage: Storage,
    pipeline: Pipeline,
    snapshot: Snapshot,
    criteria: Criteria,
    placement: TablePlanner,
    requested: Iterable[RejectFile],
) -> tuple[dict[str | None, ReplayOutcome], list[_Work]]:
    """Read the requested rejects with the columns that their tables have now."""
    outcomes: dict[str | None, ReplayOutcome] = {}
    files: dict[str, list[RejectFile]] = {}
    is_other = masked_otherwise(storage, pipeline.name)
    for file in requested:
        outcome = outcomes.setdefault(file.stream, ReplayOutcome(why=_obstacle(file.stream, placement, snapshot)))
        if outcome.why or file.stream is None:
            outcome.left.update({r: records for r, (records, _) in file.reasons.items() if criteria.says(r)})
        elif is_other(file.run):
            outcome.left[_RAW] += sum(n for reason, (n, _) in file.reasons.items() if criteria.says(reason))
        elif file.refused:
            outcome.left[_REFUSED] += sum(n for reason, (n, _) in file.reasons.items() if criteria.says(reason))
        else:
            files.setdefault(file.stream, []).append(file)
    works = []
    for stream, of_stream in files.items():
        rejects = {file.file: list(read(storage, file)) for file in of_stream}
        names = {name for those in rejects.values() for reject in those for name in properties_of(raw_of(reject))}
        work = _Work(stream, _columns(storage, pipeline, stream, snapshot, placement, names))
        for file in of_stream:
            _judge(file, rejects[file.file], criteria, work, outcomes[stream])
        if work.lines:
            works.append(work)
    return outcomes, works


def _obstacle(stream: str | None, placement: TablePlanner, snapshot: Snapshot) -> str:
    """Why nothing of a stream can be loaded; empty if it can."""
    if stream is None:
        return "no Singer messages: there is nothing to load"
    table = snapshot.tables.get(stream)
    if table is None or table.schema is None:
        return "it has no table yet: run the pipeline first"
    if stream in snapshot.staged:
        return "its table is half loaded: run the pipeline first"
    plan = placement.streams.expected(stream)
    merged = plan.is_merged(table)
    if merged is None:
        return (
            "whether it is an upsert is not known, as an older version loaded it: run the pipeline once, "
            "or set its load_method"
        )
    if merged:
        return "an upsert: an old record must not replace a newer one; set the bookmark back and run"
    if plan.settings.transform is not None:
        return "its rows need a transform, which only a run does; set the bookmark back and run"
    return ""


def _columns(
    storage: Storage, pipeline: Pipeline, stream: str, snapshot: Snapshot, placement: TablePlanner, names: set[str]
) -> TableSchema:
    """The table's columns, for records with these properties; what the settings leave out is left out."""
    columns = read_schema(storage, pipeline.name, snapshot.tables[stream].schema or "")
    properties: dict[str, Any] = {source(field): {} for field in columns.arrow}
    placement.open(Schema(stream, {"properties": properties}, None, None))
    reading = pa.schema(without_variants(columns.arrow))
    columns = TableSchema(columns.arrow, None if reading == columns.arrow else reading)
    shaping = placement.streams.columns(placement.streams.expected(stream))
    left_out = sorted(name for name in names - properties.keys() if not shaping.wants(name))
    fields = [pa.field(name, pa.string()) for name in left_out]
    return leave_out(columns, fields, metadata=placement.layouts[stream].metadata)


def _judge(
    file: RejectFile, rejects: list[dict[str, Any]], criteria: Criteria, work: _Work, outcome: ReplayOutcome
) -> None:
    """Decide which records of a file fit. A file of which none does stays as it is."""
    requested = [number for number, reject in enumerate(rejects) if criteria.says(reject["reason"])]
    raw = {number: raw_of(rejects[number]) for number in requested}
    decoded = decode(b"".join(line + b"\n" for line in raw.values()), work.schema, None)
    unfit = {requested[reject.line]: reject for reject in decoded.rejects}
    outcome.fit += len(requested) - len(unfit)
    outcome.left.update(reject.reason for reject in unfit.values())
    if len(unfit) == len(requested):
        return
    work.lines += [line for number, line in raw.items() if number not in unfit]
    left = []
    for number, reject in enumerate(rejects):
        if number in unfit:
            left.append(reject | {"reason": unfit[number].reason, "pointer": unfit[number].pointer})
        elif number not in raw:
            left.append(reject)
    work.left.append((file, left))


def _commit(
    committer: Committer,
    context: WriteContext,
    pipeline: Pipeline,
    works: list[_Work],
    views: ViewTables,
) -> None:
    lines = sum(len(work.lines) for work in works)
    shared, guard = pipeline.destination.shared, Guard(without_limits(pipeline))
    ledger = Accounting(committer, context, shared=shared, continued={}, max_rejects=lines, guard=guard, views=views)
    spool = SpoolFolder(context.spool)
    spool.create()
    bundles = [[_segment(spool, number, work)] for number, work in enumerate(works, 1)]
    ledger.add(SealedBatch(1, bundles), [write_bundle(context, 1, bundle) for bundle in bundles])
    snapshot, consumed, remaining = committer.snapshot, [], []
    for work in works:
        for file, left in work.left:
            consumed.append(file.file)
            remaining += [rewritten(committer, file, left)] if left else []
    barrier = Barrier(
        state=snapshot.state,
        merged=False,
        publish={work.stream: APPEND_ONLY for work in works},
        staged={stream: stage.version for stream, stage in snapshot.staged.items()},
        schemas={work.stream: work.schema for work in works},
        end=False,
    )
    ledger.commit(
        ledger.prepare(barrier, through=1),
        kind="replay",
        reason="rejects were replayed",
        consumed=consumed,
        remaining=remaining,
    )


def _segment(spool: SpoolFolder, number: int, work: _Work) -> Segment:
    """Write the lines that fit into a spool of our own, as if a tap had just sent them."""
    spool.put_schema(work.schema.hash, work.schema.to_json())
    data = b"".join(line + b"\n" for line in work.lines)
    return spool.put_segment(work.stream, work.schema.hash, data, order=number, at=int(time.time() * 1000))
