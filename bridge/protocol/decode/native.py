"""RECORD lines to Arrow columns by the compiled reader, which reads only what is plain.

Whatever else a line holds, it is odd, and the exact path reads it: so both always give the same rows. It is in
the wheels for most platforms. Where it is not, or cannot be loaded, the exact path does all.
"""

from __future__ import annotations

import ctypes
import os
import pkgutil
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bridge.protocol.decode import exact
from bridge.protocol.decode.as_written import add_written, column_of
from bridge.protocol.decode.changed import KINDS, ChangeCounter
from bridge.protocol.decode.columns import NeedsExactPath
from bridge.protocol.decode.exact import DecodedLines, RecordLayout, interleave
from bridge.protocol.schema.json_schema import TIMESTAMP, children, has_json, is_null_only, path_of, source

_NAME = "reader.so"
_Address = ctypes.c_void_p


class _Bytes(ctypes.Structure):
    _fields_ = (("start", _Address), ("size", ctypes.c_size_t))


class ArrowNode(ctypes.Structure):
    """An Arrow array's rows and nulls, and where its buffers are: validity, then up to two more.

    Of doubles and instants, `second` is the rows (u32) whose value is not quite what the line says.
    """

    _fields_ = (
        ("rows", ctypes.c_size_t),
        ("nulls", ctypes.c_size_t),
        ("valid", _Bytes),
        ("first", _Bytes),
        ("second", _Bytes),
    )


class _Line(ctypes.Structure):
    _fields_ = (("number", ctypes.c_uint32), ("start", ctypes.c_uint32), ("end", ctypes.c_uint32))


class ReadLines(ctypes.Structure):
    """The nodes that lines became. It owns the memory to which its nodes point."""

    _fields_ = (
        ("rows", ctypes.c_size_t),
        ("lines", ctypes.c_size_t),
        ("_nodes", ctypes.POINTER(ArrowNode)),
        ("_node_count", ctypes.c_size_t),
        ("_odd", ctypes.POINTER(_Line)),
        ("_odd_count", ctypes.c_size_t),
        ("_owner", _Address),
    )

    def nodes(self) -> Iterator[ArrowNode]:
        """The arrays; children follow their parent."""
        return (self._nodes[place] for place in range(self._node_count))

    def odd(self) -> list[tuple[int, int, int]]:
        """The lines that were not read: their numbers, and where each starts and ends."""
        return [(line.number, line.start, line.end) for line in self._odd[: self._odd_count]]

    def __del__(self) -> None:
        if self._owner and _library:
            _library.singer_bridge_free(self._owner)


class _MaskedLines(ctypes.Structure):
    """Masked lines without the odd ones, and where each of these belongs. It owns the memory."""

    _fields_ = (
        ("data", _Bytes),
        ("_odd", ctypes.POINTER(_Line)),
        ("_places", ctypes.POINTER(ctypes.c_uint64)),
        ("_odd_count", ctypes.c_size_t),
        ("met", _Bytes),
        ("_owner", _Address),
    )

    def odd(self) -> list[tuple[int, int, int]]:
        """The lines that were not masked: where each starts and ends, and where it belongs in `data`."""
        lines = zip(self._odd[: self._odd_count], self._places[: self._odd_count], strict=True)
        return [(line.start, line.end, place) for line, place in lines]

    def __del__(self) -> None:
        if self._owner and _library:
            _library.singer_bridge_free_masked(self._owner)


def _path() -> Path:
    """Where the library is. Python on a cluster imports us from a zip: then it is copied into memory."""
    path = Path(__file__).with_name(_NAME)
    data = None if path.exists() or not hasattr(os, "memfd_create") else pkgutil.get_data(__package__, _NAME)
    if not data:
        return path
    memory = os.memfd_create(_NAME)
    os.write(memory, data)
    return Path(f"/proc/self/fd/{memory}")


