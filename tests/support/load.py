"""Parts of a load for tests of its other parts."""

from __future__ import annotations

from collections.abc import Callable, Collection

from bridge.load.run.barriers import StreamProgress
from bridge.load.run.tables.column_plan import IncomingSchema
from bridge.load.run.tables.table_plan import TablePlanner
from bridge.protocol.schema.table_schema import TableSchema, from_singer
from bridge.protocol.singer.messages import Schema

Opened = tuple[StreamProgress, TableSchema | None]


def as_it_is(message: Schema) -> IncomingSchema:
    """Return the columns of a SCHEMA without any settings."""
    return IncomingSchema(from_singer(message.schema, message.key_properties or []))


class Tables(TablePlanner):
    """Decides on streams without settings and without a lake; every column can be stored."""

    def __init__(
        self,
        opened: Callable[[Schema], Opened],
        incoming: Callable[[Schema], IncomingSchema] = as_it_is,
        *,
        existing: Collection[str] = (),
    ) -> None:
        self._opened, self._incoming, self._existing = opened, incoming, existing

    def open(self, message: Schema) -> Opened:
        return self._opened(message)

    def claim_tables(self) -> None:
        pass

    def incoming(self, message: Schema) -> IncomingSchema:
        return self._incoming(message)

    def changes_key(self, stream: StreamProgress, message: Schema) -> bool:
        return False

    def is_new(self, stream: str) -> bool:
        return stream not in self._existing

    def check(self, stream: str, schema: TableSchema) -> None:
        pass
