"""The executors' half of the query: bundles of segments in, reports out."""

from __future__ import annotations

import gc
import pickle
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
from msgspec import json

from bridge.errors import BridgeError, EngineError
from bridge.load.spark.rows import decode_rows, store_rows
from bridge.load.spark.view_files import read_signed, write_groups
from bridge.load.spool.folder import Segment
from bridge.load.write.report import WorkReport, failure
from bridge.load.write.shared_spool import require_folder
from bridge.load.write.task import write_bundles

__all__ = [
    "REPORTS",
    "REPORT_SCHEMA",
    "SHARE_SPOOL",
    "connections",
    "decode_rows",
    "load",
    "perform",
    "prepare",
    "read_signed",
    "same",
    "store_rows",
    "write_groups",
]

REPORTS = "seq bigint, bundle int, report string"
SHARE_SPOOL = (
    "leave spool.dir out, and executors read it from the bucket; or set it to a folder that the driver and all "
    "executors share, under the same path"
)

connections: list[socket.socket] = []
"""This worker's connection to the JVM, where our daemon has started it."""

REPORT_SCHEMA = pa.schema([("seq", pa.int64()), ("bundle", pa.int32()), ("report", pa.string())])


def same(batches: Iterator[Any]) -> Iterator[Any]:
    """Return what comes: to call it imports all that a worker needs.

    What was imported stays, so the garbage collector need not look at it again and again.
    """
    gc.freeze()
    yield from batches


class _NoPandas:
    """A finder of modules for which there is no pandas."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def prepare() -> None:
    """Let this task begin at once, without 40 ms for a packet and a quarter of a second for a library.

    The JVM holds a small packet, the task's rows, back until the one before it is acknowledged, which the system would
    delay. And pyarrow imports pandas once, if it can, to tell a list from a Series: it is not to find it.
    """
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas)
        pa.array([0])
        sys.meta_path.remove(_NoPandas)
    for connection in connections:
        with suppress(AttributeError, OSError):  # not Linux; a Unix socket
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def load(pickled_context: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """Turn bundles into reports. If this machine does not see the spool, the report says so."""
    context = pickle.loads(pickled_context)  # noqa: S301 - the driver's
    rows = [row for batch in batches for row in batch.to_pylist()]
    reports: Iterator[WorkReport]
    try:
        require_folder(context, SHARE_SPOOL)
        reports = write_bundles(
            context, ((row["seq"], [Segment(**segment) for segment in row["segments"]]) for row in rows)
        )
    except EngineError as error:
        reports = iter([failure(error)] * len(rows))
    for row, report in zip(rows, reports, strict=True):
        columns = {"seq": [row["seq"]], "bundle": [row["bundle"]], "report": [json.encode(report).decode()]}
        yield pa.RecordBatch.from_pydict(columns, REPORT_SCHEMA)


def perform(pickled: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """Run the work on the payloads with these numbers, and yield the reports."""
    work, context, payloads = pickle.loads(pickled)  # noqa: S301 - the driver's
    for number in (row["id"] for batch in batches for row in batch.to_pylist()):
        try:
            report = work(context, payloads[number])
        except BridgeError as error:
            report = failure(error)
        columns = {"seq": [number], "bundle": [0], "report": [json.encode(report).decode()]}
        yield pa.RecordBatch.from_pydict(columns, REPORT_SCHEMA)