def _load() -> Any:
    """The library. Raises `OSError` if there is none, `AttributeError` for another one."""
    library = ctypes.CDLL(str(_path()))
    library.singer_bridge_read.argtypes = (_Bytes, _Bytes, _Bytes, ctypes.POINTER(ReadLines))
    library.singer_bridge_read.restype = ctypes.c_bool
    library.singer_bridge_mask.argtypes = (_Bytes, _Bytes, _Bytes, ctypes.POINTER(_MaskedLines))
    library.singer_bridge_mask.restype = ctypes.c_bool
    for free in (library.singer_bridge_free, library.singer_bridge_free_masked):
        free.argtypes, free.restype = (_Address,), None
    return library


PROBLEM = ""
"""Why it is not used."""
_library: Any = None
try:
    _library = _load()
except (OSError, AttributeError) as error:  # none, one that is not for this machine, another library
    PROBLEM = str(error)


def _read(description: bytes, prefix: bytes, data: bytes) -> ReadLines | None:
    """Read lines, less than 2 GiB. None if it cannot, for whatever reason.

    `description`: the columns, as `described` of src/lib.rs reads them. `prefix`: what all lines begin with, up to and
    including `"record":`, or nothing.
    """
    piece = ReadLines()
    given = map(_bytes_of, (description, prefix, data))
    return piece if _library.singer_bridge_read(*given, ctypes.byref(piece)) else None


def _bytes_of(data: bytes) -> _Bytes:
    return _Bytes(ctypes.cast(ctypes.c_char_p(data), _Address), len(data))


def masked_lines(
    description: bytes, prefix: bytes, data: bytes, mask_odd: Callable[[bytes], bytes]
) -> tuple[bytes, bytes] | None:
    """Mask whole lines, less than 1 GiB; `mask_odd` masks one that is not plain. None if it cannot.

    Also returns, by rule, a byte that is 1 if a field met it in a plain line.

    `description`: the masks, as `described` of src/mask.rs reads them. `prefix`: as `_read` has it.
    """
    masked = _MaskedLines()
    if _library is None or not _library.singer_bridge_mask(
        *map(_bytes_of, (description, prefix, data)), ctypes.byref(masked)
    ):
        return None
    plain = ctypes.string_at(masked.data.start, masked.data.size) if masked.data.size else b""
    pieces, at = list[bytes](), 0
    for start, end, place in masked.odd():
        pieces += [plain[at:place], mask_odd(data[start:end])]
        at = place
    met = ctypes.string_at(masked.met.start, masked.met.size)
    return b"".join([*pieces, plain[at:]]) if pieces else plain, met


AVAILABLE = not PROBLEM
_PLACE = 4
"""Bytes of a place in a node's `second`."""
_KINDS = {
    pa.int64(): b"i",
    pa.float64(): b"f",
    pa.bool_(): b"b",
    pa.string(): b"s",
    TIMESTAMP: b"t",
    pa.date32(): b"d",
}


class NativeReader:
    """The compiled reader for one table's columns. `skipped`: fields that may hold anything, and are not kept."""

    def __init__(
        self, fields: Sequence[pa.Field], skipped: Sequence[pa.Field], layout: RecordLayout, prefix: bytes | None
    ) -> None:
        self._fields, self._layout, self._prefix = fields, layout, prefix or b""
        self._raw = [has_json(field) for field in fields]
        members = [_described(field, raw=raw) for field, raw in zip(fields, self._raw, strict=True)]
        members += [_member(b"x", source(field)) for field in skipped]
        self._description = _member(b"o", "", children=members)
        flat = [one for field, raw in zip(fields, self._raw, strict=True) for one in _flat(field, field.name, raw=raw)]
        self._countable = [(at, KINDS[type_], name) for at, (name, type_) in enumerate(flat) if type_ in KINDS]

    def read(self, data: bytes) -> DecodedLines | None:
        """Read whole lines; None if only the exact path can."""
        piece = _read(self._description, self._prefix, data)
        if piece is None:
            return None
        described = list(piece.nodes())
        nodes = iter(described)
        batch = DecodedLines([], piece.rows, piece.rows)
        try:
            for field, raw in zip(self._fields, self._raw, strict=True):
                if raw:
                    written = _raw(_array(piece, nodes, pa.string()))
                    batch.arrays.append(column_of(written, field))
                    batch.changed += ChangeCounter([field]).count_values(written)
                else:
                    batch.arrays.append(_array_of(piece, nodes, field))
            add_written(batch, _array(piece, nodes, pa.string()))
        except NeedsExactPath:
            return None
        for at, kind, name in self._countable:
            if described[at].second.size:
                batch.changed[kind, name] += described[at].second.size // _PLACE
        version, extracted = _array(piece, nodes, pa.int64()), _array(piece, nodes, TIMESTAMP)
        batch.unversioned = version.null_count
        if batch.unversioned < batch.rows:
            edges: dict[str, Any] = pc.min_max(version).as_py()
            batch.versions = edges["min"], edges["max"]
        if self._layout.envelope:
            batch.version, batch.extracted = version, extracted
        odd = piece.odd()
        return self._with_odd(batch, data, odd) if odd else batch

    def _with_odd(self, batch: DecodedLines, data: bytes, odd: list[tuple[int, int, int]]) -> DecodedLines:
        """The batch with the lines that the exact path reads, each in its place."""
        numbers = [number for number, _, _ in odd]
        other = exact.read(b"".join(data[start : end + 1] for _, start, end in odd), self._layout)
        batch.rejects = [replace(reject, line=numbers[reject.line]) for reject in other.rejects]
        rejected, odd_ones = {reject.line for reject in batch.rejects}, set(numbers)
        batch.lines += len(numbers)
        plain = [number for number in range(batch.lines) if number not in odd_ones]
        interleave(batch, other, [*plain, *(number for number in numbers if number not in rejected)])
        return batch


