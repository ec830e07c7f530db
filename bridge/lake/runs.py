"""One record a run, in the bucket: what was asked, what came of it, and the tap's own log beside it."""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Any

from bridge.errors import CorruptLake
from bridge.exact_json import NotJson, dumps, loads
from bridge.lake.folder_names import folder_name
from bridge.lake.log import View, bookmarks, meta
from bridge.storage import Storage
from bridge.storage.parallel import parallel_map

_ID = re.compile(r"[0-9]{8}T[0-9]{6}Z-[a-z0-9]+")
_RECORD = re.compile(rf"{_ID.pattern}\.json")


def new_run_id() -> str:
    """Return an id that sorts by start time: `20261120T133501Z-k3f9`."""
    alphabet = string.ascii_lowercase + string.digits
    return f"{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}-{''.join(secrets.choice(alphabet) for _ in range(4))}"


def is_run_id(text: str) -> bool:
    """Return whether a text looks like one of our ids."""
    return _ID.fullmatch(text) is not None


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


def read_runs(
    storage: Storage, pipeline: str, limit: int | None = None, *, since: datetime | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the latest runs, newest first, each read when it is asked for; only those that began at `since` or later.

    A run that was killed still says `running`: only the lease tells that from one that does run.
    """
    first = f"{since.astimezone(timezone.utc):%Y%m%dT%H%M%SZ}" if since else ""
    found = (name for name in storage.list(meta(pipeline, "runs")) if _RECORD.fullmatch(name) and name >= first)
    for name in sorted(found, reverse=True)[:limit]:
        record = read_run(storage, pipeline, name.removesuffix(".json"))
        if record:
            yield record


def records(run: dict[str, Any]) -> int | None:
    """Return how many records a run loaded; None while it is under way, and after it died: nobody knows."""
    if "ended" not in run:
        return None
    return sum(int(stream["records"]) for stream in run.get("streams", {}).values())


def changed(before: View, after: View) -> set[str]:
    """Return the streams with a table whose rows or bookmark are others in `after`."""
    was, now = bookmarks(before.state), bookmarks(after.state)
    return {
        stream
        for stream, table in after.tables.items()
        if table != before.tables.get(stream) or was.get(stream) != now.get(stream)
    }


def write_streams(storage: Storage, pipeline: str, view: View, streams: Sequence[str]) -> None:
    """Write what a person or another tool wants to know of each stream, beside its name. Derived, never read."""
    known = bookmarks(view.state)

    def write(stream: str) -> None:
        table = view.tables.get(stream)
        facts = {
            "format": 1,
            "stream": stream,
            "bookmark": known.get(stream),
            "rows": table.rows if table else 0,
            "files": len(table.files) if table else 0,
            "schema": table.schema if table else None,
            "commit": view.n,
        }
        folder = table.folder.rsplit("/", 1)[-1] if table else folder_name(stream, ())
        storage.write(meta(pipeline, "streams", f"{folder}.json"), dumps(facts, indent=2))

    parallel_map(storage, write, streams)


def log_key(pipeline: str, run: str) -> str:
    """Return the key of a run's log: the tap's stderr, secrets masked."""
    return meta(pipeline, "logs", f"{run}.log")


def read_log(storage: Storage, pipeline: str, run: str) -> bytes | None:
    """Return a run's log, or None."""
    return storage.read(log_key(pipeline, run))
