"""One bundle of segments: what was read of them, what was written, and the report that the driver checks."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec import structs

from bridge.decode.absent_columns import absent_columns
from bridge.decode.decoder import Decoded
from bridge.lake.records import PendingFile
from bridge.schema.table_schema import TableSchema
from bridge.spool.spool import Segment, read_segment
from bridge.write.context import WriteContext
from bridge.write.file import File
from bridge.write.rejects import facts_of, write_rejects
from bridge.write.report import SegmentCount, SpillFile, WorkReport
from bridge.write.spill import Spill, keyed
from bridge.write.validation import decode_valid, read_rules
from bridge.write.versions import is_mixed
from bridge.write.writer import Writer


def read_schema_of(spool: Path, name: str) -> TableSchema:
    """Return the schema of a segment by its name in the spool."""
    return TableSchema.from_json((spool / "schemas" / name).read_bytes())


class SegmentReader:
    """Segments into rows; `report` gets what was counted on the way."""

    def __init__(self, context: WriteContext) -> None:
        self.report = WorkReport()
        self._context, self._spool = context, Path(context.spool)
        self._schemas: dict[str, TableSchema] = {}
        self._rejects: dict[str, list[dict[str, Any]]] = {}

    def read(self, segment: Segment) -> Decoded:
        """Return the rows of a segment, of which the report has the figures, and the rejects, too."""
        schema = self._schemas.get(segment.schema) or read_schema_of(self._spool, segment.schema)
        self._schemas[segment.schema] = schema
        rules = read_rules(self._spool, segment.schema, segment.stream)
        data, layout = read_segment(self._spool, segment), self._context.layouts[segment.stream]
        envelope, prefix = layout.metadata or bool(layout.keys), segment.prefix.encode() or None
        decoded = decode_valid(data, schema, prefix, rules, envelope=envelope)
        if is_mixed(decoded) and not envelope:  # rare: a tap that began its table anew
            decoded = decode_valid(data, schema, prefix, rules, envelope=True)
        if layout.keys:
            decoded = keyed(decoded, data, layout.keys)
        if layout.changes and layout.transform is None:
            decoded = replace(decoded, absent=absent_columns(decoded, data, layout.keys))
        self._rejects.setdefault(segment.stream, []).extend(facts_of(item, segment) for item in decoded.rejects)
        self._count(segment, decoded)
        return decoded

    def finish(self) -> WorkReport:
        """Write the reject files and return the report."""
        for stream, items in self._rejects.items():
            if items:
                self.report.rejects.append(write_rejects(self._context.storage(), self._context, stream, items))
        return self.report

    def _count(self, segment: Segment, decoded: Decoded) -> None:
        rows, rejects = decoded.table.num_rows, len(decoded.rejects)
        self.report.counts.append(SegmentCount(segment.file, segment.start, rows, rejects))
        extra = self.report.extra.setdefault(segment.stream, {})
        for name, count in decoded.extra.items():
            extra[name] = extra.get(name, 0) + count
        versions = self.report.versions.setdefault(segment.stream, [])
        found = [*(decoded.versions or ()), *([None] if decoded.unversioned else [])]
        versions.extend(version for version in dict.fromkeys(found) if version not in versions)


class RowWriter:
    """Rows into pending files, which a thread of `disk` makes durable."""

    def __init__(self, context: WriteContext, seq: int, disk: ThreadPoolExecutor) -> None:
        self._closing: list[Future[PendingFile]] = []
        self._spills: list[SpillFile] = []
        self._folders: dict[str, int] = {}
        self._context, self._seq, self._disk = context, seq, disk
        self._storage = context.storage()
        self._current: Writer | Spill | None = None
        self._version: int | None = None

    def add(self, stream: str, table: pa.Table, version: int | None = None) -> None:
        """Take rows of a stream as its table has them, all of one `version`, or for a merge, which look into them."""
        now = self._current
        if now and (now.stream, self._version, now.schema) != (stream, version, table.schema):
            self._end()
        if table.num_rows:
            self._version = version
            self._current = self._current or self._begin(stream, table.schema, version)
            self._current.add(table)

    def _begin(self, stream: str, schema: pa.Schema, version: int | None) -> Writer | Spill:
        if self._context.layouts[stream].keys:
            return Spill(self._context, stream, schema)
        done = partial(self._done, version)
        return Writer(self._storage, self._context, self._seq, stream, schema, done)

    def finish(self) -> None:
        """Write what is left."""
        if self._current:
            self._end()

    def durable(self, read: WorkReport) -> WorkReport:
        """Wait until all files are durable, and add them to the report of what was read."""
        files = [closing.result() for closing in self._closing]
        return structs.replace(read, files=files, spills=self._spills, folders=self._folders)

    def _end(self) -> None:
        writer, self._current = self._current, None
        assert writer is not None
        if isinstance(writer, Spill):
            self._spills.append(writer.finish())
            return
        writer.finish()
        self._folders[writer.stream] = self._folders.get(writer.stream, 0) + len(writer.folders)

    def _done(self, version: int | None, file: File) -> None:
        file.finish(version)
        self._closing.append(self._disk.submit(file.close))
