"""Plain Parquet tables: segments in, pending files out. Runs on executors; knows nothing of commits.

Guarantee: a bundle is a pure function of its segments. Run twice, it writes other files with the same rows, and only
the files of the one report that the driver accepted are ever published.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from bridge.decode import Decoded, Reject, decode
from bridge.errors import BridgeError, DataError, EngineError, LakeError
from bridge.log import meta
from bridge.names import folder_name
from bridge.schema import EXTRA, TableSchema
from bridge.settings.s3options import S3Options
from bridge.spool import Segment, read_segment
from bridge.storage import Storage, open_storage
from bridge.tables.target import Target

__all__ = ["Job", "failure", "raise_failure", "write_bundle", "write_bundles", "write_empty", "write_rejects"]

_ROW_GROUP = 64 << 20
"""Arrow bytes gathered for one row group: large enough for readers, small enough for a worker's memory."""


@dataclass(frozen=True, slots=True)
class Job:
    """What an executor needs to know of the run."""

    bucket: str
    pipeline: str
    run: str
    generation: int
    spool: str
    compression: str
    targets: dict[str, Target]
    """The tables by stream. They grow while the run goes on."""
    s3: S3Options | None = None

    def storage(self) -> Storage:
        """Open the bucket."""
        return open_storage(self.bucket, self.s3)


class _File:
    """One pending Parquet file that is being written; memory holds at most one row group."""

    def __init__(self, storage: Storage, job: Job, seq: int, stream: str, schema: pa.Schema) -> None:
        self.stream, self.schema, self.rows = stream, schema, 0
        self._facts: dict[str, Any] = {}
        self._gathered: list[pa.Table] = []
        self._name = f"part-{job.generation:010d}-{seq:06d}-{uuid.uuid4().hex}.parquet"
        self._source = meta(job.pipeline, "pending", f"{self._name}.pending")
        self._file = storage.open_pending(self._source, f"{job.targets[stream].folder}/{self._name}")
        self._writer = pq.ParquetWriter(self._file, schema, compression=job.compression)

    def add(self, table: pa.Table) -> None:
        self._gathered.append(table)
        self.rows += table.num_rows
        if sum(part.nbytes for part in self._gathered) >= _ROW_GROUP:
            self.flush()

    def flush(self) -> None:
        if self._gathered:
            table = pa.concat_tables(self._gathered)
            self._gathered.clear()
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))

    def finish(self) -> dict[str, Any]:
        """Write what is left and return the facts; the file is durable after `close`, which completes them."""
        self.flush()
        self._writer.close()
        self._facts = {
            "stream": self.stream,
            "name": self._name,
            "source": self._source,
            "size": self._file.tell(),
            "rows": self.rows,
            "extra": EXTRA in self.schema.names,
        }
        return self._facts

    def close(self) -> None:
        self._file.close()
        if self._file.upload:
            self._facts["upload"] = self._file.upload


