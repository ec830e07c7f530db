"""Rows of an upsert on their way to the merge: Parquet in the spool, each with its place in the tap's messages.

Scratch, as all of the spool: after a crash the run starts again from the last STATE. Sorted by key in pieces, so that
the merge reads of each file little more than the range of keys that it needs.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bridge.load.spool.folder import Segment
from bridge.load.write.context import WriteContext
from bridge.load.write.keys import key_columns, key_order, keys_of, row_numbers
from bridge.load.write.report import SpillFile
from bridge.load.write.shared_spool import cannot_write, create_file, new_file
from bridge.protocol.decode.changed import ChangeCounter
from bridge.protocol.decode.decoder import Decoded
from bridge.protocol.decode.exact import Reject
from bridge.protocol.decode.key_values import changed_keys, may_change
from bridge.protocol.schema.json_schema import EXTRA, source
from bridge.protocol.singer.messages import parse

ORDER = ["\x1fseq", "\x1forder", "\x1frow"]
"""The order of messages: sealed batch, segment, row."""
VERSION = "\x1fversion"
HIDDEN = [*ORDER, VERSION]
"""Columns of a spill that no table has."""
ABSENT = pa.field("\x1fabsent", pa.list_(pa.string()))
"""One more, for streams of changes: the columns that a row's record lacks; null: none."""
CHANGE = "\x1fchange"
"""A hidden column of `RowChanges`: 1 for a row that a file got, -1 for one that it lost."""

_PIECE = 64 << 20
"""Arrow bytes sorted at once."""
_GROUPS = 16
"""Row groups of a piece: the finer, the less is read beside a range of keys."""
_SAMPLES = 64
"""Keys of a piece that tell the driver how the keys are spread."""


def has_sound_keys(decoded: Decoded, keys: Sequence[str]) -> bool:
    """Whether each row that came as Arrow has a key, which its column holds as the record has it."""
    names = key_columns(decoded.table.schema, keys)
    if any(name in names for _, name in decoded.changed):
        return False
    columns = [decoded.table.column(name) for name in names]
    return not any(pc.any(pc.is_null(each, nan_is_null=True)).as_py() or may_change(each, b"") for each in columns)


def reject_without_key(decoded: Decoded, data: bytes, keys: Sequence[str]) -> Decoded:
    """Keep the rows that have a key; the others become rejects.

    A property that the record lacks is no key, nor is NaN, nor what its column does not hold as it is: another row
    could have the same. A null that the record says is one, where the SCHEMA allows it; Arrow cannot tell it from a
    missing property, so such lines are read again.
    """
    names = key_columns(decoded.table.schema, keys)
    columns = [decoded.table.column(name) for name in names]
    odd = reduce(pc.or_, (pc.is_null(column, nan_is_null=True) for column in columns))
    if not pc.any(odd).as_py() and not any(may_change(column, data) for column in columns):
        return decoded
    numbers, lines = decoded.line_numbers, data.split(b"\n")
    raw = [lines[number] for number in numbers]
    dropped: dict[int, tuple[str, str]] = {}
    for row in pc.indices_nonzero(odd).to_pylist():
        if key := _missing_key(raw[row], keys, names, decoded.table, row):
            dropped[row] = key, "a key is missing"
    for row, key, reason in changed_keys(decoded.table, dict(zip(keys, names, strict=True)), raw):
        dropped.setdefault(row, (key, reason))
    if not dropped:
        return decoded
    rejects = [Reject(numbers[row], reason, f"/{key}", raw[row]) for row, (key, reason) in dropped.items()]
    stays = pc.invert(pc.is_in(row_numbers(decoded.table.num_rows), pa.array(list(dropped))))
    rejects = sorted([*decoded.rejects, *rejects], key=lambda reject: reject.line)
    lost = [raw[row] for row in dropped]
    changed = decoded.changed - ChangeCounter(list(decoded.table.schema)).count(b"\n".join(lost), lost)
    return replace(decoded.filter(stays), rejects=rejects, changed=changed)


def _missing_key(raw: bytes, keys: Sequence[str], names: Sequence[str], table: pa.Table, row: int) -> str | None:
    """The first property of the key that a record has no usable value for."""
    message = parse(raw) or {}
    record = message.get("record", message)
    for key, name in zip(keys, names, strict=True):
        value = table.column(name)[row].as_py()
        if value is None and not (isinstance(record, dict) and key in record):
            return key
        if value is not None and value != value:  # noqa: PLR0124 - NaN equals nothing, so it would never match
            return key
    return None


