"""The system tables: what the commit log and the run records say, as rows. Their columns are in docs/query.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from itertools import islice, takewhile
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bridge.exact_json import dumps
from bridge.lake.log import Log, bookmarks
from bridge.lake.reconciled import Proof
from bridge.lake.run_status import current
from bridge.lake.runs import RunRecord, read_runs, run_ids
from bridge.lake.storage.parallel import parallel_map
from bridge.lake.times import read_time
from bridge.read.query.changes.commit_effects import CommitStep, commit_steps
from bridge.read.query.snapshot import TablesAt

_TIME = pa.timestamp("ms", "UTC")
_TEXT, _COUNT = pa.string(), pa.int64()
_PIPELINE = ("pipeline", _TEXT)

COLUMNS: dict[str, pa.Schema] = {
    "runs": pa.schema(
        [
            _PIPELINE,
            ("run_id", _TEXT),
            ("status", _TEXT),
            ("started", _TIME),
            ("ended", _TIME),
            ("records", _COUNT),
            ("commits", _COUNT),
            ("tap", _TEXT),
            ("attempt", _COUNT),
            ("warnings", _COUNT),
            ("error", _TEXT),
        ]
    ),
    "stream_runs": pa.schema(
        [
            _PIPELINE,
            ("run_id", _TEXT),
            ("stream", _TEXT),
            ("complete", pa.bool_()),
            ("records", _COUNT),
            ("rejected", _COUNT),
            ("seconds", pa.float64()),
            ("bookmark_before", _TEXT),
            ("bookmark_after", _TEXT),
        ]
    ),
    "commits": pa.schema(
        [
            _PIPELINE,
            ("commit", _COUNT),
            ("at", _TIME),
            ("kind", _TEXT),
            ("run_id", _TEXT),
            ("stream", _TEXT),
            ("rows_added", _COUNT),
            ("rows_removed", _COUNT),
            ("rows", _COUNT),
            ("reason", _TEXT),
        ]
    ),
    "bookmarks": pa.schema(
        [_PIPELINE, ("stream", _TEXT), ("bookmark", _TEXT), ("changed_at", _TIME), ("commit", _COUNT)]
    ),
    "streams": pa.schema(
        [
            _PIPELINE,
            ("stream", _TEXT),
            ("folder", _TEXT),
            ("format", _TEXT),
            ("columns", _COUNT),
            ("rows", _COUNT),
            ("files", _COUNT),
            ("bytes", _COUNT),
            ("commit", _COUNT),
            ("view", _TEXT),
        ]
    ),
    "files": pa.schema([_PIPELINE, ("stream", _TEXT), ("file", _TEXT), ("rows", _COUNT), ("bytes", _COUNT)]),
    "rejects": pa.schema(
        [
            _PIPELINE,
            ("stream", _TEXT),
            ("commit", _COUNT),
            ("run_id", _TEXT),
            ("reason", _TEXT),
            ("rejects", _COUNT),
            ("file", _TEXT),
        ]
    ),
    "reconciliations": pa.schema(
        [
            _PIPELINE,
            ("stream", _TEXT),
            ("run_id", _TEXT),
            ("commit", _COUNT),
            ("started", _TIME),
            ("ended", _TIME),
            ("compared", _TEXT),
            ("source_rows", _COUNT),
            ("lake_rows", _COUNT),
            ("missing", _COUNT),
            ("extra", _COUNT),
            ("stale", _COUNT),
            ("in_flight", _COUNT),
            ("rejected", _COUNT),
            ("differs", pa.bool_()),
        ]
    ),
}
"""The columns of each system table. Times are in UTC; `bookmark` is JSON; a count that nobody knows is null."""


MOST_ROWS = 20_000
"""Rows that `newer_table` keeps of runs, and of commits: the newest."""
_FIRST_COMMITS, _FIRST_RUNS = 500, 500
"""How far back it looks where it has nothing earlier, so that no run waits for a long history to be read."""
_UNSETTLED = 10
"""Latest runs whose records it reads in any case: an outcome may be written twice."""
_SECOND = len("20261120T133501Z")
"""The part of a run's id that says when it began."""
_DEAD = timedelta(days=1)
"""A run without an end that began so long ago, and was dead when it was last looked at, is not looked at again."""


def system_table(name: str, pipelines: Sequence[TablesAt]) -> pa.Table:
    """The rows of one system table, over all of these pipelines."""
    return _table(name, [row for pipeline in pipelines for row in _ROWS[name](pipeline)])


