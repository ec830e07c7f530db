"""Calls the compiled reader of RECORD lines, which is in the wheels for most platforms. Without it, loads are slower.

It reads lines that are plainly what their columns say, and leaves each other line, unread, to its caller.
"""

from __future__ import annotations

import ctypes
import os
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_NAME = "reader.so"
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
    library.singer_bridge_read.argtypes = (_Bytes, _Bytes, _Bytes, ctypes.POINTER(Piece))
    library.singer_bridge_read.restype = ctypes.c_bool
    library.singer_bridge_free.argtypes = (_Address,)
    library.singer_bridge_free.restype = None
    return library


PROBLEM = ""
"""Why it is not used."""
_library: Any = None
try:
    _library = _load()
except (OSError, AttributeError) as error:  # none, one that is not for this machine, another library
    PROBLEM = str(error)


def read(description: bytes, prefix: bytes, data: bytes) -> Piece | None:
    """Read lines, less than 2 GiB. None if it cannot, for whatever reason.

    `description`: the columns, as `described` of src/lib.rs reads them. `prefix`: what all lines begin with, up to and
    including `"record":`, or nothing.
    """
    piece = Piece()
    given = (_Bytes(ctypes.cast(each, _Address), len(each)) for each in (description, prefix, data))
    return piece if _library.singer_bridge_read(*given, ctypes.byref(piece)) else None
