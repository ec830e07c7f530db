"""`system_tables`: runs, commits, bookmarks and streams as Parquet tables of the lake, for BI; live while a run works.

`<path>/<table>/<pipeline>.parquet`: a folder is a table, and each pipeline has one file in it, so no two pipelines
write the same file. Runs of one pipeline, wherever they end, replace it by compare and swap: whoever is slower reads
again, so the file never goes back to an older state. A reader sees the old file or the new one.

Rows that the old file has are not read again from the log: a run costs what it added, not what the history has.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from bridge.errors import LakeError
from bridge.lake.log import Log
from bridge.lake.records import CommitRecord
from bridge.lake.storage import Storage
from bridge.read.query.snapshot import TablesAt
from bridge.read.query.system import COLUMNS, newer_table

if TYPE_CHECKING:
    from bridge.load.run.run import Run

TABLES: tuple[str, ...] = ("runs", "stream_runs", "commits", "bookmarks", "streams")
_TRIES = 5
"""If another run has replaced the file, its content was right at that time; the next run adds the rest."""
_EVERY = 5.0
"""Seconds between two looks for a commit of a run."""
_LEFTOVER = timedelta(hours=1)
"""A hidden temporary file of this age is that of a process that was killed."""


class _LogReadOnce(Log):
    """Reads each record once: `newer_table` asks for those that `TablesAt` has read."""

    def __init__(self, storage: Storage, pipeline: str) -> None:
        super().__init__(storage, pipeline)
        self._records: dict[int, CommitRecord] = {}

    def record(self, n: int) -> CommitRecord | None:
        record = self._records.get(n) or super().record(n)
        if record is not None:
            self._records[n] = record
        return record


@contextmanager
def following(run: Run, path: str) -> Iterator[None]:
    """While the run works, bring its pipeline's files up to date soon after each of its commits."""
    ended = threading.Event()
    follower = threading.Thread(target=_follow, args=(run, path, ended), name="system-tables", daemon=True)
    follower.start()
    try:
        yield
    finally:
        ended.set()
        follower.join(_EVERY)  # an update that goes on does no harm, and a run that was never begun has no record


def _follow(run: Run, path: str, ended: threading.Event) -> None:
    if not (storage := run.recorded()):
        return
    log, before = Log(storage, run.pipeline.name), -1
    with suppress(LakeError):
        before = log.latest()
    while not ended.wait(_EVERY):
        with suppress(LakeError):  # the run says so itself
            if (head := log.latest()) != before:
                update_system_tables(storage, log.pipeline, path)
                before = head


def update_system_tables(storage: Storage, pipeline: str, path: str) -> list[str]:
    """Bring a pipeline's files up to date, best effort: returns a warning if that fails, and never raises."""
    try:
        _update(_LogReadOnce(storage, pipeline), path)
        storage.tidy(path, _LEFTOVER)
    except Exception as error:  # noqa: BLE001 - all is committed: whatever fails here must not fail the run
        return [f"the system tables in {path} are not up to date, the next run tries again: {error}"]
    return []


def _update(log: Log, path: str) -> None:
    names = TABLES
    with ThreadPoolExecutor(len(TABLES), thread_name_prefix="system-tables") as pool:  # each waits for disk or network
        for _ in range(_TRIES):
            # The old files first, then the log: a file that is still the same afterwards is not newer than the log.
            files = list(pool.map(lambda name: log.storage.read_versioned(_key(path, name, log)), names))
            at = TablesAt.of(log, None)
            swaps = [
                pool.submit(_swap, _key(path, name, log), name, at, *((file.data, file.etag) if file else (None, None)))
                for name, file in zip(names, files, strict=True)
            ]
            names = tuple(name for name, swap in zip(names, swaps, strict=True) if not swap.result())
            if not names:
                return


def _swap(key: str, name: str, at: TablesAt, before: bytes | None, etag: str | None) -> bool:
    """Write one file; whether it is now as the log says, unless somebody was faster."""
    data = _parquet(newer_table(name, at, _earlier(name, before)))
    return before == data or at.log.storage.compare_and_swap(key, data, etag) is not None


def _key(path: str, table: str, log: Log) -> str:
    return f"{path}/{table}/{log.pipeline}.parquet"


def _earlier(name: str, data: bytes | None) -> pa.Table | None:
    """The rows of the file that is there; None if it is damaged or of another version, and so is made anew.

    Files of before have a run's id as `run`.
    """
    try:
        table = pq.read_table(pa.BufferReader(data)) if data else None
    except (pa.ArrowException, OSError):
        return None
    if table is None:
        return None
    table = table.rename_columns(["run_id" if column == "run" else column for column in table.column_names])
    return table if table.schema.equals(COLUMNS[name]) else None


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data
