"""A worker's task: bundles of segments in, pending files and a report of each bundle out.

Guarantee: a bundle is a pure function of its segments. Run twice, it writes other files with the same rows, and only
the files of the one report that the driver accepted are ever published.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from msgspec import structs

from bridge.errors import BridgeError, DataError
from bridge.exact_json import NotJson, loads
from bridge.lake.file_records import PendingFile
from bridge.lake.storage.parallel import MANY, on_disk
from bridge.load.spool.folder import Segment
from bridge.load.write.context import WriteContext
from bridge.load.write.file import File
from bridge.load.write.layout import RowWindow
from bridge.load.write.metadata_columns import METADATA, fill_metadata
from bridge.load.write.partition import folder_of
from bridge.load.write.rejects import reject_entry, write_rejects
from bridge.load.write.report import SegmentCount, SpillFile, WorkReport, failure
from bridge.load.write.shared_spool import SegmentSource
from bridge.load.write.spill import Spill, absent_columns, has_sound_keys, reject_without_key, with_message_order
from bridge.load.write.validation import decode_valid, read_rules, spooled_schema
from bridge.load.write.writer import Writer
from bridge.protocol.decode.arrow.pieces import ArrowPieces
from bridge.protocol.decode.changed import null_keys
from bridge.protocol.decode.decoder import Decoded
from bridge.protocol.decode.validate import Rules
from bridge.protocol.schema.json_schema import DELETED_AT, VERSION_COLUMN
from bridge.protocol.schema.table_schema import TableSchema

_OPEN = 256
"""Files that wait to be made durable together: each holds a descriptor."""
_LARGE = 8 << 20
"""A file of so many bytes does not wait: in a bucket it may hold them in memory."""


def write_bundles(context: WriteContext, bundles: Iterable[tuple[int, Sequence[Segment]]]) -> Iterator[WorkReport]:
    """Decode bundles into pending files and yield the report of each, which the driver checks.

    A thread makes files durable while the next bundle is decoded; a report comes after its files are durable. Those of
    many streams are made so together.
    """
    with ThreadPoolExecutor(1, "durable") as one:
        before: tuple[WorkReport, RowWriter | None] | None = None
        for seq, segments in bundles:
            try:
                disk = one if len(segments) < MANY else None
                now: tuple[WorkReport, RowWriter | None] = _write(context, seq, segments, disk)
            except BridgeError as error:
                now = failure(error), None
            if before:
                yield _durable(*before)
            before = now
        if before:
            yield _durable(*before)


def write_bundle(context: WriteContext, seq: int, segments: Sequence[Segment]) -> WorkReport:
    """Decode and write one bundle."""
    return next(write_bundles(context, [(seq, segments)]))


def _durable(report: WorkReport, writer: RowWriter | None) -> WorkReport:
    try:
        return writer.durable(report) if writer else report
    except BridgeError as error:
        return failure(error)


def _write(
    context: WriteContext, seq: int, segments: Sequence[Segment], disk: ThreadPoolExecutor | None
) -> tuple[WorkReport, RowWriter]:
    writer = RowWriter(context, seq, disk)
    with SegmentReader(context) as reader:
        for segment in segments:
            layout = context.layouts[segment.stream]
            if layout.transform is not None:
                continue  # those go through Spark SQL, in a job of their own
            decoded = reader.read(segment)
            if layout.keys:
                rows = fill_metadata(decoded, layout, segment)
                writer.add(segment.stream, with_message_order(rows, decoded.version, seq, segment, decoded.absent))
                continue
            for version, rows in decoded.by_version():
                writer.add(segment.stream, fill_metadata(rows, layout, segment), version)
        report = reader.finish()
    writer.finish()
    return report, writer


def write_empty(context: WriteContext, seq: int, stream: str, schema: TableSchema) -> PendingFile:
    """Write a file without rows: a stream that has a SCHEMA has a table that every engine can open."""
    folders = "/".join(folder_of(partition, None) for partition in context.layouts[stream].partition_by)
    file = File(context.storage(), context, seq, stream, schema.arrow, folders)
    file.finish()
    return file.close()


class SegmentReader:
    """Segments into rows; `report` counts on the way."""

    def __init__(self, context: WriteContext) -> None:
        self.report = WorkReport()
        self._context, self._source = context, SegmentSource(context)
        self._schemas: dict[str, TableSchema] = {}
        self._rejects: dict[str, list[dict[str, Any]]] = {}

    def __enter__(self) -> SegmentReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()

    def read(self, segment: Segment) -> Decoded:
        """Decode a segment, and count its rows and rejects."""
        spool, layout = self._source.of(segment), self._context.layouts[segment.stream]
        schema = self._schemas.get(segment.schema) or spooled_schema(spool, segment.schema)
        self._schemas[segment.schema] = schema
        rules, data = read_rules(spool, segment.schema, segment.stream), spool.read_segment(segment)
        if segment.is_arrow:
            decoded = self._decode_arrow(data, segment, schema, rules)
        else:
            decoded = self._decode_lines(data, segment, schema, rules)
        outside = 0
        if layout.window:
            decoded, outside = _inside(decoded, layout.window)
            self.report.filtered[segment.stream] = self.report.filtered.get(segment.stream, 0) + outside
        self._rejects.setdefault(segment.stream, []).extend(reject_entry(item, segment) for item in decoded.rejects)
        self._count(segment, decoded, outside)
        return decoded

    def _decode_lines(self, data: bytes, segment: Segment, schema: TableSchema, rules: Rules | None) -> Decoded:
        layout, prefix = self._context.layouts[segment.stream], segment.prefix.encode() or None
        envelope = layout.metadata or bool(layout.keys)
        decoded = decode_valid(data, schema, prefix, rules, envelope=envelope)
        if decoded.is_mixed and not envelope:  # rare: a tap that began its table anew
            decoded = decode_valid(data, schema, prefix, rules, envelope=True)
        if layout.keys:
            decoded = reject_without_key(decoded, data, layout.keys)
        if layout.merges_changes:
            not_of_rows = METADATA if layout.metadata else (DELETED_AT, VERSION_COLUMN)
            decoded = replace(decoded, absent=absent_columns(decoded, data, [*layout.keys, *not_of_rows]))
        return decoded

    def _decode_arrow(self, data: bytes, segment: Segment, schema: TableSchema, rules: Rules | None) -> Decoded:
        """The same for rows as Arrow; those of which a rule needs the line become lines."""
        layout, pieces = self._context.layouts[segment.stream], ArrowPieces(data, segment.stream)
        try:
            if rules is None and not layout.merges_changes:
                envelope = layout.metadata or bool(layout.keys)
                decoded = pieces.decoded(schema, envelope=envelope)
                if decoded.is_mixed and not envelope:
                    decoded = pieces.decoded(schema, envelope=True)
                if not layout.keys or has_sound_keys(decoded, layout.keys):
                    return decoded
            lines = pieces.lines()
        except (pa.ArrowException, MemoryError, ValueError) as error:
            hint = "report it, with the tap's file; set the tap's batch_config to jsonl meanwhile"
            raise DataError("rows of a BATCH cannot be read", hint=hint, stream=segment.stream, cause=error) from error
        return self._decode_lines(lines, segment, schema, rules)

    def finish(self) -> WorkReport:
        """Write the reject files, and complete the report."""
        for stream, items in self._rejects.items():
            if items:
                self.report.rejects.append(write_rejects(self._context.storage(), self._context, stream, items))
        return self.report

    def _count(self, segment: Segment, decoded: Decoded, outside: int) -> None:
        """`outside`: lines that are filtered out, as they lie outside of the window."""
        rows, rejects = decoded.table.num_rows + outside, len(decoded.rejects)
        self.report.counts.append(SegmentCount(segment.file, segment.start, rows, rejects))
        extra = self.report.extra.setdefault(segment.stream, {})
        for name, count in decoded.extra.items():
            extra[name] = extra.get(name, 0) + count
        nulls = null_keys(decoded.table, self._context.layouts[segment.stream].watched)
        for (kind, column), count in (decoded.changed + nulls).items():
            changed = self.report.changed.setdefault(segment.stream, {}).setdefault(kind, {})
            changed[column] = changed.get(column, 0) + count
        versions = self.report.versions.setdefault(segment.stream, [])
        new = [*(decoded.versions or ()), *([None] if decoded.unversioned else [])]
        versions.extend(version for version in dict.fromkeys(new) if version not in versions)


def _inside(decoded: Decoded, window: RowWindow) -> tuple[Decoded, int]:
    """The rows and rejects of a window, and how many lines are none of them."""
    rows = decoded.filter(window.mask(decoded.table))
    rejects = [reject for reject in decoded.rejects if window.has(_value(reject.raw, window.property))]
    lines = decoded.table.num_rows + len(decoded.rejects) - rows.table.num_rows - len(rejects)
    return replace(rows, rejects=rejects), lines


def _value(raw: bytes, name: str) -> Any:
    """A property's value in a RECORD; what cannot be read is not None."""
    try:
        return loads(raw)["record"].get(name)
    except (NotJson, LookupError, TypeError, AttributeError):
        return "unreadable"