def write_bundles(job: Job, bundles: Iterable[tuple[int, Sequence[Segment]]]) -> Iterator[dict[str, Any]]:
    """Decode bundles into pending files and yield the report of each, which the driver checks.

    A thread makes files durable while the next bundle is decoded; a report comes after its files are. `files`: what
    was written; `counts`: a row per segment with its `rows` and `rejects`; `rejects`: reject files; `extra`: fields
    outside the SCHEMA by stream; `versions`: the `version`s of a stream's RECORDs; or `failed`: what went wrong.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="durable") as disk:
        before: tuple[dict[str, Any], list[Future[None]]] | None = None
        for seq, segments in bundles:
            try:
                now = _write(job, seq, segments, disk)
            except BridgeError as error:
                now = failure(error), []
            if before:
                yield _durable(*before)
            before = now
        if before:
            yield _durable(*before)


def write_bundle(job: Job, seq: int, segments: Sequence[Segment]) -> dict[str, Any]:
    """Return the report of one bundle."""
    return next(write_bundles(job, [(seq, segments)]))


def _durable(report: dict[str, Any], closing: list[Future[None]]) -> dict[str, Any]:
    try:
        for future in closing:
            future.result()
    except BridgeError as error:
        return failure(error)
    return report


def _write(
    job: Job, seq: int, segments: Sequence[Segment], disk: ThreadPoolExecutor
) -> tuple[dict[str, Any], list[Future[None]]]:
    storage, spool = job.storage(), Path(job.spool)
    report: dict[str, Any] = {"files": [], "counts": [], "rejects": [], "extra": {}, "versions": {}}
    schemas: dict[str, TableSchema] = {}
    closing: list[Future[None]] = []
    current: _File | None = None
    rejects: dict[str, list[dict[str, Any]]] = {}

    def finish(file: _File) -> None:
        report["files"].append(file.finish())
        closing.append(disk.submit(file.close))

    for segment in segments:
        schema = schemas.get(segment.schema) or _schema(spool, segment.schema)
        schemas[segment.schema] = schema
        decoded = decode(read_segment(spool, segment), schema, segment.prefix.encode() or None)
        if current and (current.stream != segment.stream or current.schema != decoded.table.schema):
            finish(current)
            current = None
        if decoded.table.num_rows:
            current = current or _File(storage, job, seq, segment.stream, decoded.table.schema)
            current.add(decoded.table)
        rejects.setdefault(segment.stream, []).extend(_reject(item, segment) for item in decoded.rejects)
        _count(report, segment, decoded)
    if current:
        finish(current)
    for stream, items in rejects.items():
        if items:
            report["rejects"].append(write_rejects(storage, job, stream, items))
    return report, closing


def _schema(spool: Path, name: str) -> TableSchema:
    return TableSchema.from_json((spool / "schemas" / name).read_bytes())


def _count(report: dict[str, Any], segment: Segment, decoded: Decoded) -> None:
    rows, rejects = decoded.table.num_rows, len(decoded.rejects)
    report["counts"].append({"file": segment.file, "start": segment.start, "rows": rows, "rejects": rejects})
    extra = report["extra"].setdefault(segment.stream, {})
    for name, count in decoded.extra.items():
        extra[name] = extra.get(name, 0) + count
    versions = report["versions"].setdefault(segment.stream, [])
    found = [*(decoded.versions or ()), *([None] if decoded.unversioned else [])]
    versions.extend(version for version in dict.fromkeys(found) if version not in versions)


def _reject(reject: Reject, segment: Segment) -> dict[str, Any]:
    where = {"segment": segment.file, "line": reject.line}
    return {"stream": segment.stream, "reason": reject.reason, "pointer": reject.pointer, **where, "raw": reject.raw}


def write_rejects(storage: Storage, job: Job, stream: str | None, items: list[dict[str, Any]]) -> dict[str, Any]:
    """Keep rejects, a JSON line each, in a file that only a commit makes count. No stream: no Singer message."""
    folder = folder_name(stream, ()) if stream is not None else "_tap"
    name = f"{job.run}-{uuid.uuid4().hex}.jsonl"  # its age is the run's
    key = meta(job.pipeline, "rejects", folder, name)
    lines = (orjson.dumps({"format": 1, "run": job.run} | item | _raw(item["raw"])) + b"\n" for item in items)
    storage.write(key, b"".join(lines))
    return {"stream": stream, "file": key, "lines": len(items)}


def _raw(raw: bytes) -> dict[str, Any]:
    try:
        return {"raw": raw.decode()}
    except UnicodeDecodeError:
        return {"raw": None, "raw_base64": base64.b64encode(raw).decode()}


def write_empty(job: Job, seq: int, stream: str, schema: TableSchema) -> dict[str, Any]:
    """Write a file without rows: a stream that has a SCHEMA has a table that every engine can open."""
    file = _File(job.storage(), job, seq, stream, schema.arrow)
    facts = file.finish()
    file.close()
    return facts


_KINDS: dict[str, type[BridgeError]] = {kind.__name__: kind for kind in (DataError, EngineError, LakeError)}


def failure(error: BridgeError) -> dict[str, Any]:
    """Turn an error into a report: retrying what an operator must mend would only cost time."""
    return {"failed": {"type": type(error).__name__, "message": error.message, "hint": error.hint}}


def raise_failure(report: dict[str, Any]) -> None:
    """Raise again, on the driver, the error that an executor reported."""
    if failed := report.get("failed"):
        raise _KINDS.get(failed["type"], EngineError)(failed["message"], hint=failed["hint"])
