"""The executors' half of the query: bundles of segments in, reports out."""

from __future__ import annotations

import gc
import os
import pickle
import socket
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from msgspec import json

from bridge.errors import BridgeError, EngineError
from bridge.spark.rows import decode_rows, store_rows
from bridge.spark.view_files import read_signed, write_groups
from bridge.spool.folder import Segment, SpoolFolder
from bridge.write.report import WorkReport, failure
from bridge.write.task import write_bundles

__all__ = [
    "REPORTS",
    "REPORT_SCHEMA",
    "SHARE_SPOOL",
    "decode_rows",
    "load",
    "perform",
    "read_signed",
    "same",
    "store_rows",
    "write_groups",
]

REPORTS = "seq bigint, bundle int, report string"
SHARE_SPOOL = "set spool.dir to a folder that the driver and all executors share, under the same path: NFS, a volume"

REPORT_SCHEMA = pa.schema([("seq", pa.int64()), ("bundle", pa.int32()), ("report", pa.string())])


def same(batches: Iterator[Any]) -> Iterator[Any]:
    """Return what comes: to call it imports all that a worker needs.

    What was imported stays, so the garbage collector need not look at it again and again.
    """
    gc.freeze()
    yield from batches


def load(pickled_context: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """Turn bundles into reports. If this machine does not see the spool, the report says so."""
    context = pickle.loads(pickled_context)  # noqa: S301 - the driver's
    rows = [row for batch in batches for row in batch.to_pylist()]
    if rows and not os.access(SpoolFolder(context.spool).segments, os.R_OK | os.X_OK):
        error = EngineError("an executor cannot read the spool", hint=SHARE_SPOOL, host=_host(), folder=context.spool)
        reports: Iterator[WorkReport] = iter([failure(error)] * len(rows))
    else:
        reports = write_bundles(
            context, ((row["seq"], [Segment(**segment) for segment in row["segments"]]) for row in rows)
        )
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


def _host() -> str:
    return socket.gethostname()
