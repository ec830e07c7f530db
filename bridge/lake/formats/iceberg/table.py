"""An Iceberg table: commits its next snapshot by the catalog's own compare-and-swap. No rebase.

One snapshot makes the table hold exactly the files that our log has after commit `n`, with their columns. Properties of
the table name its owner, `singer-bridge.app` (`pipeline/stream`), and the commit, `singer-bridge.commit` (`n`).
Guarantee: a slow writer changes nothing. Each commit makes a snapshot, even if no file comes or goes. The catalog
accepts it only as the successor of the one that was read; otherwise we read again, and find the table at commit `n` or
later. For the same reason recovery can repeat it. pyiceberg's transactions are not used: they retry a commit that lost
the race on top of the winner.

Files that a snapshot removes stay in the bucket for `retention.trash`; old snapshots stay as long as the table's
`history.expire.max-snapshot-age-ms` says, by default 7 days.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from bridge.errors import BridgeError, CorruptLake, LakeError
from bridge.lake.formats.iceberg.catalog import CatalogFacts, passing_errors, unreachable
from bridge.lake.formats.iceberg.columns import columns, ids_of, mapping
from bridge.lake.formats.iceberg.io import MISREAD, STORAGE, BucketIO, location_of
from bridge.lake.formats.iceberg.layout import IcebergLayout, is_partitioned_by
from bridge.lake.formats.iceberg.manifests import SnapshotFiles, files_of, garbage, sequence_of, snapshot
from bridge.lake.formats.protocol import Commit
from bridge.lake.records import TableState
from bridge.lake.storage import Storage
from bridge.lake.storage.conditional import patient_attempts
from bridge.protocol.schema.table_schema import TableSchema

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

T = TypeVar("T")

_TRIES = 20
_TIDY_EVERY = 10
"""After every so many snapshots, those that are too old are dropped."""
_APP, _COMMIT = "singer-bridge.app", "singer-bridge.commit"
_MAPPING = "schema.name-mapping.default"
_AGE = "history.expire.max-snapshot-age-ms"
_DEFAULT_AGE_MS = 7 * 24 * 60 * 60 * 1000
_CLASSES = frozenset({"py-io-impl", "write.py-location-provider.impl"})
"""Properties of a table by which pyiceberg imports a class. The table's metadata is a file of the bucket."""
_NEW = {"write.metadata.previous-versions-max": "100"}


@dataclass(frozen=True, slots=True)
class IcebergSnapshot:
    """An Iceberg table now. `version` counts its snapshots; -1: there is no table.

    `commit` is the last commit of ours that it holds, `app` whose table it is. `files` are their names.
    """

    version: int = -1
    commit: int = 0
    app: str = ""
    files: frozenset[str] = frozenset()
    table: Table | None = None


