"""A table's file as a change of a view reads it, and what comes of the change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bridge.errors import LakeError
from bridge.lake.file_records import PendingFile
from bridge.lake.records import Watermark
from bridge.load.write import shared_spool
from bridge.load.write.context import WriteContext

_PART = 16 << 20
"""About how many bytes of a file are read by one task."""


@dataclass(frozen=True, slots=True)
class SignedFile:
    """A file of a table, pending or visible: its key, its rows, and whether these are added, 1, or removed, -1.

    `sign` 0: it is of the spool, its key is its name there, and `CHANGE` says it of each row. `rows` is None where any
    number will do.
    """

    key: str
    size: int
    rows: int | None
    sign: int = 1
    part: int = 0
    parts: int = 1
    """It is read in so many parts, and this is the part of that number."""

    def split(self) -> Iterator[SignedFile]:
        """Yield its parts, for one task each."""
        parts = max(1, round(self.size / _PART))
        for part in range(parts):
            yield replace(self, part=part, parts=parts)


@dataclass(frozen=True, slots=True)
class ViewChange:
    """The outcome of a change of a view, in pending files."""

    watermark: Watermark | None
    """After the commit."""
    files: Sequence[PendingFile] = ()
    """The view's new groups."""
    replaced: Sequence[SignedFile] = ()
    """The view's files whose place these take."""
    closed: Sequence[PendingFile] = ()
    """The groups that close."""
    late: int = 0
    """Rows that came for groups that are closed, or expired."""


@contextmanager
def open_file(context: WriteContext, one: SignedFile) -> Iterator[pq.ParquetFile]:
    """Open a file. Raises `LakeError` if it cannot be read, or has other rows than the log says."""
    hint = "nothing was committed; `singer-bridge verify` says what else is wrong"
    try:
        with _source(context, one) as source, pq.ParquetFile(source) as file:
            if one.rows is not None and file.metadata.num_rows != one.rows:
                rows = file.metadata.num_rows
                raise LakeError("a file is not the one on record", hint=hint, file=one.key, rows=rows, wanted=one.rows)
            yield file
    except (pa.ArrowInvalid, OSError) as error:
        raise LakeError("a file of the table cannot be read", hint=hint, file=one.key, cause=error) from error


def _source(context: WriteContext, one: SignedFile) -> Any:
    return context.storage().open(one.key) if one.sign else shared_spool.open_file(context, one.key)