def newer_table(name: str, at: TablesAt, earlier: pa.Table | None) -> pa.Table:
    """The rows of one pipeline. Those that `earlier` has, which is the same table at an earlier time, are not read.

    Runs and commits: newest first, at most `MOST_ROWS`, and none that retention has deleted.
    """
    if name in _OF_RUN:
        return _newer_runs(name, at, earlier).slice(0, MOST_ROWS)
    return _newer_commits(at, earlier).slice(0, MOST_ROWS) if name == "commits" else system_table(name, [at])


def _newer_runs(name: str, at: TablesAt, earlier: pa.Table | None) -> pa.Table:
    log, ids = at.log, run_ids(at.log.storage, at.log.pipeline)
    if earlier is None or not earlier.num_rows:
        news = ids[:_FIRST_RUNS]
    else:
        # Only a table that was full may lack older runs on purpose. Ids of one second are in no order.
        oldest = pc.min(earlier["run_id"]).as_py()[:_SECOND] if earlier.num_rows >= _FIRST_RUNS else ""
        earlier = earlier.filter(pc.is_in(earlier["run_id"], pa.array(ids[_UNSETTLED:], _TEXT)))
        if name == "runs":
            earlier = earlier.filter(pc.or_(pc.is_valid(earlier["ended"]), _died_long_ago(earlier)))
        settled = set(earlier["run_id"].to_pylist())
        news = [run for run in ids if run >= oldest and run not in settled]
    records = parallel_map(log.storage, at.run, news)
    rows = [row for record in records if record for row in _OF_RUN[name](at, current(log.storage, record))]
    return _joined(name, rows, earlier).sort_by([("run_id", "descending")])


def _died_long_ago(runs: pa.Table) -> pa.ChunkedArray:
    limit = pa.scalar(datetime.now(timezone.utc) - _DEAD, _TIME)
    return pc.and_(pc.equal(runs["status"], "died"), pc.less(runs["started"], limit))


def _newer_commits(at: TablesAt, earlier: pa.Table | None) -> pa.Table:
    last = _last_commit(at, earlier)
    steps = commit_steps(at.log, at.snapshot.n)
    news = takewhile(lambda step: step.commit > last, steps) if last else islice(steps, _FIRST_COMMITS)
    rows = [row for step in news for row in _commit_rows(at, step)]
    if last:
        assert earlier is not None
        earlier = earlier.filter(pc.greater_equal(earlier["commit"], at.log.beginning().first))
    return _joined("commits", rows, earlier if last else None)


def _last_commit(at: TablesAt, earlier: pa.Table | None) -> int:
    """The last commit that `earlier` has; 0 if the log is another one now, such as after a lake began anew."""
    last = pc.max(earlier["commit"]).as_py() if earlier is not None else None
    if earlier is None or not last or last > at.snapshot.n:
        return 0
    row = earlier.filter(pc.equal(earlier["commit"], last)).slice(0, 1).to_pylist()[0]
    record = at.log.record(last)
    return last if record and (record.run, _millis(_time(record.at))) == (row["run_id"], row["at"]) else 0


def _millis(at: datetime | None) -> datetime | None:
    """A time as the column has it."""
    return at.replace(microsecond=at.microsecond // 1000 * 1000) if at else None


def _joined(name: str, rows: list[tuple[Any, ...]], earlier: pa.Table | None) -> pa.Table:
    table = _table(name, rows)
    return table if earlier is None else pa.concat_tables([table, earlier])


def _table(name: str, rows: list[tuple[Any, ...]]) -> pa.Table:
    schema = COLUMNS[name]
    columns = zip(_columns(rows, schema), schema, strict=True)
    return pa.table([pa.array(_storable(column, one.type), one.type) for column, one in columns], schema=schema)


def _storable(column: list[Any], type_: pa.DataType) -> list[Any]:
    """Texts as UTF-8 can hold them: a bookmark may be of a name with a lone surrogate."""
    if type_ != _TEXT:
        return column
    return [text and text.encode(errors="backslashreplace").decode() for text in column]


def _columns(rows: list[tuple[Any, ...]], schema: pa.Schema) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in schema]


def runs(log: Log, limit: int | None = None) -> Iterator[RunRecord]:
    """The latest runs, newest first, each as it stands now."""
    for record in read_runs(log.storage, log.pipeline, limit):
        yield current(log.storage, record)


