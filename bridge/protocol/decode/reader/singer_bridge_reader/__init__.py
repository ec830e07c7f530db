"""A compiled reader of Singer's RECORD lines, for singer-bridge, which works without it and is slower then.

It reads lines that are plainly what their columns say, and leaves each other line, unread, to its caller.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_Address = ctypes.c_void_p


class _Bytes(ctypes.Structure):
    _fields_ = (("start", _Address), ("size", ctypes.c_size_t))


class Node(ctypes.Structure):
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


class Piece(ctypes.Structure):
    """The nodes that lines became. It owns the memory to which its nodes point."""

    _fields_ = (
        ("rows", ctypes.c_size_t),
        ("lines", ctypes.c_size_t),
        ("_nodes", ctypes.POINTER(Node)),
        ("_node_count", ctypes.c_size_t),
        ("_odd", ctypes.POINTER(_Line)),
        ("_odd_count", ctypes.c_size_t),
        ("_owner", _Address),
    )

    def nodes(self) -> Iterator[Node]:
        """The arrays; children follow their parent."""
        return (self._nodes[place] for place in range(self._node_count))

    def odd(self) -> list[tuple[int, int, int]]:
        """The lines that were not read: their numbers, and where each starts and ends."""
        return [(line.number, line.start, line.end) for line in self._odd[: self._odd_count]]

    def __del__(self) -> None:
        if self._owner and _library:
            _library.singer_bridge_free(self._owner)


def _load() -> Any:
    path = Path(__file__).with_name("reader.dylib" if sys.platform == "darwin" else "reader.so")
    try:
        library = ctypes.CDLL(str(path))
        library.singer_bridge_read.argtypes = (_Bytes, _Bytes, _Bytes, ctypes.POINTER(Piece))
        library.singer_bridge_read.restype = ctypes.c_bool
        library.singer_bridge_free.argtypes = (_Address,)
        library.singer_bridge_free.restype = None
    except (OSError, AttributeError) as error:  # no such file, not for this machine, or another library
        raise ImportError(f"the compiled reader cannot be loaded: {error}", name=__name__, path=str(path)) from error
    return library


_library = _load()
FORMAT = 2
"""The version of what `read` takes and gives: a bridge that knows another one does not use this reader."""


def read(description: bytes, prefix: bytes, data: bytes) -> Piece | None:
    """Read lines, less than 2 GiB. None if it cannot, for whatever reason.

    `description`: the columns, as `described` of src/lib.rs reads them. `prefix`: what all lines begin with, up to and
    including `"record":`, or nothing.
    """
    piece = Piece()
    given = (_Bytes(ctypes.cast(each, _Address), len(each)) for each in (description, prefix, data))
    return piece if _library.singer_bridge_read(*given, ctypes.byref(piece)) else None
