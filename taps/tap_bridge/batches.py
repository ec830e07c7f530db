"""Rows as BATCH messages: files of Arrow in a folder that the target reads, as `batch_config` says."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from bridge.errors import SettingsError
from bridge.protocol.schema.json_schema import EXTRA, is_json

FORMAT = "arrow"
_JSON = {b"ARROW:extension:name": b"arrow.json", b"ARROW:extension:metadata": b""}


@dataclass(slots=True)
class BatchFiles:
    """Gathers rows of one stream, and writes them to a file of about so many."""

    folder: Path
    prefix: str
    compression: str | None
    rows: int
    _gathered: list[pa.Table] = field(default_factory=list)
    _version: int = 0

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> BatchFiles | None:
        """The files that a tap's config asks for; None: RECORDs. Raises `SettingsError`."""
        batches = config.get("batch_config")
        if not batches:
            return None
        encoding, storage = batches["encoding"], batches["storage"]
        scheme, _, path = storage["root"].rpartition("://")
        if scheme not in ("", "file") or not path:
            hint = "give a folder that the target can read, such as file:///var/tmp/batches"
            raise SettingsError("batch_config.storage.root is no folder", hint=hint, root=storage["root"])
        if ".." in Path(storage.get("prefix", "")).parts:
            hint = "files are written below batch_config.storage.root"
            raise SettingsError("batch_config.storage.prefix leads out of its folder", hint=hint)
        packed = encoding.get("compression")
        size = int(batches.get("batch_size") or config["state_every"])
        return cls(
            Path(unquote(path)).absolute(), storage.get("prefix", ""), None if packed == "none" else packed, size
        )

    def add(self, rows: pa.Table, version: int) -> None:
        """Gather rows."""
        self._gathered.append(rows)
        self._version = version

    def takes(self, rows: pa.Table, version: int) -> bool:
        """Whether these rows may go into the same file as those that wait."""
        if not self._gathered:
            return True
        is_same = self._gathered[-1].schema.equals(rows.schema) and self._version == version
        return is_same and sum(each.num_rows for each in self._gathered) < self.rows

    def message(self, stream: str) -> dict[str, Any] | None:
        """Write the rows that wait to a new file; the message that names it, if any wait. Raises `SettingsError`."""
        if not self._gathered:
            return None
        rows, self._gathered = pa.concat_tables(self._gathered), []
        rows = rows.cast(pa.schema(list(map(_sent, rows.schema))))
        path = self.folder / f"{self.prefix}{uuid.uuid4().hex}.arrow"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file, pa.ipc.new_file(file, rows.schema, options=self._options()) as writer:
                writer.write_table(rows)
        except (OSError, ValueError) as error:  # a name with NUL
            with suppress(OSError, ValueError):
                path.unlink(missing_ok=True)
            hint = "free some space there, or name another folder as batch_config.storage.root"
            reason = getattr(error, "strerror", None) or error
            raise SettingsError(f"a BATCH cannot be written: {reason}", hint=hint, file=path) from error
        encoding = {"format": FORMAT} | ({"compression": self.compression} if self.compression else {})
        message = {"type": "BATCH", "stream": stream, "encoding": encoding, "manifest": [path.as_uri()]}
        return message | {"version": self._version}

    def _options(self) -> pa.ipc.IpcWriteOptions:
        return pa.ipc.IpcWriteOptions(compression=self.compression)


def _sent(column: pa.Field) -> pa.Field:
    """The column without our own notes; JSON text as Arrow's extension type says it."""
    metadata = _JSON if is_json(column) or column.name == EXTRA else None
    return pa.field(column.name, _sent_type(column.type), column.nullable, metadata)


def _sent_type(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type_):
        return pa.struct(list(map(_sent, type_)))
    if pa.types.is_list(type_):
        return pa.list_(_sent(type_.value_field))
    return type_
