"""The reject files that count, as the commit log names them, and the records in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from bridge.errors import CorruptLake
from bridge.lake.file_records import RejectFile
from bridge.lake.log import Snapshot
from bridge.lake.paths import pipeline_key
from bridge.lake.storage import Storage
from bridge.lake.storage.parallel import parallel_map
from bridge.load.write.rejects import raw_of, value_at

STDOUT = "(stdout)"
"""The stream name of lines that are no Singer messages."""


_LONGEST = 100
"""Characters of a value that are shown in a table; `--json` has all of them."""


@dataclass(frozen=True, slots=True)
class Criteria:
    """Which rejects are requested; None means all. `reason` is part of the reason's text; case is ignored."""

    stream: str | None = None
    run: str | None = None
    reason: str | None = None

    def file(self, stream: str | None, run: str) -> bool:
        """Whether rejects of a stream and a run may be requested."""
        return self.stream in (None, STDOUT if stream is None else stream) and self.run in (None, run)

    def says(self, reason: str) -> bool:
        """Whether rejects with this reason are requested."""
        return self.reason is None or self.reason.casefold() in reason.casefold()


@dataclass(frozen=True, slots=True)
class RejectGroup:
    """Rejects of one stream and run that have one reason."""

    stream: str | None
    run_id: str
    reason: str
    records: int
    bytes: int


def find(storage: Storage, pipeline: str, snapshot: Snapshot, criteria: Criteria) -> list[RejectFile]:
    """The committed files that hold any of the requested rejects, oldest run first."""
    existing = set(_listed(storage, pipeline)) if snapshot.rejects else set()
    files = [file for key, file in snapshot.rejects.items() if key in existing]  # retention deletes some
    requested = [f for f in files if criteria.file(f.stream, f.run) and any(map(criteria.says, f.reasons))]
    return sorted(requested, key=lambda file: (file.run, file.commit or 0, file.stream or "", file.file))


def first_files(files: list[RejectFile], most_bytes: int) -> list[RejectFile]:
    """The first of the files that have so many bytes together, at least one: what a sample is read from."""
    total, result = 0, list[RejectFile]()
    for file in files:
        total += sum(size for _, size in file.reasons.values())
        if result and total > most_bytes:
            break
        result.append(file)
    return result


def _listed(storage: Storage, pipeline: str) -> list[str]:
    root = pipeline_key(pipeline, "rejects")
    folders = [f"{root}/{folder}" for folder in storage.list(root)]
    names = parallel_map(storage, lambda folder: [f"{folder}/{name}" for name in storage.list(folder)], folders)
    return [key for keys in names for key in keys if key.endswith(".jsonl")]


def groups(files: list[RejectFile], criteria: Criteria) -> list[RejectGroup]:
    """Sum up the requested rejects, in the order of the files."""
    records: Counter[tuple[str | None, str, str]] = Counter()
    sizes: Counter[tuple[str | None, str, str]] = Counter()
    for file in files:
        for reason, (lines, size) in file.reasons.items():
            if criteria.says(reason):
                records[file.stream, file.run, reason] += lines
                sizes[file.stream, file.run, reason] += size
    return [RejectGroup(*key, count, sizes[key]) for key, count in records.items()]


def orphans(storage: Storage, pipeline: str, snapshot: Snapshot, criteria: Criteria) -> list[str]:
    """The files that no commit counts: runs that died left them, or they were taken back or replayed.

    Call it only while you hold the pipeline: a run that is alive has files that are not committed yet.
    """
    staged = {reject.file for stage in snapshot.staged.values() for reject in stage.rejects}
    loose = (key for key in _listed(storage, pipeline) if key not in snapshot.rejects and key not in staged)
    run = "" if criteria.run is None else f"/{criteria.run}-"
    return sorted(key for key in loose if run in key)


def read(storage: Storage, file: RejectFile) -> Iterator[dict[str, Any]]:
    """Yield the rejects of a file as they were written; none if retention has deleted it meanwhile.

    Raises `CorruptLake` for a line that is no reject.
    """
    for line in (storage.read(file.file) or b"").splitlines():
        try:
            reject = orjson.loads(line)
            reject["reason"] = str(reject["reason"])
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            hint = "restore the file from a backup of the bucket, or purge it"
            raise CorruptLake("a reject file is unreadable", hint=hint, file=file.file) from error
        yield reject


def rejected_records(
    storage: Storage, pipeline: str, snapshot: Snapshot, criteria: Criteria
) -> Iterator[dict[str, Any]]:
    """Yield the requested rejects, those of the oldest run first."""
    for file in find(storage, pipeline, snapshot, criteria):
        yield from (reject for reject in read(storage, file) if criteria.says(reject["reason"]))


def blamed(reject: dict[str, Any]) -> str:
    """The value that was wrong, or the whole line, cut to what a table can show."""
    raw = raw_of(reject)
    value = value_at(raw, reject.get("pointer", ""))
    text = raw.decode("utf-8", "replace") if value is None else value
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
