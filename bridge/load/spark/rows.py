"""The two halves of a transform on executors: segments to rows for Spark, and Spark's rows to pending files."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import json, structs

from bridge.errors import BridgeError, EngineError
from bridge.load.spool.folder import Segment
from bridge.load.write.context import WriteContext
from bridge.load.write.metadata_columns import fill_metadata
from bridge.load.write.report import WorkReport, failure, read_report
from bridge.load.write.spill import HIDDEN as ORDER
from bridge.load.write.spill import with_message_order
from bridge.load.write.task import RowWriter, SegmentReader
from bridge.protocol.decode.casting import refit
from bridge.protocol.schema.json_schema import EXTRA, source
from bridge.protocol.schema.table_schema import with_extra

_BUNDLE, _SPLIT = "\x1fbundle", "\x1fsplit"
_SHIFT = 32
"""Bits of a bundle's number, below those of its batch's."""


def hidden_type(fields: list[pa.Field]) -> pa.DataType:
    """The type of the hidden column: a row's place, and the columns of the bridge itself."""
    numbers = [pa.field(name, pa.int64()) for name in (_BUNDLE, _SPLIT, *ORDER)]
    own = [pa.field(field.name, field.type) for field in fields if field.name != EXTRA]
    return pa.struct([*numbers, pa.field(EXTRA, pa.string()), *own])


