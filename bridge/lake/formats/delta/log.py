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
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from bridge.errors import DataError, LakeError
from bridge.exact_json import dumps
from bridge.lake.formats.delta.misleading import misleading
from bridge.lake.formats.delta.stats import statistics
from bridge.lake.formats.protocol import Commit, folder_uri
from bridge.lake.records import TableState
from bridge.schema.table_schema import TableSchema
from bridge.storage import Storage
from bridge.storage.parallel import parallel_map

if TYPE_CHECKING:
    import pyarrow as pa

_TRIES = 20
_CHECKPOINT_EVERY = 10
"""A checkpoint follows every so many entries; Delta's own default."""
_INDEXED = "delta.dataSkippingNumIndexedCols"
_DECODED_TWICE = re.compile("%[0-9A-Fa-f]{2}")
"""What delta-rs decodes once more in a path that is decoded already."""
_WRITER = 2
"""The protocol's version up to which a writer need not know of constraints, generated columns and the like."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A Delta table at `version`; -1: there is no table. `done` is the last commit of ours that it holds.

    `metadata` is as its log has it, `files` are the names of its files; `writer` is the protocol version that a writer
    must support.
    """

    version: int = -1
    done: int = 0
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
        self._known: Snapshot | None = None

    def _entry(self, version: int) -> str:
        return f"{self.key}/{version:020d}.json"

    def look(self) -> Snapshot:
        """Return the table as it is now. Raises `LakeError` if its log cannot be read."""
        if self._known is None or self.storage.size(self._entry(self._known.version + 1)) is not None:
            self._known = self._read()
        return self._known

    def _read(self) -> Snapshot:
        import pyarrow as pa
        from deltalake.exceptions import DeltaError, TableNotFoundError

        self._uri()  # raises: no table is begun in a folder that readers could not open
        if not any(True for _ in self.storage.list(self.key)):
            return Snapshot()
        try:
            table = self._opened()
            paths: list[str] = pa.table(table.get_add_actions(flatten=True))["path"].to_pylist()
            facts, protocol = table.metadata(), table.protocol()
            return Snapshot(
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
            return Snapshot()
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
        there = self.look()
        if table is None and there.version >= 0:
            hint = "choose another destination.path, or move that table away: it is not this pipeline's"
            raise LakeError("the folder is a Delta table already", hint=hint, folder=self.folder)
        if there.writer > _WRITER:
            hint = "set no table features or constraints on tables that singer-bridge writes; load it into a new path"
            raise LakeError("the Delta table has features that are not ours to write", hint=hint, folder=self.folder)
        if table is not None and there.files != table.files.keys():
            hint = "singer-bridge verify NAME --repair makes it again what the commit log says; only runs may write it"
            facts = {"folder": self.folder, "version": there.version}
            raise LakeError("the Delta table was changed by somebody else", hint=hint, **facts)

    def check_schema(self, schema: TableSchema) -> None:
        """Raise `DataError` if a table of this format cannot have these columns."""
        _delta_schema(schema)

    def publish(self, commit: Commit, table: TableState, schema: TableSchema | None) -> None:
        """Make the table what our log says after a commit. Does nothing if the table is at that commit, or a later one.

        Without a schema the table keeps its own; without a schema and a table there is nothing to do.
        """
        for _ in range(_TRIES):
            there = self.look()
            if there.done >= commit.n and not (commit.again and there.done == commit.n):
                return
            if schema is None and not there.metadata:
                return
            metadata = self._metadata(there, schema, commit)
            # Characters unescaped: delta-rs misreads some escaped surrogate pairs, from U+20000 on.
            lines = (dumps(a, ascii_only=False) + b"\n" for a in self._actions(there, commit, table, metadata))
            if self.storage.put_if_absent(self._entry(there.version + 1), b"".join(lines)):
                files = frozenset(table.files)
                self._known = Snapshot(there.version + 1, commit.n, files, metadata, there.writer)
                self._tidy()
                return
            self._known = None
        raise LakeError("the Delta table is changed by somebody all the time", hint="find out by whom", at=self.folder)

    def _metadata(self, there: Snapshot, schema: TableSchema | None, commit: Commit) -> dict[str, Any]:
        """Return the table's metadata for the entry: as it was, with our columns."""
        if schema is None:
            return there.metadata
        wanted = _delta_schema(schema)
        if not there.metadata:
            made = {"format": {"provider": "parquet", "options": {}}, "partitionColumns": [], "configuration": {}}
            return {"id": str(uuid.uuid4()), "schemaString": wanted, "createdTime": _milliseconds(commit.at)} | made
        same = _types(json.loads(there.metadata["schemaString"])) == _types(json.loads(wanted))
        return there.metadata if same else there.metadata | {"schemaString": wanted}

    def _actions(
        self, there: Snapshot, commit: Commit, table: TableState, metadata: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        at, change = _milliseconds(commit.at), commit.kind != "compact"
        new, old = sorted(table.files.keys() - there.files), sorted(there.files - table.files.keys())
        again = sorted(self._to_say_again(there, commit, metadata) & table.files.keys())
        whole = bool(old) and not there.files & table.files.keys()
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
        if there.version < 0:
            yield {"protocol": {"minReaderVersion": 1, "minWriterVersion": _WRITER}}
        if metadata != there.metadata:
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

    def _to_say_again(self, there: Snapshot, commit: Commit, metadata: dict[str, Any]) -> frozenset[str]:
        """Return the files whose statistics the entry must repeat; a new `add` replaces the earlier one."""
        if commit.again:
            return self.misleading()
        grown = bool(there.metadata) and there.metadata["schemaString"] != metadata["schemaString"]
        return there.files if grown else frozenset()  # they must say that a new column is null

    def misleading(self) -> frozenset[str]:
        """Return the files that readers may skip although they hold matching rows."""
        from deltalake.exceptions import DeltaError

        there = self.look()
        if there.version < 0:
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
        if self._known is None or self._known.version % _CHECKPOINT_EVERY:
            return
        from deltalake.exceptions import DeltaError

        with suppress(DeltaError, OSError, ValueError, LakeError):
            table = self._opened()
            table.create_checkpoint()
            table.cleanup_metadata()


def _milliseconds(at: str) -> int:
    return int(datetime.fromisoformat(at).timestamp() * 1000)


def _delta_schema(schema: TableSchema) -> str:
    """Return the columns as Delta writes them. Raises `DataError` for a type that Delta does not have."""
    import pyarrow as pa
    from deltalake import Schema

    plain = pa.schema([_without_metadata(column) for column in schema.arrow])
    try:
        return str(Schema.from_arrow(plain).to_json())
    except Exception as error:  # delta-rs does not document what it raises
        hint = "have the stream's schema say another type, or use format: parquet"
        raise DataError(f"Delta has no such type: {error}", hint=hint) from error


def _columns(metadata: dict[str, Any]) -> tuple[pa.Schema, int]:
    """Return a table's columns, and for how many of them readers expect statistics."""
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


def _types(said: Any) -> Any:
    """Return a schema as the log has it, without the comments and other metadata of its columns."""
    if isinstance(said, dict):
        return {key: _types(value) for key, value in said.items() if key != "metadata"}
    return [_types(one) for one in said] if isinstance(said, list) else said
