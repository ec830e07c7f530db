"""The system tables: what the commit log and the run records say, as rows. Their columns are in docs/query.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from bridge.exact_json import dumps
from bridge.lake.log import Log, bookmarks
from bridge.lake.run_status import current
from bridge.lake.runs import RunRecord, read_runs
from bridge.maintain.commit_effects import commit_steps
from bridge.query.snapshot import TablesAt

_TIME = pa.timestamp("ms", "UTC")
_TEXT, _COUNT = pa.string(), pa.int64()
_PIPELINE = ("pipeline", _TEXT)

COLUMNS: dict[str, pa.Schema] = {
    "runs": pa.schema(
        [
            _PIPELINE,
            ("run", _TEXT),
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
    "commits": pa.schema(
        [
            _PIPELINE,
            ("commit", _COUNT),
            ("at", _TIME),
            ("kind", _TEXT),
            ("run", _TEXT),
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
            ("run", _TEXT),
            ("reason", _TEXT),
            ("rejects", _COUNT),
            ("file", _TEXT),
        ]
    ),
}
"""Of each system table. Times are in UTC; `bookmark` is JSON; a count that nobody knows is null."""


def system_table(name: str, pipelines: Sequence[TablesAt]) -> pa.Table:
    """The rows of one system table, over all of these pipelines."""
    schema = COLUMNS[name]
    rows = [row for pipeline in pipelines for row in _ROWS[name](pipeline)]
    return pa.table(
        [pa.array(column, one.type) for column, one in zip(_columns(rows, schema), schema, strict=True)], schema=schema
    )


def _columns(rows: list[tuple[Any, ...]], schema: pa.Schema) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in schema]


def runs(log: Log, limit: int | None = None) -> Iterator[RunRecord]:
    """The latest runs, newest first, each as it stands now."""
    for record in read_runs(log.storage, log.pipeline, limit):
        yield current(log.storage, record)


def _runs(at: TablesAt) -> Iterator[tuple[Any, ...]]:
    for run in runs(at.log):
        times = _time(run.started), _time(run.ended)
        error = run.error.message if run.error else None
        facts = (run.records, run.commits, run.tap, run.attempt, len(run.warnings), error)
        yield (at.log.pipeline, run.run_id, run.status, *times, *facts)


def _commits(at: TablesAt) -> Iterator[tuple[Any, ...]]:
    """A row for each table that a commit changed; a commit that changed none has one row without a stream."""
    for step in commit_steps(at.log, at.view.n):
        facts = (at.log.pipeline, step.commit, _time(step.at), step.kind, step.run)
        for table in step.tables:
            yield (*facts, table.stream, table.added, table.removed, table.rows, step.reason or None)
        if not step.tables:
            yield (*facts, None, None, None, None, step.reason or None)


def _bookmarks(at: TablesAt) -> Iterator[tuple[Any, ...]]:
    for stream, bookmark in bookmarks(at.view.state).items():
        changed = _time(at.view.bookmark_changed_at.get(stream))
        yield (at.log.pipeline, stream, dumps(bookmark).decode(), changed, at.view.n)


def _streams(at: TablesAt) -> Iterator[tuple[Any, ...]]:
    for stream, table in sorted(at.view.tables.items()):
        size = sum(file.size for file in table.files.values())
        counts = (len(at.columns(table)), table.rows, len(table.files), size, at.view.n)
        yield (at.log.pipeline, stream, table.folder, table.format, *counts, table.view or None)


def _files(at: TablesAt) -> Iterator[tuple[Any, ...]]:
    for stream, table in sorted(at.view.tables.items()):
        for name, file in sorted(table.files.items()):
            yield (at.log.pipeline, stream, f"{table.folder}/{name}", file.rows, file.size)


def _rejects(at: TablesAt) -> Iterator[tuple[Any, ...]]:
    for file, rejects in sorted(at.view.rejects.items()):
        for reason, (count, _) in sorted(rejects.reasons.items()):
            yield (at.log.pipeline, rejects.stream, rejects.commit, rejects.run, reason, count, file)


def _time(at: str | None) -> datetime | None:
    return datetime.fromisoformat(at.replace("Z", "+00:00")) if at else None


_ROWS: dict[str, Callable[[TablesAt], Iterator[tuple[Any, ...]]]] = {
    "runs": _runs,
    "commits": _commits,
    "bookmarks": _bookmarks,
    "streams": _streams,
    "files": _files,
    "rejects": _rejects,
}
