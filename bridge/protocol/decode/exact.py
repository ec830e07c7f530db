"""Decodes any lines, record by record: all of them, or those that the compiled reader leaves.

Records whose values have their columns' types become columns at once (`columns.py`). The others are read again with
every digit and converted value by value (`coerce.py`): they become rows or rejects. If an object has a key twice, the
last one counts, as in every JSON reader that taps are written for.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from bridge.protocol.decode.changed import BAD_TIME, DELETION_TIME, ChangeCounter, Changed
from bridge.protocol.decode.coerce import (
    Coercer,
    Notes,
    RecordRejected,
    coercer,
    column_text,
    lines_of,
    parsed,
    received_at,
)
from bridge.protocol.decode.columns import InexactError, NeedsExactPath, column, lossy, may_be_lossy, texts
from bridge.protocol.decode.instants import moments
from bridge.protocol.schema.json_schema import DELETED_AT, TIMESTAMP, source
from bridge.protocol.singer.messages import version_of

_GROUP = 8
"""Records around an odd one that are converted value by value: halving further costs more than it saves."""


class RecordLayout:
    """A table's columns without the one for extra fields, prepared for reading."""

    def __init__(
        self,
        fields: Sequence[pa.Field],
        prefix: bytes | None = None,
        *,
        envelope: bool = False,
        skipped: Sequence[str] = (),
    ) -> None:
        self.fields = fields
        self.stream = orjson.loads(prefix + b"null}").get("stream") if prefix else None
        """The name that every message must give as its stream; None: not checked."""
        self.envelope = envelope
        """Read `version` and `time_extracted` of each message, too."""
        self.names = [source(field) for field in fields]
        self.declared = frozenset(self.names).union(skipped)
        """Fields with a column, and those that are skipped."""

    @cached_property
    def coercers(self) -> list[Coercer]:
        """A converter for each column, for values that must be converted one by one; most data needs none."""
        return [coercer(field) for field in self.fields]

    @cached_property
    def counter(self) -> ChangeCounter:
        """The counter of values that the columns cannot give back."""
        return ChangeCounter(self.fields)


@dataclass(frozen=True, slots=True)
class Reject:
    """A line that cannot be stored as its schema says."""

    line: int
    """Counted from 0 at the start of the data."""
    reason: str
    """The reason, one of a few texts, so that rejects can be counted by it."""
    pointer: str
    """JSON pointer of the value inside the record; empty for the line as a whole."""
    raw: bytes
    """The line as the tap wrote it, without its line feed."""


@dataclass(slots=True)
class DecodedLines:
    """The rows and rejects of some lines: rows + rejects = lines, rows in the order of their lines."""

    arrays: list[pa.Array]
    rows: int
    lines: int
    extra: pa.Array | None = None
    rejects: list[Reject] = field(default_factory=list)
    versions: tuple[int, int] | None = None
    unversioned: int = 0
    changed: Changed = field(default_factory=Counter)
    """How many values their columns cannot give back."""
    outside: Counter[str] = field(default_factory=Counter)
    """How many records have a field outside the SCHEMA, by its name, with dots where it is nested."""
    version: pa.Array | None = None
    extracted: pa.Array | None = None
    """With `envelope`: `version` (int64) and `time_extracted` (timestamp[us, UTC]) of each row's message."""


@dataclass(slots=True)
class _Row:
    """An accepted record that was converted value by value."""

    values: list[Any]
    extra: str | None
    version: Any
    extracted: Any


def read(lines: bytes, layout: RecordLayout) -> DecodedLines:
    """Read complete lines."""
    raw = lines_of(lines)
    messages, odd = _messages(raw, layout)
    plain = _Plain(raw, messages, odd, layout, may_be_lossy(lines))
    batch = plain.build()
    if plain.odd:
        _add_odd(batch, plain, layout)
    batch.changed += layout.counter.count(lines, raw, {reject.line for reject in batch.rejects})
    return batch


def _messages(raw: list[bytes], layout: RecordLayout) -> tuple[list[Any], set[int]]:
    """Each line parsed, and the numbers of those that are not plain RECORD messages."""
    with no_collector():
        try:
            messages = [orjson.loads(line) for line in raw]
        except orjson.JSONDecodeError:
            messages = [_loads(line) for line in raw]
    return messages, {number for number, message in enumerate(messages) if not _is_record(message, layout)}


