"""How a pipeline stands: its last run, bookmarks and tables, who holds it. The command line and the page show it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from bridge.lake.lease import fate, holder, silence
from bridge.lake.log import Log, Snapshot, bookmarks
from bridge.lake.reconciled import Proof
from bridge.lake.run_status import failures, fresh_since, last_run, last_success
from bridge.lake.runs import DIFFERS, RunRecord, ids_ahead, run_ids
from bridge.lake.state.store import StateStore
from bridge.lake.times import read_time


def pipeline_status(
    log: Log, now: datetime, stale_after: timedelta | None, snapshot: Snapshot | None = None
) -> dict[str, Any]:
    """How a pipeline stands, as `status --json` prints it. Raises `LakeError` if its bucket cannot be read.

    `snapshot`: the lake after the last commit, where it is read already.
    """
    storage, name = log.storage, log.pipeline
    run = last_run(storage, name)
    failed = failures(storage, name) if run and run.status != "success" else None
    success = last_success(storage, name, run)
    since = fresh_since(storage, name) if stale_after else None
    stale_from = read_time(since.at) + stale_after if since and stale_after else None
    snapshot = snapshot or log.snapshot(log.latest())
    StateStore.at(storage, name).read()  # raises for a `state.json` that would stop the next run
    held, proofs = holder(storage, name), Proof.last(storage, name)
    return {
        "pipeline": name,
        "bucket": storage.uri,
        "status": run.status if run else "never ran",
        "run_id": run.run_id if run else None,
        "started": run.started if run else None,
        "ended": run.ended if run else None,
        "read": run.read if run else None,
        "records": run.records if run else None,
        "warnings": len(run.warnings) if run else 0,
        "marks": _marks(success, proofs),
        "error": run.error.message if run and run.error else None,
        "failures": failed.facts() if failed else None,
        "stale": now > stale_from if stale_from else None,
        "stale_from": stale_from and stale_from.isoformat(),
        "held_back": _held_back(run) if run else {},
        "commit": snapshot.n,
        "rows": sum(table.rows for table in snapshot.stream_tables.values()),
        "bookmarks": _bookmarks(snapshot, now),
        "reconciled": {stream: _proof(proof) for stream, proof in sorted(proofs.items())},
        "held_by": held and _held_by(held),
        "ahead": list(ids_ahead(run_ids(storage, name), now)),
    }


def table_facts(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The tables of a pipeline, as `tables list --json` and the page's API have them."""
    return [
        {
            "stream": stream,
            "kind": "view" if table.view else "table",
            "folder": table.folder,
            "format": table.format,
            "rows": table.rows,
            "files": len(table.files),
            "bytes": sum(file.size for file in table.files.values()),
        }
        for stream, table in sorted(snapshot.tables.items())
    ]


def ahead_text(ids: Sequence[str]) -> str:
    """The warning about runs from a clock that was ahead, newest first."""
    more = f" and {len(ids) - 1:,} more" if len(ids) > 1 else ""
    return (
        f"{ids[0]}{more}: the clock of the machine that ran it was ahead. Schedules and the age of the data "
        "ignore it, and runs with the right time count as later ones. Correct that clock"
    )


def _marks(success: RunRecord | None, proofs: dict[str, Proof]) -> dict[str, Sequence[str]]:
    """The marks of the last success, and the tables that were not as their source when they were last compared."""
    marks: dict[str, Sequence[str]] = dict(success.marks) if success else {}
    if compared := {stream for stream, proof in proofs.items() if proof.differs}:
        marks[DIFFERS] = sorted({*marks.get(DIFFERS, ()), *compared})
    return marks


def _proof(proof: Proof) -> dict[str, Any]:
    """The last comparison of a table with its source, in short."""
    names = ("commit", "ended", "compared", "differs", "missing", "extra", "stale", "in_flight", "rejected")
    return {name: getattr(proof, name) for name in names}


def _held_back(run: RunRecord) -> dict[str, dict[str, str]]:
    """The streams that the last run held back: why, and what to do."""
    streams = ((stream, result.held_back) for stream, result in run.streams.items())
    return {stream: {"message": why.message, "hint": why.hint} for stream, why in streams if why}


def _held_by(held: dict[str, Any]) -> dict[str, Any]:
    """Who holds it, whether that process is alive (if this machine can tell), and for how long it is silent."""
    silent = silence(held)
    facts = {"run_id": held.get("run")} | {key: held.get(key) for key in ("pid", "host")}
    facts |= {"since": _time(held.get("since"))}
    return facts | {"process": fate(held), "silent_seconds": silent and round(silent.total_seconds())}


def _time(text: Any) -> str | None:
    """A text that is a time; None for what somebody else wrote in its place."""
    try:
        read_time(text)
    except (AttributeError, ValueError):
        return None
    return str(text)


def _bookmarks(snapshot: Snapshot, now: datetime) -> dict[str, Any]:
    """Each stream's bookmark, and when it last changed."""
    facts = {}
    for stream, bookmark in bookmarks(snapshot.state).items():
        moved = snapshot.bookmark_changed_at.get(stream)
        age = round((now - read_time(moved)).total_seconds()) if moved else None
        facts[stream] = {"bookmark": bookmark, "moved": moved or None, "age_seconds": age}
    return facts