def _runs(at: TablesAt) -> Iterator[tuple[Any, ...]]:
    return (row for run in runs(at.log) for row in _run_rows(at, run))


def _run_rows(at: TablesAt, run: RunRecord) -> Iterator[tuple[Any, ...]]:
    times = _time(run.started), _time(run.ended)
    error = run.error.message if run.error else None
    facts = (run.records, run.commits, run.tap, run.attempt, len(run.warnings), error)
    yield (at.log.pipeline, run.run_id, run.status, *times, *facts)


def _stream_runs(at: TablesAt) -> Iterator[tuple[Any, ...]]:
    return (row for run in runs(at.log) for row in _stream_rows(at, run))


def _stream_rows(at: TablesAt, run: RunRecord) -> Iterator[tuple[Any, ...]]:
    """A row for each stream of a run; one without any has one row without a stream."""
    before, after = bookmarks(run.state_before), bookmarks(run.state)
    for stream, result in run.streams.items():
        texts = (dumps(each[stream]).decode() if stream in each else None for each in (before, after))
        facts = result.complete, result.records, result.rejected, result.seconds
        yield (at.log.pipeline, run.run_id, stream, *facts, *texts)
    if not run.streams:
        yield (at.log.pipeline, run.run_id, *[None] * 7)


_OF_RUN = {"runs": _run_rows, "stream_runs": _stream_rows}


def _commits(at: TablesAt) -> Iterator[tuple[Any, ...]]:
    return (row for step in commit_steps(at.log, at.snapshot.n) for row in _commit_rows(at, step))


def _commit_rows(at: TablesAt, step: CommitStep) -> Iterator[tuple[Any, ...]]:
    """A row for each table that a commit changed; a commit that changed none has one row without a stream."""
    facts = (at.log.pipeline, step.commit, _time(step.at), step.kind, step.run)
    for table in step.tables:
        yield (*facts, table.stream, table.added, table.removed, table.rows, step.reason or None)
    if not step.tables:
        yield (*facts, None, None, None, None, step.reason or None)


def _bookmarks(at: TablesAt) -> Iterator[tuple[Any, ...]]:
    for stream, bookmark in bookmarks(at.snapshot.state).items():
        changed = _time(at.snapshot.bookmark_changed_at.get(stream))
        yield (at.log.pipeline, stream, dumps(bookmark).decode(), changed, at.snapshot.n)


def _streams(at: TablesAt) -> Iterator[tuple[Any, ...]]:
    for stream, table in sorted(at.snapshot.tables.items()):
        size = sum(file.size for file in table.files.values())
        counts = (len(at.columns(table)), table.rows, len(table.files), size, at.snapshot.n)
        yield (at.log.pipeline, stream, table.folder, table.format, *counts, table.view or None)


def _files(at: TablesAt) -> Iterator[tuple[Any, ...]]:
    for stream, table in sorted(at.snapshot.tables.items()):
        for name, file in sorted(table.files.items()):
            yield (at.log.pipeline, stream, f"{table.folder}/{name}", file.rows, file.size)


def _rejects(at: TablesAt) -> Iterator[tuple[Any, ...]]:
    for file, rejects in sorted(at.snapshot.rejects.items()):
        for reason, (count, _) in sorted(rejects.reasons.items()):
            yield (at.log.pipeline, rejects.stream, rejects.commit, rejects.run, reason, count, file)


def _reconciliations(at: TablesAt) -> Iterator[tuple[Any, ...]]:
    for stream, proof in sorted(Proof.last(at.log.storage, at.log.pipeline).items()):
        facts = proof.run_id, proof.commit, _time(proof.started), _time(proof.ended), proof.compared
        counts = proof.source_rows, proof.lake_rows, proof.missing, proof.extra, proof.stale, proof.in_flight
        yield (at.log.pipeline, stream, *facts, *counts, proof.rejected, proof.differs)


def _time(at: str | None) -> datetime | None:
    return read_time(at) if at else None


_ROWS: dict[str, Callable[[TablesAt], Iterator[tuple[Any, ...]]]] = {
    "runs": _runs,
    "stream_runs": _stream_runs,
    "commits": _commits,
    "bookmarks": _bookmarks,
    "streams": _streams,
    "files": _files,
    "rejects": _rejects,
    "reconciliations": _reconciliations,
}
