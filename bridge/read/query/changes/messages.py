"""Rows of a lake as Singer messages: what is to be merged into a table by its key, and what is to go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

import orjson
import pyarrow as pa

from bridge.protocol.schema.declared import object_schema
from bridge.protocol.schema.json_schema import DELETED_AT, TIMESTAMP, VersionColumn, source
from bridge.read.query.changes.json_text import lines, not_finite, objects, slices

_CHUNK = 1 << 20
_DELETED = pa.field(DELETED_AT, TIMESTAMP)


class Messages:
    """The messages of one stream, in a file: its SCHEMA, the keys that are to go, the rows that are to be there."""

    def __init__(self, path: Path, stream: str, key: tuple[str, ...], columns: pa.Schema) -> None:
        """`columns` are the table's."""
        self._path, self._stream, self._key = path, stream, key
        self._fields = [
            field.with_name(source(field)).with_nullable(source(field) not in key)
            for field in columns
            if source(field) in key or not (source(field).startswith("_sdc_") or VersionColumn.has(field))
        ]
        self.lost = dict[str, None]()
        """Columns with a NaN or an infinity, which JSON does not have."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written."""
        return not self._path.exists()

    def remove(self, keys: pa.Table) -> None:
        """Write deletions; before any row."""
        at = pa.array([datetime.now(timezone.utc)] * len(keys), TIMESTAMP)
        self._write(keys.append_column(_DELETED, at), [_DELETED])

    def put(self, rows: pa.Table) -> None:
        """Write RECORDs."""
        self.lost |= dict.fromkeys(not_finite(rows))
        self._write(rows)

    def _write(self, rows: pa.Table, more: Sequence[pa.Field] = ()) -> None:
        if not len(rows):
            return
        if self.is_empty:
            schema = object_schema([*self._fields, *more])
            message = {"type": "SCHEMA", "stream": self._stream, "schema": schema, "key_properties": list(self._key)}
            self._path.write_bytes(orjson.dumps(message) + b"\n")
        before = b'{"type":"RECORD","stream":' + orjson.dumps(self._stream) + b',"record":'
        with self._path.open("ab") as file:
            for piece in slices(rows):
                file.write(lines(objects(piece), before, b"}\n"))

    def read(self) -> Iterator[bytes]:
        """Yield what was written."""
        with self._path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk
