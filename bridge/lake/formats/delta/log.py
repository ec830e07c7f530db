"""A Delta table's log: creates its next entry by put-if-absent, as Delta's protocol says. No jar, and no rebase.

One entry makes the table hold exactly the files that our log has after commit `n`. It carries an app transaction
(`pipeline/stream`, `n`). Guarantee: a slow writer changes nothing. It creates the version after the one that it has
read. If that version exists by now, it reads again, and finds the table at commit `n` or later. For the same reason
recovery can repeat it. Files that an entry removes stay in the bucket for `retention.trash`, for time travel.

delta-rs reads the log; entries are written through the lake's storage, so versions are protected as our commits are.
Readers need no more than protocol (1, 2). Hive folders are not declared as Delta's partition columns: the files hold
all columns, and their bounds in the log let readers skip as many files.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from bridge.errors import DataError, LakeError
from bridge.exact_json import dumps
from bridge.lake.formats.delta.stats import misleading, statistics
from bridge.lake.formats.protocol import Commit, folder_uri
from bridge.lake.records import TableState
from bridge.lake.storage import Storage
from bridge.lake.storage.parallel import parallel_map
from bridge.lake.times import read_time
from bridge.protocol.schema.table_schema import TableSchema

if TYPE_CHECKING:
    import pyarrow as pa

_TRIES = 20
_CHECKPOINT_EVERY = 10
"""A checkpoint follows every so many entries; Delta's own default."""
_INDEXED = "delta.dataSkippingNumIndexedCols"
_DECODED_TWICE = re.compile("%[0-9A-Fa-f]{2}")
"""Matches what delta-rs decodes once more in a path that is decoded already."""
_WRITER = 2
"""The protocol's version up to which a writer need not know of constraints, generated columns and the like."""


@dataclass(frozen=True, slots=True)
class DeltaSnapshot:
    """A Delta table at `version`; -1: there is no table. `commit` is the last commit of ours that it holds.

    `metadata` is as its log has it, `files` are the names of its files; `writer` is the protocol version that a writer
    must support.
    """

    version: int = -1
    commit: int = 0
    files: frozenset[str] = frozenset()
    metadata: dict[str, Any] = field(default_factory=dict)
    writer: int = _WRITER


class DeltaLog:
    """The log of one Delta table, whose folder in the bucket is `folder`, for one `stream` of a pipeline."""

    kind = "Delta"

    def __init__(self, storage: Storage, folder: str, pipeline: str, stream: str) -> None:
        self.storage, self.folder = storage, folder
        self.app = f"{pipeline}/{stream}"
        self.key = f"{folder}/_delta_log"
        self._cached: DeltaSnapshot | None = None

    def _entry(self, version: int) -> str:
        return f"{self.key}/{version:020d}.json"

    def look(self) -> DeltaSnapshot:
        """The table as it is now. Raises `LakeError` if its log cannot be read."""
        if self._cached is None or self.storage.size(self._entry(self._cached.version + 1)) is not None:
            self._cached = self._read()
        return self._cached

    def _read(self) -> DeltaSnapshot:
        import pyarrow as pa
        from deltalake.exceptions import DeltaError, TableNotFoundError

        self._uri()  # raises: no table is begun in a folder that readers could not open
        if not any(True for _ in self.storage.list(self.key)):
            return DeltaSnapshot()
        try:
            table = self._opened()
            paths: list[str] = pa.table(table.get_add_actions(flatten=True))["path"].to_pylist()
            facts, protocol = table.metadata(), table.protocol()
            return DeltaSnapshot(
                table.version(),
                table.transaction_version(self.app) or 0,
                frozenset(map(unquote, paths)),
                {
                    "id": str(facts.id),
                    **{key: value for key in ("name", "description") if (value := getattr(facts, key))},
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": table.schema().to_json(),
                    "partitionColumns": list(facts.partition_columns),
                    "configuration": dict(facts.configuration),
                    "createdTime": facts.created_time,
                },
                protocol.min_writer_version,
            )
        except TableNotFoundError:
            return DeltaSnapshot()
        except (DeltaError, OSError, ValueError) as error:
            raise self._unreadable(error) from error

    def _opened(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self._uri(), storage_options=self.storage.for_libraries() or None)

    def _uri(self) -> str:
        """The table's folder as delta-rs opens it. Raises `LakeError` for one that it cannot open."""
        local = self.storage.folder is not None
        scheme, _, path = folder_uri(self.storage, self.folder).partition("://")
        if _DECODED_TWICE.search(path) or (local and "\\" in path):
            hint = r"use a destination.bucket without \ and without % before two hex digits; move a lake that is there"
            raise LakeError("the folder cannot be opened by readers of Delta", hint=hint, at=path)
        return f"{scheme}://{quote(path)}"

    def _unreadable(self, error: BaseException) -> LakeError:
        hint = "look at the folder _delta_log in it; if it is damaged: singer-bridge verify NAME --repair"
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        return LakeError(f"the Delta table cannot be read: {text}", hint=hint, folder=self.folder)

    def check(self, table: TableState | None) -> None:
        """Raise `LakeError` unless the table holds what our log says; for None, unless there is no table."""
        current = self.look()
        if table is None and current.version >= 0:
            hint = "choose another destination.path, or move that table away: it is not this pipeline's"
            raise LakeError("the folder is a Delta table already", hint=hint, folder=self.folder)
        if current.writer > _WRITER:
            hint = "set no table features or constraints on tables that singer-bridge writes; load it into a new path"
            raise LakeError("the Delta table has features that are not ours to write", hint=hint, folder=self.folder)
        if table is not None and current.files != table.files.keys():
            hint = "singer-bridge verify NAME --repair makes it again what the commit log says; only runs may write it"
            facts = {"folder": self.folder, "version": current.version}
            raise LakeError("the Delta table was changed by somebody else", hint=hint, **facts)

    def check_schema(self, schema: TableSchema) -> None:
        """Raise `DataError` if a table of this format cannot have these columns."""
        _delta_schema(schema)

    def publish(self, commit: Commit, table: TableState, schema: TableSchema | None) -> None:
        """Make the table what our log says after a commit. Does nothing if the table is at that commit, or a later one.

        Without a schema the table keeps its own; without a schema and a table there is nothing to do.
        """
        for _ in range(_TRIES):
            current = self.look()
            if current.commit >= commit.n and not (commit.again and current.commit == commit.n):
                return
            if schema is None and not current.metadata:
                return
            metadata = self._metadata(current, schema, commit)
            # Characters unescaped: delta-rs misreads some escaped surrogate pairs, from U+20000 on.
            lines = (dumps(a, ascii_only=False) + b"\n" for a in self._actions(current, commit, table, metadata))
            if self.storage.put_if_absent(self._entry(current.version + 1), b"".join(lines)):
                files = frozenset(table.files)
                self._cached = DeltaSnapshot(current.version + 1, commit.n, files, metadata, current.writer)
                self._tidy()
                return
            self._cached = None
        raise LakeError(
            "gave up: another process keeps changing the Delta table",
            hint="stop the other writers, then run again",
            at=self.folder,
        )

    def _metadata(self, current: DeltaSnapshot, schema: TableSchema | None, commit: Commit) -> dict[str, Any]:
        """The table's metadata for the entry: as it was, with our columns."""
        if schema is None:
            return current.metadata
        text = _delta_schema(schema)
        if not current.metadata:
            made = {"format": {"provider": "parquet", "options": {}}, "partitionColumns": [], "configuration": {}}
            return {"id": str(uuid.uuid4()), "schemaString": text, "createdTime": _milliseconds(commit.at)} | made
        same = _types(json.loads(current.metadata["schemaString"])) == _types(json.loads(text))
        return current.metadata if same else current.metadata | {"schemaString": text}

    def _actions(
        self, current: DeltaSnapshot, commit: Commit, table: TableState, metadata: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        at, change = _milliseconds(commit.at), commit.kind != "compact"
        new, old = sorted(table.files.keys() - current.files), sorted(current.files - table.files.keys())
        again = sorted(self._to_say_again(current, commit, metadata) & table.files.keys())
        whole = bool(old) and not current.files & table.files.keys()
        yield {
            "commitInfo": {
                "timestamp": at,
                "operation": "WRITE",
                "operationParameters": {"mode": "Overwrite" if whole else "Append"},
                "engineInfo": "singer-bridge",
                "isBlindAppend": not old,
                "commit": commit.n,
                "kind": commit.kind,
                "run": commit.run,
                "nonce": uuid.uuid4().hex,  # no other writer's entry has the same bytes
            }
        }
        if current.version < 0:
            yield {"protocol": {"minReaderVersion": 1, "minWriterVersion": _WRITER}}
        if metadata != current.metadata:
            yield {"metaData": metadata}
        yield {"txn": {"appId": self.app, "version": commit.n, "lastUpdated": at}}
        for name in old:
            yield {"remove": {"path": quote(name), "deletionTimestamp": at, "dataChange": change}}
        columns, indexed = _columns(metadata)

        def bounds_of(name: str) -> str:
            with self.storage.open(f"{self.folder}/{name}") as file:
                return statistics(file, columns, indexed, name.split("/")[:-1])

        names = [*new, *again]
        for at_, (name, bounds) in enumerate(zip(names, parallel_map(self.storage, bounds_of, names), strict=True)):
            facts = {"path": quote(name), "partitionValues": {}, "size": table.files[name].size}
            changes = change and at_ < len(new)
            yield {"add": facts | {"modificationTime": at, "dataChange": changes, "stats": bounds}}

    def _to_say_again(self, current: DeltaSnapshot, commit: Commit, metadata: dict[str, Any]) -> frozenset[str]:
        """The files whose statistics the entry must repeat; a new `add` replaces the earlier one."""
        if commit.again:
            return self.misleading()
        grown = bool(current.metadata) and current.metadata["schemaString"] != metadata["schemaString"]
        return current.files if grown else frozenset()  # they must say that a new column is null

    def misleading(self) -> frozenset[str]:
        """The files that readers may skip although they hold matching rows."""
        from deltalake.exceptions import DeltaError

        current = self.look()
        if current.version < 0:
            return frozenset()
        try:
            names = misleading(self._opened())
        except (DeltaError, OSError, ValueError) as error:
            raise self._unreadable(error) from error
        return frozenset(map(unquote, names))

    def _tidy(self) -> None:
        """Write a checkpoint now and then, and delete entries that Delta's own settings no longer keep.

        Best effort: without a checkpoint readers read more entries, and the next one may succeed.
        """
        if self._cached is None or self._cached.version % _CHECKPOINT_EVERY:
            return
        from deltalake.exceptions import DeltaError

        with suppress(DeltaError, OSError, ValueError, LakeError):
            table = self._opened()
            table.create_checkpoint()
            table.cleanup_metadata()


def _milliseconds(at: str) -> int:
    return int(read_time(at).timestamp() * 1000)


def _delta_schema(schema: TableSchema) -> str:
    """The columns as Delta writes them. Raises `DataError` for a type that Delta does not have."""
    import pyarrow as pa
    from deltalake import Schema

    plain = pa.schema([_without_metadata(column) for column in schema.arrow])
    try:
        return str(Schema.from_arrow(plain).to_json())
    except Exception as error:  # delta-rs does not document what it raises
        hint = "give the column another type in the stream's SCHEMA, or use format: parquet"
        raise DataError(f"Delta has no such type: {error}", hint=hint) from error


def _columns(metadata: dict[str, Any]) -> tuple[pa.Schema, int]:
    """A table's columns, and for how many of them readers expect statistics."""
    import pyarrow as pa
    from deltalake import Schema

    columns = pa.schema(Schema.from_json(metadata["schemaString"]))
    if "delta.dataSkippingStatsColumns" in metadata["configuration"]:
        return columns, len(columns)
    indexed = int(metadata["configuration"].get(_INDEXED, 32))
    return columns, indexed if indexed >= 0 else len(columns)


def _without_metadata(column: pa.Field) -> pa.Field:
    import pyarrow as pa

    inner = column.type
    if pa.types.is_struct(inner):
        inner = pa.struct([_without_metadata(one) for one in inner])
    elif pa.types.is_list(inner):
        inner = pa.list_(_without_metadata(inner.value_field))
    return pa.field(column.name, inner, column.nullable)


def _types(schema: Any) -> Any:
    """A schema as the log has it, without the comments and other metadata of its columns."""
    if isinstance(schema, dict):
        return {key: _types(value) for key, value in schema.items() if key != "metadata"}
    return [_types(one) for one in schema] if isinstance(schema, list) else schema
