"""Figures for Prometheus, from the bucket alone: so runs of any machine count."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from bridge.errors import SettingsError
from bridge.lake.log import Log, Snapshot
from bridge.lake.reconciled import Proof
from bridge.lake.run_status import failures, fresh_since, is_stale, last_run
from bridge.lake.runs import RunRecord
from bridge.lake.storage import Storage
from bridge.lake.storage.local.folders import draft_of
from bridge.lake.times import read_time

_EXTRA = 'pip install "singer-bridge[metrics]"'
_OF_RUN = {
    "readable": "1 if the bucket could be read, else 0, and there are no other figures.",
    "run_success": "1 if the last run succeeded, else 0.",
    "run_running": "1 while a run is under way.",
    "run_ended_timestamp_seconds": "When the last run ended.",
    "run_duration_seconds": "How long the last run took.",
    "last_success_timestamp_seconds": "When the last successful run ended.",
    "failed_runs": "Failed runs since the last success.",
    "stale": "1 if no run has succeeded for longer than stale_after.",
    "commit": "The number of the last commit.",
}
_OF_STREAM = {
    "run_records": "Records that the last run committed.",
    "run_rejects": "Records that the last run rejected.",
    "table_rows": "Rows of the table.",
    "bookmark_changed_timestamp_seconds": "When the bookmark last changed.",
    "table_differs": "1 if the table was not as its source when `reconcile` last compared them, else 0.",
    "table_compared_timestamp_seconds": "When `reconcile` last compared the table with its source.",
}


@dataclass(frozen=True, slots=True)
class Figures:
    """The metrics of one pipeline: by metric, and by metric and stream."""

    pipeline: str
    values: dict[str, float]
    of_streams: dict[str, dict[str, float]]


def figures(storage: Storage, pipeline: str, stale_after: timedelta | None = None) -> Figures:
    """Read one pipeline's figures. Raises `LakeError`."""
    log = Log(storage, pipeline)
    snapshot, run = log.snapshot(log.latest()), last_run(storage, pipeline)
    since = fresh_since(storage, pipeline)
    values = {"readable": 1.0, "commit": float(snapshot.n)}
    if run:
        failed = failures(storage, pipeline) if run.status != "success" else None
        values["run_success"] = float(run.status == "success")
        values["run_running"] = float(run.status == "running")
        values["failed_runs"] = float(failed.count if failed else 0)
        if run.ended:
            values["run_ended_timestamp_seconds"] = _seconds(run.ended)
        if "total" in run.seconds:
            values["run_duration_seconds"] = run.seconds["total"]
    if since and since.is_success:
        values["last_success_timestamp_seconds"] = _seconds(since.at)
    if stale_after and since:
        values["stale"] = float(is_stale(since, stale_after, datetime.now(timezone.utc)))
    return Figures(pipeline, values, _of_streams(snapshot, run, Proof.last(storage, pipeline)))


def unreadable(pipeline: str) -> Figures:
    """The figures of a pipeline whose bucket does not answer."""
    return Figures(pipeline, {"readable": 0.0}, {name: {} for name in _OF_STREAM})


def _of_streams(snapshot: Snapshot, run: RunRecord | None, proofs: dict[str, Proof]) -> dict[str, dict[str, float]]:
    streams = run.streams if run else {}
    changed = {name: at for name, at in snapshot.bookmark_changed_at.items() if at}
    return {
        "run_records": {name: float(stream.records) for name, stream in streams.items()},
        "run_rejects": {name: float(stream.rejected) for name, stream in streams.items()},
        "table_rows": {name: float(table.rows) for name, table in snapshot.stream_tables.items()},
        "bookmark_changed_timestamp_seconds": {name: _seconds(at) for name, at in changed.items()},
        "table_differs": {name: float(proof.differs) for name, proof in proofs.items()},
        "table_compared_timestamp_seconds": {name: _seconds(proof.ended) for name, proof in proofs.items()},
    }


def _seconds(at: str) -> float:
    return read_time(at).timestamp()


def metrics_text(pipelines: Iterable[Figures]) -> str:
    """The figures as Prometheus reads them: what `/metrics` answers. Raises `SettingsError` without the extra."""
    try:
        from prometheus_client import CollectorRegistry, Gauge, generate_latest
    except ImportError as error:
        raise SettingsError("the extra `metrics` is not installed", hint=_EXTRA) from error
    registry, pipelines = CollectorRegistry(), list(pipelines)
    for name, text in _OF_RUN.items():
        gauge = Gauge(f"singer_bridge_{name}", text, ["pipeline"], registry=registry)
        for each in pipelines:
            if name in each.values:
                gauge.labels(each.pipeline).set(each.values[name])
    for name, text in _OF_STREAM.items():
        gauge = Gauge(f"singer_bridge_{name}", text, ["pipeline", "stream"], registry=registry)
        for each in pipelines:
            for stream, value in each.of_streams[name].items():
                gauge.labels(each.pipeline, stream.encode(errors="backslashreplace").decode()).set(value)
    return str(generate_latest(registry).decode())


def write_textfile(folder: Path, storage: Storage, pipeline: str, stale_after: timedelta | None) -> bool:
    """Replace the pipeline's file in node_exporter's folder: a reader sees the old file or the new one."""
    text = metrics_text([figures(storage, pipeline, stale_after)])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"singer_bridge_{re.sub(r'[^A-Za-z0-9._-]', '_', pipeline)}.prom"
    with draft_of(path) as draft:
        draft.write_text(text)
    return True
