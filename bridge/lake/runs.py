"""The record of each run, in the bucket: what was requested, how it ended; and the tap's own log beside it."""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Any

from msgspec import Struct, ValidationError, convert, json, structs

from bridge.errors import CorruptLake
from bridge.exact_json import NotJson, dumps, loads
from bridge.lake.folder_names import folder_name
from bridge.lake.log import Snapshot, bookmarks, meta
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


class StreamResult(Struct, frozen=True):
    """What a run did to one stream. Rows and files are the committed ones."""

    records: int = 0
    rejected: int = 0
    filtered: int = 0
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    """From the chunk of the tap's output that held the first RECORD to the one that held the last."""
    load_method: str = ""
    reason: str = ""
    """Why this load method."""
    complete: bool = False
    """The tap finished the stream, and all of its records are committed."""
    merged: dict[str, int] = {}
    """Of an upsert: rows inserted, updated, deleted."""


class RunError(Struct, frozen=True):
    """How a run failed."""

    type: str = ""
    message: str = ""
    hint: str = ""


class RunRecord(Struct, frozen=True, kw_only=True):
    """One run as the bucket has it, written when it starts and when it ends.

    A field that is absent there has its default.
    """

    run_id: str
    pipeline: str
    status: str
    """`running`, `success`, `failed` or `interrupted`; of a run that was killed, still `running`."""
    started: str
    ended: str | None = None
    tap: str = ""
    tap_version: str = ""
    fingerprint: Any = None
    """What its bookmarks depend on: tap, settings, replication. See `bridge.load.checks.fingerprint`."""
    attempt: int = 1
    skipped: tuple[str, ...] = ()
    commits: int | None = None
    streams: dict[str, StreamResult] = {}
    state: Any = None
    state_before: Any = None
    seconds: dict[str, float] = {}
    warnings: tuple[str, ...] = ()
    error: RunError | None = None
    stored: dict[str, Any] = {}
    """The record as it is stored, for programs; it may have keys of a newer version."""

    @property
    def records(self) -> int | None:
        """How many records it loaded; None while it runs, and if it died, as nobody knows then."""
        return None if self.ended is None else sum(stream.records for stream in self.streams.values())

    def died(self) -> RunRecord:
        """The record of a run that still says `running`, and does not run."""
        return structs.replace(self, status="died", stored=self.stored | {"status": "died"})


# msgspec looks into a type when it is first used. Two threads that do so at once crash the process: so here, at import.
json.Decoder(RunRecord)


class RunFile:
    """Writes the record of one run, when it starts and when it ends. One that only started was killed."""

    def __init__(self, storage: Storage, pipeline: str, run: str, **facts: Any) -> None:
        self._storage = storage
        self._key = meta(pipeline, "runs", f"{run}.json")
        self._facts = {"format": 1, "run_id": run, "pipeline": pipeline, "status": "running", "started": _now()} | facts
        self._write()

    def finish(self, **facts: Any) -> None:
        """Write the outcome."""
        self._facts |= facts | {"ended": _now()}
        self._write()

    def _write(self) -> None:
        self._storage.write(self._key, dumps(self._facts, indent=2))


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def read_run(storage: Storage, pipeline: str, run: str) -> RunRecord | None:
    """Return one run's record, or None. Raises `CorruptLake` for one that cannot be read."""
    data = storage.read(meta(pipeline, "runs", f"{run}.json"))
    if data is None:
        return None
    try:
        stored = loads(data)
        return structs.replace(convert(stored, RunRecord), stored=stored)
    except (NotJson, ValidationError) as error:
        raise CorruptLake("a run record is unreadable", hint="delete it; nothing depends on it", run=run) from error


def read_runs(
    storage: Storage, pipeline: str, limit: int | None = None, *, since: datetime | None = None
) -> Iterator[RunRecord]:
    """Yield the latest runs, newest first, each read when it is needed; only those that began at `since` or later.

    A run that was killed still says `running`: only the lease tells it from one that is alive.
    """
    first = f"{since.astimezone(timezone.utc):%Y%m%dT%H%M%SZ}" if since else ""
    names = (name for name in storage.list(meta(pipeline, "runs")) if _RECORD.fullmatch(name) and name >= first)
    for name in sorted(names, reverse=True)[:limit]:
        record = read_run(storage, pipeline, name.removesuffix(".json"))
        if record:
            yield record


def changed(before: Snapshot, after: Snapshot) -> set[str]:
    """Return the streams with a table whose rows or bookmark are others in `after`."""
    was, now = bookmarks(before.state), bookmarks(after.state)
    return {
        stream
        for stream, table in after.tables.items()
        if table != before.tables.get(stream) or was.get(stream) != now.get(stream)
    }


def write_streams(storage: Storage, pipeline: str, view: Snapshot, streams: Sequence[str]) -> None:
    """Write a summary of each stream for people and other tools. Derived: no run reads it."""
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
