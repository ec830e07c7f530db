"""Plain Parquet tables: segments in, pending files out. Runs on executors; knows nothing of commits.

Guarantee: a bundle is a pure function of its segments. Run twice, it writes other files with the same rows, and only
the files of the one report that the driver accepted are ever published.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from bridge.errors import BridgeError
from bridge.lake.records import PendingFile
from bridge.schema.table_schema import TableSchema
from bridge.spool.spool import Segment
from bridge.write.bundle import RowWriter, SegmentReader
from bridge.write.context import WriteContext
from bridge.write.file import File
from bridge.write.metadata_columns import shaped
from bridge.write.partition import folder_of
from bridge.write.rejects import write_rejects
from bridge.write.report import WorkReport, failure
from bridge.write.spill import ordered
from bridge.write.versions import by_version

__all__ = ["WriteContext", "write_bundle", "write_bundles", "write_empty", "write_rejects"]


def write_bundles(context: WriteContext, bundles: Iterable[tuple[int, Sequence[Segment]]]) -> Iterator[WorkReport]:
    """Decode bundles into pending files and yield the report of each, which the driver checks.

    A thread makes files durable while the next bundle is decoded; a report comes after its files are.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="durable") as disk:
        before: tuple[WorkReport, RowWriter | None] | None = None
        for seq, segments in bundles:
            try:
                now: tuple[WorkReport, RowWriter | None] = _write(context, seq, segments, disk)
            except BridgeError as error:
                now = failure(error), None
            if before:
                yield _durable(*before)
            before = now
        if before:
            yield _durable(*before)


def write_bundle(context: WriteContext, seq: int, segments: Sequence[Segment]) -> WorkReport:
    """Return the report of one bundle."""
    return next(write_bundles(context, [(seq, segments)]))


def _durable(report: WorkReport, writing: RowWriter | None) -> WorkReport:
    try:
        return writing.durable(report) if writing else report
    except BridgeError as error:
        return failure(error)


def _write(
    context: WriteContext, seq: int, segments: Sequence[Segment], disk: ThreadPoolExecutor
) -> tuple[WorkReport, RowWriter]:
    reading, writing = SegmentReader(context), RowWriter(context, seq, disk)
    for segment in segments:
        layout = context.layouts[segment.stream]
        if layout.transform is not None:
            continue  # those go through Spark SQL, in a job of their own
        decoded = reading.read(segment)
        if layout.keys:
            rows = shaped(decoded, layout, segment)
            writing.add(segment.stream, ordered(rows, decoded.version, seq, segment, decoded.absent))
            continue
        for version, rows in by_version(decoded):
            writing.add(segment.stream, shaped(rows, layout, segment), version)
    report = reading.finish()
    writing.finish()
    return report, writing


def write_empty(context: WriteContext, seq: int, stream: str, schema: TableSchema) -> PendingFile:
    """Write a file without rows: a stream that has a SCHEMA has a table that every engine can open."""
    folders = "/".join(folder_of(partition, None) for partition in context.layouts[stream].partition_by)
    file = File(context.storage(), context, seq, stream, schema.arrow, folders)
    file.finish()
    return file.close()
