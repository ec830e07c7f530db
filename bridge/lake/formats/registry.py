"""Which formats have a log of their own, which package each needs, and what the commit protocol calls."""

from __future__ import annotations

from datetime import datetime, timezone
from importlib.metadata import version
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING

from bridge.errors import SettingsError
from bridge.lake.formats.protocol import Commit
from bridge.lake.log import Log, Snapshot
from bridge.lake.paths import left_behind
from bridge.lake.records import CommitRecord, TableChange, TableState

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from bridge.lake.formats.iceberg.catalog import CatalogFacts
    from bridge.lake.formats.protocol import OwnLog
    from bridge.protocol.schema.table_schema import TableSchema

OWN_LOGS = ("_delta_log/", "metadata/")
"""The subfolders of a table's folder that hold its own log."""

_PACKAGES = {"delta": "deltalake", "iceberg": "pyiceberg"}


def require(kind: str) -> None:
    """Raise `SettingsError` if what a format needs is not installed."""
    package = _PACKAGES.get(kind)
    if package and find_spec(package) is None:
        hint = f'pip install "singer-bridge[{kind}]"'
        raise SettingsError(f"format: {kind} needs the package {package}", hint=hint)


def installed(kind: str) -> str:
    """The package that a format needs, with its version. Raises `SettingsError` if it is not installed."""
    require(kind)
    return f"{_PACKAGES[kind]} {version(_PACKAGES[kind])}"


class TableLogs:
    """The own logs of a pipeline's tables during a run. Tables of plain Parquet have none."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._open: dict[str, OwnLog] = {}
        self._catalog: tuple[Catalog, CatalogFacts] | None = None
        self._alone = Lock()

    def of(self, folder: str, stream: str, kind: str) -> OwnLog:
        """The log of a table's folder. Raises `LakeError` if its catalog cannot be reached."""
        with self._alone:  # tables are committed in parallel
            if folder not in self._open:
                self._open[folder] = self._opened(folder, stream, kind)
            return self._open[folder]

    def _opened(self, folder: str, stream: str, kind: str) -> OwnLog:
        require(kind)
        storage, pipeline = self._log.storage, self._log.pipeline
        if kind == "delta":
            # here: Arrow is slow to import, and plain tables need none of it
            from bridge.lake.formats.delta.log import DeltaLog

            return DeltaLog(storage, folder, pipeline, stream)
        from bridge.lake.formats.iceberg.catalog import open_catalog, read_catalog
        from bridge.lake.formats.iceberg.table import IcebergLog

        if self._catalog is None:
            facts = read_catalog(storage, pipeline)
            self._catalog = open_catalog(storage, facts), facts
        return IcebergLog(storage, folder, pipeline, stream, *self._catalog)

    def check(self, snapshot: Snapshot, change: TableChange) -> None:
        """Raise, before the commit is made, if the table's own log could not follow it."""
        if change.has_own_log:
            own = self.of(change.folder, change.stream, change.format)
            deleted = change.replaces and own.look().version < 0  # the commit makes it anew
            own.check(None if deleted else snapshot.tables.get(change.stream))
            if change.schema:
                own.check_schema(self._columns(change.schema))

    def publish(self, record: CommitRecord, change: TableChange, table: TableState) -> None:
        """Make a table's own log agree with `table` after this commit. Repeatable; does nothing for plain tables."""
        if not change.has_own_log:
            return
        if change.removes:  # the note by which retention finds the files to delete
            self._log.storage.write(left_behind(self._log.pipeline, record.n, change.folder), b"")
        commit = Commit(record.n, record.at, record.kind, record.run)
        self._publish(commit, change.stream, table, change.schema or self._voided(record, change.stream))

    def repair(self, stream: str, snapshot: Snapshot, run: str) -> None:
        """Make a table's own log agree with ours, whatever somebody else did to it."""
        at = datetime.now(timezone.utc).isoformat()
        commit, table = Commit(snapshot.n, at, "repair", run, again=True), snapshot.tables[stream]
        self._publish(commit, stream, table, table.schema)

    def _publish(self, commit: Commit, stream: str, table: TableState, schema: str | None) -> None:
        columns = self._columns(schema) if schema else None
        self.of(table.folder, stream, table.format).publish(commit, table, columns)

    def _columns(self, schema: str) -> TableSchema:
        from bridge.lake.schemas import read_schema

        return read_schema(self._log.storage, self._log.pipeline, schema)

    def _voided(self, record: CommitRecord, stream: str) -> str | None:
        """The schema of a table in a commit that was taken back: such tables need at least one column."""
        taken_back = None if record.voids is None else self._log.record(record.voids)
        changes = taken_back.tables if taken_back else ()
        return next((change.schema for change in changes if change.stream == stream), None)
