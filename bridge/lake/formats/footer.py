"""Takes bounds out of a Parquet file's footer, for columns with NaN.

Arrow leaves NaN out of a column's bounds. For a reader NaN may still be the greatest number: DuckDB, Spark and
DataFusion would skip a row group of 1, 3 and NaN for `v > 5`. Arrow's writer decides per file whether a column has
statistics, before it has seen the rows. So the footer, and nothing else, is changed as it is written: a chunk with NaN
keeps its null count and has no bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Protocol

_TAIL = 8
"""Bytes after the footer: its length, and Parquet's mark."""
_ROW_GROUPS, _COLUMNS, _META_DATA, _STATISTICS = 4, 1, 3, 12
"""The fields on the way to a chunk's statistics: of a file, a row group, a chunk, and its metadata."""
_COUNTS = (3, 4)
"""The fields of statistics that are no bounds: how many nulls, and how many different values."""
_FIXED = {1: 0, 2: 0, 3: 1, 7: 8}
"""Bytes of Thrift's types with one length; a boolean field is in its header."""
_INTEGERS, _BINARY, _LISTS, _MAP, _STRUCT = (4, 5, 6), 8, (9, 10), 11, 12


class _Sink(Protocol):
    def write(self, data: bytes, /) -> int: ...


class FooterSink:
    """A file for Arrow's `ParquetWriter`, whose footer has no bounds of chunks with NaN."""

    closed = False

    def __init__(self, file: _Sink) -> None:
        self._file = file
        self._held: bytearray | None = None
        self._row_groups = 0
        self._nans = set[tuple[int, int]]()

    def write(self, data: bytes) -> int:
        """Pass bytes on, or hold them."""
        if self._held is None:
            return self._file.write(data)
        self._held += data
        return len(data)

    def flush(self) -> None:
        """Nothing: whoever opened the file makes it durable."""

    def add_row_group(self, places: Iterable[int]) -> None:
        """Note that a row group was written. `places`: its columns with NaN, as `Unsaid.observe` yields them."""
        self._nans |= {(self._row_groups, place) for place in places}
        self._row_groups += 1

    def finish(self, close: Callable[[], None]) -> None:
        """Write the footer. `close` is the writer's."""
        if not self._nans:
            close()
            return
        self._held = bytearray()
        close()
        held, self._held = bytes(self._held), None
        length = int.from_bytes(held[-_TAIL:-4], "little")
        before, footer = held[: -_TAIL - length], without_bounds(held[-_TAIL - length : -_TAIL], self._nans)
        self._file.write(before + footer + len(footer).to_bytes(4, "little") + held[-4:])


def without_bounds(footer: bytes, chunks: Collection[tuple[int, int]]) -> bytes:
    """A footer in Thrift's compact form, without the bounds of these chunks: each a row group and a column's place."""
    parts, end = list[bytes](), 0
    for start, after, counts in _statistics(_Thrift(footer), chunks):
        parts += [footer[end:start], counts]
        end = after
    return b"".join([*parts, footer[end:]])


def _statistics(thrift: _Thrift, chunks: Collection[tuple[int, int]]) -> Iterator[tuple[int, int, bytes]]:
    """Yield where the statistics of one of these chunks begin and end, and the same ones without bounds."""
    for _ in thrift.fields(_ROW_GROUPS):
        for group in range(thrift.count()):
            for _ in thrift.fields(_COLUMNS):
                for place in range(thrift.count()):
                    yield from _of_chunk(thrift, leave_out=(group, place) in chunks)


def _of_chunk(thrift: _Thrift, *, leave_out: bool) -> Iterator[tuple[int, int, bytes]]:
    for _ in thrift.fields(_META_DATA):
        for kind in thrift.fields(_STATISTICS):
            start = thrift.at
            if leave_out:
                counts = thrift.struct_of(_COUNTS)
                yield start, thrift.at, counts
            else:
                thrift.skip(kind)


class _Thrift:
    """Reads Thrift's compact protocol, front to back."""

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def _every(self) -> Iterator[tuple[int, int]]:
        """Yield the number and the type of each field of a struct; the caller reads its value before the next one."""
        number = 0
        while header := self._byte():
            if header >> 4:
                number += header >> 4
            else:
                coded = self._varint()
                number = (coded >> 1) ^ -(coded & 1)
            yield number, header & 0x0F

    def fields(self, number: int) -> Iterator[int]:
        """Yield the type of the struct's field with this number, if it has one, and skip all others."""
        for each, kind in self._every():
            if each == number:
                yield kind
            else:
                self.skip(kind)

    def struct_of(self, numbers: tuple[int, ...]) -> bytes:
        """Read a struct; return it with these fields only."""
        result, last = bytearray(), 0
        for number, kind in self._every():
            start = self.at
            self.skip(kind)
            if number in numbers:
                result.append((number - last) << 4 | kind)
                result += self._data[start : self.at]
                last = number
        return bytes(result) + b"\0"

    def count(self) -> int:
        """Read the head of a list: how many elements follow."""
        return self._list()[0]

    def _list(self) -> tuple[int, int]:
        header = self._byte()
        return self._varint() if header >> 4 == 0x0F else header >> 4, header & 0x0F

    def skip(self, kind: int) -> None:
        """Read a value of this type."""
        if kind in _FIXED:
            self.at += _FIXED[kind]
        elif kind in _INTEGERS:
            self._varint()
        elif kind == _BINARY:
            length = self._varint()
            self.at += length
        elif kind in _LISTS:
            count, inside = self._list()
            for _ in range(count):
                self._skip_element(inside)
        elif kind == _MAP:
            if count := self._varint():
                kinds = self._byte()
                for _ in range(count):
                    self._skip_element(kinds >> 4)
                    self._skip_element(kinds & 0x0F)
        else:
            assert kind == _STRUCT, kind
            for _, inside in self._every():
                self.skip(inside)

    def _skip_element(self, kind: int) -> None:
        """Skip as `skip` does, but in a list or a map a boolean is a byte."""
        if kind in (1, 2):
            self.at += 1
        else:
            self.skip(kind)