def decode_rows(pickled: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """Turn bundles into the rows of one stream under one schema, and leave the counts for `store_rows` in a file."""
    context, plan, columns = pickle.loads(pickled)  # noqa: S301 - the driver's
    for row in (row for batch in batches for row in batch.to_pylist()):
        segments = [Segment(**one) for one in row["segments"]]
        segments = [one for one in segments if (one.stream, one.schema) == (plan.stream, plan.schema)]
        if not segments:
            continue
        key = row["seq"] << _SHIFT | row["bundle"]
        try:
            with SegmentReader(context) as reading:
                for segment in segments:
                    for table in _rows(reading, context, segment, row["seq"]):
                        yield from _packed(table, columns, key)
                report = reading.finish()
        except BridgeError as error:
            report = failure(error)
        folder = _counted()
        folder.mkdir(exist_ok=True)
        (folder / f"{key}.json").write_bytes(json.encode(report))


def _rows(reading: SegmentReader, context: WriteContext, segment: Segment, seq: int) -> Iterator[pa.Table]:
    """Yield the rows of a segment with the columns of the bridge itself."""
    target, decoded = context.layouts[segment.stream], reading.read(segment)
    if target.keys:
        yield with_message_order(fill_metadata(decoded, target, segment), decoded.version, seq, segment)
        return
    for version, rows in decoded.by_version():
        table = fill_metadata(rows, target, segment)
        if version is not None:
            table = table.append_column(_SPLIT, pa.repeat(pa.scalar(version, pa.int64()), table.num_rows))
        yield table


def _packed(table: pa.Table, columns: pa.Schema, key: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows with Spark's columns; the last one holds all that the statement does not see."""
    rows, type_ = table.num_rows, columns.field(-1).type
    table = table.append_column(_BUNDLE, pa.repeat(pa.scalar(key, pa.int64()), rows))
    arrays = {name: _one(table.column(name)) for name in table.column_names}
    hidden = [arrays[field.name] if field.name in arrays else pa.nulls(rows, field.type) for field in type_]
    last = pa.StructArray.from_arrays(hidden, fields=list(type_))
    seen = [arrays[field.name] for field in list(columns)[:-1]]
    yield pa.RecordBatch.from_arrays([*seen, last], schema=columns)


def _one(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def store_rows(pickled: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    """Turn rows into pending files, and yield the report of each bundle that this task has decoded."""
    context, plan, schema = pickle.loads(pickled)  # noqa: S301 - the driver's
    with ThreadPoolExecutor(1, thread_name_prefix="durable") as disk:
        bundles: dict[int, _Bundle] = {}
        for batch in batches:
            for key, version, rows in _split(pa.Table.from_batches([batch])):
                if key not in bundles:
                    for before in bundles.values():
                        before.finish()
                    bundles[key] = _Bundle(plan, RowWriter(context, key >> _SHIFT, disk))
                bundles[key].add(rows, version)
        for file in sorted(_counted().glob("*.json")):  # all are there: there were no rows after the last one
            key = int(file.stem)
            bundle = bundles.pop(key, None) or _Bundle(plan, RowWriter(context, key >> _SHIFT, disk))
            report = bundle.report(read_report(file.read_bytes()))
            numbers = {"seq": [key >> _SHIFT], "bundle": [key & (1 << _SHIFT) - 1]}
            columns = numbers | {"report": [json.encode(report).decode()]}
            yield pa.RecordBatch.from_pydict(columns, schema)
        shutil.rmtree(_counted(), ignore_errors=True)
    if bundles:
        raise EngineError("rows came of a bundle that nobody counted", hint="nothing was committed; run again")


def _split(table: pa.Table) -> Iterator[tuple[int, int | None, pa.Table]]:
    """Yield the rows of each bundle and `version`, with what the hidden column holds as columns."""
    hidden = table.column(table.num_columns - 1).combine_chunks()
    seen = table.select(range(table.num_columns - 1))
    places = hidden.field(_BUNDLE), hidden.field(_SPLIT)
    for field, array in zip(hidden.type, hidden.flatten(), strict=True):
        if field.name not in (_BUNDLE, _SPLIT):
            seen = seen.append_column(pa.field(field.name, field.type), array)
    # not `pa.table`, which imports pandas where it is installed, for a second
    keys = pa.Table.from_arrays(list(places), names=["key", "version"])
    groups = keys.group_by(keys.column_names, use_threads=False).aggregate([])
    for key, version in (tuple(group.values()) for group in groups.to_pylist()):
        same = pc.is_null(places[1]) if version is None else pc.equal(places[1], version)
        yield key, version, seen.filter(pc.fill_null(pc.and_(pc.equal(places[0], key), same), False))


class _Bundle:
    """The files and counts of one bundle's rows."""

    def __init__(self, plan: Any, writing: RowWriter) -> None:
        self._plan, self._writing = plan, writing
        self._rows, self._extra = 0, False
        self._failed: WorkReport | None = None

    def add(self, rows: pa.Table, version: int | None) -> None:
        """Write rows. An error goes into the report."""
        self._rows += rows.num_rows
        try:
            if not self._failed:
                self._writing.add(self._plan.stream, self._stored(rows), version)
        except BridgeError as error:
            self._failed = failure(error)

    def finish(self) -> None:
        try:
            self._writing.finish()
        except BridgeError as error:
            self._failed = failure(error)

    def report(self, read: WorkReport) -> WorkReport:
        """The report, after the files are durable."""
        self.finish()
        try:
            report = self._writing.durable(read)
        except BridgeError as error:
            return failure(error)
        if self._failed or read.failed:
            return self._failed or read
        counted = sum(count.rows for count in read.counts)
        plan = self._plan
        filtered, made = {plan.stream: counted - self._rows}, [(plan.stream, plan.schema, plan.lake.hash)]
        return structs.replace(report, filtered=filtered, made=made)

    def _stored(self, rows: pa.Table) -> pa.Table:
        """The rows with the table's columns, and those that an upsert needs."""
        plan = self._plan
        made = pa.schema([*plan.made, *list(rows.schema)[len(plan.made) :]])
        rows = rows.rename_columns(made.names).cast(made)
        columns = {source(field): field.name for field in plan.lake.fields}
        names = [columns.get(source(field), field.name) for field in made]
        lake = plan.lake
        self._extra = self._extra or rows.column(EXTRA).null_count < rows.num_rows
        if self._extra:
            lake = with_extra(lake)
        order = [field for field in made if field.name in ORDER] if plan.upsert else []
        return refit(rows.rename_columns(names), [*lake.arrow, *order])


def _counted() -> Path:
    """The folder for this attempt of the task, which its two workers share."""
    from pyspark import SparkFiles, TaskContext  # the driver imports it while the JVM starts

    context = TaskContext.get()
    assert context is not None
    return Path(SparkFiles.getRootDirectory()) / f"singer-bridge-{context.taskAttemptId()}"