def absent_columns(decoded: Decoded, data: bytes, others: Sequence[str]) -> pa.Array:
    """For each row of a log the columns that its record lacks, which keep their values; null where it lacks none.

    PostgreSQL's log leaves out long values that an UPDATE did not touch. `others`: properties that a record never
    lacks, the key and those that describe the change: without a value they are null.
    """
    columns = {
        field.name: source(field)
        for field in decoded.table.schema
        if field.name != EXTRA and source(field) not in others
    }
    lines = data.split(b"\n")
    return pa.array([_lacking(lines[number], columns) for number in decoded.line_numbers], pa.list_(pa.string()))


def _lacking(line: bytes, columns: dict[str, str]) -> list[str] | None:
    record: Any = (parse(line) or {}).get("record")
    if not isinstance(record, dict):
        return None
    return [name for name, property_ in columns.items() if property_ not in record] or None


def with_message_order(
    table: pa.Table, version: pa.Array | None, seq: int, segment: Segment, absent: pa.Array | None = None
) -> pa.Table:
    """Add the hidden columns to the rows of a segment."""
    count = table.num_rows
    values = [pa.repeat(pa.scalar(number, pa.int64()), count) for number in (seq, segment.order)]
    values += [row_numbers(count), pa.nulls(count, pa.int64()) if version is None else version]
    for name, array in zip(HIDDEN, values, strict=True):
        table = table.append_column(pa.field(name, pa.int64()), array)
    return table if absent is None else table.append_column(ABSENT, absent)


@dataclass(slots=True)
class Spill:
    """Writes rows of one stream and one schema, hidden columns included, to one file."""

    context: WriteContext
    stream: str
    schema: pa.Schema
    keys: Sequence[str]
    """The properties by which its rows are sorted."""
    name: str = ""
    rows: int = 0
    bytes: int = 0
    _gathered: list[pa.Table] = field(default_factory=list)
    _gathered_bytes: int = 0
    _samples: list[pa.Table] = field(default_factory=list)
    _file: Any = None
    _writer: pq.ParquetWriter | None = None

    def add(self, table: pa.Table) -> None:
        """Write rows; what is less than a piece waits in memory."""
        self._gathered.append(table)
        self._gathered_bytes += table.nbytes
        self.rows += table.num_rows
        if self._gathered_bytes >= _PIECE:
            self._flush()

    def finish(self) -> SpillFile:
        """Write what is left. Nothing is fsynced: it is scratch."""
        self._flush()
        assert self._writer
        self._writer.close()
        size = self._file.tell()
        self._file.close()
        return SpillFile(
            stream=self.stream,
            name=self.name,
            spilled=size,
            rows=self.rows,
            bytes=self.bytes,
            extra=EXTRA in self.schema.names,
            sample=pack_table(pa.concat_tables(self._samples)),
        )

    def _flush(self) -> None:
        if not self._gathered:
            return
        table = pa.concat_tables(self._gathered)
        names = key_columns(self.schema, self.keys)
        keys = keys_of(table, [self.schema.field(name) for name in names])
        order = key_order(keys)
        step = max(len(order) // _SAMPLES, 1)
        self._samples.append(keys.take(order[step // 2 :: step]))
        self.bytes += self._gathered_bytes
        self._gathered, self._gathered_bytes = [], 0
        try:
            self._write(table.take(order))
        except OSError as error:
            raise cannot_write(self.context, error) from error

    def _write(self, table: pa.Table) -> None:
        if self._writer is None:
            self.name = new_file(self.context)
            self._file = create_file(self.context, self.name)
            self._writer = pq.ParquetWriter(self._file, self.schema, compression="lz4")
        self._writer.write_table(table, row_group_size=max(-(-table.num_rows // _GROUPS), 1))


def pack_table(table: pa.Table) -> str:
    """A small table as text, for a report."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return base64.b64encode(sink.getvalue()).decode()


def unpack_table(text: str) -> pa.Table:
    """Read what `pack_table` wrote."""
    with pa.ipc.open_stream(base64.b64decode(text)) as stream:
        return stream.read_all()
