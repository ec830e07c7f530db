"""Parts of a load for tests of its other parts."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from bridge.lake.commit.committer import Committer
from bridge.lake.log import Snapshot
from bridge.load.run.accounting import Accounting
from bridge.load.run.checks.table_guard import Guard, without_limits
from bridge.load.run.streams import StreamProgress, Streams
from bridge.load.run.tables.column_plan import IncomingSchema
from bridge.load.run.tables.table_plan import TablePlanner
from bridge.load.run.tables.views import ViewTables
from bridge.load.write.context import WriteContext
from bridge.protocol.schema.table_schema import TableSchema, from_singer
from bridge.protocol.singer.messages import Schema
from bridge.settings.inline import inline_pipeline

Opened = tuple[StreamProgress, TableSchema | None]


def as_it_is(message: Schema) -> IncomingSchema:
    """Return the columns of a SCHEMA without any settings."""
    return IncomingSchema(from_singer(message.schema, message.key_properties or []))


def accounting(committer: Committer, job: WriteContext, **facts: Any) -> Accounting:
    """Return the accounting of a pipeline without a guard and without views."""
    pipeline = inline_pipeline(name="p", bucket=job.bucket, tap="tap", load_method="auto", environ={})
    tables = TablePlanner(committer.storage, pipeline, committer.snapshot, None, full=False, append=False)
    views = ViewTables(pipeline, committer, job, tables, lambda work: work(None, job, None))
    return Accounting(committer, job, guard=Guard(without_limits(pipeline)), views=views, **facts)


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
        pipeline = inline_pipeline(name="p", bucket="nowhere", tap="tap", load_method="auto", environ={})
        self.streams = Streams(pipeline, None, Snapshot())

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