def _flat(field: pa.Field, name: str, *, raw: bool = False) -> Iterator[tuple[str, pa.DataType]]:
    """A field's nodes: their dotted names and types."""
    yield name, pa.string() if raw or is_null_only(field) else field.type
    for child in () if raw or is_null_only(field) else children(field.type):
        yield from _flat(child, path_of(name, field, child))


def _raw(array: pa.Array) -> list[bytes]:
    """Each value as the tap wrote it."""
    return [b"null" if each is None else each for each in array.cast(pa.binary()).to_pylist()]


def _described(field: pa.Field, *, raw: bool) -> bytes:
    """A column's description, as `described` of the reader's src/lib.rs reads it."""
    type_, name, required = field.type, source(field), not field.nullable
    if raw:
        return _member(b"r", name, required=required)
    if is_null_only(field):
        return _member(b"n", name, required=required)
    if pa.types.is_struct(type_):
        return _member(b"o", name, required=required, children=[_described(child, raw=False) for child in type_])
    if pa.types.is_list(type_):
        return _member(b"l", name, required=required, children=[_described(type_.value_field, raw=False)])
    if pa.types.is_decimal(type_):
        return _member(b"m", name, required=required, digits=(type_.precision, type_.scale))
    return _member(_KINDS[type_], name, required=required)


def _member(
    kind: bytes, name: str, *, required: bool = False, digits: tuple[int, int] = (0, 0), children: Sequence[bytes] = ()
) -> bytes:
    text = name.encode()
    head = struct.pack("<cBBBII", kind, required, *digits, len(children), len(text))
    return b"".join((head, text, *children))


def _array(piece: Any, nodes: Iterator[Any], type_: pa.DataType, *, null_only: bool = False) -> pa.Array:
    """The next array, over memory that the piece owns."""
    node = next(nodes)
    if null_only:
        return pa.nulls(node.rows, type_)
    valid, first, second = (_buffer(piece, each) for each in (node.valid, node.first, node.second))
    valid = valid if node.nulls else None
    if pa.types.is_struct(type_):
        buffers, children = [valid], [_array_of(piece, nodes, field) for field in type_]
    elif pa.types.is_list(type_):
        buffers, children = [valid, first], [_array_of(piece, nodes, type_.value_field)]
    else:
        buffers, children = [valid, first, second] if type_ == pa.string() else [valid, first], None
    return pa.Array.from_buffers(type_, node.rows, buffers, null_count=node.nulls, children=children)


def _array_of(piece: Any, nodes: Iterator[Any], field: pa.Field) -> pa.Array:
    return _array(piece, nodes, field.type, null_only=is_null_only(field))


def _buffer(piece: Any, view: Any) -> pa.Buffer:
    return pa.foreign_buffer(view.start, view.size, piece) if view.size else pa.py_buffer(b"")