class RowWriter:
    """Rows into pending files, which a thread of `disk` makes durable; None: many files become durable at a time.

    While rows are decoded, a thread a file would only compete with that for Python's lock.
    """

    def __init__(self, context: WriteContext, seq: int, disk: ThreadPoolExecutor | None) -> None:
        self._closing: list[Future[PendingFile]] = []
        self._written: list[File] = []
        self._durable: list[PendingFile] = []
        self._spills: list[SpillFile] = []
        self._folders: dict[str, int] = {}
        self._context, self._seq, self._disk = context, seq, disk
        self._storage = context.storage()
        self._current: Writer | Spill | None = None
        self._version: int | None = None

    def add(self, stream: str, table: pa.Table, version: int | None = None) -> None:
        """Write rows as the stream's table has them. All are of one `version`, unless they are to be merged."""
        now = self._current
        if now and (now.stream, self._version, now.schema) != (stream, version, table.schema):
            self.finish()
        if table.num_rows:
            self._version = version
            self._current = self._current or self._begin(stream, table.schema, version)
            self._current.add(table)

    def _begin(self, stream: str, schema: pa.Schema, version: int | None) -> Writer | Spill:
        if keys := self._context.layouts[stream].keys:
            return Spill(self._context, stream, schema, keys)
        return Writer(self._storage, self._context, self._seq, stream, schema, partial(self._close, version))

    def finish(self) -> None:
        writer, self._current = self._current, None
        if isinstance(writer, Spill):
            self._spills.append(writer.finish())
        elif writer:
            writer.finish()
            self._folders[writer.stream] = self._folders.get(writer.stream, 0) + len(writer.folders)

    def durable(self, report: WorkReport) -> WorkReport:
        """Wait until all files are durable, and add them to the reader's report."""
        self._make_durable()
        files = [*self._durable, *(closing.result() for closing in self._closing)]
        return structs.replace(report, files=files, spills=self._spills, folders=self._folders)

    def _close(self, version: int | None, file: File) -> None:
        file.finish(version)
        if self._disk:
            self._closing.append(self._disk.submit(file.close))
            return
        self._written.append(file)
        if len(self._written) == _OPEN or file.size >= _LARGE:
            self._make_durable()

    def _make_durable(self) -> None:
        files, self._written = self._written, []
        self._durable += on_disk(File.close, files)
