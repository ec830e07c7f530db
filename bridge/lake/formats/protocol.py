"""The log that a table has of its own, in any format: it can be read, compared with ours, and follows a commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from bridge.lake.records import TableState
from bridge.lake.storage import Storage

if TYPE_CHECKING:
    from bridge.protocol.schema.table_schema import TableSchema


def folder_uri(storage: Storage, folder: str) -> str:
    """The URI by which libraries open a folder of the bucket. Nothing in it is percent-encoded."""
    return f"{storage.uri if storage.folder is None else f'file://{storage.uri}'}/{folder}"


@dataclass(frozen=True, slots=True)
class Commit:
    """Our commit that an entry stands for. `at` is in ISO 8601; `again` writes the entry even if it exists."""

    n: int
    at: str
    kind: str
    run: str
    again: bool = False


class LoggedTable(Protocol):
    """A table as its own log has it."""

    @property
    def version(self) -> int:
        """Its version, -1 where there is no such table."""

    @property
    def files(self) -> frozenset[str]:
        """The names of its files."""


class OwnLog(Protocol):
    """The own log of one table. Each method raises `LakeError` if the log cannot be read or written."""

    kind: str
    """Whose table it is, in words: Delta, Iceberg."""
    key: str
    """Where it is in the bucket."""

    def look(self) -> LoggedTable:
        """The table as it is now."""

    def check(self, table: TableState | None) -> None:
        """Raise unless the table holds what our log says; for None, unless there is no table."""

    def misleading(self) -> frozenset[str]:
        """The files that readers may skip although they hold matching rows."""

    def check_schema(self, schema: TableSchema) -> None:
        """Raise `DataError` if a table of this format cannot have these columns."""

    def publish(self, commit: Commit, table: TableState, schema: TableSchema | None) -> None:
        """Make the table what our log says after a commit. Does nothing if the table is at that commit, or a later one.

        Without a schema the table keeps its own; without a schema and a table there is nothing to do.
        """
