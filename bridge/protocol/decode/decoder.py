"""A segment's bytes to an Arrow table by the stream's schema: one row or one reject a line, in the order of the lines.

Two paths with one result. The compiled reader, where it is installed (`native.py`), reads what is plain. The exact path
(`exact.py`) reads the rest record by record, or all of it. Pure: the same bytes and schema give the same result on any
machine.

Measured on one slow core, 418-byte messages with 11 columns, CPU time: the compiled reader 0.9 us a record, the exact
path 23, or twice that where each record is odd.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from bridge.protocol.decode import exact, native
from bridge.protocol.decode.casting import fitted
from bridge.protocol.decode.changed import Changed, count_nulls
from bridge.protocol.decode.exact import DecodedLines, RecordLayout, Reject
from bridge.protocol.decode.log_json import log_json, reads_log
from bridge.protocol.decode.native import NativeReader
from bridge.protocol.schema.json_schema import EXTRA, TIMESTAMP, is_left_out, source
from bridge.protocol.schema.table_schema import TableSchema, with_extra

_PIECE = 2 << 20
"""Bytes that the exact path reads at once; 0.5 to 8 MiB were within 8 % of each other."""


@dataclass(slots=True)
class Decoded:
    """The rows of a segment, and what did not become a row."""

    table: pa.Table
    """Exactly the given schema, and the column for extra fields if a record needs it."""
    rejects: list[Reject]
    versions: tuple[int, int] | None
    """Smallest and largest `version` of the rows' messages; None if no message has one."""
    unversioned: int
    """Rows whose message has no `version`."""
    extra: dict[str, int]
    """How many records have a field outside the SCHEMA, by its name."""
    changed: Changed = field(default_factory=Counter)
    """How many values their columns cannot give back, by kind and column."""
    version: pa.Array | None = None
    """int64: the `version` of each row's message, null where it has none. None without `envelope`."""
    extracted: pa.Array | None = None
    """timestamp[us, UTC]: its `time_extracted`, null where absent or unreadable. None without `envelope`."""
    absent: pa.Array | None = None
    """list<string>: the columns that each row's record lacks, null where it lacks none. None: not asked for."""

    @property
    def line_numbers(self) -> list[int]:
        """Each row's line, counted from 0."""
        rejected = {reject.line for reject in self.rejects}
        return [line for line in range(self.table.num_rows + len(rejected)) if line not in rejected]

    @property
    def is_mixed(self) -> bool:
        """Whether rows are of several versions, or some of one and some of none."""
        low, high = self.versions or (None, None)
        return low is not None and (low != high or self.unversioned > 0)

    def by_version(self) -> Iterator[tuple[int | None, Decoded]]:
        """Split rows by version, None for those without: a file of a table holds rows of one, so that all of it can go.

        Mixed rows must have been decoded with `envelope`.
        """
        if not self.is_mixed:
            yield self.versions[0] if self.versions else None, self
            return
        assert self.version is not None
        for version in pc.unique(self.version).to_pylist():
            same = pc.is_null(self.version) if version is None else pc.equal(self.version, version)
            yield version, self.filter(pc.fill_null(same, False))

    def filter(self, mask: pa.Array) -> Decoded:
        """Some of the rows."""
        arrays = (self.version, self.extracted, self.absent)
        version, extracted, absent = (None if array is None else array.filter(mask) for array in arrays)
        return replace(self, table=self.table.filter(mask), version=version, extracted=extracted, absent=absent)


def decode(data: bytes, schema: TableSchema, prefix: bytes | None, *, envelope: bool = False) -> Decoded:
    """Decode whole RECORD lines of one stream; rows + rejects = lines.

    `prefix`: every line starts with these bytes, up to and including `"record":`; None: nothing is known. `envelope`:
    read each row's `version` and `time_extracted`, too. A property that is left out may have any value, and becomes
    neither a column nor an extra field.
    """
    skipped = [field for field in schema.fields if is_left_out(field)]
    layout = record_layout(schema, prefix, envelope=envelope)
    batch = NativeReader(layout.fields, skipped, layout, prefix).read(data) if native.AVAILABLE else None
    batches = [batch] if batch is not None else [exact.read(piece, layout) for piece in _pieces(data)]
    return completed(batches, schema, layout)


def record_layout(schema: TableSchema, prefix: bytes | None, *, envelope: bool) -> RecordLayout:
    """The columns into which records are read."""
    fields = [field for field in schema.fields if not is_left_out(field)]
    skipped = [source(field) for field in schema.fields if is_left_out(field)]
    return RecordLayout(fields, prefix, envelope=envelope, skipped=skipped)


def completed(batches: list[DecodedLines], schema: TableSchema, layout: RecordLayout) -> Decoded:
    """One table of all batches."""
    fields = layout.fields
    if reads_log(fields):
        for batch in batches:
            before, batch.arrays = batch.arrays, log_json(batch.arrays, fields)
            count_nulls(batch.changed, fields, before, batch.arrays)
    return _joined(batches, fields, schema, envelope=layout.envelope)


def _pieces(data: bytes) -> Iterator[bytes]:
    """Complete lines, about `_PIECE` bytes at once: Python's objects of a record take several times its bytes."""
    start = 0
    while start < len(data):
        end = len(data)
        if start + _PIECE < len(data):
            end = data.rfind(b"\n", start, start + _PIECE) + 1 or data.find(b"\n", start + _PIECE) + 1 or end
        yield data[start:end]
        start = end


def _joined(batches: list[DecodedLines], fields: Sequence[pa.Field], schema: TableSchema, *, envelope: bool) -> Decoded:
    """One table of all batches, with lines counted from the start."""
    has_extra = any(batch.extra is not None for batch in batches) or EXTRA in schema.arrow.names
    final = with_extra(schema).arrow if has_extra else schema.arrow
    rejects: list[Reject] = []
    extra: Counter[str] = Counter()
    changed: Changed = Counter()
    line = 0
    for batch in batches:
        rejects += [Reject(line + each.line, each.reason, each.pointer, each.raw) for each in batch.rejects]
        extra.update(batch.outside)
        changed.update(batch.changed)
        line += batch.lines
    versions = [batch.versions for batch in batches if batch.versions is not None]
    return Decoded(
        table=pa.concat_tables([_table(batch, fields, final) for batch in batches] or [final.empty_table()]),
        rejects=rejects,
        versions=(min(low for low, _ in versions), max(high for _, high in versions)) if versions else None,
        unversioned=sum(batch.unversioned for batch in batches),
        extra=dict(extra),
        changed=changed,
        version=_one_array([batch.version for batch in batches], pa.int64()) if envelope else None,
        extracted=_one_array([batch.extracted for batch in batches], TIMESTAMP) if envelope else None,
    )


def _one_array(arrays: list[pa.Array | None], type_: pa.DataType) -> pa.Array:
    return pa.chunked_array([array for array in arrays if array is not None], type_).combine_chunks()


def _table(batch: DecodedLines, fields: Sequence[pa.Field], final: pa.Schema) -> pa.Table:
    """The table's columns. A batch lacks those that are left out, and one of a column and its variant."""
    arrays = {field.name: (field, array) for field, array in zip(fields, batch.arrays, strict=True)}
    if EXTRA in final.names:
        extra = pa.nulls(batch.rows, pa.string()) if batch.extra is None else batch.extra
        arrays[EXTRA] = final.field(EXTRA), extra
    columns = [
        fitted(arrays[field.name][1], arrays[field.name][0], field)
        if field.name in arrays
        else pa.nulls(batch.rows, field.type)
        for field in final
    ]
    return pa.Table.from_arrays(columns, schema=final)