@contextmanager
def no_collector() -> Iterator[None]:
    """Stop Python's search for cycles, which JSON does not have: it took a sixth of the whole time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _is_record(message: Any, layout: RecordLayout) -> bool:
    if type(message) is not dict or type(message.get("record")) is not dict:
        return False
    kind, stream = message.get("type"), layout.stream
    return (kind == "RECORD" or _is_kind(kind)) and (stream is None or message.get("stream") == stream)


def _is_kind(kind: Any) -> bool:
    return isinstance(kind, str) and kind.upper() == "RECORD"


def _loads(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None


class _Plain:
    """Makes columns of many records at once; lines that must be converted value by value are added to `odd`."""

    def __init__(
        self, raw: list[bytes], messages: list[Any], odd: set[int], layout: RecordLayout, suspect: bool
    ) -> None:
        self.raw = raw
        self.messages = messages
        self.odd = odd
        self.layout = layout
        self.trusted = not suspect
        self.numbers: list[int] = []

    def build(self) -> DecodedLines:
        """Build columns of all records that are not odd. Each failure makes more of them odd, so it ends."""
        while True:
            self.numbers = [number for number in range(len(self.raw)) if number not in self.odd]
            records = [self.messages[number]["record"] for number in self.numbers]
            before = len(self.odd)
            try:
                arrays = [
                    self.column(records, *each) for each in zip(self.layout.names, self.layout.fields, strict=True)
                ]
                extra, outside = self.extras(records)
            except InexactError:
                self.odd.update(number for number in self.numbers if lossy(self.raw[number]))
                self.trusted = True
            except NeedsExactPath:
                if len(self.odd) == before:  # no single value is the cause: take all as odd, so that this ends
                    self.odd.update(self.numbers)
            else:
                batch = DecodedLines(arrays, len(records), len(self.raw), extra=extra, outside=outside)
                _count_versions(batch, [self.messages[number].get("version") for number in self.numbers])
                if self.layout.envelope:
                    messages = [self.messages[number] for number in self.numbers]
                    batch.version = _versions([message.get("version") for message in messages])
                    batch.extracted = moments([message.get("time_extracted") for message in messages])
                return batch

    def column(self, records: list[dict[str, Any]], name: str, field: pa.Field) -> pa.Array:
        values = [record.get(name) for record in records]
        try:
            array = column(values, field, trusted=self.trusted)
            if field.nullable or not array.null_count:
                return array
            self.odd.update(n for n, value in zip(self.numbers, values, strict=True) if value is None)
        except InexactError:
            raise
        except NeedsExactPath:
            self.odd.update(self.numbers[index] for index in self.odd_ones(values, field, 0))
        raise NeedsExactPath

    def odd_ones(self, values: list[Any], field: pa.Field, start: int) -> list[int]:
        """The positions of odd values and some neighbours; it looks for them by halving."""
        try:
            column(values, field, trusted=True)
        except NeedsExactPath:
            if len(values) <= _GROUP:
                return list(range(start, start + len(values)))
            half = len(values) // 2
            left = self.odd_ones(values[:half], field, start)
            return left + self.odd_ones(values[half:], field, start + half)
        return []

    def extras(self, records: list[dict[str, Any]]) -> tuple[pa.Array | None, Counter[str]]:
        """The column of fields outside the SCHEMA, if any record has one."""
        outside: Counter[str] = Counter()
        if all(map(self.layout.declared.issuperset, records)):
            return None, outside
        extras: list[dict[str, Any] | None] = []
        for record in records:
            rest = {name: value for name, value in record.items() if name not in self.layout.declared}
            outside.update(rest.keys())
            extras.append(rest or None)
        return pa.array(texts(extras, trusted=self.trusted), pa.string()), outside


def _add_odd(batch: DecodedLines, plain: _Plain, layout: RecordLayout) -> None:
    """Add the odd lines to the batch: rows in their places, the others as rejects."""
    rows: list[_Row] = []
    numbers = list(plain.numbers)
    for number in sorted(plain.odd):
        line = plain.raw[number]
        try:
            rows.append(_row(line, layout, batch))
            numbers.append(number)
        except RecordRejected as rejected:
            batch.rejects.append(Reject(number, rejected.reason, rejected.pointer, line))
    if not rows:
        return
    other = DecodedLines(
        [pa.array([row.values[i] for row in rows], each.type) for i, each in enumerate(layout.fields)], len(rows), 0
    )
    if any(row.extra is not None for row in rows):
        other.extra = pa.array([row.extra for row in rows], pa.string())
    versions = [row.version for row in rows]
    if layout.envelope:
        other.version, other.extracted = _versions(versions), moments([row.extracted for row in rows])
    _count_versions(other, versions)
    interleave(batch, other, numbers)


def interleave(batch: DecodedLines, other: DecodedLines, numbers: Sequence[int]) -> None:
    """Add the rows of another batch, each in its place. `numbers`: the lines of the batch's rows, then of the other's.

    Neither lines nor rejects are added.
    """
    order = pc.sort_indices(pa.array(numbers, pa.int64()))
    batch.arrays = [pa.concat_arrays(pair).take(order) for pair in zip(batch.arrays, other.arrays, strict=True)]
    if batch.extra is not None or other.extra is not None:
        extras = [pa.nulls(each.rows, pa.string()) if each.extra is None else each.extra for each in (batch, other)]
        batch.extra = pa.concat_arrays(extras).take(order)
    if batch.version is not None and batch.extracted is not None:
        batch.version = pa.concat_arrays([batch.version, other.version]).take(order)
        batch.extracted = pa.concat_arrays([batch.extracted, other.extracted]).take(order)
    edges = [*(batch.versions or ()), *(other.versions or ())]
    batch.versions = (min(edges), max(edges)) if edges else None
    batch.unversioned += other.unversioned
    batch.outside.update(other.outside)
    batch.changed.update(other.changed)
    batch.rows += other.rows


def _row(line: bytes, layout: RecordLayout, batch: DecodedLines) -> _Row:
    """Read one record, value by value. Raises `RecordRejected` if it cannot be stored.

    The batch counts fields outside the SCHEMA, and times and marks of deletion that are none.
    """
    message = parsed(line)
    if not isinstance(message, dict) or not _is_kind(message.get("type")):
        raise RecordRejected("not a RECORD message")
    if layout.stream is not None and message.get("stream") != layout.stream:
        raise RecordRejected("names two streams")
    record = message.get("record")
    if not isinstance(record, dict):
        raise RecordRejected("record is not an object")
    values: list[Any] = []
    untimed = False
    notes = Notes({(name,) for name in record if name not in layout.declared})
    for target, name, convert in zip(layout.fields, layout.names, layout.coercers, strict=True):
        try:
            value = convert(record.get(name), (name,), notes)
        except RecordRejected:
            if name != DELETED_AT or target.type != TIMESTAMP:
                raise
            value = received_at(record[name])
            untimed = value is not None
        if value is None and not target.nullable:
            raise RecordRejected("key is null" if name in record else "key is missing", (name,))
        values.append(value)
    if untimed:
        batch.changed[DELETION_TIME, DELETED_AT] += 1
    batch.changed.update((BAD_TIME, name) for name in notes.bad_times)
    around = message.get("version"), message.get("time_extracted")
    if not notes.extra:
        return _Row(values, None, *around)
    touched = {path[0] for path in notes.extra}
    text = column_text({name: value for name, value in record.items() if name in touched}, ())
    names = (".".join(step for step in path if isinstance(step, str)) for path in notes.extra)
    batch.outside.update({name.encode(errors="backslashreplace").decode() for name in names})  # of a lone surrogate
    return _Row(values, text, *around)


def _versions(values: list[Any]) -> pa.Array:
    return pa.array([version_of(value) for value in values], pa.int64())


def _count_versions(batch: DecodedLines, versions: list[Any]) -> None:
    numbers = [whole for version in versions if (whole := version_of(version)) is not None]
    batch.unversioned += len(versions) - len(numbers)
    if numbers:
        numbers += batch.versions or ()
        batch.versions = min(numbers), max(numbers)
