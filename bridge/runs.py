"""One record a run, in the bucket: what was asked, what came of it, and the tap's own log beside it."""

from __future__ import annotations

import secrets
import string
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Any

from bridge.errors import CorruptLake
from bridge.log import View, meta
from bridge.names import folder_name
from bridge.storage import Storage
from bridge.verbatim import NotJson, dumps, loads

__all__ = ["RunRecord", "log_key", "new_run_id", "read_log", "read_run", "read_runs", "write_streams"]


def new_run_id() -> str:
    """Return an id that sorts by start time: `20261120T133501Z-k3f9`."""
    alphabet = string.ascii_lowercase + string.digits
    return f"{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}-{''.join(secrets.choice(alphabet) for _ in range(4))}"


class RunRecord:
    """Written when the run starts and when it ends; one that only started was killed."""

    def __init__(self, storage: Storage, pipeline: str, run: str, **facts: Any) -> None:
        self._storage = storage
        self._key = meta(pipeline, "runs", f"{run}.json")
        self._facts = {"format": 1, "run_id": run, "pipeline": pipeline, "status": "running", "started": _now()} | facts
        self._write()

    def finish(self, **facts: Any) -> None:
        """Record the outcome."""
        self._facts |= facts | {"ended": _now()}
        self._write()

    def _write(self) -> None:
        self._storage.write(self._key, dumps(self._facts, indent=2))


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def read_run(storage: Storage, pipeline: str, run: str) -> dict[str, Any] | None:
    """Return one run's record, or None."""
    data = storage.read(meta(pipeline, "runs", f"{run}.json"))
    if data is None:
        return None
    try:
        return dict(loads(data))
    except (NotJson, TypeError, ValueError) as error:
        raise CorruptLake("a run record is unreadable", hint="delete it; nothing depends on it", run=run) from error


def read_runs(storage: Storage, pipeline: str, limit: int) -> Iterator[dict[str, Any]]:
    """Yield the latest runs, newest first."""
    names = sorted((n for n in storage.list(meta(pipeline, "runs")) if n.endswith(".json")), reverse=True)
    for name in names[:limit]:
        record = read_run(storage, pipeline, name.removesuffix(".json"))
        if record:
            yield record


def write_streams(storage: Storage, pipeline: str, view: View, streams: Sequence[str]) -> None:
    """Write what a person or another tool wants to know of each stream, beside its name. Derived, never read."""
    bookmarks = view.state.get("bookmarks", view.state) if isinstance(view.state, dict) else {}
    for stream in streams:
        table = view.tables.get(stream)
        facts = {
            "format": 1,
            "stream": stream,
            "bookmark": bookmarks.get(stream) if isinstance(bookmarks, dict) else None,
            "rows": table.rows if table else 0,
            "files": len(table.files) if table else 0,
            "schema": table.schema if table else None,
            "commit": view.n,
        }
        folder = table.folder.rsplit("/", 1)[-1] if table else folder_name(stream, ())
        storage.write(meta(pipeline, "streams", f"{folder}.json"), dumps(facts, indent=2))


def log_key(pipeline: str, run: str) -> str:
    """Return the key of a run's log: the tap's stderr, secrets masked."""
    return meta(pipeline, "logs", f"{run}.log")


def read_log(storage: Storage, pipeline: str, run: str) -> bytes | None:
    """Return a run's log, or None."""
    return storage.read(log_key(pipeline, run))
