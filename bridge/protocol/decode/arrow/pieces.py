"""Rows as Arrow on their way through the spool, and what a table makes of them; rows that do not fit go the exact path.

A table, its rejects and all counts are what the same rows give as RECORD lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from bridge.protocol.decode import exact
from bridge.protocol.decode.arrow.mapped import mapped
from bridge.protocol.decode.arrow.plain import plain_pieces
from bridge.protocol.decode.arrow.rows import json_rows, json_texts
from bridge.protocol.decode.as_written import add_written
from bridge.protocol.decode.columns import NeedsExactPath
from bridge.protocol.decode.decoder import Decoded, completed, record_layout
from bridge.protocol.decode.exact import DecodedLines, RecordLayout, interleave
from bridge.protocol.decode.instants import moments
from bridge.protocol.schema.table_schema import TableSchema

_GROUP = 8
"""Rows around one that does not fit that go the exact path, too: halving further costs more than it saves."""
_MESSAGE = b"message"


class ArrowPieces:
    """Rows of one stream, as the spool has them: IPC streams of plain rows, one behind another."""

    def __init__(self, data: bytes, stream: str) -> None:
        self._data, self._stream = data, stream

    @staticmethod
    def pack(batch: pa.RecordBatch, version: int | None, extracted: str | None) -> Iterator[tuple[bytes, int]]:
        """Yield a batch of any types, with its message's `version` and `time_extracted`, in pieces, and their rows.

        Raises `ValueError` or `pa.ArrowException` for a batch that is damaged, or has a type for which records have no
        form.
        """
        message = {_MESSAGE: orjson.dumps([version, extracted])}
        for rows in plain_pieces(batch):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, rows.schema.with_metadata(message)) as writer:
                writer.write_batch(rows.replace_schema_metadata(message))
            yield sink.getvalue().to_pybytes(), rows.num_rows

    def lines(self) -> bytes:
        """The rows as the RECORD lines that the tap could have sent instead."""
        return b"".join(_lines(*each, self._stream) for each in self._rows())

    def decoded(self, schema: TableSchema, *, envelope: bool = False) -> Decoded:
        """The table, rejects and counts that `decode` makes of these lines."""
        layout = record_layout(schema, None, envelope=envelope)
        return completed([_read(*each, self._stream, layout) for each in self._rows()], schema, layout)

    def _rows(self) -> Iterator[tuple[pa.RecordBatch, int | None, str | None]]:
        source = pa.BufferReader(self._data)
        while source.tell() < len(self._data):
            for rows in pa.ipc.open_stream(source):
                yield rows, *orjson.loads(rows.schema.metadata[_MESSAGE])


def _lines(rows: pa.RecordBatch, version: int | None, extracted: str | None, stream: str) -> bytes:
    begin = b'{"type":"RECORD","stream":%s,"record":' % orjson.dumps(stream)
    end = b"}\n" if version is None else b',"version":%d}\n' % version
    if extracted is not None:
        end = b',"time_extracted":%s%s' % (orjson.dumps(extracted), end)
    data = begin + json_rows(rows).replace(b"\n", end + begin)
    return data[: -len(begin)]


def _read(
    rows: pa.RecordBatch, version: int | None, extracted: str | None, stream: str, layout: RecordLayout
) -> DecodedLines:
    odd: list[int] = []
    try:
        batch = _columns(rows, layout)
    except NeedsExactPath:
        odd = sorted(_odd_rows(rows, layout))
        batch = _columns(rows.filter(pc.invert(_mask(odd, rows.num_rows))), layout)
    _add_message(batch, version, extracted, layout)
    if odd:
        other = exact.read(_lines(rows.take(pa.array(odd)), version, extracted, stream), layout)
        _add_odd(batch, other, odd)
    return batch


def _mask(places: list[int], count: int) -> pa.Array:
    return pc.is_in(pa.array(range(count), pa.int64()), pa.array(places, pa.int64()))


def _columns(rows: pa.RecordBatch, layout: RecordLayout) -> DecodedLines:
    """Rows that all fit. Raises `NeedsExactPath` if one may not."""
    batch = _empty(rows)
    batch.arrays = [_column(rows, name, field, batch) for name, field in zip(layout.names, layout.fields, strict=True)]
    _add_others(rows, layout, batch)
    return batch


def _column(rows: pa.RecordBatch, name: str, field: pa.Field, batch: DecodedLines) -> pa.Array:
    place = rows.schema.get_field_index(name)
    if place >= 0:
        return mapped(rows.schema.field(place), rows.column(place), field, batch.changed)
    if rows.num_rows and not field.nullable:
        raise NeedsExactPath
    return pa.nulls(rows.num_rows, field.type)


def _add_others(rows: pa.RecordBatch, layout: RecordLayout, batch: DecodedLines) -> None:
    """Add the columns outside the SCHEMA, as the JSON object of each row."""
    if names := [name for name in rows.schema.names if name not in layout.declared]:
        rest = rows.select(names)
        whole = pa.StructArray.from_arrays(rest.columns, fields=list(rest.schema))
        add_written(batch, json_texts(pa.field("", whole.type), whole))


def _odd_rows(rows: pa.RecordBatch, layout: RecordLayout) -> set[int]:
    """The places of rows that do not fit, and of some neighbours."""

    odd = set(_misfits(rows, lambda part: _add_others(part, layout, _empty(part))))
    for name, field in zip(layout.names, layout.fields, strict=True):
        odd.update(_misfits(rows, partial(_test, name, field)))
    return odd


def _test(name: str, field: pa.Field, part: pa.RecordBatch) -> None:
    _column(part, name, field, _empty(part))


def _empty(rows: pa.RecordBatch) -> DecodedLines:
    return DecodedLines([], rows.num_rows, rows.num_rows)


def _misfits(rows: pa.RecordBatch, try_out: Callable[[pa.RecordBatch], None]) -> Iterator[int]:
    """Look for rows that `try_out` refuses, by halving."""
    waiting = [(0, rows.num_rows)]
    while waiting:
        start, size = waiting.pop()
        try:
            try_out(rows.slice(start, size))
        except NeedsExactPath:
            if size <= _GROUP:
                yield from range(start, start + size)
            else:
                half = size // 2
                waiting += [(start, half), (start + half, size - half)]


def _add_message(batch: DecodedLines, version: int | None, extracted: str | None, layout: RecordLayout) -> None:
    if version is None:
        batch.unversioned = batch.rows
    elif batch.rows:
        batch.versions = version, version
    if layout.envelope:
        batch.version = pa.repeat(pa.scalar(version, pa.int64()), batch.rows)
        batch.extracted = pa.repeat(moments([extracted])[0], batch.rows)


def _add_odd(batch: DecodedLines, other: DecodedLines, places: list[int]) -> None:
    """Add what the exact path made of the rows at these places."""
    batch.rejects = [replace(reject, line=places[reject.line]) for reject in other.rejects]
    rejected, odd = {reject.line for reject in batch.rejects}, set(places)
    batch.lines += len(places)
    plain = (place for place in range(batch.lines) if place not in odd)
    interleave(batch, other, list(chain(plain, (place for place in places if place not in rejected))))
