"""The record of each run, in the bucket: what it is, how far it is, how it ended; and the tap's own log beside it."""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from itertools import islice, takewhile
from typing import Annotated, Any

from msgspec import Meta, Struct, ValidationError, convert, json, structs

from bridge.errors import CorruptLake
from bridge.exact_json import LARGEST, NotJson, dumps, loads
from bridge.lake.file_records import Count
from bridge.lake.paths import pipeline_key
from bridge.lake.storage import Storage
from bridge.lake.times import EARLIEST, SKEW, read_time

STANDSTILL, VOLUME, NO_STATE, DIFFERS = "standstill", "volume", "no_state", "differs"
"""The kinds of marks: a bookmark that does not move, far fewer rows than usual, no STATE, a table unlike its source."""

SHORT = {
    STANDSTILL: "bookmark stands still",
    VOLUME: "few rows",
    NO_STATE: "no STATE",
    DIFFERS: "differs from its source",
}
"""Each kind in a few words."""

STANDING_RUNS = 3
"""A bookmark that did not move in so many runs with rows stands still."""
_LISTED = 8

UNREADABLE = "unreadable"
"""The status of a run whose record cannot be read."""

Seconds = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
"""Neither infinite nor NaN: they are rounded where they are shown."""

_ID = re.compile(r"[0-9]{8}T[0-9]{6}Z-[a-z0-9]+")
_RECORD = re.compile(rf"{_ID.pattern}\.json")
_SECOND = "%Y%m%dT%H%M%SZ"
"""The part of an id that says when the run began."""
_DIGITS = string.digits + string.ascii_lowercase
"""In the order in which they sort."""


