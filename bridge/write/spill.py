"""Rows of an upsert on their way to the merge: Parquet in the spool, each with its place in the tap's messages.

Scratch, as all of the spool: a crash starts the run again from the last STATE. Sorted by key in pieces, so that the
merge reads of each file little more than the range of keys that it is at.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bridge.decode.decoder import Decoded, Reject
from bridge.errors import LakeError
from bridge.schema.table_schema import EXTRA
from bridge.singer.messages import parse
from bridge.spool.spool import Segment
from bridge.write.context import WriteContext
from bridge.write.keys import key_columns, keys_of
from bridge.write.report import SpillFile

ORDER = ["\x1fseq", "\x1forder", "\x1frow"]
VERSION = "\x1fversion"
HIDDEN = [*ORDER, VERSION]
"""Columns of a spill that no table has: manifest, segment and row are the order of messages, and the `version`."""
ABSENT = pa.field("\x1fabsent", pa.list_(pa.string()))
"""One more, of streams of changes: the columns that a row's record lacks; null: none."""

_PIECE = 64 << 20
"""Arrow bytes sorted at once."""
_GROUPS = 16
"""Row groups of a piece: the finer, the less is read beside a range of keys."""
_SAMPLES = 64
"""Keys of a piece that tell the driver how the keys are spread."""


def spills(context: WriteContext) -> Path:
    """Return the folder of the spills."""
    return Path(context.spool) / "merge"


def keyed(decoded: Decoded, data: bytes, keys: Sequence[str]) -> Decoded:
    """Return the rows that have a key; the others become rejects.

    A key that a record lacks, and one that is not a number where numbers are, is none. Null, said where the SCHEMA
    allows it, is a value; Arrow cannot tell the two apart, so such lines are looked at.
    """
    names = key_columns(decoded.table.schema, keys)
    suspect = None
    for name in names:
        column = decoded.table.column(name)
        odd = pc.is_null(column, nan_is_null=True)
        suspect = odd if suspect is None else pc.or_(suspect, odd)
    if suspect is None or not pc.any(suspect).as_py():
        return decoded
    lines = data.split(b"\n")
    rejected = {reject.line for reject in decoded.rejects}
    places = [line for line in range(decoded.table.num_rows + len(rejected)) if line not in rejected]
    lost, rejects = [], []
    for row in pc.indices_nonzero(suspect.combine_chunks()).to_pylist():
        raw = lines[places[row]]
        if key := _lacking(raw, keys, names, decoded.table, row):
            lost.append(row)
            rejects.append(Reject(places[row], "a key is missing", f"/{key}", raw))
    if not lost:
        return decoded
    stays = pc.invert(pc.is_in(pa.array(range(decoded.table.num_rows)), pa.array(lost)))
    return replace(
        decoded,
        table=decoded.table.filter(stays),
        rejects=sorted([*decoded.rejects, *rejects], key=lambda reject: reject.line),
        version=None if decoded.version is None else decoded.version.filter(stays),
        extracted=None if decoded.extracted is None else decoded.extracted.filter(stays),
    )


def _lacking(raw: bytes, keys: Sequence[str], names: Sequence[str], table: pa.Table, row: int) -> str | None:
    """Return the first property of the key that a record has no usable value for."""
    message = parse(raw) or {}
    record = message.get("record", message)
    for key, name in zip(keys, names, strict=True):
        value = table.column(name)[row].as_py()
        if value is None and not (isinstance(record, dict) and key in record):
            return key
        if value is not None and value != value:  # noqa: PLR0124 - NaN equals nothing, so it would never be found
            return key
    return None


def ordered(
    table: pa.Table, version: pa.Array | None, seq: int, segment: Segment, absent: pa.Array | None = None
) -> pa.Table:
    """Return the rows of a segment with the hidden columns."""
    count = table.num_rows
    values = [pa.array([seq] * count, pa.int64()), pa.array([segment.order] * count, pa.int64())]
    values += [pa.array(range(count), pa.int64()), pa.nulls(count, pa.int64()) if version is None else version]
    for name, array in zip(HIDDEN, values, strict=True):
        table = table.append_column(pa.field(name, pa.int64()), array)
    return table if absent is None else table.append_column(ABSENT, absent)


@dataclass(slots=True)
class Spill:
    """Takes the rows of one stream that have one schema, hidden columns included, and gives one file."""

    context: WriteContext
    stream: str
    schema: pa.Schema
    name: str = field(default_factory=lambda: f"{uuid.uuid4().hex}.parquet")
    rows: int = 0
    bytes: int = 0
    _gathered: list[pa.Table] = field(default_factory=list)
    _gathered_bytes: int = 0
    _samples: list[pa.Table] = field(default_factory=list)
    _writer: pq.ParquetWriter | None = None

    def add(self, table: pa.Table) -> None:
        """Take rows."""
        self._gathered.append(table)
        self._gathered_bytes += table.nbytes
        self.rows += table.num_rows
        if self._gathered_bytes >= _PIECE:
            self._flush()

    def finish(self) -> SpillFile:
        """Write what is left. Nothing is fsynced: it is scratch."""
        self._flush()
        if self._writer:
            self._writer.close()
        return SpillFile(
            stream=self.stream,
            name=self.name,
            spilled=(spills(self.context) / self.name).stat().st_size,
            rows=self.rows,
            bytes=self.bytes,
            extra=EXTRA in self.schema.names,
            sample=packed(pa.concat_tables(self._samples)),
        )

    def _flush(self) -> None:
        if not self._gathered:
            return
        table = pa.concat_tables(self._gathered)
        names = key_columns(self.schema, self.context.layouts[self.stream].keys)
        keys = keys_of(table, [self.schema.field(name) for name in names])
        order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
        step = max(len(order) // _SAMPLES, 1)
        self._samples.append(keys.take(order[step // 2 :: step]))
        self.bytes += self._gathered_bytes
        self._gathered, self._gathered_bytes = [], 0
        try:
            self._write(table.take(order))
        except OSError as error:
            hint = "free some space there or set `spool.dir` to another disk; nothing that was committed is lost"
            raise LakeError(
                f"cannot write to the spool: {error.strerror}", hint=hint, folder=spills(self.context)
            ) from error

    def _write(self, table: pa.Table) -> None:
        if self._writer is None:
            spills(self.context).mkdir(exist_ok=True)
            self._writer = pq.ParquetWriter(spills(self.context) / self.name, self.schema, compression="lz4")
        self._writer.write_table(table, row_group_size=max(-(-table.num_rows // _GROUPS), 1))


def packed(table: pa.Table) -> str:
    """Return a small table as text, for a report."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return base64.b64encode(sink.getvalue()).decode()


def unpacked(text: str) -> pa.Table:
    """Return the table that `packed` wrote."""
    with pa.ipc.open_stream(base64.b64decode(text)) as stream:
        return stream.read_all()