class IcebergLog:
    """The Iceberg table whose folder in the bucket is `folder`, for one `stream` of a pipeline."""

    kind = "Iceberg"

    def __init__(
        self, storage: Storage, folder: str, pipeline: str, stream: str, catalog: Catalog, facts: CatalogFacts
    ) -> None:
        self.storage, self.folder, self.catalog = storage, folder, catalog
        self.app = f"{pipeline}/{stream}"
        self.key = f"{folder}/metadata"
        self.root = location_of(storage, folder)
        self.identifier = (*facts.namespace.split("."), folder.rpartition("/")[2])
        self._io = BucketIO({STORAGE: storage})
        self._facts = facts
        self._cached = IcebergSnapshot()

    def _patiently(self, work: Callable[[], T]) -> T:
        """Do work that is safe to repeat; again, for 15 seconds, while the catalog is busy or its answers do not come.

        Raises `LakeError` for whatever else the catalog's library raises, and for what does not pass in that time.
        """
        passing = passing_errors()
        pauses: Iterator[None] | None = None
        while True:
            try:
                return work()
            except BridgeError:
                raise
            except Exception as error:  # each kind of catalog raises what its own libraries do
                if pauses is None:  # the seconds begin here: an answer alone may be awaited for longer
                    pauses = patient_attempts()
                    next(pauses)
                if not isinstance(error, passing) or next(pauses, False) is False:
                    raise unreachable(self._facts, error) from error
                self._cached = IcebergSnapshot()

    def look(self) -> IcebergSnapshot:
        """The table as it is now. Raises `LakeError` if it cannot be read."""
        return self._patiently(self._look)

    def _look(self) -> IcebergSnapshot:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            table = self.catalog.load_table(self.identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            self._cached = IcebergSnapshot()
            return self._cached
        if foreign := sorted(_CLASSES & table.metadata.properties.keys()):
            hint = "see who may write to the bucket; remove the property from the table by another program"
            facts = {"property": foreign[0], "file": table.metadata_location}
            raise CorruptLake("an Iceberg table names a Python class to run", hint=hint, **facts)
        if table.metadata.location == f"file://{self.root}":
            self.root = table.metadata.location  # an older version began it
        cached = self._cached.table
        if cached is None or cached.metadata_location != table.metadata_location:
            self._cached = self._seen(table, files_of(self._io, self.root, table.metadata))
        return self._cached

    def _seen(self, table: Table, files: frozenset[str]) -> IcebergSnapshot:
        properties = table.metadata.properties
        app = properties.get(_APP, "")
        commit = int(properties.get(_COMMIT, 0)) if app == self.app else 0
        return IcebergSnapshot(sequence_of(table.metadata), commit, app, files, table)

    def check(self, table: TableState | None) -> None:
        """Raise `LakeError` unless the table holds what our log says; for None, unless there is no table."""
        current, name = self.look(), ".".join(self.identifier)
        if current.table is None:
            if table is not None and table.schema is not None:
                hint = "put destination.catalog back to what it was; or singer-bridge verify NAME --repair registers it"
                raise LakeError("the Iceberg table is not in the catalog", hint=hint, table=name)
            if self.storage.folder is None and MISREAD.intersection(self.root):
                hint = "choose a destination whose path has no # and no ?"
                raise LakeError("the folder cannot be opened by readers of Iceberg", hint=hint, at=self.root)
            return
        if table is None or current.app != self.app or current.table.metadata.location != self.root:
            hint = "choose another destination.catalog.namespace, or drop that table: it is not this pipeline's"
            raise LakeError("an Iceberg table of that name is in the catalog already", hint=hint, table=name)
        metadata = current.table.metadata
        if metadata.format_version != 2 or not is_partitioned_by(metadata, table.partition_by):
            hint = "set no partitions, and no later format version, on tables that singer-bridge writes; load it anew"
            raise LakeError("the Iceberg table has features that are not ours to write", hint=hint, table=name)
        if current.files != table.files.keys():
            hint = "singer-bridge verify NAME --repair makes it again what the commit log says; only runs may write it"
            raise LakeError("the Iceberg table was changed by somebody else", hint=hint, table=name)

    def misleading(self) -> frozenset[str]:
        """None: readers of Iceberg conclude nothing from a bound that is missing."""
        return frozenset()

    def check_schema(self, schema: TableSchema) -> None:
        """Raise `DataError` if a table of this format cannot have these columns."""
        columns(schema, None, itertools.count(1), 0)

    def publish(self, commit: Commit, table: TableState, schema: TableSchema | None) -> None:
        """Make the table what our log says after a commit. Does nothing if the table is at that commit, or a later one.

        Without a schema the table keeps its own; without a schema and a table there is nothing to do.
        """
        self._patiently(lambda: self._follow(commit, table, schema))

    def _follow(self, commit: Commit, table: TableState, schema: TableSchema | None) -> None:
        """Publish. Can be repeated whatever it raised: it looks first, and commits to what it has seen only."""
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        for _ in range(_TRIES):
            current = self._look()
            if current.commit >= commit.n and not (commit.again and current.commit == commit.n):
                return
            if schema is None and current.table is None:
                return
            try:
                self._commit(current, commit, table, schema)
                return
            except (CommitFailedException, TableAlreadyExistsError) as error:  # the next look tells who was first
                if "acquire lock" in str(error):
                    hint = "run again: if its owner was killed, Hive lets it go after hive.txn.timeout, 5 minutes"
                    raise LakeError("the metastore has the table locked", hint=hint, at=self.folder) from error
                self._cached = IcebergSnapshot()
        hint = "stop the other writers, then run again"
        raise LakeError("gave up: another process keeps changing the Iceberg table", hint=hint, at=self.folder)

    def _commit(self, current: IcebergSnapshot, commit: Commit, live: TableState, schema: TableSchema | None) -> None:
        from pyiceberg.table import Table
        from pyiceberg.table import update as say

        old = current.table.metadata if current.table else None
        new_schema = self._columns(old, schema)
        layout = IcebergLayout.of(old, new_schema, live.partition_by)
        facts = {_APP: self.app, _COMMIT: str(commit.n), "singer-bridge.run": commit.run, "operation": commit.kind}
        new = snapshot(SnapshotFiles(self._io, self.root, live, current.files), old, layout, facts)
        updates = [*self._begun(old), *self._says(old, new_schema, commit), *layout.updates()]
        main: dict[str, Any] = {"ref-name": "main", "type": "branch", "snapshot-id": new.snapshot_id}
        updates += [say.AddSnapshotUpdate(snapshot=new), say.SetSnapshotRefUpdate(**main)]
        if old and (expired := self._given_up(old, ids_of(mapping(old, new_schema)), new.timestamp_ms)):
            forget: dict[str, Any] = {"snapshot-ids": expired}
            updates.append(say.RemoveSnapshotsUpdate(**forget))
        before = current.table or self._staged(new_schema)
        committed = self.catalog.commit_table(
            before, (*self._requirements(old), *layout.requirements()), tuple(updates)
        )
        table = Table(self.identifier, committed.metadata, committed.metadata_location, self._io, self.catalog)
        self._cached = self._seen(table, frozenset(live.files))
        if old:
            self._tidy(old, committed.metadata)

    def _requirements(self, old: TableMetadata | None) -> tuple[Any, ...]:
        from pyiceberg.table import update as say

        if old is None:
            return (say.AssertCreate(),)
        last: dict[str, Any] = {"ref": "main", "snapshot-id": old.current_snapshot_id}
        return (say.AssertTableUUID(uuid=old.table_uuid), say.AssertRefSnapshotId(**last))

    def _columns(self, old: TableMetadata | None, schema: TableSchema | None) -> Schema:
        """The columns after the commit: an equal schema that the table has already, or a new one."""
        if old is None:
            assert schema is not None
            return columns(schema, None, itertools.count(1), 0)
        if schema is None:
            return old.schema()
        number = max(one.schema_id for one in old.schemas) + 1
        new = columns(schema, old.schema(), itertools.count(old.last_column_id + 1), number)
        return next((one for one in reversed(old.schemas) if one.as_struct() == new.as_struct()), new)

    def _begun(self, old: TableMetadata | None) -> list[Any]:
        """The updates that create a new table, but for its columns and what names them."""
        from pyiceberg.table import update as say

        if old is not None:
            return []
        with suppress(Exception):  # it may exist; if it cannot be created, the commit fails with the reason
            self.catalog.create_namespace_if_not_exists(self.identifier[:-1])
        format_: dict[str, Any] = {"format-version": 2}
        return [
            say.AssignUUIDUpdate(uuid=uuid.uuid4()),
            say.UpgradeFormatVersionUpdate(**format_),
            say.SetLocationUpdate(location=self.root),
        ]

    def _says(self, old: TableMetadata | None, new_schema: Schema, commit: Commit) -> list[Any]:
        """The updates of columns and properties."""
        from pyiceberg.table import update as say

        from bridge.lake.formats.iceberg.rest import AddSchema

        updates: list[Any] = []
        if old is None or all(one.schema_id != new_schema.schema_id for one in old.schemas):
            last = max(old.last_column_id if old else 0, new_schema.highest_field_id)
            added: dict[str, Any] = {"schema": new_schema, "last-column-id": last}
            updates.append(AddSchema(**added))
        if old is None or old.current_schema_id != new_schema.schema_id:
            current: dict[str, Any] = {"schema-id": new_schema.schema_id}
            updates.append(say.SetCurrentSchemaUpdate(**current))
        names = mapping(old, new_schema).model_dump_json()
        properties = {_APP: self.app, _COMMIT: str(commit.n), _MAPPING: names}
        properties |= {} if old else _NEW  # Nessie takes one update of properties in a commit
        return [*updates, say.SetPropertiesUpdate(updates=properties)]

    def _staged(self, schema: Schema) -> Table:
        """The description of a table that does not exist yet, for the catalog to create."""
        from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
        from pyiceberg.table import StagedTable
        from pyiceberg.table.metadata import new_table_metadata
        from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

        metadata = new_table_metadata(schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, self.root)
        return StagedTable(self.identifier, metadata, f"{self.root}/metadata/none.json", self._io, self.catalog)

    def _given_up(self, old: TableMetadata, named: set[int], now: int) -> list[int]:
        """The snapshots to drop: those that cannot be read any more, and now and then those that are too old."""
        kept_by_name = {ref.snapshot_id for name, ref in old.refs.items() if name != "main"}
        schemas = {one.schema_id: one.field_ids for one in old.schemas}
        tidy = sequence_of(old) % _TIDY_EVERY == 0
        oldest = now - int(old.properties.get(_AGE, _DEFAULT_AGE_MS))
        return [
            one.snapshot_id
            for one in old.snapshots
            if one.snapshot_id not in kept_by_name
            and (
                (one.schema_id in schemas and not schemas[one.schema_id] <= named)
                or (tidy and one.timestamp_ms < oldest)
            )
        ]

    def _tidy(self, old: TableMetadata, new: TableMetadata) -> None:
        """Delete metadata files that nothing names any more. Best effort: what is left only takes up space.

        A catalog that keeps a history of its own, as Nessie does, says that it still names them.
        """
        if new.properties.get("gc.enabled", "").lower() == "false":
            return
        with suppress(Exception):
            for location in garbage(self._io, old, new):
                if location.startswith(f"{self.root}/metadata/") and "/../" not in location:
                    self._io.delete(location)