def new_run_id() -> str:
    """An id that sorts by start time, to the millisecond: `20261120T133501Z-k3f9a`."""
    now = datetime.now(timezone.utc)
    fraction = now.microsecond * len(_DIGITS) ** 2 // 1_000_000  # two digits: many a run ends within its second
    sorts = _DIGITS[fraction // len(_DIGITS)] + _DIGITS[fraction % len(_DIGITS)]
    return f"{now:{_SECOND}}-{sorts}{''.join(secrets.choice(_DIGITS) for _ in range(3))}"


def is_run_id(text: str) -> bool:
    """Whether a text looks like one of our ids."""
    return _ID.fullmatch(text) is not None


class RunError(Struct, frozen=True):
    """How a run failed, or why a stream was held back."""

    type: str = ""
    message: str = ""
    hint: str = ""


class StreamResult(Struct, frozen=True):
    """The counts of one stream in a run. All but `read` count what was committed."""

    read: Count | None = None
    """Records that came from the tap; None: an older version wrote the record."""
    records: Count = 0
    rejected: Count = 0
    filtered: Count = 0
    files: Count = 0
    bytes: Count = 0
    seconds: Seconds = 0.0
    """From the chunk of the tap's output that held the first RECORD to the one that held the last."""
    load_method: str = ""
    reason: str = ""
    """Why this load method."""
    complete: bool = False
    """The tap finished the stream, and all of its records are committed."""
    merged: dict[str, Count] = {}
    """The rows that an upsert inserted, updated, deleted."""
    held_back: RunError | None = None
    """Why its rows were left out, and its bookmark stayed where it was. Absent: they were not."""

    @property
    def is_all_stored(self) -> bool:
        """Whether a commit took each record that was read, or a `transform` left it out, as far as it is known."""
        return self.read is None or self.records + self.rejected + self.filtered >= self.read


class Difference(Struct, frozen=True):
    """A way in which a table is not what its source is, or may not be: found by a run that stored what it could."""

    stream: str
    kind: str
    """A short word for programs, as docs/differences.md lists them: `null_key`, `lost_digits`, `new_column`."""
    text: str
    """The difference and what to do about it, for people; the stream is named before it."""
    rows: Count | None = None
    """How many rows or values; None: not known."""


class Since(Struct, frozen=True):
    """From when the age of what a pipeline has loaded counts: its last success, or without one its first run."""

    run_id: str
    at: str
    """When that success ended, or that first run started."""
    is_success: bool


class RunRecord(Struct, frozen=True, kw_only=True):
    """One run as the bucket has it, from its first moment to its end.

    A field that is absent there has its default. `bridge.lake.run_status` says how a run stands that has no end yet.
    """

    run_id: str
    pipeline: str
    status: str
    """`running`, `success`, `failed`, `interrupted`, or `held`: another run had the pipeline. Of a run that was killed,
    still `running`. `unreadable`: see `any_run`."""
    started: str
    ended: str | None = None
    tap: str = ""
    tap_version: str = ""
    fingerprint: Any = None
    """The facts on which its bookmarks depend: tap, settings, replication. See `bridge.load.run.checks.fingerprint`."""
    opened: bool = True
    """Whether it got hold of the pipeline and began to load. False: it ended before, or has not come so far yet."""
    previous: str | None = None
    """The newest earlier run that may have loaded anything: each run between the two ended before it could."""
    since: Since | None = None
    """Where it stood when this run began to load, carried from run to run. See `bridge.lake.run_status.fresh_since`."""
    process: dict[str, Any] = {}
    """Its process, as a lease describes it: see `bridge.lake.lease.process`."""
    batch: str | None = None
    """The id that the runs of several pipelines share if they were started together."""
    requested: dict[str, Any] = {}
    """The caller's requests beyond the settings: `full`, `append`, `streams`, `resume`, `max_records`. What was not
    asked for is absent."""
    attempt: Count = 1
    held_times: Count = 1
    """The number of runs that were `held` in a row; this record stands for all of them."""
    skipped: tuple[str, ...] = ()
    commits: Count | None = None
    commit: Count | None = None
    """The last commit of the log that `commits`, `streams` and `state` take into account."""
    streams: dict[str, StreamResult] = {}
    state: Any = None
    state_before: Any = None
    seconds: dict[str, Seconds] = {}
    warnings: tuple[str, ...] = ()
    marks: dict[str, tuple[str, ...]] = {}
    """The streams that look wrong beside earlier runs, by kind. See `advice`."""
    differences: tuple[Difference, ...] = ()
    """How tables differ from their source, as far as the run knows."""
    error: RunError | None = None
    stored: dict[str, Any] = {}
    """The record as it is stored, for programs; it may have keys of a newer version."""

    @property
    def is_readable(self) -> bool:
        """Whether the bucket has more of it than that it ran: see `any_run`."""
        return self.status != UNREADABLE

    @property
    def is_narrowed(self) -> bool:
        """Whether it was asked for less than all: some streams, those that are left, or so many records."""
        return not self.requested.keys().isdisjoint(("streams", "resume", "max_records"))

    @property
    def records(self) -> int | None:
        """How many records it loaded; None as long as it has not begun to load."""
        began = self.ended is not None or self.commit is not None
        return sum(stream.records for stream in self.streams.values()) if began else None

    @property
    def read(self) -> int | None:
        """How many records came from the tap, over all streams: of a run that was killed at least; None: not known."""
        counts = [stream.read for stream in self.streams.values()]
        return None if None in counts or self.records is None else sum(count or 0 for count in counts)


# msgspec looks into a type when it is first used. Two threads that do so at once crash the process: so here, at import.
json.Decoder(RunRecord)


class RunFile:
    """Writes the record of one run: when it starts, whenever there is news, and when it ends."""

    def __init__(self, storage: Storage, pipeline: str, run: str, **facts: Any) -> None:
        self._storage = storage
        self._key = pipeline_key(pipeline, "runs", f"{run}.json")
        self._facts = {"format": 1, "run_id": run, "pipeline": pipeline, "status": "running", "started": _now()} | facts
        self.update()

    def update(self, **facts: Any) -> None:
        """Write the record with these facts, too."""
        self._facts |= facts
        self._storage.write(self._key, dumps(self._facts, indent=2))

    def finish(self, **facts: Any) -> None:
        self.update(**facts, ended=_now())


def add_warnings(storage: Storage, record: RunRecord, warnings: list[str]) -> None:
    """Add what came after a run's end to its record. Only the process of the run may call it, once."""
    facts = record.stored | {"warnings": [*record.warnings, *warnings]}
    storage.write(pipeline_key(record.pipeline, "runs", f"{record.run_id}.json"), dumps(facts, indent=2))


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def read_run(storage: Storage, pipeline: str, run: str) -> RunRecord | None:
    """One run's record, or None. Raises `CorruptLake` for one that cannot be read, or that names another run."""
    key = pipeline_key(pipeline, "runs", f"{run}.json")
    data = storage.read(key)
    if data is None:
        return None
    try:
        stored = loads(data)
        record = structs.replace(convert(stored, RunRecord), stored=stored)
        times = record.started, record.ended, record.since.at if record.since else None
        for time in filter(None, times):
            read_time(time)
    except (NotJson, ValidationError, ValueError) as error:  # UnicodeEncodeError: half of a character
        raise CorruptLake("a run record is unreadable", hint="delete it; nothing depends on it", file=key) from error
    if (record.pipeline, record.run_id) != (pipeline, run):
        hint = "see who may write to the bucket, and delete it: nothing depends on it"
        raise CorruptLake("a run record names another run than its file", hint=hint, file=key)
    return record


def any_run(storage: Storage, pipeline: str, run: str) -> RunRecord | None:
    """One run, for a list: as `read_run`, but one that cannot be read has the status `unreadable`, and an `error`.

    Nothing else is known of it than when it began, by its id. So nobody may decide anything by it.
    """
    try:
        return read_run(storage, pipeline, run)
    except CorruptLake as error:
        problem = RunError(type(error).__name__, error.message, error.hint)
        facts: dict[str, Any] = {"run_id": run, "pipeline": pipeline, "status": UNREADABLE}
        facts["started"] = _began(run).isoformat()
        return RunRecord(**facts, error=problem, stored=facts | {"error": structs.asdict(problem)})


def _began(run: str) -> datetime:
    """When a run began, by its id; `EARLIEST` for an id of nobody's calendar."""
    try:
        return read_time(datetime.strptime(run[:16], _SECOND).replace(tzinfo=timezone.utc).isoformat())
    except ValueError:
        return EARLIEST


def read_runs(
    storage: Storage,
    pipeline: str,
    limit: int | None = None,
    *,
    since: datetime | None = None,
    before: str | None = None,
) -> Iterator[RunRecord]:
    """Yield the latest runs, newest first, each read when it is needed; those that cannot be read as `any_run` does.

    Only those that began at `since` or later, and those whose id is below `before`.

    They are given as they are stored: see `bridge.lake.run_status` for those that say `running`.
    """
    first = f"{since.astimezone(timezone.utc):{_SECOND}}" if since else ""
    ids = (run for run in run_ids(storage, pipeline) if run >= first and (before is None or run < before))
    for run in islice(ids, limit):
        if record := any_run(storage, pipeline, run):
            yield record


def readable_runs(storage: Storage, pipeline: str, now: datetime | None = None) -> Iterator[RunRecord]:
    """Yield the runs by which something is decided, newest first; those of `counted_ids` that can be read."""
    for run in counted_ids(storage, pipeline, now):
        if (record := any_run(storage, pipeline, run)) and record.is_readable:
            yield record


def read_opened(storage: Storage, pipeline: str, limit: int) -> Iterator[RunRecord]:
    """Yield the latest runs that began to load, newest first; runs that did not are skipped, a row in one step.

    Those that cannot be read are skipped, too; see `newest_opened`.
    """
    return islice((record for record in _opened(storage, pipeline) if record.is_readable), limit)


def newest_opened(storage: Storage, pipeline: str) -> RunRecord | None:
    """The latest run that began to load, or that may have, as nobody can read its record; None if there is none."""
    return next(_opened(storage, pipeline), None)


def _opened(storage: Storage, pipeline: str) -> Iterator[RunRecord]:
    last = None
    for run in counted_ids(storage, pipeline):
        record = any_run(storage, pipeline, run) if last is None or run <= last else None
        if record and record.opened:
            last = None
            yield record
        elif record:
            last = record.previous


def read_attempts(storage: Storage, pipeline: str, limit: int) -> Iterator[RunRecord]:
    """Yield the latest runs that can be read, but for those that another run kept out, newest first."""
    return islice((record for record in readable_runs(storage, pipeline) if record.status != "held"), limit)


def previous_run(storage: Storage, pipeline: str) -> str | None:
    """`previous` for a run that begins now."""
    records = (any_run(storage, pipeline, run) for run in counted_ids(storage, pipeline))
    newest = next(filter(None, records), None)
    if newest is None:
        return None
    passed_by = newest.ended and not newest.opened
    return newest.previous if passed_by and newest.previous else newest.run_id


def run_ids(storage: Storage, pipeline: str) -> list[str]:
    """The ids of all runs with a record, newest first."""
    names = (name for name in storage.list(pipeline_key(pipeline, "runs")) if _RECORD.fullmatch(name))
    return sorted((name.removesuffix(".json") for name in names), reverse=True)


def counted_ids(storage: Storage, pipeline: str, now: datetime | None = None) -> list[str]:
    """The ids of all runs, newest first, but those from a clock that was ahead come last: others began after them."""
    ids = run_ids(storage, pipeline)
    ahead = len(ids_ahead(ids, now or datetime.now(timezone.utc)))
    return ids[ahead:] + ids[:ahead]


def ids_ahead(ids: Sequence[str], now: datetime) -> Sequence[str]:
    """Those at the head of these ids, newest first, whose clock was ahead of `now`."""
    latest = f"{now + SKEW:{_SECOND}}~"
    return list(takewhile(lambda run: run > latest, ids))


def log_key(pipeline: str, run: str) -> str:
    """The key of a run's log: the tap's stderr, secrets masked."""
    return pipeline_key(pipeline, "logs", f"{run}.log")


def read_log(storage: Storage, pipeline: str, run: str) -> bytes | None:
    """A run's log, or None."""
    return storage.read(log_key(pipeline, run))


def advice(kind: str, streams: Sequence[str], pipeline: str) -> tuple[str, str]:
    """Explain a mark: its meaning, and what to do about it."""
    names = ", ".join(streams[:_LISTED]) + (f" and {len(streams) - _LISTED} more" if len(streams) > _LISTED else "")
    log = f"`singer-bridge runs show {pipeline} --logs` shows what the tap said"
    if kind == STANDSTILL:
        what = f"the bookmark has not moved in {STANDING_RUNS} runs, though rows came in each: {names}"
        key = "so that each run extracts the same rows: choose a replication key that grows with every change"
        fine = "nothing is to be done if all of these rows have the bookmark's value, as after one UPDATE"
        return what, f"the tap may not know where to go on, {key}; {fine}; {log}"
    if kind == VOLUME:
        look = "look at the source, and at what the tap's user may see; if all is well there, nothing is to be done"
        return f"far fewer rows than usual: {names}", f"{look}; {log}"
    if kind == DIFFERS:
        shown = f"`singer-bridge runs show {pipeline}` says what a run found, and what to type"
        fix = f"{shown}; `singer-bridge reconcile {pipeline}` compares once more; docs/differences.md has all ways"
        return f"not everything is as the source has it: {names}", fix
    again = "the next run extracts all of them again"
    fix = "report it to the tap's authors; `on_no_state: fail` refuses such a run before anything is committed"
    return f"rows came, and no STATE did, so {again}: {names}", fix
