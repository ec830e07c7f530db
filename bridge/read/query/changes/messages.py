"""Rows of a lake as Singer messages: what is to be merged into a table by its key, and what is to go."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import orjson
import pyarrow as pa

from bridge.protocol.schema.declared import object_schema
from bridge.protocol.schema.json_schema import DELETED_AT, TIMESTAMP, source
from bridge.read.query.changes.json_text import lines, objects, slices

_CHUNK = 1 << 20


class Messages:
    """The messages of one stream, in a file: its SCHEMA, the rows that are to be there, the keys that are to go."""

    def __init__(self, path: Path, stream: str, key: tuple[str, ...], columns: pa.Schema) -> None:
        """`columns` are the table's."""
        self._path, self._stream, self._at = path, stream, datetime.now(timezone.utc).isoformat()
        self._declared = {source(field): field.with_name(source(field)) for field in columns}
        self._key = key

    def remove(self, keys: pa.Table) -> None:
        """Write deletions."""
        at = pa.array([self._at] * len(keys)).cast(TIMESTAMP)
        self._write(keys.append_column(pa.field(DELETED_AT, TIMESTAMP), at))

    def put(self, rows: pa.Table) -> None:
        """Write RECORDs."""
        self._write(rows)

    def _write(self, rows: pa.Table) -> None:
        if not self._path.exists():
            fields = [field for name, field in self._declared.items() if not name.startswith("_sdc_")]
            fields = [field.with_nullable(field.name not in self._key) for field in fields]
            schema = object_schema([*fields, pa.field(DELETED_AT, TIMESTAMP)])
            message = {"type": "SCHEMA", "stream": self._stream, "schema": schema, "key_properties": list(self._key)}
            self._path.write_bytes(orjson.dumps(message) + b"\n")
        before = b'{"type":"RECORD","stream":' + orjson.dumps(self._stream) + b',"record":'
        with self._path.open("ab") as file:
            for piece in slices(rows):
                file.write(lines(objects(piece), before, b"}\n"))

    def read(self) -> Iterator[bytes]:
        """Yield what was written: nothing if no row has a whole key."""
        with self._path.open("ab+") as file:
            file.seek(0)
            while chunk := file.read(_CHUNK):
                yield chunk
